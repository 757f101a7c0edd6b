// SPDX-License-Identifier: MIT
#include "network_tensors/flat_buffers.hpp"

#include <torch/types.h>
#include <use_gpu/transfers.hpp>

#include "simulated_runtime.hpp"
#include "support.hpp"

namespace use_gpu::detail {
namespace {

at::Tensor megabytes(std::int64_t count, c10::Device device = cpu()) {
  return torch::empty({count << 20}, torch::TensorOptions(device).dtype(torch::kByte));
}

TEST(Buckets, HoldAtMost64MegabytesUnlessATensorIsLarger) {
  const std::vector<at::Tensor> tensors{megabytes(30), megabytes(34),
                                        megabytes(1),  megabytes(65),
                                        megabytes(1),  torch::empty({0}, torch::kByte)};
  EXPECT_EQ(buckets(tensors), (std::vector<Bucket>{{0, 1}, {2}, {3}, {4, 5}}));
  EXPECT_TRUE(buckets({}).empty());
}

TEST(Buckets, HaveOneDeviceAndOneDtype) {
  const auto device = try_gpu();
  const std::vector<at::Tensor> tensors{
      torch::ones({2}), torch::ones({2}, device), torch::ones({2}, torch::kDouble),
      torch::ones({2}), torch::ones({3}, device), torch::ones({}, torch::kDouble)};
  const auto expected = device.is_cpu() ? std::vector<Bucket>{{0, 1, 3, 4}, {2, 5}}
                                        : std::vector<Bucket>{{0, 3}, {1, 4}, {2, 5}};
  EXPECT_EQ(buckets(tensors), expected);
}

TEST(Flatten, IsUndoneByUnflatten) {
  for (const auto device : try_all_gpus()) {
    const auto z = torch::view_as_complex(torch::arange(4.F, device).view({2, 2}));
    for (const auto& tensors :
         {std::vector<at::Tensor>{torch::ones({2, 3}, device), torch::full({}, 2.F, device),
                                  torch::empty({0, 2}, device), torch::rand({3, 2}, device).t()},
          std::vector<at::Tensor>{z, z.conj()}, std::vector<at::Tensor>{z.conj()}}) {
      const auto flat = flatten(tensors);
      EXPECT_EQ(flat.dim(), 1);
      EXPECT_EQ(flat.device(), tensors[0].device());
      const auto views = unflatten(flat, tensors);
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        EXPECT_TRUE(views[i].equal(tensors[i]));
        EXPECT_TRUE(views[i].is_alias_of(flat));
      }
    }
  }
}

TEST(Flatten, CopiesNothingThatIsAloneAndContiguous) {
  const auto x = torch::rand({2, 3}, try_gpu());
  EXPECT_TRUE(flatten({x}).is_alias_of(x));
}

TEST(GatherToHost, TakesOneTransferForEach64Megabytes) {
  USE_GPU_TEST_NEEDS(2);
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < 100; ++i) tensors.push_back(torch::full({i}, i, gpu(i % 2)));
  const auto large = megabytes(65, gpu()).random_();
  tensors.push_back(large);
  tensors.push_back(torch::ones({2}));
  const TransferLedger ledger;
  const auto host = gather_to_host(tensors);
  EXPECT_EQ(ledger.count(TransferDirection::device_to_host).copies, 4) << "the large one takes two";
  EXPECT_TRUE(host[100].equal(large.cpu()));
  for (int i = 0; i < 100; ++i) {
    const auto& x = host[static_cast<std::size_t>(i)];
    EXPECT_TRUE(x.equal(torch::full({i}, i))) << i;
    EXPECT_EQ(x.storage().nbytes(), x.nbytes());
  }
  EXPECT_TRUE(host.back().is_same(tensors.back()));
}

constexpr at::ScalarType k_every_dtype[] = {at::kBool,
                                            at::kByte,
                                            at::kChar,
                                            at::kShort,
                                            at::kInt,
                                            at::kLong,
                                            at::kUInt16,
                                            at::kUInt32,
                                            at::kUInt64,
                                            at::kHalf,
                                            at::kBFloat16,
                                            at::kFloat,
                                            at::kDouble,
                                            at::kComplexHalf,
                                            at::kComplexFloat,
                                            at::kComplexDouble,
                                            at::kFloat8_e5m2,
                                            at::kFloat8_e4m3fn,
                                            at::kFloat8_e8m0fnu,
                                            at::kFloat8_e5m2fnuz,
                                            at::kFloat8_e4m3fnuz,
                                            at::kFloat4_e2m1fn_x2};

// Of any dtype: bits that are 0 or 1.
at::Tensor bits(at::ScalarType dtype, c10::Device device) {
  const auto size = static_cast<std::int64_t>(c10::elementSize(dtype));
  return torch::randint(2, {3 * size}, torch::TensorOptions(device).dtype(at::kByte)).view(dtype);
}

TEST(EachCopy, CopiesEveryDtypeAlsoInOneCall) {
  for (const auto device : try_all_gpus()) {
    std::vector<at::Tensor> values;
    std::vector<at::Tensor> targets;
    for (const auto dtype : k_every_dtype) {
      values.push_back(bits(dtype, device));
      targets.push_back(torch::zeros_like(values.back().view(at::kByte)).view(dtype));
    }
    EachCopy(values, targets).run();
    if (test::is_dry_run()) continue;  // nothing is computed
    for (std::size_t i = 0; i < targets.size(); ++i)
      EXPECT_TRUE(targets[i].view(at::kByte).equal(values[i].view(at::kByte))) << k_every_dtype[i];
  }
}

TEST(EachCopy, CopiesWhateverTheStrides) {
  for (const auto device : try_all_gpus()) {
    const auto z = torch::view_as_complex(torch::rand({2, 3, 2}, device));
    const auto values = {torch::rand({2, 3}, device), torch::rand({3, 2}, device).t(), z, z.conj(),
                         z.conj()};
    std::vector<at::Tensor> targets{
        torch::zeros({3, 2}, device).t(), torch::zeros({2, 6}, device).slice(1, 0, 6, 2),
        torch::zeros_like(z).conj(), torch::zeros_like(z), torch::zeros_like(z).conj()};
    EachCopy(std::vector<at::Tensor>(values), targets).run();
    if (test::is_dry_run()) continue;
    std::size_t i = 0;
    for (const auto& value : values) EXPECT_TRUE(targets[i++].equal(value)) << i;
  }
}

TEST(EachCopy, TellsAutogradThatTheValuesChanged) {
  std::vector<at::Tensor> targets{torch::zeros({3}), torch::zeros({3}, at::kUInt16),
                                  torch::zeros({2, 3}).t()};
  std::vector<at::Tensor> values;
  for (const auto& x : targets) values.push_back(torch::ones_like(x).contiguous());
  {
    const c10::InferenceMode inference;
    EachCopy(values, targets).run();
  }
  for (const auto& x : targets) EXPECT_GT(x._version(), 0) << x;
}

TEST(EachCopy, TakesFewKernelsAlsoBesideATensorThatIsUnlike) {
  if (!test::is_dry_run()) GTEST_SKIP() << "needs simulate_gpus --dry-run";
  std::vector<at::Tensor> values(1000, torch::ones({8, 8}, gpu()));
  values.push_back(torch::ones({8, 8}, torch::TensorOptions(gpu()).dtype(at::kUInt16)));
  std::vector<at::Tensor> targets;
  for (const auto& value : values) targets.push_back(torch::empty_like(value));
  values.push_back(torch::ones({8, 8}, gpu()).t());
  targets.push_back(torch::ones({8, 8}, gpu()));
  const auto before = test::runtime_count("kernels");
  EachCopy(values, targets).run();
  EXPECT_LE(test::runtime_count("kernels") - before, 20);
}

TEST(Scatter, TakesOneTransferForEach64Megabytes) {
  USE_GPU_TEST_NEEDS(2);
  std::vector<at::Tensor> values;
  std::vector<at::Tensor> targets;
  const auto add = [&](const at::Tensor& value, const at::Tensor& target) {
    values.push_back(value);
    targets.push_back(target);
  };
  for (int i = 0; i < 100; ++i)
    add(torch::full({i, 2}, i),
        torch::zeros({2, i}, torch::TensorOptions(gpu(i % 2)).dtype(torch::kLong)).t());
  add(torch::full({3}, 7.F, gpu(1)), torch::zeros({3}, gpu(1)));
  add(torch::full({3}, 8.F), torch::zeros({3}, gpu(1)));
  add(torch::full({3}, 9.F), torch::zeros({3}));
  add(megabytes(65).random_(), megabytes(65, gpu()));
  const TransferLedger ledger;
  scatter(values, targets);
  EXPECT_EQ(ledger.count(TransferDirection::host_to_device).copies, 5) << "the large one takes two";
  EXPECT_EQ(ledger.count(TransferDirection::device_to_device).copies, 0);
  for (std::size_t i = 0; i < targets.size(); ++i)
    EXPECT_TRUE(targets[i].to(cpu()).equal(values[i].to(cpu()))) << i;
}

}  // namespace
}  // namespace use_gpu::detail
