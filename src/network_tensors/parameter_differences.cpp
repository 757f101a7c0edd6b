// SPDX-License-Identifier: MIT
#include "network_tensors/parameter_differences.hpp"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <use_gpu/errors.hpp>

#include <cstring>
#include <utility>

#include "messages/message.hpp"
#include "messages/tensor_summary.hpp"

namespace use_gpu::detail {
namespace {

// Whether the values, integers on the CPU, are the same as ones of that dtype.
bool stay_equal(const at::Tensor& values, at::ScalarType dtype) {
  if (values.numel() == 0) return true;
  const auto converted = values.to(dtype);
  const auto back = converted.to(values.scalar_type());
  if (std::memcmp(back.const_data_ptr(), values.contiguous().const_data_ptr(), back.nbytes()) != 0)
    return false;
  const bool was_signed = c10::isSignedType(values.scalar_type());
  if (was_signed == c10::isSignedType(dtype)) return true;
  return (was_signed ? values : converted).min().item<std::int64_t>() >= 0;
}

bool can_convert(at::ScalarType from, at::ScalarType to) {
  if (!c10::canCast(from, to)) return false;
  try {
    (void)at::empty({1}, at::TensorOptions(from).device(at::kCPU)).to(to);
    return true;
  } catch (const c10::Error&) {  // LibTorch lacks that conversion
    return false;
  }
}

}  // namespace

std::string trouble_with(const at::Tensor& x) {
  if (!x.defined()) return "undefined";
  if (x.layout() != c10::kStrided || x.is_nested()) return "not dense";
  if (x.is_meta()) return "without values (meta)";
  if (x.is_quantized()) return "quantized";
  return {};
}

std::string difference(const at::Tensor& target, const at::Tensor& value, bool may_convert) {
  if (!value.defined()) return "was given an undefined tensor";
  for (const auto& x : {target, value}) {
    const auto trouble = trouble_with(x);
    if (!trouble.empty()) return "is " + trouble;
  }
  const auto from = value.scalar_type();
  const auto to = target.scalar_type();
  if (target.sizes() != value.sizes() || (from != to && !may_convert)) {
    return "is " + dtype_and_shape(target) + " in the network, but " + dtype_and_shape(value) +
           " was given";
  }
  if (from != to && !can_convert(from, to)) {
    return "is " + dtype_and_shape(target) + " in the network, to which " + dtype_and_shape(value) +
           " cannot be converted";
  }
  if (from != to && c10::isIntegralType(from, /*includeBool=*/false) &&
      c10::isIntegralType(to, /*includeBool=*/false) && !stay_equal(value, to)) {
    return "is " + dtype_and_shape(target) +
           " in the network, which cannot hold all the integers of " + dtype_and_shape(value);
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
