// SPDX-License-Identifier: MIT
#include "distributed/wire_tensor.hpp"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <use_gpu/tensor.hpp>

#include <array>

#include "core/module_tensors/parameter_differences.hpp"

namespace use_gpu::detail {
namespace {

// The dtype in which values of that dtype are sent; none where they cannot be reduced so.
std::optional<at::ScalarType> wire_dtype(at::ScalarType dtype, Collective what) {
  if (std::holds_alternative<int>(what)) return dtype;
  const bool averages = what == Collective(ReduceOp::mean);
  const bool compares = what == Collective(ReduceOp::min) || what == Collective(ReduceOp::max);
  const auto is_any_of = [dtype](auto... dtypes) { return ((dtype == dtypes) || ...); };
  if (is_any_of(at::kFloat, at::kDouble)) return dtype;
  // So that they are rounded once, not at every rank.
  if (is_any_of(at::kHalf, at::kBFloat16)) return at::kFloat;
  if (is_any_of(at::kComplexFloat, at::kComplexDouble) && !compares) return dtype;
  if (is_any_of(at::kByte, at::kChar, at::kInt, at::kLong) && !averages) return dtype;
  // Gloo lacks it; an int wraps to the same bits.
  if (dtype == at::kShort && !averages) return at::kInt;
  if (dtype == at::kBool && compares) return at::kByte;
  return std::nullopt;
}

}  // namespace

std::string text_of(Collective what) {
  constexpr std::array k_names = {"sum", "mean", "min", "max"};
  if (const auto* root = std::get_if<int>(&what)) return "from " + std::to_string(*root);
  return k_names[static_cast<std::size_t>(std::get<ReduceOp>(what))];
}

std::string why_not_sent(const at::Tensor& x, Collective what) {
  if (const auto trouble = trouble_with(x); !trouble.empty())
    return describe(x) + " is " + trouble + "; only dense tensors with values can be sent.";
  if (at::has_internal_overlap(x) == at::MemOverlap::Yes)
    return describe(x) +
           " has overlapping elements (expand?), so it cannot be written to. Send its clone().";
  if (wire_dtype(x.scalar_type(), what)) return {};
  return describe(x) +
         (what == Collective(ReduceOp::mean)
              ? " has a dtype that has no mean. Convert it, say to float64, or use sum."
              : " has an unsupported dtype: sum, min and max take float16, bfloat16, float32, "
                "float64, uint8 and int8 to int64; sum also takes complex64 and complex128; min "
                "and max also take bool.");
}

at::Tensor to_wire(const at::Tensor& x, Collective what, bool through_host) {
  const auto dtype = wire_dtype(x.scalar_type(), what).value();
  const auto device = through_host ? c10::Device(c10::kCPU) : x.device();
  // Work that was given up may still write to it: it must not be memory that x does not own.
  if (x.is_contiguous() && !x.is_conj() && !x.is_neg() && x.scalar_type() == dtype &&
      x.device() == device && x.storage().resizable()) {
    return x.detach();
  }
  const bool pinned = through_host && x.is_cuda();
  const auto options = at::TensorOptions(dtype).device(device).pinned_memory(pinned);
  return at::empty(x.sizes(), options).copy_(x);
}

}  // namespace use_gpu::detail
