// SPDX-License-Identifier: MIT
#include <use_gpu/log.hpp>

#include <torch/nn/module.h>
#include <use_gpu/network.hpp>
#include <use_gpu/parallel.hpp>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support.hpp"

namespace use_gpu {
namespace {

using test::has;

std::string logged(const std::function<void()>& action) {
  testing::internal::CaptureStderr();
  action();
  return testing::internal::GetCapturedStderr();
}

// What the library has to say at debug, at warning and at error.
void fall_back() { (void)try_gpu(100); }
void place_nothing() {
  torch::nn::Module nothing("nothing");
  place(nothing, cpu());
}
void fail(const std::string& text) {
  EXPECT_THROW(
      parallel_on({cpu()}, [&](c10::Device, std::size_t) { throw std::runtime_error(text); }),
      std::runtime_error);
}

// First of all tests: nobody has set a level yet.
TEST(Log, WritesWarningsAndErrorsToStderrAtFirst) {
  EXPECT_EQ(logged(fall_back), "");
  EXPECT_TRUE(logged(place_nothing).starts_with("[use_gpu] [warning] place(nothing): "));
  EXPECT_TRUE(logged([] { fail("why"); }).starts_with("[use_gpu] [error] parallel_on: "));
}

TEST(Log, WritesNothingBelowTheLevel) {
  for (const auto least :
       {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error, LogLevel::off}) {
    set_log_level(least);
    EXPECT_EQ(has(logged(fall_back), "try_gpu(100)"), LogLevel::debug >= least);
    EXPECT_EQ(has(logged(place_nothing), "nothing registered"), LogLevel::warning >= least);
    EXPECT_EQ(has(logged([] { fail("why"); }), "why"), LogLevel::error >= least);
  }
  set_log_level(LogLevel::warning);
}

TEST(Log, DoesNotReadBracesInAMessage) {
  EXPECT_TRUE(has(logged([] { fail("{} {0} {:d} %s"); }), "{} {0} {:d} %s"));
}

TEST(Log, IsWrittenToByManyThreads) {
  const auto text = logged([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < 50; ++i) place_nothing();
      });
    }
    for (auto& thread : threads) thread.join();
  });
  const auto line = logged(place_nothing);
  std::string expected;
  for (int i = 0; i < 200; ++i) expected += line;
  EXPECT_EQ(text, expected);
}

}  // namespace
}  // namespace use_gpu
