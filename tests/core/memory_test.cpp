// SPDX-License-Identifier: MIT
#include <use_gpu/memory.hpp>

#include <ATen/DeviceAccelerator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/autograd.h>
#include <torch/types.h>
#include <use_gpu/device.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/parallel.hpp>

#include <algorithm>
#include <map>
#include <random>

#include "simulated_runtime.hpp"
#include "support.hpp"

namespace use_gpu {
namespace {

using test::error_of;
using test::has;

constexpr std::int64_t k_mib = std::int64_t{1} << 20;

bool has_context(int index) {
  return test::runtime_function<decltype(simulated_cuda_has_context)>("simulated_cuda_has_context")(
      index);
}

std::uint64_t runtime_bytes(const char* what, int index) {
  return test::runtime_function<std::uint64_t(int)>(what)(index);
}

// The memory that other processes use of a GPU. None again at the end.
class OtherProcesses {
 public:
  OtherProcesses() = default;
  ~OtherProcesses() {
    for (int i = 0; i < num_gpus(); ++i) use(i, 0);
  }
  OtherProcesses(const OtherProcesses&) = delete;
  OtherProcesses& operator=(const OtherProcesses&) = delete;

  static void use(int index, std::int64_t bytes) {
    test::runtime_function<decltype(simulated_cuda_set_bytes_of_others)>(
        "simulated_cuda_set_bytes_of_others")(index, static_cast<std::uint64_t>(bytes));
  }
};

at::Tensor empty_bytes(std::int64_t bytes, c10::Device device) {
  return torch::empty({bytes}, torch::TensorOptions(device).dtype(torch::kByte));
}

// First, before any GPU of this process has a context.
TEST(TryEmptiestGpu, MakesNoContext) {
  if (!test::simulated()) GTEST_SKIP() << "needs simulated GPUs, which tell of contexts";
  if (has_context(0)) GTEST_SKIP() << "is not the first test here";
  EXPECT_TRUE(same_device(try_emptiest_gpu(), gpu(0)));
  for (int i = 0; i < num_gpus(); ++i) {
    EXPECT_EQ(memory_report(gpu(i)).free_bytes, runtime_bytes("simulated_cuda_free_bytes", i));
  }
  for (int i = 0; i < num_gpus(); ++i) EXPECT_FALSE(has_context(i)) << i;
  const int last = num_gpus() - 1;
  static_cast<void>(empty_bytes(1, gpu(last)));
  for (int i = 0; i < last; ++i) EXPECT_FALSE(has_context(i)) << i;
  static_cast<void>(memory_report(gpu(last)));
  static_cast<void>(try_emptiest_gpu());
  for (int i = 0; i < last; ++i) EXPECT_FALSE(has_context(i)) << i;
}

TEST(MemoryReport, IsEmptyForTheCpu) {
  for (const auto device : {cpu(), c10::Device("cpu:0"), c10::Device("meta")}) {
    const auto report = memory_report(device);
    EXPECT_TRUE(same_device(report.device, device));
    EXPECT_FALSE(report.free_bytes || report.total_bytes);
    EXPECT_EQ(report.allocated_bytes + report.cached_bytes + report.peak_allocated_bytes, 0U);
  }
}

TEST(MemoryReport, RefusesADeviceThatIsNotThere) {
  error_of<DeviceError>([] { static_cast<void>(memory_report(test::absent_gpu())); });
}

TEST(MemoryReport, ShowsWhatTensorsTake) {
  USE_GPU_TEST_NEEDS(1);
  const auto device = gpu(num_gpus() - 1);
  static_cast<void>(empty_bytes(1, device));  // LibTorch's allocator starts with the first tensor
  at::accelerator::emptyCache();
  at::accelerator::resetPeakStats(device.index());
  const auto before = memory_report(device);
  ASSERT_TRUE(before.free_bytes && before.total_bytes);
  EXPECT_LE(*before.free_bytes, *before.total_bytes);
  constexpr std::uint64_t bytes = 64 << 20;
  auto x = empty_bytes(bytes, device);
  const auto with = memory_report(device);
  EXPECT_EQ(with.allocated_bytes, before.allocated_bytes + bytes);
  EXPECT_EQ(with.peak_allocated_bytes, before.allocated_bytes + bytes);
  EXPECT_GE(with.cached_bytes, before.cached_bytes + bytes);
  EXPECT_LE(*with.free_bytes, *before.free_bytes - bytes);
  EXPECT_EQ(*with.total_bytes, *before.total_bytes);
  x.reset();
  const auto freed = memory_report(device);
  EXPECT_EQ(freed.allocated_bytes, before.allocated_bytes);
  EXPECT_EQ(freed.cached_bytes, with.cached_bytes) << "LibTorch keeps it";
  EXPECT_EQ(freed.peak_allocated_bytes, with.peak_allocated_bytes);
  at::accelerator::emptyCache();
  EXPECT_EQ(memory_report(device).cached_bytes, before.cached_bytes);
}

TEST(MemoryReport, EqualsTheRuntimesOwnCount) {
  if (!test::simulated()) GTEST_SKIP() << "needs simulated GPUs";
  const OtherProcesses others;
  others.use(0, 100 * k_mib);
  std::vector<at::Tensor> tensors;
  std::mt19937 random(7);
  const auto check = [&] {
    for (int i = 0; i < num_gpus(); ++i) {
      const auto report = memory_report(gpu(i));
      EXPECT_EQ(report.free_bytes, runtime_bytes("simulated_cuda_free_bytes", i));
      EXPECT_EQ(report.cached_bytes, runtime_bytes("simulated_cuda_allocated_bytes", i));
      // LibTorch gives up to 1 MiB more than was asked for, where less would be left over.
      std::uint64_t least = 0, most = 0;
      for (const auto& x : tensors) {
        if (x.device() != gpu(i)) continue;
        least += (x.nbytes() + 511) / 512 * 512;
        most += x.nbytes() + k_mib;
      }
      EXPECT_GE(report.allocated_bytes, least);
      EXPECT_LE(report.allocated_bytes, most);
      EXPECT_GE(report.peak_allocated_bytes, report.allocated_bytes);
    }
  };
  at::accelerator::emptyCache();
  for (int round = 0; round < 100; ++round) {
    tensors.push_back(empty_bytes(random() % (30 * k_mib),
                                  gpu(static_cast<int>(random()) & 1 && num_gpus() > 1 ? 1 : 0)));
    if (random() % 3 == 0) tensors.erase(tensors.begin());
    if (random() % 9 == 0) at::accelerator::emptyCache();
    check();
  }
  EXPECT_THROW(static_cast<void>(empty_bytes(k_mib << 20, gpu(0))), c10::OutOfMemoryError);
  check();
  tensors.clear();
  check();
  at::accelerator::emptyCache();
  check();
  EXPECT_EQ(runtime_bytes("simulated_cuda_allocated_bytes", 0), 0U);
}

TEST(MemoryReport, IsPrintedAsATable) {
  const std::string header =
      "device        free       total  allocated    cached  peak allocated\n";
  EXPECT_TRUE(has(test::printed(std::vector<MemoryReport>{{.device = gpu(0),
                                                           .free_bytes = 143'000'000'000,
                                                           .total_bytes = 151'000'000'000,
                                                           .allocated_bytes = 512,
                                                           .cached_bytes = 2 * k_mib,
                                                           .peak_allocated_bytes = 1536},
                                                          {.device = cpu()}}),
                  header + gpu(0).str() +
                      "  133.18 GiB  140.63 GiB  512 bytes  2.00 MiB        1.50 KiB\n" +
                      "cpu              -           -    0 bytes   0 bytes         0 bytes\n"));
  EXPECT_TRUE(has(test::printed(memory_report(cpu())), "CUDA graphs"));
  const auto printed_free = [](std::uint64_t bytes) {
    return test::printed(MemoryReport{.free_bytes = bytes});
  };
  EXPECT_TRUE(has(printed_free((1 << 30) + 1), " 1.00 GiB"));
  EXPECT_TRUE(has(printed_free(1023), " 1023 bytes"));
}

TEST(TryEmptiestGpu, GivesTheCpuWhereThereIsNoGpu) {
  if (num_gpus() > 0) GTEST_SKIP() << "there is one";
  EXPECT_TRUE(try_emptiest_gpu().is_cpu());
  EXPECT_TRUE(try_emptiest_gpu(1).is_cpu());
}

TEST(TryEmptiestGpu, GivesAGpuThatHasSoMuch) {
  USE_GPU_TEST_NEEDS(1);
  EXPECT_FALSE(try_emptiest_gpu().is_cpu());
  EXPECT_FALSE(try_emptiest_gpu(k_mib).is_cpu());
  EXPECT_TRUE(try_emptiest_gpu(std::uint64_t{1} << 60).is_cpu());
}

TEST(TryEmptiestGpu, ComparesWhatOtherProcessesLeave) {
  if (!test::simulated()) GTEST_SKIP() << "needs simulated GPUs";
  const OtherProcesses others;
  at::accelerator::emptyCache();
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::uint64_t> free;
    for (int i = 0; i < num_gpus(); ++i) {
      others.use(i, static_cast<std::int64_t>(random() % 8) * 512 * k_mib);  // often equal ones
      free.push_back(runtime_bytes("simulated_cuda_free_bytes", i));
    }
    const auto most = std::max_element(free.begin(), free.end());
    const auto emptiest = gpu(static_cast<int>(most - free.begin()));
    EXPECT_EQ(try_emptiest_gpu(), emptiest);
    EXPECT_EQ(try_emptiest_gpu(*most), emptiest);
    EXPECT_TRUE(try_emptiest_gpu(*most + 1).is_cpu());
  }
}

TEST(FitBatchSize, WorksOnceWhereAllFits) {
  std::vector<std::int64_t> sizes;
  EXPECT_EQ(fit_batch_size(100, [&](std::int64_t size) { sizes.push_back(size); }), 100);
  EXPECT_EQ(sizes, std::vector<std::int64_t>{100});
}

void run_out_of_memory() { TORCH_CHECK_WITH(OutOfMemoryError, false, "there is none"); }

TEST(FitBatchSize, HalvesUntilItFitsAndWarnsEachTime) {
  std::vector<std::int64_t> sizes;
  testing::internal::CaptureStderr();
  const auto fitted = fit_batch_size(1000, [&](std::int64_t size) {
    sizes.push_back(size);
    if (size > 100) run_out_of_memory();
  });
  const auto log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(fitted, 62);
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{1000, 500, 250, 125, 62}));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 4);
  EXPECT_TRUE(has(log, "[warning] fit_batch_size: 125 does not fit into memory; trying 62."));
}

TEST(FitBatchSize, StopsAtTheLeastAndPassesTheLastError) {
  std::vector<std::int64_t> sizes;
  const auto work = [&](std::int64_t size) {
    sizes.push_back(size);
    run_out_of_memory();
  };
  testing::internal::CaptureStderr();
  EXPECT_THROW(fit_batch_size(20, work, 7), c10::OutOfMemoryError);
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{20, 10, 7}));
  sizes.clear();
  EXPECT_THROW(fit_batch_size(5, work, 5), c10::OutOfMemoryError);
  EXPECT_EQ(sizes.size(), 1U);
  sizes.clear();
  const std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(fit_batch_size(largest, work), c10::OutOfMemoryError);
  EXPECT_EQ(sizes.size(), 63U) << "the logarithm, and the first";
  testing::internal::GetCapturedStderr();
}

TEST(FitBatchSize, KnowsEachOutOfMemoryErrorOfLibTorch) {
  const auto fitted = [](const auto& fail) {
    return fit_batch_size(8, [&](std::int64_t size) {
      if (size > 4) fail();
    });
  };
  testing::internal::CaptureStderr();
  for (const std::string text :
       {"CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "[enforce fail at alloc_cpu.cpp] data. DefaultCPUAllocator: not enough memory: you "
        "tried"}) {
    EXPECT_EQ(fitted([&] { TORCH_CHECK(false, text); }), 4) << text;
  }
  EXPECT_EQ(fitted([] { throw c10::AcceleratorError({}, 2, "CUDA error: out of memory"); }), 4);
  EXPECT_EQ(fitted([] { static_cast<void>(empty_bytes(std::int64_t{1} << 60, cpu())); }), 4);
  if (test::simulated()) {
    const auto stream = c10::impl::VirtualGuardImpl(gpu().type()).getStream(gpu());
    EXPECT_EQ(fitted([&] {
                test::set_cuda_faults("cudaStreamSynchronize:1:2");
                stream.synchronize();
              }),
              4);
    test::set_cuda_faults("");
  }
  testing::internal::GetCapturedStderr();
}

TEST(FitBatchSize, PassesAnyOtherErrorAtOnce) {
  int calls = 0;
  EXPECT_THROW(fit_batch_size(8,
                              [&](std::int64_t) {
                                ++calls;
                                throw std::length_error("mine");
                              }),
               std::length_error);
  EXPECT_EQ(calls, 1);
}

// Types decide where there are some: these only quote the words.
TEST(FitBatchSize, TakesNoOtherErrorThatQuotesOutOfMemoryForOne) {
  const std::string text = "rank 1 has failed: out of memory, ALLOC_FAILED";
  struct Own : Error {
    using Error::Error;
  };
  const std::vector<std::function<void()>> failures = {
      [&] { throw Error(text); },
      [&] { throw Own(text); },
      [&] { throw ParameterError(text); },
      [&] { throw c10::DistBackendError({}, text); },
      [&] { throw c10::DistStoreError({}, text); },
      [&] { throw c10::ValueError({}, text); },
      [&] {
        throw c10::AcceleratorError({}, 719, "CUDA error: launch failure, not out of memory");
      }};
  for (const auto& fail : failures) {
    int calls = 0;
    EXPECT_THROW(fit_batch_size(1024,
                                [&](std::int64_t) {
                                  ++calls;
                                  fail();
                                }),
                 c10::Error);
    EXPECT_EQ(calls, 1);
  }
}

TEST(FitBatchSize, RefusesWhatCannotWork) {
  const auto work = [](std::int64_t) {};
  EXPECT_TRUE(has(error_of<ArgumentError>([&] { fit_batch_size(3, work, 4); }), "4 to 3"));
  error_of<ArgumentError>([&] { fit_batch_size(0, work); });
  error_of<ArgumentError>([&] { fit_batch_size(3, work, 0); });
  error_of<ArgumentError>([&] { fit_batch_size(3, {}); });
}

TEST(FitBatchSize, FitsAThousandSizesAndLeavesNothingBehind) {
  if (!test::simulated()) GTEST_SKIP() << "needs simulated GPUs, whose memory can be set";
  const OtherProcesses others;
  at::accelerator::emptyCache();
  std::mt19937 random(5);
  constexpr std::int64_t unit = 32 * k_mib;  // LibTorch asks the driver for just as much
  const auto total = static_cast<std::int64_t>(*memory_report(gpu(0)).free_bytes);
  testing::internal::CaptureStderr();
  for (int round = 0; round < 1000; ++round) {
    const auto room = static_cast<std::int64_t>(random() % 256);  // units
    others.use(0, std::max(total - room * unit, std::int64_t{0}));
    const auto largest = static_cast<std::int64_t>(1 + random() % 1000);
    std::int64_t expected = largest;
    while (expected > room && expected > 1) expected /= 2;
    const auto before = memory_report(gpu(0));
    const auto work = [](std::int64_t size) {
      static_cast<void>(empty_bytes(size * unit, gpu(0)));
    };
    if (room == 0) {
      EXPECT_THROW(fit_batch_size(largest, work), c10::OutOfMemoryError);
    } else {
      EXPECT_EQ(fit_batch_size(largest, work), expected) << largest << " in " << room;
    }
    EXPECT_EQ(memory_report(gpu(0)).allocated_bytes, before.allocated_bytes);
    at::accelerator::emptyCache();
    EXPECT_EQ(memory_report(gpu(0)).cached_bytes, before.cached_bytes);
  }
  testing::internal::GetCapturedStderr();
}

TEST(FitBatchSize, ReleasesWhatTheFailedWorkHeld) {
  if (!test::simulated()) GTEST_SKIP() << "needs simulated GPUs, whose memory is known";
  const OtherProcesses others;
  at::accelerator::emptyCache();
  const auto total = static_cast<std::int64_t>(*memory_report(gpu(0)).free_bytes);
  others.use(0, total - 1024 * k_mib);
  testing::internal::CaptureStderr();
  int calls = 0;
  const auto fitted = fit_batch_size(16, [&](std::int64_t size) {
    ++calls;
    const auto report = memory_report(gpu(0));
    EXPECT_EQ(report.allocated_bytes, 0U) << "what the last step held";
    EXPECT_EQ(report.cached_bytes, 0U) << "and its memory";
    std::vector<at::Tensor> held;
    for (int i = 0; i < 4; ++i) held.push_back(empty_bytes(size * 32 * k_mib, gpu(0)));
  });
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(fitted, 8);
  EXPECT_EQ(calls, 2);
}

// Doubles, and needs memory for it in the backward pass.
struct Hungry : torch::autograd::Function<Hungry> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x,
                            std::int64_t bytes) {
    needed = bytes;
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& grads) {
    static_cast<void>(empty_bytes(needed, grads[0].device()));
    return {grads[0] * 2, at::Tensor()};
  }
  static inline std::int64_t needed = 0;
};

TEST(FitBatchSize, SeesErrorsOfBackwardPassesAndOtherThreads) {
  if (!test::simulated()) GTEST_SKIP() << "needs simulated GPUs, whose memory is known";
  const auto x = torch::ones({2}, torch::TensorOptions(gpu()).requires_grad(true));
  testing::internal::CaptureStderr();
  const std::int64_t gib = 1024 * k_mib;
  EXPECT_EQ(
      fit_batch_size(64, [&](std::int64_t size) { Hungry::apply(x, size * gib).sum().backward(); }),
      4);
  EXPECT_EQ(fit_batch_size(64,
                           [&](std::int64_t size) {
                             parallel_on(try_all_gpus(), [&](c10::Device device, int) {
                               static_cast<void>(empty_bytes(size * gib, device));
                             });
                           }),
            4);
  testing::internal::GetCapturedStderr();
}

}  // namespace
}  // namespace use_gpu
