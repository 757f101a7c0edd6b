// SPDX-License-Identifier: MIT
#include "core/copies/bulk_copy.hpp"

#include <ATen/DeviceAccelerator.h>
#include <torch/types.h>

#include <algorithm>
#include <vector>

#include "simulated_runtime.hpp"
#include "support.hpp"

namespace use_gpu::detail {
namespace {

using Tensors = std::vector<at::Tensor>;

std::vector<c10::Device> some_devices() {
  std::vector<c10::Device> devices{cpu()};
  for (int i = 0; i < std::min(num_gpus(), 2); ++i) devices.push_back(gpu(i));
  return devices;
}

Tensors zeros_like_each(const Tensors& values, c10::Device device) {
  Tensors targets;
  for (const auto& x : values) targets.push_back(torch::zeros_like(x, x.options().device(device)));
  return targets;
}

// What the simulated runtime was asked for: kernels, copies and waits.
std::int64_t calls() {
  std::int64_t sum = 0;
  for (const char* row :
       {"kernels", "within a device copies", "host to device copies", "device to host copies",
        "device to device copies", "stream synchronizations", "event synchronizations",
        "device synchronizations"}) {
    sum += test::runtime_count(row);
  }
  return sum;
}

template <class Work>
std::int64_t calls_of(const Work& work) {
  const auto before = calls();
  work();
  return calls() - before;
}

TEST(BulkCopy, WritesTheValuesWhereverTheyAre) {
  for (const auto from : some_devices()) {
    for (const auto to : some_devices()) {
      SCOPED_TRACE(from.str() + " to " + to.str());
      Tensors values;
      Tensors targets;
      const auto add = [&](const at::Tensor& value, const at::Tensor& target) {
        values.push_back(value.to(from));
        targets.push_back(target.to(to));
        if (!value.is_contiguous()) {  // as it was, but on that device
          values.back() = value.transpose(0, 1).to(from).transpose(0, 1);
        }
      };
      for (int i = 0; i < 40; ++i) add(torch::full({i, 2}, i), torch::zeros({i, 2}, torch::kLong));
      for (int i = 0; i < 40; ++i)
        add(torch::rand({3}, torch::kHalf), torch::zeros({3}, at::kHalf));
      add(torch::rand({2, 3}).t(), torch::zeros({3, 2}));
      add(torch::rand({2, 3}).t(), torch::zeros({2, 3}).t());
      add(torch::rand({1500, 1000}).t(), torch::zeros({1000, 1500}));
      add(torch::rand({1500, 1000}), torch::zeros({1500, 1000}));
      add(torch::full({}, 7), torch::full({}, 0));
      for (int i = 0; i < 3; ++i) {  // at odd addresses
        values.push_back(torch::arange(9, torch::kByte).to(from).narrow(0, i, 5));
        targets.push_back(torch::zeros({9}, torch::kByte).to(to).narrow(0, 2 * i, 5));
      }
      const auto z = torch::view_as_complex(torch::rand({2, 3, 2}));
      values.push_back(z.to(from).conj());
      targets.push_back(torch::zeros_like(z).to(to));
      values.push_back(z.to(from));
      targets.push_back(torch::zeros_like(z).to(to).conj());
      values.push_back(torch::rand({4, 4}).to(from));  // with gaps
      targets.push_back(torch::zeros({4, 8}).to(to).slice(1, 0, 8, 2));
      bulk_copy(values, targets);
      for (std::size_t i = 0; i < targets.size(); ++i) {
        EXPECT_TRUE(targets[i].to(cpu()).equal(values[i].to(cpu()))) << i;
        if (targets[i].numel() > 0) {
          EXPECT_GT(targets[i]._version(), 0) << i;
        }
      }
    }
  }
}

TEST(BulkCopy, ConvertsDtypesOnTheWay) {
  for (const auto from : some_devices()) {
    for (const auto to : some_devices()) {
      SCOPED_TRACE(from.str() + " to " + to.str());
      Tensors values;
      Tensors targets;
      for (const std::int64_t size : {1, 7, 1000, 3'000'001, 9'000'000}) {
        for (const auto dtype : {torch::kDouble, torch::kHalf}) {
          values.push_back(torch::rand({size}, from));
          targets.push_back(torch::zeros({size}, torch::TensorOptions(to).dtype(dtype)));
        }
      }
      values.push_back(torch::rand({5, 3}, from).t());
      targets.push_back(torch::zeros({3, 5}, torch::TensorOptions(to).dtype(torch::kDouble)));
      bulk_copy(values, targets);
      for (std::size_t i = 0; i < targets.size(); ++i)
        EXPECT_TRUE(targets[i].cpu().equal(values[i].cpu().to(targets[i].scalar_type()))) << i;
    }
  }
}

TEST(BulkCopy, TakesListsOfEmptyTensorsAndEmptyLists) {
  for (const auto from : some_devices()) {
    for (const auto to : some_devices()) {
      bulk_copy({}, {});
      const Tensors values(20, torch::zeros({0, 3}, from));
      bulk_copy(values, zeros_like_each(values, to));
    }
  }
}

// Two small tensors are copied one by one, where LibTorch's copy_ converts in memory of the GPU.
TEST(BulkCopy, ConvertsWithoutMemoryOfTheGpu) {
  USE_GPU_TEST_NEEDS(1);
  const auto values = {torch::rand({100, 200}), torch::rand({200, 100}).t()};
  const auto doubles = torch::TensorOptions(gpu()).dtype(torch::kDouble);
  const Tensors targets{torch::zeros({100, 200}, doubles), torch::zeros({200, 100}, doubles).t()};
  const auto allocated = [] {
    return at::accelerator::getDeviceStats(0).allocated_bytes[0].allocated;
  };
  const auto before = allocated();
  bulk_copy(values, targets);
  EXPECT_EQ(allocated(), before);
  auto value = values.begin();
  for (const auto& x : targets) EXPECT_TRUE(x.cpu().equal((value++)->to(torch::kDouble)));
}

// What lies differently is copied before anything is written, so that no write needs memory.
TEST(BulkCopy, WritesAllOrNothingWhereMemoryRunsOut) {
  USE_GPU_TEST_NEEDS(1);
  if (!test::simulated()) GTEST_SKIP() << "needs simulated GPUs";
  at::accelerator::emptyCache();  // so that no target leaves free memory beside it
  const auto values = {torch::rand({100}), torch::rand({1000, 3000}), torch::rand({3000, 2000})};
  Tensors targets{torch::zeros({100}, gpu()), torch::zeros({3000, 1000}, gpu()).t(),
                  torch::zeros({3000, 4000}, gpu()).slice(1, 0, 4000, 2)};
  at::accelerator::emptyCache();
  test::set_cuda_faults("cudaMalloc:*:2");
  EXPECT_THROW(bulk_copy(values, targets), c10::OutOfMemoryError);
  test::set_cuda_faults("");
  for (const auto& x : targets) EXPECT_EQ(x.abs().sum().item<float>(), 0);
  bulk_copy(values, targets);
  auto value = values.begin();
  for (const auto& x : targets) EXPECT_TRUE(x.cpu().equal(*value++));
}

TEST(BulkCopy, WritesNothingBesideTheTargets) {
  for (const auto device : some_devices()) {
    const auto memory = torch::zeros({100, 3}, torch::TensorOptions(device).dtype(torch::kShort));
    Tensors values;
    Tensors targets;
    for (int i = 0; i < 100; i += 2) {
      values.push_back(torch::full({3}, i + 1, torch::kShort));
      targets.push_back(memory[i]);
    }
    bulk_copy(values, targets);
    for (int i = 0; i < 100; ++i)
      EXPECT_EQ(memory[i].sum().item<int>(), i % 2 == 0 ? 3 * (i + 1) : 0) << i;
  }
}

TEST(BulkCopy, NeedsLittleOfTheDevicesMemoryBesidesTheTargets) {
  USE_GPU_TEST_NEEDS(2);
  const auto peak_bytes = [](c10::DeviceIndex i) {
    return at::accelerator::getDeviceStats(i).allocated_bytes[0].peak;
  };
  const Tensors values(400, torch::ones({250'000}));  // 1 MB: just not large
  const auto first = zeros_like_each(values, gpu(0));
  const auto second = zeros_like_each(values, gpu(1));
  for (const auto& [from, to] : {std::pair{&values, &first}, std::pair{&first, &second}}) {
    for (const c10::DeviceIndex i : {c10::DeviceIndex{0}, c10::DeviceIndex{1}}) {
      at::accelerator::resetPeakStats(i);
    }
    const auto before = peak_bytes(0) + peak_bytes(1);
    bulk_copy(*from, *to);
    EXPECT_LE(peak_bytes(0) + peak_bytes(1) - before, std::int64_t{64} << 20);
  }
}

// One CUDA call after the other fails, out of memory or for good, among them those of a transfer
// that is under way.
TEST(BulkCopy, SucceedsOrThrowsWhateverCudaCallFails) {
  USE_GPU_TEST_NEEDS(1);
  if (!test::simulated()) GTEST_SKIP() << "needs simulated GPUs";
  const Tensors values(80, torch::arange(250'000, torch::kInt));  // 80 MB: several parcels
  testing::internal::CaptureStderr();
  int failed_calls = 0;
  const auto on_gpu = zeros_like_each(values, gpu());
  bulk_copy(values, on_gpu);
  for (const auto& [from, to, code] :
       {std::tuple{&values, gpu(), "2"}, std::tuple{&values, gpu(), "719"},
        std::tuple{&on_gpu, cpu(), "2"}, std::tuple{&on_gpu, cpu(), "719"}}) {
    std::string failed = "the first";
    for (int at = 1; !failed.empty(); ++at) {
      const auto targets = zeros_like_each(values, to);
      test::set_cuda_faults(
          "cudaSetDevice:*:0,cudaGetDevice:*:0,cudaFree:*:0,*:" + std::to_string(at) + ':' + code);
      bool has_thrown = false;
      try {
        bulk_copy(*from, targets);
      } catch (const c10::Error&) {
        has_thrown = true;
      }
      failed = test::failed_cuda_function();
      test::set_cuda_faults("");
      failed_calls += failed.empty() ? 0 : 1;
      for (const auto& x : targets)
        EXPECT_TRUE(has_thrown || x.cpu().equal(values.front())) << at << ' ' << failed;
    }
  }
  testing::internal::GetCapturedStderr();
  EXPECT_GT(failed_calls, 10);
}

// The counts below need LibTorch's own kernels.
class BulkCopyCalls : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::is_dry_run()) GTEST_SKIP() << "needs simulate_gpus --dry-run";
    if (num_gpus() < 2) GTEST_SKIP() << "needs 2 GPUs";
  }
  using Shape = std::vector<std::int64_t>;
  static Tensors tensors(std::size_t count, const Shape& shape, c10::Device device) {
    Tensors all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(torch::zeros(shape, device));
    return all;
  }
};

TEST_F(BulkCopyCalls, AreFewForManyTensors) {
  for (const auto& [from, to, most] : {std::tuple{cpu(), gpu(0), 18}, std::tuple{gpu(0), cpu(), 10},
                                       std::tuple{gpu(0), gpu(1), 25}}) {
    const auto values = tensors(1000, {8, 8}, from);
    const auto targets = zeros_like_each(values, to);
    EXPECT_LE(calls_of([&] { bulk_copy(values, targets); }), most) << from << " to " << to;
  }
}

TEST_F(BulkCopyCalls, AreNeverMoreThanLibTorchsOwn) {
  const auto copy = [](const Tensors& values, const Tensors& targets) {
    for (std::size_t i = 0; i < values.size(); ++i) targets[i].copy_(values[i]);
  };
  for (const Shape& shape : {Shape{8, 8}, Shape{3}, Shape{}, Shape{1 << 20}, Shape{3 << 20}}) {
    for (const auto& [from, to] : {std::pair{cpu(), gpu(0)}, std::pair{gpu(0), cpu()},
                                   std::pair{gpu(0), gpu(1)}, std::pair{gpu(0), gpu(0)}}) {
      for (const std::size_t count : {1U, 2U, 3U, 4U, 5U, 9U, 10U, 40U}) {
        const auto values = tensors(count, shape, from);
        const auto targets = zeros_like_each(values, to);
        const auto own = calls_of([&] { copy(values, targets); });
        const auto ours = calls_of([&] { bulk_copy(values, targets); });
        EXPECT_LE(ours, own) << count << " of " << at::IntArrayRef(shape) << ", " << from << " to "
                             << to;
        if (count == 1) {
          EXPECT_EQ(ours, own) << at::IntArrayRef(shape) << ", " << from << " to " << to;
        }
      }
    }
  }
}

}  // namespace
}  // namespace use_gpu::detail
