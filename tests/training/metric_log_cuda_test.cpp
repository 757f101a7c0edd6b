// SPDX-License-Identifier: MIT
//
// Tests of the log that need a CUDA GPU: no push waits, and behaviour in CUDA graphs.
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/types.h>
#include <use_gpu/errors.hpp>
#include <use_gpu/metric_log.hpp>

#include "simulated_runtime.hpp"
#include "support.hpp"

namespace use_gpu {
namespace {

// While it lives, LibTorch's synchronizations throw.
class SynchronizationIsAnError {
 public:
  SynchronizationIsAnError() { set(c10::cuda::SyncDebugMode::L_ERROR); }
  ~SynchronizationIsAnError() { set(c10::cuda::SyncDebugMode::L_DISABLED); }
  SynchronizationIsAnError(const SynchronizationIsAnError&) = delete;
  SynchronizationIsAnError& operator=(const SynchronizationIsAnError&) = delete;

 private:
  static void set(c10::cuda::SyncDebugMode mode) {
    c10::cuda::warning_state().set_sync_debug_mode(mode);
  }
};

TEST(MetricLogOnCuda, NeverSynchronizesWhenItIsPushedTo) {
  USE_GPU_TEST_NEEDS(1);
  const auto x = torch::randn({100, 100}, gpu());
  MetricLog log(gpu(), 64);
  {
    const SynchronizationIsAnError check;
    EXPECT_ANY_THROW(static_cast<void>(x.norm().item<float>()));  // the check works
    for (int i = 0; i < 1000; ++i) log.push((x * i).norm());
  }
  const auto values = log.values();
  const auto norm = x.norm().item<double>();
  ASSERT_EQ(values.size(), 1000U);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_NEAR(values[static_cast<std::size_t>(i)], norm * i, 1e-4 * norm * i);
  }
}

TEST(MetricLogOnCuda, WaitsForNothingInTwoBlocks) {
  USE_GPU_TEST_NEEDS(1);
  const auto value = torch::ones({}, gpu());
  MetricLog log(gpu(), 64);
  log.push(value);  // loads the kernels
  synchronize(gpu());
  at::cuda::sleep(1'000'000'000);
  for (int i = 1; i < 2 * 64; ++i) log.push(value);
  EXPECT_FALSE(c10::cuda::getCurrentCUDAStream().query());
  EXPECT_EQ(log.values(), std::vector<double>(128, 1));
}

TEST(MetricLogOnCuda, KeepsTheOrderOfStreams) {
  USE_GPU_TEST_NEEDS(1);
  const auto value = torch::full({}, 7., gpu());
  const auto busy = c10::cuda::getStreamFromPool();
  const auto other = c10::cuda::getStreamFromPool();
  synchronize(gpu());
  MetricLog log(gpu(), 4);
  {
    const c10::cuda::CUDAStreamGuard scope(busy);
    at::cuda::sleep(1'000'000'000);  // cycles: about half a second
    log.push(value);
  }
  const c10::cuda::CUDAStreamGuard scope(other);
  log.push(value);
  EXPECT_EQ(log.values(), (std::vector<double>{7, 7}));
}

TEST(MetricLogOnCuda, RefusesToBeCapturedAndTakesWhatAGraphComputes) {
  USE_GPU_TEST_NEEDS(1);
  MetricLog log(gpu(), 4);
  const auto count = torch::zeros({}, gpu());
  at::cuda::CUDAGraph graph;
  {
    const c10::cuda::CUDAStreamGuard side(c10::cuda::getStreamFromPool());
    graph.capture_begin();
    const auto text = test::error_of<ArgumentError>([&] { log.push(count); });
    EXPECT_TRUE(test::has(text, "CUDA graph"));
    count.add_(1);
    graph.capture_end();
  }
  const auto operations = [] { return test::simulated() ? test::runtime_count("operations") : 0; };
  const auto before = operations();
  graph.replay();
  EXPECT_EQ(operations() - before, test::simulated() ? 1 : 0) << "nothing of the log's is in it";
  log.push(count);
  for (int i = 1; i < 10; ++i) {
    graph.replay();
    log.push(count);
  }
  EXPECT_EQ(log.values(), (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
}

}  // namespace
}  // namespace use_gpu
