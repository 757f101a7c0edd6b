// SPDX-License-Identifier: MIT
#include "communicator/wire_tensor.hpp"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <use_gpu/errors.hpp>
#include <use_gpu/tensor.hpp>

#include "network_tensors/parameter_differences.hpp"

namespace use_gpu::detail {

std::string trouble_with_root(int root, int size) {
  if (root >= 0 && root < size) return {};
  return "there is no rank " + std::to_string(root) + " in a group of " + std::to_string(size) +
         "; the root is one of 0 to " + std::to_string(size - 1) + '.';
}

std::optional<at::ScalarType> reduction_dtype(at::ScalarType dtype, ReduceOp how) {
  const bool compares = how == ReduceOp::min || how == ReduceOp::max;
  switch (dtype) {
    case at::kFloat:
    case at::kDouble:
      return dtype;
    case at::kHalf:
    case at::kBFloat16:
      return at::kFloat;  // so that it is rounded once, not at every rank
    case at::kComplexFloat:
    case at::kComplexDouble:
      if (!compares) return dtype;
      break;
    case at::kByte:
    case at::kChar:
    case at::kInt:
    case at::kLong:
      if (how != ReduceOp::mean) return dtype;
      break;
    case at::kShort:
      if (how != ReduceOp::mean) return at::kInt;  // Gloo lacks it; an int wraps to the same bits
      break;
    case at::kBool:
      if (compares) return at::kByte;
      break;
    default:
      break;
  }
  return std::nullopt;
}

void check_collective(const std::string& operation, const at::Tensor& x, Collective what,
                      int size) {
  const auto refuse = [&](const std::string& why) { throw ArgumentError(operation + ": " + why); };
  if (!x.defined()) refuse("the tensor is undefined.");
  if (const auto trouble = trouble_with(x); !trouble.empty())
    refuse(describe(x) + " is " + trouble + ": only dense tensors with values can be sent.");
  if (at::has_internal_overlap(x) == at::MemOverlap::Yes) {
    refuse(describe(x) +
           " has overlapping elements (expand?), so it cannot be written to. Send its clone().");
  }
  if (const auto* root = std::get_if<int>(&what)) {
    if (const auto trouble = trouble_with_root(*root, size); !trouble.empty()) refuse(trouble);
  } else if (!reduction_dtype(x.scalar_type(), std::get<ReduceOp>(what))) {
    refuse(describe(x) +
           (std::get<ReduceOp>(what) == ReduceOp::mean
                ? " has a dtype without a mean. Convert it, say to float64, or use sum."
                : " has an unsupported dtype: sum, min and max take float16, bfloat16, float32, "
                  "float64, uint8 and int8 to int64; sum also takes complex64 and complex128; min "
                  "and max also take bool."));
  }
}

at::Tensor to_wire(const at::Tensor& x, at::ScalarType dtype, bool through_host) {
  const auto device = through_host ? c10::Device(c10::kCPU) : x.device();
  if (x.is_contiguous() && !x.is_conj() && !x.is_neg() && x.scalar_type() == dtype &&
      x.device() == device) {
    return x.detach();
  }
  const bool pinned = through_host && x.is_cuda();
  const auto options = at::TensorOptions(dtype).device(device).pinned_memory(pinned);
  return at::empty(x.sizes(), options).copy_(x);
}

void from_wire(const at::Tensor& wire, const at::Tensor& x) {
  if (wire.is_alias_of(x)) {
    x.unsafeGetTensorImpl()->bump_version();  // autograd sees writes by copy_ only
  } else {
    x.copy_(wire);
  }
}

}  // namespace use_gpu::detail
