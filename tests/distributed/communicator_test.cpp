// SPDX-License-Identifier: MIT
//
// What one process can see of a group: its environment, and a group of one. The rest is in
// communicator_torchrun.py.
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <use_gpu/communicator.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/network.hpp>

#include <array>
#include <cstdlib>
#include <type_traits>
#include <utility>

#include "support.hpp"

namespace use_gpu {
namespace {

using test::error_of;
using test::has;

constexpr std::array k_variables = {"RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_RANK",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "TORCHELASTIC_USE_AGENT_STORE",
                                    "TORCHELASTIC_RESTART_COUNT"};

// The environment of a test, which begins as one that no torchrun has touched.
class JoinTest : public testing::Test {
 protected:
  JoinTest() { clear(); }
  ~JoinTest() override { clear(); }

  static void set(const char* variable, const std::string& value) {
    ::setenv(variable, value.c_str(), /*overwrite=*/1);
  }
  static void set_all(const std::string& world_size = "2") {
    set("RANK", "0");
    set("WORLD_SIZE", world_size);
    set("LOCAL_RANK", "0");
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", "29500");
  }
  static Communicator join() { return Communicator::join(std::chrono::seconds(5)); }

 private:
  static void clear() {
    for (const char* variable : k_variables) ::unsetenv(variable);
  }
};

using Join = JoinTest;
using GroupOfOne = JoinTest;

TEST_F(Join, IsAGroupOfOneWithoutTorchrun) {
  const auto group = join();
  EXPECT_EQ(group.rank(), 0);
  EXPECT_EQ(group.size(), 1);
  EXPECT_EQ(group.device(), try_gpu());
}

TEST_F(Join, IsAGroupOfOneInAWorldOfOne) {
  set_all("1");
  set("MASTER_ADDR", "no.such.host.invalid");  // not asked
  EXPECT_EQ(join().size(), 1);
  EXPECT_EQ(join().device(), try_gpu());
}

TEST_F(Join, NamesEachVariableThatIsMissing) {
  for (const char* missing : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    set_all();
    ::unsetenv(missing);
    const auto text = error_of<ArgumentError>([] { (void)join(); });
    EXPECT_TRUE(has(text, std::string("join: ") + missing + " missing"));
  }
}

TEST_F(Join, RefusesWhatAVariableCannotBe) {
  const std::vector<std::pair<const char*, std::vector<std::string>>> refused = {
      {"RANK", {"", "-1", "2", "99999999999", "1.0", " 1", "1 ", "0x1", "one"}},
      {"WORLD_SIZE", {"", "0", "-1", "2147483648", "two"}},
      {"LOCAL_RANK", {"", "-1", "2"}},
      {"MASTER_ADDR", {""}},
      {"MASTER_PORT", {"", "0", "-1", "65536", "http"}},
      {"TORCHELASTIC_USE_AGENT_STORE", {"", "1", "true"}},
      {"TORCHELASTIC_RESTART_COUNT", {"", "-1", "x"}},
  };
  for (const auto& [variable, values] : refused) {
    for (const auto& value : values) {
      set_all();
      set(variable, value);
      const auto text = error_of<ArgumentError>([] { (void)join(); });
      EXPECT_TRUE(has(text, std::string(variable) + "=\"" + value + '"'));
      EXPECT_TRUE(has(text, "accepted is"));
      ::unsetenv(variable);
    }
  }
}

TEST_F(Join, RefusesATimeOutOfNothing) {
  for (const int milliseconds : {0, -1}) {
    const auto text = error_of<ArgumentError>(
        [&] { (void)Communicator::join(std::chrono::milliseconds(milliseconds)); });
    EXPECT_TRUE(has(text, std::to_string(milliseconds) + " ms"));
  }
}

TEST_F(Join, RefusesALocalRankPastTheGpus) {
  USE_GPU_TEST_NEEDS(2);  // a single one may be this process's own
  const auto count = std::to_string(num_gpus());
  set_all("200");
  set("RANK", "150");
  set("LOCAL_RANK", count);
  const auto text = error_of<DeviceError>([] { (void)join(); });
  EXPECT_TRUE(has(text, "LOCAL_RANK " + count));
  EXPECT_TRUE(has(text, "sees only " + count));
}

TEST_F(GroupOfOne, LeavesEveryTensorAsItIs) {
  auto group = join();
  for (const auto how : {ReduceOp::sum, ReduceOp::mean, ReduceOp::min, ReduceOp::max}) {
    const auto x = torch::tensor({1.5, 2.5}).to(group.device());
    group.all_reduce(x, how);
    group.broadcast(x);
    EXPECT_TRUE(x.cpu().equal(torch::tensor({1.5, 2.5})));
  }
  group.barrier();
  EXPECT_EQ(group.backend()->getSize(), 1);
}

TEST_F(GroupOfOne, RefusesWhatAGroupOfManyRefuses) {
  auto group = join();
  const auto refuses = [&](const at::Tensor& x, ReduceOp how, const std::string& part) {
    EXPECT_TRUE(has(error_of<ArgumentError>([&] { group.all_reduce(x, how); }), part));
  };
  refuses({}, ReduceOp::sum, "undefined");
  refuses(torch::ones({2}).to_sparse(), ReduceOp::sum, "is not dense");
  refuses(torch::ones({2}, at::kMeta), ReduceOp::sum, "meta");
  refuses(torch::ones({1}).expand({3}), ReduceOp::sum, "clone()");
  refuses(torch::ones({2}, at::kLong), ReduceOp::mean, "int64[2]");
  refuses(torch::ones({2}, at::kBool), ReduceOp::sum, "bool[2]");
  refuses(torch::ones({2}, at::kComplexFloat), ReduceOp::max, "complex64[2]");
  refuses(torch::ones({2}).to(at::kFloat8_e5m2), ReduceOp::sum, "float8_e5m2[2]");
  for (const int root : {-1, 1}) {
    const auto text = error_of<ArgumentError>([&] { group.broadcast(torch::ones({2}), root); });
    EXPECT_TRUE(has(text, "no rank " + std::to_string(root)));
  }
  EXPECT_TRUE(has(error_of<ArgumentError>([&] { group.broadcast({}); }), "undefined"));
}

TEST_F(GroupOfOne, LeavesANetworkAsItIs) {
  auto group = join();
  torch::nn::Linear net(2, 1);
  place(net, group.device());
  const auto weight = net->weight.detach().clone();
  net->weight.mutable_grad() = torch::full_like(weight, 3);
  broadcast_parameters(net, group);
  average_gradients(net, group);
  EXPECT_TRUE(net->weight.equal(weight));
  EXPECT_TRUE(net->weight.grad().eq(3).all().item<bool>());
  EXPECT_FALSE(net->bias.grad().defined());
  EXPECT_TRUE(has(error_of<ArgumentError>([&] { broadcast_parameters(net, group, 1); }), "rank 1"));
  const std::shared_ptr<torch::nn::LinearImpl> none;
  EXPECT_TRUE(has(error_of<ArgumentError>([&] { average_gradients(none, group); }), "empty"));
}

TEST(Communicator, IsMovedNotCopied) {
  static_assert(!std::is_copy_constructible_v<Communicator>);
  static_assert(std::is_nothrow_move_constructible_v<Communicator>);
  auto first = Communicator::join();
  auto second = std::move(first);
  EXPECT_EQ(second.size(), 1);
  first = std::move(second);
  EXPECT_EQ(first.size(), 1);
}

}  // namespace
}  // namespace use_gpu
