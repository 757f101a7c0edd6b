// SPDX-License-Identifier: MIT
#include "kernels/registration.hpp"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/codegen/fuser/interface.h>
#include <torch/library.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "kernels/arguments.hpp"
#include "kernels/compute.hpp"
#include "kernels/inside_kernel.hpp"
#include "kernels/own_kernels.hpp"
#include "kernels/places.hpp"
#include "kernels/program_kernels.hpp"
#include "kernels/rehearsal.hpp"
#include "runtime/interface.hpp"
#include "runtime/settings.hpp"

// Of <torch/csrc/jit/tensorexpr/kernel.h>, which takes seconds to compile.
namespace torch::jit::tensorexpr {
TORCH_API bool setFallbackAllowed(bool value);
}

namespace simulate_gpus {
namespace {

Registered registered;

std::set<std::string> words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

// Operations whose CUDA kernels run on the host and call the runtime: they allocate, make views,
// transfer, or call other operations.
const std::set<std::string> k_kept = words(
    "_cudnn_init_dropout_state _efficientzerotensor _fused_sdp_choice _has_same_storage_numel "
    "_local_scalar_dense _pin_memory _reshape_alias _scaled_dot_product_cudnn_attention "
    "_scaled_dot_product_cudnn_attention_backward _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_efficient_attention_backward _scaled_dot_product_flash_attention "
    "_scaled_dot_product_flash_attention_backward _sparse_compressed_tensor_unsafe "
    "_sparse_coo_tensor_with_dims "
    "_sparse_coo_tensor_with_dims_and_tensors as_strided empty empty_quantized empty_strided "
    "is_pinned is_set_to pin_memory record_stream resize_ set_ unfold view view_as_complex "
    "view_as_real");

// The same for sparse tensors, made of dense ones.
const std::set<std::string> k_kept_sparse = words(
    "_coalesced_ clone copy_ copy_sparse_to_sparse_ empty empty_like resize_ resize_as_sparse_ "
    "sparse_resize_ sparse_resize_and_clear_ zero_ zeros");

// The same for nested tensors, whose sizes are on the host.
const std::set<std::string> k_kept_nested = words(
    "_nested_tensor_size _nested_tensor_storage_offsets _nested_tensor_strides _to_copy copy_ "
    "empty_like values");

// Composite operations that call NVIDIA's libraries or a kernel directly, not by the dispatcher. Not
// aten::convolution, which torch.jit.trace does not record: it records the _convolution inside.
const std::vector<c10::OperatorName> k_whole = {
    {"aten::_convolution", ""},   {"aten::convolution_backward", ""},
    {"aten::conj_physical_", ""}, {"aten::ldexp", "Tensor"},
    {"aten::ldexp", "out"},       {"aten::ldexp_", ""},
    {"aten::mode", "values"}};

bool are_lists_on_one_device(c10::ArrayRef<c10::IValue> arguments) {
  std::optional<c10::Device> first;
  bool are_on_one = true;
  for (const c10::IValue& argument : arguments) {
    if (!argument.isTensorList()) continue;
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!first) first = tensor.device();
      are_on_one &= tensor.device() == *first;
    });
  }
  return are_on_one;
}

// Lists on several devices are computed tensor by tensor, each on its own, as LibTorch's CUDA kernels
// do; the CPU's kernel does nothing else.
class ListComputingKernel : public c10::OperatorKernel {
 public:
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    const auto arguments = torch::jit::last(*stack, handle.schema().arguments().size());
    if (const auto place = handle.schema().argumentIndexWithName("scalars")) {
      const c10::IValue& numbers = arguments[static_cast<std::size_t>(*place)];
      TORCH_CHECK(!numbers.isTensor() || numbers.toTensor().is_cpu(),
                  "Expected scalars to be on CPU, got ", numbers.toTensor().device(), " instead.");
    }
    if (are_lists_on_one_device(arguments)) {
      on_one_device_(handle, keys, stack);
    } else {
      handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
    }
  }

 private:
  ComputingKernel on_one_device_{c10::DispatchKey::CPU};
};

template <c10::DispatchKey host_key>
void refused(const c10::OperatorHandle& operation, c10::DispatchKeySet, torch::jit::Stack* stack) {
  if (rehearses()) return call_kept_kernel(operation, host_key, stack);
  rehearse(operation, torch::jit::last(*stack, operation.schema().arguments().size()).vec());
  TORCH_CHECK_NOT_IMPLEMENTED(false, "Simulated GPUs have no ", operation.schema().name(),
                              ": LibTorch has it only for GPUs. See simulate_gpus/README.md");
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

// The sizes and flags of a tensor that is no plain one are on the host.
bool is_kept(const c10::FunctionSchema& schema, c10::DispatchKey key) {
  const std::string name = schema.name().substr(std::string("aten::").size());
  if (k_kept.contains(name) || returns_view(schema)) return true;
  if (key == c10::DispatchKey::CUDA) return false;
  const bool is_nested = key == c10::DispatchKey::NestedTensorCUDA;
  return (is_nested ? k_kept_nested : k_kept_sparse).contains(name) || !returns_tensor(schema);
}

template <c10::DispatchKey device_key, c10::DispatchKey host_key>
void replace(torch::Library& library) {
  constexpr bool k_plain = device_key == c10::DispatchKey::CUDA;
  auto& dispatcher = c10::Dispatcher::singleton();
  auto names = dispatcher.getRegistrationsForDispatchKey(device_key);
  if (k_plain) names.insert(names.end(), k_whole.begin(), k_whole.end());
  for (const c10::OperatorName& name : names) {
    const auto operation = dispatcher.findOp(name);
    if (!name.name.starts_with("aten::") || !operation || !operation->hasSchema() ||
        is_kept(operation->schema(), device_key)) {
      continue;
    }
    const std::string own_name = short_name(name);
    const bool is_computed = operation->hasComputedKernelForDispatchKey(host_key);
    if (!is_computed && !returns_tensor(operation->schema())) continue;  // query or hint
    keep_kernel(*operation, device_key, host_key);
    using torch::CppFunction;
    library.impl(
        own_name.c_str(),
        !is_computed ? CppFunction::makeFromBoxedFunction<&refused<host_key>>()
        : k_plain && own_name.starts_with("_foreach_")
            ? CppFunction::makeFromBoxedFunctor(std::make_unique<ListComputingKernel>())
            : CppFunction::makeFromBoxedFunctor(std::make_unique<ComputingKernel>(host_key)));
    if (k_plain) (is_computed ? registered.computed : registered.refused).push_back(own_name);
  }
}

}  // namespace

std::string short_name(const c10::OperatorName& name) {
  const std::string base = name.name.substr(name.name.find("::") + 2);
  return name.overload_name.empty() ? base : base + '.' + name.overload_name;
}

torch::Library& library_of(c10::DispatchKey key) {
  static auto* const libraries = new std::deque<torch::Library>;
  return libraries->emplace_back(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
}

void mark_as_computed(const std::string& operation) {
  std::erase(registered.refused, operation);
  if (std::ranges::count(registered.computed, operation) == 0) {
    registered.computed.push_back(operation);
  }
}

void add_on_host(c10::FunctionSchema schema, torch::CppFunction function) {
  // Never destroyed: what is registered stays until the end of the process.
  using torch::Library;
  static auto& schemas = *new Library(Library::FRAGMENT, k_own_namespace, {}, __FILE__, __LINE__);
  static auto& host =
      *new Library(Library::IMPL, k_own_namespace, c10::DispatchKey::CPU, __FILE__, __LINE__);
  const std::string name = short_name(schema.operator_name());
  schemas.def(std::move(schema));
  host.impl(name.c_str(), std::move(function));
}

void add_at_once(torch::Library& library, const std::string& name, torch::CppFunction function) {
  const std::size_t dot = name.find('.');
  const std::string base = "::" + name.substr(0, dot);
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  const auto operation = c10::Dispatcher::singleton().findSchema({"aten" + base, overload});
  if (!operation) return;  // of a newer LibTorch
  add_on_host(operation->schema().cloneWithName(k_own_namespace + base, overload),
              std::move(function));
  library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(
                                 std::make_unique<ComputingKernel>(c10::DispatchKey::CPU)));
  mark_as_computed(name);
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

void simulate_gpus_replace_kernels() {
  const WithoutWarnings without;  // of each kernel that is registered twice
  at::globalContext().setSDPUseCuDNN(false);
  // TorchScript's fusers, which launch kernels that they compile.
  torch::jit::overrideCanFuseOnGPU(false);
  torch::jit::tensorexpr::setFallbackAllowed(true);
  if (settings().check) set_places(&here);
  ProgramKernels of_program = program_kernels();
  torch::Library& library = library_of(c10::DispatchKey::CUDA);
  if (settings().dry_run) {
    add_library_operations(library);
  } else {
    replace<c10::DispatchKey::CUDA, c10::DispatchKey::CPU>(library);
    add_unboxed(library);
    add_cat(library);
    add_copy(library);
    add_gpu_only(library);
    add_scaled_products(library);
    add_batch_norm(library);
    add_attention(library);
    replace<c10::DispatchKey::NestedTensorCUDA, c10::DispatchKey::NestedTensorCPU>(
        library_of(c10::DispatchKey::NestedTensorCUDA));
  }
  add_cudnn(library);
  replace_compiled_calls();
  add_observers();
  replace<c10::DispatchKey::SparseCUDA, c10::DispatchKey::SparseCPU>(
      library_of(c10::DispatchKey::SparseCUDA));
  replace<c10::DispatchKey::SparseCsrCUDA, c10::DispatchKey::SparseCsrCPU>(
      library_of(c10::DispatchKey::SparseCsrCUDA));
  put_back(std::move(of_program));
}

const Registered* simulate_gpus_registered() { return &registered; }
