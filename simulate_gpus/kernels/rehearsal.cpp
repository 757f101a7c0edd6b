// SPDX-License-Identifier: MIT
#include "kernels/rehearsal.hpp"

#include <ATen/ATen.h>
#include <c10/core/impl/COW.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/hash.h>

#include <algorithm>
#include <array>
#include <functional>
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

// Whether all operands are dense, on one device, and of a dtype that every kernel has.
bool are_ordinary(const Values& arguments) {
  std::optional<c10::Device> device;
  bool are_ordinary = true;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      if (!device) device = tensor.device();
      const at::ScalarType dtype = tensor.scalar_type();
      are_ordinary &= (dtype == at::kFloat || dtype == at::kDouble) && tensor.is_cuda() &&
                      tensor.device() == *device && tensor.layout() == at::kStrided;
    });
  }
  return are_ordinary;
}

// What chooses one of an operation's kernels, and whether it has anything to do: dtypes, names, flags, small numbers,
// dimensions.
std::uint64_t form_of(const Values& arguments) {
  std::uint64_t form = 14695981039346656037U;  // FNV-1a
  const auto add = [&](std::uint64_t value) { form = (form ^ value) * 1099511628211U; };
  const auto add_small = [&](std::int64_t number) {
    add(static_cast<std::uint64_t>(std::clamp<std::int64_t>(number, -1, 2)));
  };
  for (const c10::IValue& argument : arguments) {
    add(static_cast<std::uint64_t>(argument.isNone()));
    if (argument.isBool()) add_small(argument.toBool() ? 1 : 0);
    if (argument.isInt()) add_small(argument.toInt());
    if (argument.isString()) add(std::hash<std::string>()(argument.toStringRef()));
    if (argument.isIntList())
      for (const std::int64_t number : argument.toIntList()) add_small(number);
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      add(static_cast<std::uint64_t>(tensor.scalar_type()));
      add(static_cast<std::uint64_t>(tensor.layout()));
      add(static_cast<std::uint64_t>(tensor.dim()));
      add_small(tensor.numel());
    });
  }
  return form;
}

// A rehearsal would make the copy, and copy nothing.
bool has_lazy_copy(const Values& arguments) {
  bool has_one = false;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      has_one |= tensor.defined() && tensor.has_storage() &&
                 c10::impl::cow::is_cow_data_ptr(tensor.storage().data_ptr());
    });
  }
  return has_one;
}

// What a kernel warns of, the one that computes says too.
struct Silence : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// Some operations stand for others, and have no kernel for GPUs.
bool has_own_kernel(const c10::OperatorHandle& operation) {
  return kept().contains({&operation.schema(), c10::DispatchKey::CPU});
}

bool is_dense(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_nested();
}

bool are_dense(const Values& arguments) {
  bool are_dense = true;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      are_dense &= !tensor.defined() || is_dense(tensor);
    });
  }
  return are_dense;
}

// Tensors with the memory of others. What a rehearsal gives another size, or more memory, is the alias.
class Aliases {
 public:
  at::Tensor operator()(const at::Tensor& tensor) {
    if (!is_dense(tensor) || !tensor.is_cuda() || !tensor.has_storage()) return tensor;
    at::Tensor& alias = tensors_[tensor.unsafeGetTensorImpl()];
    if (!alias.defined()) {
      auto impl = tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(
          c10::VariableVersion(0), /*allow_tensor_metadata_change=*/true);
      impl->set_storage_keep_dtype(alias_of(tensor.storage()));
      alias = at::Tensor(std::move(impl));
    }
    return alias;
  }

 private:
  // One for each storage: LibTorch compares them to find operands that overlap.
  c10::Storage alias_of(const c10::Storage& storage) {
    c10::Storage& alias = storages_[storage.unsafeGetStorageImpl()];
    if (!alias) {
      alias = c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(),
                           c10::DataPtr(const_cast<void*>(storage.data()), storage.device()),
                           storage.allocator(), storage.resizable());
    }
    return alias;
  }

  std::map<const c10::TensorImpl*, at::Tensor> tensors_;
  std::map<const c10::StorageImpl*, c10::Storage> storages_;
};

// A rehearsal draws random numbers; its end gives them back.
class KeptOffset {
 public:
  explicit KeptOffset(const Values& arguments)
      : generator_(at::globalContext().defaultGenerator(device_of(arguments))) {
    for (const c10::IValue& argument : arguments)
      if (argument.isGenerator()) generator_ = argument.toGenerator();
    if (!generator_.device().is_cuda()) return;
    const std::scoped_lock lock(generator_.mutex());
    offset_ = generator_.unsafeGetGeneratorImpl()->get_offset();
  }
  ~KeptOffset() {
    if (!offset_) return;
    const std::scoped_lock lock(generator_.mutex());
    generator_.set_offset(*offset_);
  }
  KeptOffset(const KeptOffset&) = delete;
  KeptOffset& operator=(const KeptOffset&) = delete;

 private:
  at::Generator generator_;
  std::optional<std::uint64_t> offset_;
};

// Whether a rehearsal leaves no trace. A capture keeps what is drawn in it.
bool can_rehearse(const c10::OperatorHandle& operation, const Values& arguments) {
  const c10::FunctionSchema& schema = operation.schema();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    bool is_safe = true;
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      is_safe &=
          !tensor.defined() || !tensor.is_cuda() || is_dense(tensor) || !writes_argument(schema, i);
    });
    if (!is_safe) return false;
  }
  if (has_lazy_copy(arguments)) return false;
  const c10::Device device = device_of(arguments);
  return !operation.hasTag(at::Tag::nondeterministic_seeded) ||
         !is_captured(c10::cuda::getCurrentCUDAStream(device.index()).stream());
}

}  // namespace

void keep_kernel(const c10::OperatorHandle& operation, c10::DispatchKey key,
                 c10::DispatchKey host_key) {
  kept().emplace(std::pair(&operation.schema(), host_key),
                 operation.getComputedKernelForDispatchKey(key));
}

void call_kept_kernel(const c10::OperatorHandle& operation, c10::DispatchKey host_key,
                      torch::jit::Stack* stack) {
  if (operation.schema().name() == "aten::copy_" &&
      torch::jit::peek(*stack, 0, 3).toTensor().is_cuda())
    return torch::jit::drop(*stack, 2);  // it takes all dtypes
  const auto found = kept().find({&operation.schema(), host_key});
  TORCH_CHECK(found != kept().end(), "CUDA error: nothing is kept of ", operation.schema().name());
  found->second.callBoxed(operation, c10::DispatchKeySet(host_key), stack);
}

bool rehearse(const c10::OperatorHandle& operation, const Values& arguments) {
  if (!can_rehearse(operation, arguments)) return false;
  const InsideKernel inside;
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard silent(&silence);
  std::optional<KeptOffset> offset;
  if (operation.hasTag(at::Tag::nondeterministic_seeded)) offset.emplace(arguments);
  Aliases aliases;
  torch::jit::Stack stack;
  for (const c10::IValue& argument : arguments)
    stack.push_back(
        with_tensors(argument, [&](const at::Tensor& tensor) { return aliases(tensor); }));
  begin_rehearsal();
  try {
    operation.callBoxed(&stack);
  } catch (const c10::Error& error) {
    const bool has_come_to_work = end_rehearsal();
    if (!has_come_to_work && !is_of_library(error.what_without_backtrace())) throw;
    return true;
  } catch (...) {  // what its way out threw, or Thrust
    if (!end_rehearsal()) throw;
    return true;
  }
  end_rehearsal();
  return true;
}

void rehearse_once(const c10::OperatorHandle& operation, const Values& arguments,
                   std::uint64_t form) {
  const std::pair key{&operation.schema(), form};
  {
    const std::scoped_lock lock(accepted().mutex);
    if (accepted().forms.contains(key)) return;
  }
  if (!rehearse(operation, arguments)) return;
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

void check_dtypes(const c10::OperatorHandle& operation, const Values& arguments) {
  if (are_ordinary(arguments) || !are_dense(arguments) || !has_own_kernel(operation)) return;
  rehearse_once(operation, arguments, form_of(arguments));
}

void check_library_operands(const c10::OperatorHandle& operation, const Values& arguments) {
  if (are_ordinary(arguments)) return;
  check_operands(operation, arguments, device_of(arguments));
  rehearse_once(operation, arguments, form_of(arguments));
}

}  // namespace simulate_gpus
