// SPDX-License-Identifier: MIT
#include "kernels/registration.hpp"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

#include "kernels/operation.hpp"
#include "kernels/own_kernels.hpp"
#include "runtime/interface.hpp"

namespace use_gpu::simulated_cuda {
namespace {

Registered registered;

std::set<std::string> words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

// Operations whose CUDA kernels run on the host and call the runtime: they allocate, make views, or
// transfer.
const std::set<std::string> k_kept = words(
    "_cudnn_init_dropout_state _efficientzerotensor _has_same_storage_numel _local_scalar_dense "
    "_pin_memory _reshape_alias _sparse_compressed_tensor_unsafe _sparse_coo_tensor_with_dims "
    "_sparse_coo_tensor_with_dims_and_tensors as_strided empty empty_quantized empty_strided "
    "is_pinned is_set_to pin_memory record_stream resize_ set_ unfold view view_as_complex "
    "view_as_real");

// The same for sparse tensors, made of dense ones.
const std::set<std::string> k_kept_sparse = words(
    "_coalesced_ clone copy_ copy_sparse_to_sparse_ empty empty_like resize_ resize_as_sparse_ "
    "sparse_resize_ sparse_resize_and_clear_ zero_ zeros");

// Composite operations that call NVIDIA's libraries or a kernel directly, not by the dispatcher.
const std::set<std::string> k_whole =
    words("convolution _convolution convolution_backward conj_physical_");

template <c10::DispatchKey host_key>
void computed(const c10::OperatorHandle& operation, c10::DispatchKeySet, torch::jit::Stack* stack) {
  compute(operation, host_key, stack);
}

void refused(const c10::OperatorHandle& operation, c10::DispatchKeySet, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "Simulated GPUs have no ", operation.schema().name(),
                              ": LibTorch has it only for GPUs. See docs/simulated_gpus.md");
}

bool returns_view(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.returns(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

bool returns_tensor(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.returns(), [](const c10::Argument& result) {
    return result.type()->isSubtypeOf(*c10::TensorType::get());
  });
}

// A sparse tensor's sizes and flags are on the host.
bool is_kept(const c10::FunctionSchema& schema, bool sparse) {
  const std::string name = schema.name().substr(std::string("aten::").size());
  return k_kept.contains(name) || returns_view(schema) ||
         (sparse && (k_kept_sparse.contains(name) || !returns_tensor(schema)));
}

std::string short_name(const c10::OperatorName& name) {
  const std::string base = name.name.substr(name.name.find("::") + 2);
  return name.overload_name.empty() ? base : base + '.' + name.overload_name;
}

// Never destroyed: what is registered stays until the end of the process.
torch::Library& library_of(c10::DispatchKey key) {
  static auto* const libraries = new std::deque<torch::Library>;
  return libraries->emplace_back(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
}

template <c10::DispatchKey device_key, c10::DispatchKey host_key>
void replace(torch::Library& library) {
  constexpr bool k_sparse = device_key != c10::DispatchKey::CUDA;
  auto& dispatcher = c10::Dispatcher::singleton();
  auto names = dispatcher.getRegistrationsForDispatchKey(device_key);
  if (!k_sparse) {
    for (const std::string& name : k_whole) names.emplace_back("aten::" + name, "");
  }
  for (const c10::OperatorName& name : names) {
    const auto operation = dispatcher.findOp(name);
    if (!name.name.starts_with("aten::") || !operation || !operation->hasSchema() ||
        is_kept(operation->schema(), k_sparse)) {
      continue;
    }
    const std::string own_name = short_name(name);
    const bool is_computed = operation->hasComputedKernelForDispatchKey(host_key);
    if (!is_computed && !returns_tensor(operation->schema())) continue;  // query or hint
    library.impl(own_name.c_str(),
                 is_computed ? torch::CppFunction::makeFromBoxedFunction<&computed<host_key>>()
                             : torch::CppFunction::makeFromBoxedFunction<&refused>());
    if (!k_sparse) (is_computed ? registered.computed : registered.refused).push_back(own_name);
  }
}

// LibTorch warns of each kernel that is registered twice.
struct Silent : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

}  // namespace

void mark_as_computed(const std::string& operation) {
  std::erase(registered.refused, operation);
  if (std::ranges::count(registered.computed, operation) == 0) {
    registered.computed.push_back(operation);
  }
}

}  // namespace use_gpu::simulated_cuda

using namespace use_gpu::simulated_cuda;

void simulated_cuda_replace_kernels() {
  Silent silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  at::globalContext().setUserEnabledCuDNN(false);
  at::globalContext().setSDPUseCuDNN(false);
  torch::Library& library = library_of(c10::DispatchKey::CUDA);
  if (simulated_cuda_is_dry_run()) {
    add_library_operations(library);
  } else {
    replace<c10::DispatchKey::CUDA, c10::DispatchKey::CPU>(library);
    add_copy(library);
    add_gpu_only(library);
  }
  replace<c10::DispatchKey::SparseCUDA, c10::DispatchKey::SparseCPU>(
      library_of(c10::DispatchKey::SparseCUDA));
  replace<c10::DispatchKey::SparseCsrCUDA, c10::DispatchKey::SparseCsrCPU>(
      library_of(c10::DispatchKey::SparseCsrCUDA));
}

const Registered* simulated_cuda_registered() { return &registered; }
