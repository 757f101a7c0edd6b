// SPDX-License-Identifier: MIT
//
// Programs with a race each, and the same without: simulate_gpus --check reports the former, with both
// places, and is silent on the latter. (races.py has more.)
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <thread>

namespace {

using Race = std::function<void(bool ordered, std::array<int, 2>& lines)>;

std::string report_of(const Race& race, bool ordered, std::array<int, 2>& lines) {
  testing::internal::CaptureStderr();
  race(ordered, lines);
  cudaDeviceSynchronize();
  return testing::internal::GetCapturedStderr();
}

void expect_found(const Race& race) {
  std::array<int, 2> lines{};
  EXPECT_EQ(report_of(race, /*ordered=*/true, lines), "");
  const std::string report = report_of(race, /*ordered=*/false, lines);
  EXPECT_EQ(std::ranges::count(report, '\n'), 1) << report;
  for (const int line : lines)
    EXPECT_NE(report.find("races.cpp:" + std::to_string(line)), std::string::npos)
        << line << ": " << report;
}

at::Tensor ones() {
  at::Tensor x = torch::ones(1000, torch::kCUDA);
  cudaDeviceSynchronize();
  return x;
}

at::Tensor pinned() { return torch::ones(1000, torch::TensorOptions().pinned_memory(true)); }

c10::cuda::CUDAStream side() {
  static const auto stream = c10::cuda::getStreamFromPool();
  return stream;
}

TEST(Check, FindsAResultOfAnotherStream) {
  expect_found([](bool ordered, auto& lines) {
    at::Tensor x = ones();
    at::cuda::CUDAEvent event;
    {
      const c10::cuda::CUDAStreamGuard guard(side());
      lines[0] = __LINE__ + 1;
      x.add_(1);
      event.record();
    }
    if (ordered) event.block(c10::cuda::getCurrentCUDAStream());
    lines[1] = __LINE__ + 1;
    x.sum();
  });
}

TEST(Check, FindsAnEarlyReadThroughAPointer) {
  expect_found([](bool ordered, auto& lines) {
    const at::Tensor x = ones(), host = pinned();
    lines[0] = __LINE__ + 1;
    host.copy_(x, /*non_blocking=*/true);
    if (ordered) c10::cuda::getCurrentCUDAStream().synchronize();
    lines[1] = __LINE__ + 1;
    const float value = host.const_data_ptr<float>()[999];
    EXPECT_GE(value, 0);
  });
}

TEST(Check, FindsPinnedMemoryRewrittenThroughAPointer) {
  expect_found([](bool ordered, auto& lines) {
    const at::Tensor host = pinned();
    lines[0] = __LINE__ + 1;
    const at::Tensor x = host.to(torch::kCUDA, /*non_blocking=*/true);
    if (ordered) c10::cuda::getCurrentCUDAStream().synchronize();
    lines[1] = __LINE__ + 1;
    host.data_ptr<float>()[0] = 2;
  });
}

TEST(Check, FindsMemoryThatIsUsedAgain) {
  expect_found([](bool ordered, auto& lines) {
    at::Tensor x = torch::ones(1 << 20, torch::kCUDA);
    cudaDeviceSynchronize();
    at::Tensor y;
    {
      const c10::cuda::CUDAStreamGuard guard(side());
      lines[0] = __LINE__ + 1;
      y = x.sqrt();
      if (ordered) x.record_stream(side().unwrap());
    }
    x.reset();
    lines[1] = __LINE__ + 1;
    y = torch::zeros(1 << 20, torch::kCUDA);
  });
}

// Its thread may hold any lock there; so it is told when that next waits, or gives work.
TEST(Check, TellsNothingWhileTheHostTouchesMemory) {
  const at::Tensor x = ones(), host = pinned();
  host.copy_(x, /*non_blocking=*/true);
  testing::internal::CaptureStderr();
  EXPECT_GE(host.const_data_ptr<float>()[0], 0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  cudaDeviceSynchronize();
  EXPECT_NE(testing::internal::GetCapturedStderr().find("race: "), std::string::npos);
}

// Copies that a program asks CUDA for. The default stream and a blocking one wait for each other.
TEST(Check, FindsRacesOfRuntimeCalls) {
  expect_found([](bool ordered, auto& lines) {
    const at::Tensor x = ones(), y = ones();
    cudaStream_t stream = nullptr;
    cudaStreamCreateWithFlags(&stream, ordered ? cudaStreamDefault : cudaStreamNonBlocking);
    lines[0] = __LINE__ + 1;
    cudaMemsetAsync(x.data_ptr(), 0, 400, stream);
    lines[1] = __LINE__ + 1;
    cudaMemcpyAsync(y.data_ptr(), x.data_ptr(), 400, cudaMemcpyDeviceToDevice, nullptr);
    cudaStreamDestroy(stream);
  });
}

// A stream's function is called when the work before it is done, in a graph too.
TEST(Check, LetsAStreamsFunctionReadTheResult) {
  std::array<int, 2> lines{};
  const Race race = [](bool in_graph, auto&) {
    const c10::cuda::CUDAStreamGuard guard(side());
    const at::Tensor x = ones(), host = pinned();
    at::cuda::CUDAGraph graph;
    if (in_graph) graph.capture_begin();
    host.copy_(x, /*non_blocking=*/true);
    static float* values = nullptr;
    values = host.data_ptr<float>();
    cudaLaunchHostFunc(
        side(), [](void*) { values[0] += 1; }, nullptr);
    if (in_graph) graph.capture_end();
    if (in_graph) graph.replay();
    side().synchronize();
    EXPECT_EQ(values[0], 2);
  };
  for (const bool in_graph : {false, true}) EXPECT_EQ(report_of(race, in_graph, lines), "");
}

TEST(Check, TakesMemorySetsOfNothing) {
  std::array<int, 2> lines{};
  const Race race = [](bool, auto&) {
    const at::Tensor x = ones();
    for (const std::size_t bytes : {0U, 16U}) cudaMemset(x.data_ptr(), 0, bytes);
  };
  EXPECT_EQ(report_of(race, true, lines), "");
}

// The host is one: what another thread has waited for is done.
TEST(Check, KnowsWhatAnotherThreadHasWaitedFor) {
  std::array<int, 2> lines{};
  const Race race = [](bool, auto&) {
    at::Tensor x = ones();
    std::thread([&] {
      const c10::cuda::CUDAStreamGuard guard(side());
      x.add_(1);
      side().synchronize();
    }).join();
    EXPECT_EQ(x.sum().item<float>(), 2000);
  };
  EXPECT_EQ(report_of(race, true, lines), "");
}

}  // namespace
