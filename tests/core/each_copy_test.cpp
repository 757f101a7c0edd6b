// SPDX-License-Identifier: MIT
#include "core/copies/each_copy.hpp"

#include <torch/types.h>

#include "simulated_runtime.hpp"
#include "support.hpp"

namespace use_gpu::detail {
namespace {

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
    each_copy(values, targets)();
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
    each_copy(std::vector<at::Tensor>(values), targets)();
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
    each_copy(values, targets)();
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
  each_copy(values, targets)();
  EXPECT_LE(test::runtime_count("kernels") - before, 20);
}

}  // namespace
}  // namespace use_gpu::detail
