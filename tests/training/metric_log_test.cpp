// SPDX-License-Identifier: MIT
#include <use_gpu/metric_log.hpp>

#include <ATen/DeviceAccelerator.h>
#include <c10/core/StreamGuard.h>
#include <torch/types.h>
#include <use_gpu/default_device.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/transfers.hpp>

#include <bit>
#include <cmath>
#include <limits>

#include "simulated_runtime.hpp"
#include "support.hpp"

namespace use_gpu {
namespace {

using test::error_of;
using test::has;

torch::Tensor number(double value, c10::Device device, torch::Dtype dtype = torch::kFloat64) {
  return torch::tensor(value, dtype).to(device);
}

std::vector<double> one_to(std::int64_t n) {
  std::vector<double> all;
  for (std::int64_t i = 1; i <= n; ++i) all.push_back(static_cast<double>(i));
  return all;
}

void push_one_to(MetricLog& log, std::int64_t n, c10::Device device) {
  for (std::int64_t i = 1; i <= n; ++i) log.push(number(static_cast<double>(i), device));
}

TEST(MetricLog, GivesBackEverythingInOrder) {
  for (const auto device : try_all_gpus()) {
    for (const std::int64_t block : {1, 2, 5, 4096}) {
      for (const std::int64_t n : {0, 1, 4, 5, 6, 9, 10, 11, 103}) {
        MetricLog log(device, block);
        push_one_to(log, n, device);
        EXPECT_EQ(log.size(), n);
        EXPECT_EQ(log.values(), one_to(n)) << device << ", blocks of " << block;
      }
    }
  }
}

TEST(MetricLog, GoesOnAfterItWasAsked) {
  const auto device = try_gpu();
  MetricLog log(device, 4);
  for (std::int64_t n = 1; n <= 30; ++n) {
    log.push(number(static_cast<double>(n), device));
    ASSERT_EQ(log.values(), one_to(n));
    ASSERT_EQ(log.values(), one_to(n));
    ASSERT_EQ(log.size(), n);
  }
}

TEST(MetricLog, KeepsEachBitOfFloat32AndFloat64) {
  using Float = std::numeric_limits<float>;
  using Double = std::numeric_limits<double>;
  const auto device = try_gpu();
  MetricLog log(device, 3);
  const std::vector<double> hard = {0.1,
                                    -0.0,
                                    Double::min(),
                                    Double::denorm_min(),
                                    Double::max(),
                                    Double::infinity(),
                                    -Double::infinity(),
                                    Double::quiet_NaN()};
  const std::vector<float> hard_floats = {0.1F,         -0.0F,        Float::denorm_min(),
                                          Float::max(), Float::min(), Float::infinity()};
  for (const double x : hard) log.push(number(x, device));
  for (const float x : hard_floats) log.push(number(x, device, torch::kFloat32));
  const auto values = log.values();
  ASSERT_EQ(values.size(), hard.size() + hard_floats.size());
  for (std::size_t i = 0; i < hard.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint64_t>(values[i]), std::bit_cast<std::uint64_t>(hard[i]));
  }
  for (std::size_t i = 0; i < hard_floats.size(); ++i) {
    const auto value = static_cast<float>(values[hard.size() + i]);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(hard_floats[i]));
  }
}

TEST(MetricLog, TakesEachRealDtypeAndShapeOfOneElement) {
  const auto device = try_gpu();
  MetricLog log(device, 3);
  const auto dtypes = {torch::kFloat16, torch::kBFloat16, torch::kFloat32, torch::kFloat64,
                       torch::kUInt8,   torch::kInt8,     torch::kInt16,   torch::kInt32,
                       torch::kInt64,   torch::kBool};
  for (const auto dtype : dtypes) {
    log.push(torch::ones({}, dtype).to(device));
    log.push(torch::ones({1}, dtype).to(device));
    log.push(torch::ones({1, 1, 1}, dtype).to(device));
    log.push(torch::ones({4, 4}, dtype).to(device).select(0, 2).select(0, 2));
  }
  EXPECT_EQ(log.values(), std::vector<double>(4 * dtypes.size(), 1));

  const std::int64_t exact = std::int64_t{1} << 53;
  log.push(torch::tensor(exact).to(device));
  EXPECT_EQ(log.values().back(), static_cast<double>(exact));
}

TEST(MetricLog, RefusesWhatIsNotOneRealNumber) {
  const auto device = try_gpu();
  MetricLog log(device);
  log.push(number(1, device));
  for (const auto& wrong :
       {torch::Tensor(), torch::ones({2}).to(device), torch::ones({0}).to(device),
        torch::ones({}, torch::kComplexFloat).to(device),
        at::_nested_tensor_from_tensor_list({torch::ones({1}).to(device)}),
        torch::ones({1000, 1000}, torch::kInt64).to(device)}) {
    EXPECT_TRUE(has(error_of<ArgumentError>([&] { log.push(wrong); }), "one real number"));
  }
  // Every dtype is taken and read, or refused when it is pushed, lent or given.
  for (int i = 0; i < static_cast<int>(c10::ScalarType::Undefined); ++i) {
    const auto dtype = static_cast<c10::ScalarType>(i);
    const auto x = torch::empty({1}, torch::TensorOptions(device).dtype(dtype));
    MetricLog of_dtype(device);
    try {
      of_dtype.push(x);
      of_dtype.push(torch::empty({1}, x.options()));
      EXPECT_FALSE(x.is_complex()) << dtype;
    } catch (const ArgumentError&) {
      EXPECT_FALSE(dtype == torch::kFloat || dtype == torch::kUInt64) << dtype;
    }
    EXPECT_EQ(static_cast<std::int64_t>(of_dtype.values().size()), of_dtype.size()) << dtype;
  }
  EXPECT_EQ(log.values(), one_to(1));
}

TEST(MetricLog, RefusesWhatIsOnAnotherDevice) {
  USE_GPU_TEST_NEEDS(1);
  MetricLog log(gpu());
  const auto text = error_of<DeviceMismatch>([&] { log.push(torch::ones({})); });
  EXPECT_TRUE(has(text, gpu().str()));
  EXPECT_TRUE(has(text, "float32[] on cpu"));
  MetricLog on_cpu(cpu());
  error_of<DeviceMismatch>([&] { on_cpu.push(torch::ones({}, gpu())); });
  EXPECT_EQ(log.size() + on_cpu.size(), 0);
}

TEST(MetricLog, RefusesBlocksOutsideOneTo2To27AndDevicesThatAreNotThere) {
  for (const auto device : {cpu(), try_gpu()}) {
    for (const std::int64_t block : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 40}) {
      const auto text = error_of<ArgumentError>([&] { MetricLog log(device, block); });
      EXPECT_TRUE(has(text, std::to_string(block)));
    }
  }
  error_of<DeviceError>([] { MetricLog log(test::absent_gpu()); });
}

TEST(MetricLog, DetachesInEveryMode) {
  const auto device = try_gpu();
  MetricLog log(device, 2);
  const auto weight = number(3, device).requires_grad_();
  const auto loss = weight * weight;
  log.push(loss);
  log.push(weight);
  {
    const torch::NoGradGuard no_grad;
    log.push(loss);
  }
  {
    const c10::InferenceMode inference;
    log.push(loss);
    log.push(weight * 2);
    log.push(number(7, device));
  }
  loss.backward();
  EXPECT_EQ(weight.grad().item<double>(), 6);
  EXPECT_EQ(log.values(), (std::vector<double>{9, 3, 9, 9, 6, 7}));

  std::optional<MetricLog> made_in_inference_mode;
  {
    const c10::InferenceMode inference;
    made_in_inference_mode.emplace(device, 2);
  }
  for (int i = 0; i < 5; ++i) made_in_inference_mode->push(loss);
  EXPECT_EQ(made_in_inference_mode->values(), std::vector<double>(5, 9));
}

TEST(MetricLog, CopiesOnceABlockAndReadsNothing) {
  USE_GPU_TEST_NEEDS(1);
  const auto value = torch::ones({}, gpu());
  const TransferLedger ledger;
  MetricLog log(gpu(), 64);
  for (int i = 0; i < 1000; ++i) log.push(value);
  EXPECT_EQ(ledger.count(TransferDirection::device_to_host).copies, 1000 / 64);
  EXPECT_EQ(ledger.count(TransferDirection::device_to_host).bytes, 1000 / 64 * 64 * 8);
  EXPECT_EQ(ledger.item_reads(), 0);

  EXPECT_EQ(log.values().size(), 1000U);
  EXPECT_EQ(ledger.count(TransferDirection::device_to_host).copies, 1000 / 64 + 1);
  EXPECT_EQ(ledger.count(TransferDirection::device_to_host).bytes, 1000 * 8);
  EXPECT_EQ(ledger.item_reads(), 0);

  std::vector<double> naive;
  for (int i = 0; i < 1000; ++i) naive.push_back(value.item<double>());
  EXPECT_EQ(ledger.item_reads(), 1000);
  EXPECT_EQ(naive, log.values());
}

TEST(MetricLog, IsAllowedByEachGuardAndScope) {
  const auto device = try_gpu();
  const auto value = torch::ones({}, device);
  const TransferGuard guard;
  const DefaultDeviceGuard scope(try_gpu(1));
  MetricLog log(device, 2);
  for (int i = 0; i < 5; ++i) log.push(value);
  EXPECT_EQ(log.values(), std::vector<double>(5, 1));
}

TEST(MetricLog, WritesCopiesToItsBlock) {
  USE_GPU_TEST_NEEDS(1);
  const auto allocations = [] {
    return at::accelerator::getDeviceStats(0).allocation[0].allocated;
  };
  const auto value = torch::ones({1, 1}, gpu());
  MetricLog log(gpu(), /*block_size=*/128);
  const auto before = allocations();
  for (int i = 0; i < 1000; ++i) log.push(value);
  EXPECT_EQ(allocations(), before);
}

TEST(MetricLog, KeepsNoMoreOfTheDevicesMemoryThanABlockOfValues) {
  USE_GPU_TEST_NEEDS(1);
  const auto allocated = [] {
    return at::accelerator::getDeviceStats(0).allocated_bytes[0].current;
  };
  const auto value = torch::ones({}, gpu());
  const auto before = allocated();
  MetricLog log(gpu(), /*block_size=*/128);
  for (int i = 0; i < 10'050; ++i) {
    log.push(value.clone());
    ASSERT_LE(allocated() - before, 128 * 512 + 128 * 8);
  }
}

// A temporary of a GPU that is kept; what would change it afterwards must not.
TEST(MetricLog, KeepsNoValueThatSomebodyElseCanChange) {
  for (const auto device : try_all_gpus()) {
    MetricLog log(device, 100);
    auto total = torch::zeros({}, device);
    for (int i = 1; i <= 3; ++i) log.push(total.add_(1));  // an accumulator
    const auto row = torch::full({2}, 4.F, device);
    log.push(row[0]);  // a view
    row.zero_();
    auto copy = torch::full({}, 5.F, device);
    const auto other = copy;
    log.push(std::move(copy));  // NOLINT(bugprone-use-after-move): tested below
    EXPECT_TRUE(copy.defined());
    other.zero_();
    const auto owner = torch::full({}, 6.F, device);
    log.push(torch::from_blob(owner.data_ptr(), {}, owner.options()));  // somebody else's memory
    owner.zero_();
    const auto weight = torch::full({2}, 3.F, device).requires_grad_();
    auto saved = (weight * weight).sum().exp();  // autograd saves its result
    const auto graph = saved.grad_fn();
    log.push(std::move(saved));
    auto values = log.values();
    EXPECT_NEAR(values.back() / std::exp(18.), 1, 1e-3);
    values.pop_back();
    EXPECT_EQ(values, one_to(6));
  }
}

TEST(MetricLog, TakesALazilyNegatedValue) {
  const auto device = try_gpu();
  const c10::InferenceMode inference;  // in which a view does not keep what it views
  MetricLog log(device);
  log.push(torch::imag(torch::full({}, c10::complex<float>(1, 2), device).conj()));
  EXPECT_EQ(log.values(), std::vector<double>{-2});
}

TEST(MetricLog, KeepsNoGraph) {
  USE_GPU_TEST_NEEDS(1);
  const auto allocated = [] {
    return at::accelerator::getDeviceStats(0).allocated_bytes[0].current;
  };
  MetricLog log(gpu());
  const auto weight = torch::ones({1 << 20}, gpu()).requires_grad_();
  const auto before = allocated();
  for (int i = 0; i < 5; ++i) log.push((weight * weight).exp().sum());
  EXPECT_LE(allocated() - before, 5 * 512);
  EXPECT_EQ(log.size(), 5);
}

TEST(MetricLog, KeepsTheOrderOfKeptAndCopiedValuesOfAllDtypes) {
  for (const auto device : try_all_gpus()) {
    for (const std::int64_t block : {1, 2, 3, 7, 64}) {
      MetricLog log(device, block);
      for (int i = 1; i <= 50; ++i) {
        const auto dtype = i % 3 == 0 ? torch::kLong : i % 3 == 1 ? torch::kHalf : torch::kBFloat16;
        auto value = torch::full({}, i, torch::TensorOptions(device).dtype(dtype));
        if (i % 4 == 0) {
          log.push(value);
        } else {
          log.push(std::move(value));
        }
        EXPECT_EQ(log.size(), i);
        if (i % 17 == 0) {
          EXPECT_EQ(log.values(), one_to(i));
        }
      }
      EXPECT_EQ(log.values(), one_to(50)) << device << ", blocks of " << block;
    }
  }
}

TEST(MetricLog, LaunchesNoKernelForAValueThatNobodyElseHolds) {
  if (!test::is_dry_run()) GTEST_SKIP() << "needs simulate_gpus --dry-run";
  const auto x = torch::ones({3}, gpu());
  MetricLog log(gpu(), 1000);
  const auto kernels_of = [&](const auto& work) {
    const auto before = test::runtime_count("kernels");
    for (int i = 0; i < 1000; ++i) work();
    return test::runtime_count("kernels") - before;
  };
  const auto norms = kernels_of([&] { (void)x.norm(); });
  EXPECT_EQ(norms, 1000);
  EXPECT_LE(kernels_of([&] { log.push(x.norm()); }), norms + 10);
  EXPECT_LE(kernels_of([&] { log.push(x.max()); }), kernels_of([&] { (void)x.max(); }) + 10);
}

TEST(MetricLog, FollowsTheCurrentStream) {
  USE_GPU_TEST_NEEDS(1);
  const c10::impl::VirtualGuardImpl streams(gpu().type());
  const auto first = streams.getStream(gpu());
  MetricLog log(gpu(), 4);
  for (std::int64_t i = 1; i <= 41; ++i) {
    const c10::StreamGuard scope(i % 3 == 0 ? first : streams.getStreamFromGlobalPool(gpu()));
    log.push(number(static_cast<double>(i), gpu()));
  }
  EXPECT_EQ(log.values(), one_to(41));
}

// Memory goes back to the stream that it was allocated in, before the block that has the value is
// written in another.
TEST(MetricLog, KeepsTheMemoryOfAValueFromAnotherStream) {
  USE_GPU_TEST_NEEDS(1);
  const c10::impl::VirtualGuardImpl streams(gpu().type());
  const auto first = streams.getStreamFromGlobalPool(gpu());
  const auto second = streams.getStreamFromGlobalPool(gpu());
  for (const std::int64_t block :
       {1, 2, 3}) {  // as the last value of a block, before it, and alone
    MetricLog log(gpu(), block);
    at::Tensor value;
    {
      const c10::StreamGuard scope(first);
      value = number(7, gpu());
    }
    first.synchronize();
    std::vector<at::Tensor> next;
    {
      const c10::StreamGuard scope(second);
      const auto last = number(8, gpu());
      log.push(std::move(value));
      if (block == 2) log.push(last);
      value.reset();
      const c10::StreamGuard back(first);
      for (int i = 0; i < 10; ++i) next.push_back(torch::full({}, 9., gpu()));
      first.synchronize();
    }
    const c10::StreamGuard scope(second);
    EXPECT_EQ(log.values().front(), 7) << "blocks of " << block;
  }
}

TEST(MetricLog, CanBeDestroyedAndMovedWithCopiesUnderWay) {
  const auto device = try_gpu();
  for (std::int64_t n = 0; n < 12; ++n) {
    MetricLog log(device, 3);
    push_one_to(log, n, device);
    MetricLog moved(std::move(log));
    moved.push(number(static_cast<double>(n + 1), device));
    MetricLog assigned(device, 3);
    push_one_to(assigned, 7, device);
    assigned = std::move(moved);
    EXPECT_EQ(assigned.values(), one_to(n + 1));
    push_one_to(assigned, 7, device);
  }
  synchronize(device);
}

}  // namespace
}  // namespace use_gpu
