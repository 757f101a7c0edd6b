// SPDX-License-Identifier: MIT
//
// Tests of the memory report that need CUDA: a graph's pool, and which card a device is.
#include "core/device_cuda.hpp"

#include <ATen/DeviceAccelerator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/types.h>
#include <use_gpu/memory.hpp>

#include "simulated_runtime.hpp"
#include "support.hpp"

namespace use_gpu {
namespace {

TEST(MemoryReportOnCuda, CountsThePoolOfAGraph) {
  USE_GPU_TEST_NEEDS(1);
  const auto x = torch::ones({16, 1 << 20}, gpu());  // 64 MiB
  at::accelerator::emptyCache();
  const auto before = memory_report(gpu());
  {
    const c10::cuda::CUDAStreamGuard stream(c10::cuda::getStreamFromPool());
    at::cuda::CUDAGraph graph;
    graph.capture_begin();
    auto y = x + 1;
    graph.capture_end();
    y.reset();  // what was computed in the graph stays reserved for it
    at::accelerator::emptyCache();
    const auto with = memory_report(gpu());
    EXPECT_GE(with.cached_bytes, before.cached_bytes + x.nbytes());
    EXPECT_LE(*with.free_bytes, *before.free_bytes - x.nbytes());
    if (test::simulated()) {
      EXPECT_EQ(with.cached_bytes, test::runtime_function<decltype(simulated_cuda_allocated_bytes)>(
                                       "simulated_cuda_allocated_bytes")(0));
    }
  }
  at::accelerator::emptyCache();
  EXPECT_EQ(memory_report(gpu()).cached_bytes, before.cached_bytes);
}

TEST(FindCard, FindsWholeCardsOnly) {
  const std::uint64_t gib = std::uint64_t{1} << 30;
  GpuReport report;
  report.gpus.resize(3);
  for (std::size_t i = 0; i < 3; ++i) {
    report.gpus[i].uuid = "GPU-" + std::to_string(i);
    report.gpus[i].memory_total_bytes = 80 * gib;
    report.gpus[i].memory_free_bytes = 70 * gib;
  }
  report.gpus[2].memory_free_bytes.reset();
  EXPECT_EQ(detail::find_card({"GPU-1", 79 * gib}, report), &report.gpus[1]);
  EXPECT_EQ(detail::find_card({"GPU-1", 40 * gib}, report), nullptr) << "a slice (MIG)";
  EXPECT_EQ(detail::find_card({"GPU-2", 79 * gib}, report), nullptr) << "of unknown memory";
  EXPECT_EQ(detail::find_card({"GPU-3", 79 * gib}, report), nullptr);
  EXPECT_EQ(detail::find_card({"GPU-1", 79 * gib}, GpuReport()), nullptr);
}

TEST(CardOf, IsOneThatNvmlKnows) {
  USE_GPU_TEST_NEEDS(1);
  EXPECT_FALSE(detail::card_of(cpu()));
  EXPECT_FALSE(detail::card_of(gpu(127)));
  const auto cards = query_gpus().gpus;
  for (const auto device : try_all_gpus()) {
    const auto found = detail::card_of(device);
    ASSERT_TRUE(found);
    EXPECT_EQ(std::ranges::count(cards, found->uuid, &GpuInfo::uuid), 1) << found->uuid;
  }
}

}  // namespace
}  // namespace use_gpu
