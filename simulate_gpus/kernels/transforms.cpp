// SPDX-License-Identifier: MIT
#include "kernels/transforms.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <vector>

namespace simulate_gpus {
namespace {

using Numbers = std::vector<std::int64_t>;

constexpr std::size_t k_most_dimensions = 3;  // of one transform of cuFFT

Numbers contiguous(const Numbers& sizes) {
  Numbers strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<std::int64_t>(sizes[i], 1);
  return strides;
}

void sort_by_stride(Numbers& dimensions, const Numbers& strides) {
  std::ranges::sort(dimensions, std::ranges::greater(),
                    [&](std::int64_t d) { return strides[static_cast<std::size_t>(d)]; });
}

// One call of cuFFT: its result is contiguous with the transformed dimensions last, in their order, and the others before
// them as they lie in the operand.
Numbers after_step(const Numbers& operand, const Numbers& sizes, const Numbers& transformed) {
  Numbers order;
  for (std::int64_t d = 0; d < std::ssize(sizes); ++d)
    if (std::ranges::count(transformed, d) == 0) order.push_back(d);
  sort_by_stride(order, operand);
  order.insert(order.end(), transformed.begin(), transformed.end());
  Numbers strides(sizes.size());
  std::int64_t stride = 1;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    strides[static_cast<std::size_t>(*d)] = stride;
    stride *= sizes[static_cast<std::size_t>(*d)];
  }
  return strides;
}

// As many dimensions at a time as cuFFT takes, those that lie closest first.
Numbers after_steps(Numbers strides, const Numbers& sizes, Numbers dimensions) {
  while (!dimensions.empty()) {
    sort_by_stride(dimensions, strides);
    const auto count = std::min(k_most_dimensions, dimensions.size());
    const auto first = dimensions.end() - static_cast<std::ptrdiff_t>(count);
    strides = after_step(strides, sizes, Numbers(first, dimensions.end()));
    dimensions.erase(first, dimensions.end());
  }
  return strides;
}

bool is_one_step(const Numbers& dimensions) {
  const bool begins_with_0_and_1 =
      dimensions.size() >= 2 && dimensions[0] == 0 && dimensions[1] == 1;
  return dimensions.size() <= k_most_dimensions && !begins_with_0_and_1;
}

Numbers strides_of(const std::string& name, const at::Tensor& x, const Numbers& dimensions,
                   const Numbers& sizes, bool is_onesided) {
  const Numbers others(dimensions.begin(), dimensions.end() - 1), last{dimensions.back()};
  if (name == "aten::_fft_c2c") return after_steps(x.strides().vec(), sizes, dimensions);
  if (name == "aten::_fft_c2r") {
    const Numbers copied = contiguous(x.sizes().vec());
    if (is_one_step(dimensions)) return after_step(copied, sizes, dimensions);
    return after_step(
        others.empty() ? copied : after_steps(x.strides().vec(), x.sizes().vec(), others), sizes,
        last);
  }
  if (is_one_step(dimensions)) return after_step(x.strides().vec(), sizes, dimensions);
  if (!others.empty() && !is_onesided) return contiguous(sizes);  // the other half is filled in
  return after_steps(after_step(x.strides().vec(), sizes, last), sizes, others);
}

}  // namespace

void lay_out_transform(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments,
                       torch::jit::Stack& results) {
  const Numbers dimensions = arguments[1].toIntList().vec();
  if (!schema.overload_name().empty() || dimensions.empty()) return;
  const at::Tensor& result = results[0].toTensor();
  const bool is_onesided = schema.name() == "aten::_fft_r2c" && arguments[3].toBool();
  const Numbers strides = strides_of(schema.name(), arguments[0].toTensor(), dimensions,
                                     result.sizes().vec(), is_onesided);
  if (result.strides() != strides)
    results[0] = at::empty_strided(result.sizes(), strides, result.options()).copy_(result);
}

}  // namespace simulate_gpus
