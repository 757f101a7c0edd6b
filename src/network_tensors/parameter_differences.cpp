// SPDX-License-Identifier: MIT
#include "network_tensors/parameter_differences.hpp"

#include <ATen/MemoryOverlap.h>
#include <use_gpu/errors.hpp>

#include <utility>

#include "messages/message.hpp"
#include "tensor_summary.hpp"

namespace use_gpu::detail {

std::string trouble_with(const at::Tensor& x) {
  if (x.layout() != c10::kStrided || x.is_nested()) return "not dense";
  if (x.is_meta()) return "without values (meta)";
  if (x.is_quantized()) return "quantized";
  return {};
}

std::string difference(const at::Tensor& target, const at::Tensor& value) {
  if (!value.defined()) return "was given an undefined tensor";
  for (const auto& x : {target, value}) {
    const auto trouble = trouble_with(x);
    if (!trouble.empty()) return "is " + trouble;
  }
  if (target.scalar_type() != value.scalar_type() || target.sizes() != value.sizes()) {
    return "is " + dtype_and_shape(target) + " in the network, but " + dtype_and_shape(value) +
           " was given";
  }
  if (at::has_internal_overlap(target) == at::MemOverlap::Yes)
    return "overlaps itself (by expand()?)";
  return {};
}

void throw_parameter_error(const std::string& message, Differences differences) {
  throw ParameterError(printable(message), std::move(differences));
}

void throw_if_any(const std::string& what, Differences differences) {
  constexpr std::size_t k_shown_bytes = 180;
  if (differences.empty()) return;
  std::string text = clipped(differences.front(), k_shown_bytes);
  std::size_t shown = 1;
  for (; shown < differences.size(); ++shown) {
    if (text.size() + differences[shown].size() > k_shown_bytes) break;
    text += "; " + differences[shown];
  }
  if (shown < differences.size()) {
    text += "; and " + std::to_string(differences.size() - shown) + " more in differences()";
  }
  throw_parameter_error(what + ": " + text, std::move(differences));
}

}  // namespace use_gpu::detail
