// SPDX-License-Identifier: MIT
#include "kernels/rehearsal.hpp"

#include <ATen/ATen.h>
#include <c10/util/hash.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/inside_kernel.hpp"
#include "runtime/interface.hpp"

namespace simulate_gpus {
namespace {

using Kept =
    std::map<std::pair<const c10::FunctionSchema*, c10::DispatchKey>, c10::SafeKernelFunction>;

// Filled before the program can call an operation, and never destroyed.
Kept& kept() {
  static auto* const kept = new Kept;
  return *kept;
}

// Operations with operands that their kernels take, though they are out of the ordinary.
struct Accepted {
  std::mutex mutex;
  std::set<std::pair<const c10::FunctionSchema*, std::uint64_t>> forms;
};
Accepted& accepted() {
  static auto* const accepted = new Accepted;
  return *accepted;
}

// LibTorch's texts for errors of CUDA and of NVIDIA's libraries, which a rehearsal cannot call.
bool is_of_library(std::string_view text) {
  constexpr std::array<std::string_view, 5> k_beginnings = {
      "CUDA error", "CUDA driver error", "cuDNN error", "cusolver error", "cuFFT error"};
  return std::ranges::any_of(
      k_beginnings, [&](std::string_view beginning) { return text.starts_with(beginning); });
}

// Operands that are elsewhere, and whether all are single values on the host, which many kernels take.
// The form tells which they are; it is 0 where there are none.
struct Strays {
  std::size_t form = 0;
  bool are_values = true;
};

Strays find_strays(const Values& arguments, c10::Device device) {
  Strays strays;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      if (!tensor.defined() || tensor.device() == device) return;
      const bool is_value = tensor.is_cpu() && tensor.dim() == 0;
      // What the program wrote as a number is one, whatever takes it.
      if (is_value && tensor.unsafeGetTensorImpl()->is_wrapped_number()) return;
      strays.are_values &= is_value;
      strays.form = c10::get_hash(strays.form, i, device, tensor.device(), tensor.dim() == 0);
    });
  }
  return strays;
}

// The dtypes of operands that are out of the ordinary: mixed, not plain ones of one device, or ones
// that not all kernels have. 0 for all others.
std::uint64_t form_of(const c10::OperatorHandle& operation, const Values& arguments) {
  std::optional<at::Tensor> first;
  bool is_ordinary = true;
  std::uint64_t form = 1;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      if (!first) first = tensor;
      form = form * 64 + static_cast<std::uint64_t>(tensor.scalar_type()) + 1;
      is_ordinary &= tensor.is_cuda() && tensor.layout() == at::kStrided &&
                     tensor.device() == first->device() &&
                     tensor.scalar_type() == first->scalar_type();
    });
  }
  if (!first) return 0;
  const at::ScalarType dtype = first->scalar_type();
  const std::string& name = operation.schema().name();
  const bool may_be_narrow =
      !name.starts_with("aten::_fft") && name.find("linalg") == std::string::npos;
  is_ordinary &= dtype == at::kFloat || dtype == at::kDouble || dtype == at::kComplexFloat ||
                 dtype == at::kComplexDouble ||
                 (may_be_narrow && (dtype == at::kHalf || dtype == at::kBFloat16));
  return is_ordinary ? 0 : form;
}

}  // namespace

void keep_kernel(const c10::OperatorHandle& operation, c10::DispatchKey key,
                 c10::DispatchKey host_key) {
  kept().emplace(std::pair(&operation.schema(), host_key),
                 operation.getComputedKernelForDispatchKey(key));
}

void call_kept_kernel(const c10::OperatorHandle& operation, c10::DispatchKey host_key,
                      torch::jit::Stack* stack) {
  const auto found = kept().find({&operation.schema(), host_key});
  TORCH_CHECK(found != kept().end(), "CUDA error: nothing is kept of ", operation.schema().name());
  found->second.callBoxed(operation, c10::DispatchKeySet(host_key), stack);
}

void rehearse(const c10::OperatorHandle& operation, const Values& arguments) {
  const InsideKernel inside;
  torch::jit::Stack stack = arguments;
  begin_rehearsal();
  try {
    operation.callBoxed(&stack);
  } catch (const c10::Error& error) {
    const bool has_come_to_work = end_rehearsal();
    if (!has_come_to_work && !is_of_library(error.what_without_backtrace())) throw;
    return;
  } catch (...) {  // what its way out threw
    end_rehearsal();
    throw;
  }
  end_rehearsal();
}

void rehearse_once(const c10::OperatorHandle& operation, const Values& arguments,
                   std::uint64_t form) {
  const std::pair key{&operation.schema(), form};
  {
    const std::scoped_lock lock(accepted().mutex);
    if (accepted().forms.contains(key)) return;
  }
  rehearse(operation, arguments);
  const std::scoped_lock lock(accepted().mutex);
  accepted().forms.insert(key);
}

void check_operands(const c10::OperatorHandle& operation, const Values& arguments,
                    c10::Device device) {
  const Strays strays = find_strays(arguments, device);
  if (strays.form == 0) return;
  if (strays.are_values || takes_other_devices(operation.schema())) {
    rehearse_once(operation, arguments, strays.form);
  } else {
    rehearse(operation, arguments);
    check_devices(arguments, device);
  }
}

void check_library_operands(const c10::OperatorHandle& operation, const Values& arguments) {
  const std::uint64_t form = form_of(operation, arguments);
  if (form == 0) return;
  check_operands(operation, arguments, device_of(arguments));
  rehearse_once(operation, arguments, form);
}

}  // namespace simulate_gpus
