// SPDX-License-Identifier: MIT
//
// What models compiled by AOTInductor call (runtime/compiled_models.cpp): each C function calls its operation by the dispatcher.
// How an operation's arguments are written in C is torchgen's: "int[] size" is (const int64_t* size, int64_t size_len_), an
// optional number a pointer to one, and so on.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cuda.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "kernels/own_kernels.hpp"
#include "runtime/interface.hpp"

namespace simulate_gpus {
namespace {

constexpr const char* k_names[] = {
#define SIMULATE_GPUS_OPERATION(index, name) #name,
#include "compiled_models.inc"
#undef SIMULATE_GPUS_OPERATION
};

// By the name of its function: "add_Tensor" for aten::add.Tensor.
const std::map<std::string, c10::OperatorHandle>& operations() {
  static const auto* const operations = [] {
    auto* const found = new std::map<std::string, c10::OperatorHandle>;
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto operation = dispatcher.findSchema(name);
      if (!operation || !name.name.starts_with("aten::")) continue;
      const std::string overload = name.overload_name.empty() ? "" : '_' + name.overload_name;
      found->emplace(name.name.substr(6) + overload, *operation);
    }
    return found;
  }();
  return *operations;
}

// The arguments of a C function, one after the other.
class Arguments {
 public:
  template <class... Values>
  explicit Arguments(Values... values) : bits_{bits_of(values)...} {}

  const void* next() { return &bits_.at(next_++); }
  template <class T>
  T take() {
    return *static_cast<const T*>(next());
  }
  [[nodiscard]] bool has_more() const { return next_ < bits_.size(); }

 private:
  template <class T>
  static std::uint64_t bits_of(T value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, static_cast<const void*>(&value), sizeof(T));
    return bits;
  }

  std::vector<std::uint64_t> bits_;
  std::size_t next_ = 0;
};

template <class T>
T value_at(const void* place) {
  return *static_cast<const T*>(place);
}

// What a place holds, as C writes it.
c10::IValue read(const c10::TypePtr& type, const void* place) {
  switch (type->kind()) {
    case c10::TypeKind::OptionalType: {
      const auto* const there = value_at<const void*>(place);
      return there ? read(type->containedType(0), there) : c10::IValue();
    }
    case c10::TypeKind::TensorType: {
      const auto* const tensor = value_at<const at::Tensor*>(place);
      return tensor ? *tensor : at::Tensor();
    }
    case c10::TypeKind::NumberType:
    case c10::TypeKind::FloatType:
      return value_at<double>(place);
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return value_at<std::int64_t>(place);
    case c10::TypeKind::BoolType:
      return value_at<std::int32_t>(place) != 0;
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
      return static_cast<std::int64_t>(value_at<std::int32_t>(place));
    case c10::TypeKind::StringType:
      return std::string(value_at<const char*>(place));
    case c10::TypeKind::GeneratorType:
      return *value_at<const at::Generator*>(place);
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "simulated GPUs pass no ", type->str(),
                                  " to operations of compiled models");
  }
}

c10::IValue read_list(const c10::TypePtr& element, const void* values, std::int64_t count) {
  const bool is_symbolic = element->kind() == c10::TypeKind::SymIntType;
  const auto size =
      element->kind() == c10::TypeKind::BoolType ? sizeof(std::int32_t) : sizeof(std::uint64_t);
  c10::impl::GenericList list(is_symbolic ? c10::TypePtr(c10::IntType::get()) : element);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    list.push_back(read(element, static_cast<const std::byte*>(values) + i * size));
  return list;
}

// A list has its length behind it, a device its index.
c10::IValue take(const c10::TypePtr& type, Arguments& arguments) {
  const bool is_optional = type->kind() == c10::TypeKind::OptionalType;
  const c10::TypePtr inner = is_optional ? type->containedType(0) : type;
  switch (inner->kind()) {
    case c10::TypeKind::ListType: {
      const auto* values = arguments.take<const void*>();  // if optional, where the address is
      const auto count = arguments.take<std::int64_t>();
      if (is_optional && values == nullptr) return {};
      if (is_optional) values = value_at<const void*>(values);
      return read_list(inner->containedType(0), values, count);
    }
    case c10::TypeKind::DeviceObjType: {
      const auto* const kind = is_optional ? arguments.take<const void*>() : arguments.next();
      const auto index = static_cast<c10::DeviceIndex>(arguments.take<std::int32_t>());
      if (kind == nullptr) return {};
      return c10::Device(static_cast<c10::DeviceType>(value_at<std::int32_t>(kind)), index);
    }
    default:
      return read(type, arguments.next());
  }
}

void give(const c10::IValue& result, void* place) {
  if (place == nullptr) return;
  if (result.isTensor())
    *static_cast<AtenTensorHandle*>(place) =
        torch::aot_inductor::new_tensor_handle(at::Tensor(result.toTensor()));
  else if (result.isBool())
    *static_cast<std::int32_t*>(place) = result.toBool();
  else if (result.isDouble())
    *static_cast<double*>(place) = result.toDouble();
  else
    *static_cast<std::int64_t*>(place) = result.toInt();
}

void call(const char* name, Arguments arguments) {
  const auto found = operations().find(name);
  TORCH_CHECK_NOT_IMPLEMENTED(found != operations().end(), "simulated GPUs have no operation ",
                              name);
  const c10::FunctionSchema& schema = found->second.schema();
  torch::jit::Stack stack(schema.arguments().size());
  for (const bool is_out : {true, false})  // which come first in C
    for (std::size_t i = 0; i < stack.size(); ++i)
      if (schema.arguments()[i].is_out() == is_out)
        stack[i] = take(schema.arguments()[i].real_type(), arguments);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  found->second.callBoxed(&stack);
  for (const c10::IValue& result : stack)
    if (arguments.has_more()) give(result, arguments.take<void*>());
}

template <std::size_t index, class Function>
struct Call;
template <std::size_t index, class... Values>
struct Call<index, AOTITorchError(Values...)> {
  static AOTITorchError call(Values... values) {
    AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE(
        simulate_gpus::call(k_names[index], Arguments(values...));)
  }
};

}  // namespace

void replace_compiled_calls() {
  void* const calls[] = {
#define SIMULATE_GPUS_OPERATION(index, name) \
  reinterpret_cast<void*>(&Call<index, decltype(aoti_torch_cuda_##name)>::call),
#include "compiled_models.inc"
#undef SIMULATE_GPUS_OPERATION
  };
  std::ranges::copy(calls, compiled_calls().begin());
}

}  // namespace simulate_gpus
