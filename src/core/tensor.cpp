// SPDX-License-Identifier: MIT
#include <use_gpu/tensor.hpp>

#include <ATen/ATen.h>
#include <use_gpu/allow_transfers.hpp>
#include <use_gpu/device.hpp>

#include <algorithm>
#include <ostream>
#include <sstream>

#include "core/device_check.hpp"
#include "core/messages/tensor_summary.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

void check_defined(std::string_view operation, std::string_view name, const at::Tensor& x) {
  if (x.defined()) return;
  throw ArgumentError(c10::str(operation, ": ", name,
                               " is an undefined tensor; give it a value first, for "
                               "example with torch::ones."));
}

}  // namespace

at::Tensor to_device(const at::Tensor& x, c10::Device device) {
  check_defined("to_device", "x", x);
  device = detail::present_device(device);
  if (same_device(x.device(), device)) return x;
  const AllowTransfers certain;
  return x.to(device);
}

at::Tensor copy_to(const at::Tensor& x, c10::Device device) {
  check_defined("copy_to", "x", x);
  device = detail::present_device(device);
  const AllowTransfers certain;
  return x.to(device, x.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

at::Tensor checked_add(const at::Tensor& x, const at::Tensor& y) {
  // The common case is fast: the budget of this check is 1 % of x.add(y).
  if (C10_UNLIKELY(!x.defined() || !y.defined() || x.device() != y.device())) {
    check_same_device("checked_add", {{"x", x}, {"y", y}});
  }
  return x.add(y);
}

void check_same_device(std::string_view operation, c10::ArrayRef<Operand> operands) {
  const Operand* first = nullptr;
  for (const auto& operand : operands) {
    check_defined(operation, operand.name, operand.tensor);
    // LibTorch lets such a tensor take part in any device's operation, as a number.
    if (operand.tensor.dim() == 0 && operand.tensor.is_cpu()) continue;
    if (first == nullptr) first = &operand;
    if (same_device(first->tensor.device(), operand.tensor.device())) continue;
    throw DeviceMismatch(
        c10::str(operation, ": ", first->name, " is ", describe(first->tensor), ", ", operand.name,
                 " is ", describe(operand.tensor),
                 ". Both must be on one device; move one, for example with use_gpu::to_device(",
                 operand.name, ", ", first->name, ".device())."));
  }
}

std::string describe(const at::Tensor& x) {
  if (!x.defined()) return "undefined tensor";
  const auto layout = x.layout() == c10::kStrided ? "" : c10::str(' ', x.layout());
  return c10::str(detail::dtype_and_shape(x), layout, " on ", x.device());
}

Shown show(const at::Tensor& x) { return {x}; }

std::ostream& operator<<(std::ostream& out, const Shown& shown) {
  const at::Tensor& x = shown.tensor;
  if (!x.defined() || x.is_meta()) return out << describe(x);  // nothing to see
  std::ostringstream values;
  at::print(values, to_device(x, cpu()), /*linesize=*/80);
  std::string text = values.str();
  // LibTorch ends with "[ CPUFloatType{2,3} ]", which would name the device of the printed copy.
  if (x.layout() == c10::kStrided) text.resize(std::min(text.size(), text.rfind("[ ")));
  return out << text << describe(x);
}

}  // namespace use_gpu
