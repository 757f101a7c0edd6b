// SPDX-License-Identifier: MIT
#include "kernels/arguments.hpp"

#include <ATen/ATen.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/native/TensorAdvancedIndexingUtils.h>
#include <c10/cuda/CUDAFunctions.h>

namespace simulate_gpus {

bool is_list_of_optional_tensors(const c10::IValue& value) {
  if (!value.isList()) return false;
  const c10::TypePtr type = value.toList().elementType();
  return type->kind() == c10::TypeKind::OptionalType &&
         type->containedType(0)->kind() == c10::TypeKind::TensorType;
}

bool is_index_operation(const c10::FunctionSchema& schema) {
  return schema.name() == "aten::index" || schema.name() == "aten::index_put_" ||
         schema.name() == "aten::_index_put_impl_" || schema.name() == "aten::_unsafe_index" ||
         schema.name() == "aten::_unsafe_index_put";
}

bool takes_other_devices(const c10::FunctionSchema& schema) {
  return is_index_operation(schema) || schema.name().find("_ctc_loss") != std::string::npos ||
         (schema.name().starts_with("aten::_foreach_") && schema.argumentIndexWithName("scalars"));
}

std::string_view base_name(const c10::FunctionSchema& schema) {
  std::string_view name = schema.name();
  name.remove_prefix(std::string_view("aten::").size());
  if (name.ends_with('_')) name.remove_suffix(1);
  return name;
}

bool writes_argument(const c10::FunctionSchema& schema, std::size_t index) {
  const c10::Argument& argument = schema.arguments()[index];
  if (const auto* const alias = argument.alias_info()) return alias->isWrite();
  // These write running statistics; their schemas omit it.
  return (schema.name() == "aten::native_batch_norm" ||
          schema.name() == "aten::batch_norm_update_stats") &&
         argument.name().starts_with("running_");
}

std::optional<std::size_t> returned_argument(const c10::FunctionSchema& schema,
                                             const c10::Argument& result) {
  const auto* const alias = result.alias_info();
  if (alias == nullptr || !alias->isWrite()) return std::nullopt;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto* const other = schema.arguments()[i].alias_info();
    if (other != nullptr && *other == *alias) return i;
  }
  return std::nullopt;
}

c10::Device device_of(const Values& arguments) {
  std::optional<c10::Device> found, named;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!found && tensor.defined() && tensor.is_cuda()) found = tensor.device();
    });
    if (argument.isDevice() && argument.toDevice().is_cuda()) named = argument.toDevice();
  }
  if (found) return *found;
  if (named && named->has_index()) return *named;
  return {c10::kCUDA, c10::cuda::current_device()};
}

void check_devices(const Values& arguments, c10::Device device) {
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!tensor.defined() || (tensor.is_cpu() && tensor.dim() == 0)) return;
      TORCH_CHECK(tensor.device() == device,
                  "Expected all tensors to be on the same device, but found at least two devices, ",
                  device, " and ", tensor.device(), "!");
    });
  }
}

void prepare_indices(Values& arguments) {
  const at::Tensor self = arguments[0].toTensor();
  const auto indices = at::native::toListOfOptionalTensors(arguments[1].toListRef());
  if (arguments.size() > 3) {  // self, indices, values, accumulate
    const at::Tensor values = arguments[2].toTensor();
    const bool adds = arguments[3].toBool();
    if (!adds && std::get<0>(at::native::canDispatchToMaskedFill(self, indices, values))) return;
    if (values.dim() == 0) arguments[2] = values.to(self.device());
  }
  c10::List<std::optional<at::Tensor>> expanded;
  for (const at::Tensor& index :
       at::native::expandTensors(self, indices, /*ensure_same_device=*/true)) {
    expanded.push_back(index.defined() ? std::optional(index) : std::nullopt);
  }
  arguments[1] = expanded;
}

}  // namespace simulate_gpus
