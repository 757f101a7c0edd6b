// SPDX-License-Identifier: MIT
#include "training/weighted_mean.hpp"

#include <torch/types.h>

#include <limits>

#include "support.hpp"

namespace use_gpu::detail {
namespace {

using Lists = std::vector<std::vector<at::Tensor>>;

// A list for each number: small and large tensors with this value, on the devices in turn.
Lists lists_of(const std::vector<double>& numbers, at::ScalarType dtype) {
  const auto devices = try_all_gpus();
  Lists lists;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto options = torch::TensorOptions(devices[i % devices.size()]).dtype(dtype);
    lists.push_back({torch::full({2, 3}, numbers[i], options), torch::full({}, numbers[i], options),
                     torch::full({4, 70000}, numbers[i], options).t()});
  }
  return lists;
}

void expect_all(const Lists& lists, double value) {
  for (const auto& list : lists) {
    for (const auto& x : list) EXPECT_TRUE(x.eq(value).all().item<bool>()) << x.sizes();
  }
}

TEST(WeightedMean, WritesIntoEveryListWhenTheStepsAreCalled) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    auto lists = lists_of({1, 2, 9}, dtype);
    const auto steps = weighted_mean(lists, {1, 2, 5});
    EXPECT_EQ(lists[2][0].sum().item<double>(), 6 * 9);
    for (const auto& step : steps) step();
    expect_all(lists, 6.25);
  }
}

TEST(WeightedMean, LeavesOutNanOfWeight0) {
  const auto lists = lists_of({3, std::numeric_limits<double>::quiet_NaN()}, at::kFloat);
  for (const auto& step : weighted_mean(lists, {4, 0})) step();
  expect_all(lists, 3);
}

TEST(WeightedMean, SumsHalfPrecisionInFloat32) {
  const auto lists = lists_of({60000, 60000, 60000, 60000}, at::kHalf);  // the largest is 65504
  for (const auto& step : weighted_mean(lists, {1, 1, 1, 1})) step();
  expect_all(lists, 60000);
}

}  // namespace
}  // namespace use_gpu::detail
