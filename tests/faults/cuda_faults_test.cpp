// SPDX-License-Identifier: MIT
//
// The state after CUDA failures: as allocation_faults_test, but with the first call of a CUDA
// function failing, then the second, whichever functions these are, until none is left to fail.
// Where the device refuses a write in place, the values on it are unspecified; all else stays.
#include <c10/core/DeviceGuard.h>
#include <torch/version.h>

#include <cstdlib>
#include <iostream>
#include <set>

#include "fault_actions.hpp"
#include "simulated_runtime.hpp"

namespace use_gpu {
namespace {

using test::Action;
using test::World;
using test::Writes;

// LibTorch calls these where it cannot throw: in the destructors of its guards and, without its cache, of tensors.
const std::string k_exempt =
    std::string("cudaSetDevice:*:0,cudaGetDevice:*:0,") +
    (std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") != nullptr ? "cudaFree:*:0," : "");

// How much work the CUDA runtime has counted.
std::int64_t counted_work() {
  std::int64_t all = 0;
  for (const char* row : {"operations", "host to device copies", "device to host copies",
                          "device to device copies", "device synchronizations"}) {
    all += test::runtime_count(row);
  }
  return all;
}

class EachCudaCallFails : public testing::TestWithParam<Action> {};

TEST_P(EachCudaCallFails, AndNothingHasChanged) {
  if (!test::simulated()) GTEST_SKIP() << "needs simulated GPUs, whose faults can be asked for";
  const Action& action = GetParam();
  const auto files = test::saved_files();
  testing::internal::CaptureStderr();  // what is logged
  World untroubled(files, action.pushed);
  const auto work_before = counted_work();
  const auto usual_outcome = outcome_of(action, untroubled);
  const bool uses_cuda = counted_work() > work_before;
  const auto usual_state = untroubled.state();
  int failed = 0, survived = 0;
  std::set<std::string> functions;
  for (const char* const code : {"2", "719"}) {  // out of memory, launch failure
    std::string function = "the first";
    for (int at = 1; !function.empty() && !HasFailure(); ++at) {
      World world(files, action.pushed);
      const auto before = world.state();
      const auto before_but_values = world.state(action.writes);
      test::set_cuda_faults(k_exempt + "*:" + std::to_string(at) + ':' + code);
      auto outcome = outcome_of(action, world);
      function = test::failed_cuda_function();
      test::set_cuda_faults("");
      SCOPED_TRACE("call " + std::to_string(at) + ", " + function + ", answered " + code);
      failed += function.empty() ? 0 : 1;
      functions.insert(function);
      bool has_means = false;          // of some values, so that those of all are lost
      if (outcome != usual_outcome) {  // LibTorch's error, or ours
        EXPECT_TRUE(outcome.starts_with("N3c10") || outcome.starts_with("N7use_gpu")) << outcome;
        const bool is_allocation =
            function.find("Malloc") != function.npos || function == "cudaHostAlloc";
        if (action.writes == Writes::nothing || is_allocation) {
          EXPECT_EQ(world.state(), before);
        } else {
          EXPECT_EQ(world.state(action.writes), before_but_values);
          has_means = action.writes == Writes::means && world.state() != before;
        }
        outcome = outcome_of(action, world);
      } else if (!function.empty()) {
        ++survived;
      }
      // If that call was not needed, and after a retry, all is done.
      EXPECT_EQ(outcome, usual_outcome);
      if (!has_means) {
        EXPECT_EQ(world.state(), usual_state);
      }
      EXPECT_TRUE(world.has_kept_the_numbers());
    }
  }
  testing::internal::GetCapturedStderr();
  EXPECT_TRUE(!uses_cuda || failed > 0);
  std::cout << failed << " calls failed, " << survived << " of them without an error:";
  for (const auto& function : functions) std::cout << ' ' << function;
  std::cout << '\n';
}

// What docs/compatibility.md says of these.
TEST(LibTorchsGuardDeathTest, EndsTheProgramIfCudaGetDeviceFails) {
  if (!test::simulated()) GTEST_SKIP() << "needs simulated GPUs, whose faults can be asked for";
  if (TORCH_VERSION_MINOR >= 15) GTEST_SKIP() << "needs an older LibTorch: the newer ones warn";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const auto uses_gpu = at::ones({}, gpu());
        const c10::DeviceGuard guard(gpu());
        test::set_cuda_faults("cudaGetDevice:1:719");
      },
      "CUDA error: unspecified launch failure");
}

TEST(LibTorchsGuard, LeavesItsDeviceCurrentIfCudaSetDeviceFails) {
  if (!test::simulated() || num_gpus() < 2) GTEST_SKIP() << "needs two simulated GPUs";
  const auto uses_both = at::ones({}, gpu(0)) + at::ones({}, gpu(1)).cpu();
  const c10::DeviceGuard before(gpu(0));
  {
    const c10::DeviceGuard guard(gpu(1));
    test::set_cuda_faults("cudaSetDevice:1:719");
  }
  test::set_cuda_faults("");
  EXPECT_EQ(c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice(), gpu(1));
}

INSTANTIATE_TEST_SUITE_P(Of, EachCudaCallFails, testing::ValuesIn(test::k_actions),
                         test::test_name);

}  // namespace
}  // namespace use_gpu
