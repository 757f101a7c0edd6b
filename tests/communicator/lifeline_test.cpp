// SPDX-License-Identifier: MIT
#include "communicator/lifeline.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <system_error>
#include <thread>

namespace use_gpu::detail {
namespace {

std::chrono::steady_clock::time_point within(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

// A group in one process: connected by a thread for each rank.
class LifelineTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    for (int rank = 0; rank < 4; ++rank) {
      ranks_.push_back(std::make_unique<Lifeline>());
      try {
        places_.push_back({GetParam(), ranks_.back()->listen(GetParam())});
      } catch (const std::system_error& error) {
        GTEST_SKIP() << error.what();
      }
    }
  }
  void connect() {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 4; ++rank) {
      threads.emplace_back([this, rank] {
        ranks_[static_cast<std::size_t>(rank)]->connect(rank, places_,
                                                        within(std::chrono::minutes(1)));
      });
    }
  }
  // What that rank finds once the others' messages are there.
  int lost(std::size_t rank) {
    for (int i = 0; i < 100; ++i) {
      if (const int gone = ranks_[rank]->lost(); gone >= 0) return gone;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return -1;
  }

  std::vector<std::unique_ptr<Lifeline>> ranks_;
  std::vector<Lifeline::Place> places_;
};

using LifelineAt = LifelineTest;
INSTANTIATE_TEST_SUITE_P(Loopback, LifelineAt, testing::Values("127.0.0.1", "::1"),
                         [](const auto& at) { return at.index == 0 ? "IPv4" : "IPv6"; });

TEST_P(LifelineAt, LosesARankThatLeavesWithoutAGoodbye) {
  connect();
  EXPECT_EQ(lost(0), -1);
  ranks_[2]->leave();
  for (const std::size_t rank : {0U, 1U, 3U}) EXPECT_EQ(lost(rank), 2) << rank;
}

TEST_P(LifelineAt, DoesNotLoseARankThatSaysGoodbye) {
  connect();
  ranks_[1].reset();
  ranks_[3].reset();
  EXPECT_EQ(lost(0), -1);
  ranks_[2]->leave();
  EXPECT_EQ(lost(0), 2);
}

TEST_P(LifelineAt, ConnectsAlsoWhereStrangersDo) {
  const int stranger = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<std::uint16_t>(places_[0].port));
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ::connect(stranger, reinterpret_cast<sockaddr*>(&where), sizeof(where));
  ::send(stranger, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
  connect();
  ::close(stranger);
  EXPECT_EQ(lost(0), -1);
}

TEST_P(LifelineAt, WaitsForARankUntilTheDeadline) {
  EXPECT_THROW(ranks_[0]->connect(0, places_, within(std::chrono::milliseconds(50))),
               std::system_error);
  ranks_[1]->leave();
  EXPECT_THROW(ranks_[3]->connect(3, places_, within(std::chrono::milliseconds(50))),
               std::system_error)
      << "nobody listens there";
}

TEST(Lifeline, OfAGroupOfOneLosesNobody) {
  Lifeline lifeline;
  EXPECT_EQ(lifeline.lost(), -1);
  lifeline.leave();
}

}  // namespace
}  // namespace use_gpu::detail
