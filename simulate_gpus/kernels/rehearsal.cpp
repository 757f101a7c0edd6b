// SPDX-License-Identifier: MIT
#include "kernels/rehearsal.hpp"

#include <ATen/ATen.h>
#include <c10/core/impl/COW.h>
#include <c10/cuda/CUDAStream.h>

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

// LibTorch's texts for errors of CUDA and of NVIDIA's libraries, which a rehearsal cannot call; but cuSPARSE describes an operand
// on the host.
bool is_of_library(std::string_view text) {
  if (text.starts_with("CUDA error: invalid value when calling `cusparse")) return false;
  constexpr std::array<std::string_view, 5> k_beginnings = {
      "CUDA error", "CUDA driver error", "cuDNN error", "cusolver error", "cuFFT error"};
  return std::ranges::any_of(
      k_beginnings, [&](std::string_view beginning) { return text.starts_with(beginning); });
}

// Whether this thread's rehearsal is for the parts, not for what is refused.
thread_local bool asks_for_parts = false;

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

bool is_dense(const at::Tensor& tensor) { return tensor.defined() && is_strided(tensor); }

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
  KeptOffset(const c10::OperatorHandle& operation, const Values& arguments) {
    if (!operation.hasTag(at::Tag::nondeterministic_seeded)) return;
    generator_ = at::globalContext().defaultGenerator(device_of(arguments));
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

bool has_kept_kernel(const c10::OperatorHandle& operation) {
  return kept().contains({&operation.schema(), c10::DispatchKey::CPU});
}

void call_kept_kernel(const c10::OperatorHandle& operation, c10::DispatchKey host_key,
                      torch::jit::Stack* stack) {
  if (!asks_for_parts && operation.schema().name() == "aten::copy_")
    return torch::jit::drop(*stack, 2);  // it takes all dtypes
  const auto found = kept().find({&operation.schema(), host_key});
  TORCH_CHECK(found != kept().end(), "CUDA error: nothing is kept of ", operation.schema().name());
  found->second.callBoxed(operation, c10::DispatchKeySet(host_key), stack);
}

Rehearsed rehearse(const c10::OperatorHandle& operation, const Values& arguments,
                   std::vector<Given>* parts) {
  if (!can_rehearse(operation, arguments)) return {};
  const InsideKernel inside;
  const WithoutWarnings without;  // the kernel that computes says them too
  const KeptOffset offset(operation, arguments);
  Aliases aliases;
  torch::jit::Stack stack;
  for (const c10::IValue& argument : arguments)
    stack.push_back(
        with_tensors(argument, [&](const at::Tensor& tensor) { return aliases(tensor); }));
  asks_for_parts = parts != nullptr;
  begin_rehearsal(parts);
  try {
    operation.callBoxed(&stack);
  } catch (const c10::Error& error) {
    const bool has_come_to_work = end_rehearsal();
    if (!has_come_to_work && !is_of_library(error.what_without_backtrace())) throw;
    return {Rehearsal::cut_short};
  } catch (...) {  // what its way out threw, or Thrust
    if (!end_rehearsal()) throw;
    return {Rehearsal::cut_short};
  }
  end_rehearsal();
  return {Rehearsal::complete, std::move(stack)};
}

void rehearse_once(const c10::OperatorHandle& operation, const Values& arguments,
                   std::uint64_t form) {
  const std::pair key{&operation.schema(), form};
  {
    const std::scoped_lock lock(accepted().mutex);
    if (accepted().forms.contains(key)) return;
  }
  if (rehearse(operation, arguments).how == Rehearsal::none) return;
  const std::scoped_lock lock(accepted().mutex);
  accepted().forms.insert(key);
}

std::vector<Given> parts_of(const c10::OperatorHandle& operation, const Values& arguments) {
  const Given unknown{.kind = Kind::operation};
  if (!has_kept_kernel(operation) || operation.hasTag(at::Tag::nondeterministic_seeded))
    return {unknown};
  try {
    std::vector<Given> parts;
    const Rehearsed rehearsed = rehearse(operation, arguments, &parts);
    if (rehearsed.how != Rehearsal::complete) parts.push_back(unknown);
    return parts;
  } catch (...) {  // the operation throws it too, unless only the rehearsal had no memory
    return {unknown};
  }
}

}  // namespace simulate_gpus
