// SPDX-License-Identifier: MIT
#include <use_gpu/default_device.hpp>

#include <ATen/ops/tensor.h>
#include <execinfo.h>
#include <torch/library.h>
#include <unwind.h>

#include <algorithm>
#include <cstdint>

#include "core/device_check.hpp"
#include "core/dispatch_scope.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

template <class... Value>
std::array<const void*, sizeof...(Value)> starts_of_at_tensor() {
  return {reinterpret_cast<const void*>(
      static_cast<at::Tensor (*)(at::ArrayRef<Value>, const at::TensorOptions&)>(&at::tensor))...};
}

// Whether at::tensor(values) has made this call. It writes the values from the host and would crash
// on a GPU, but only the stack tells it from other callers of at::empty.
bool is_called_by_at_tensor() {
  static const auto overloads =
      starts_of_at_tensor<bool, std::uint8_t, std::int8_t, std::int16_t, int, std::int64_t, float,
                          double, c10::Half, c10::BFloat16, c10::complex<float>,
                          c10::complex<double>>();
  std::array<void*, 10> calls{};  // the dispatcher's are fewer than ten
  const int count = backtrace(calls.data(), static_cast<int>(calls.size()));
  return std::any_of(calls.begin(), calls.begin() + count, [](void* call) {
    return std::ranges::count(overloads, _Unwind_FindEnclosingFunction(call)) > 0;
  });
}

// Creates the tensor on the DefaultDeviceGuard's device, unless another operator calls this one, or
// the call names a device, or must have it on the host: pinned memory, and at::tensor(values) as
// torch::tensor(values).
void factory(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto argument = [&](const char* name) -> c10::IValue& {
    const auto i = static_cast<std::size_t>(*schema.argumentIndexWithName(name));
    return torch::jit::peek(stack, i, schema.arguments().size());
  };
  const auto wanted = detail::DispatchState::current().factory_device;
  if (wanted && !wanted->is_cpu() && !detail::is_called_by_operator() &&
      argument("device").isNone() && !argument("pin_memory").toOptional<bool>().value_or(false) &&
      !(schema.name() == "aten::empty" && is_called_by_at_tensor()))
    argument("device") = *wanted;
  op.redispatchBoxed(keys & detail::k_keys_below, stack);
}

// Whether it takes a device and no tensor. Not affected are from_file, whose memory is the host's,
// and LibTorch's internal factories.
bool is_factory(const c10::FunctionSchema& schema) {
  constexpr std::string_view k_exceptions[] = {"aten::from_file", "aten::_cudnn_init_dropout_state",
                                               "aten::_make_dep_token"};
  return schema.argumentIndexWithName("device") && schema.argumentIndexWithName("pin_memory") &&
         std::ranges::count(k_exceptions, schema.name()) == 0 &&
         std::ranges::none_of(schema.arguments(), [](const c10::Argument& argument) {
           return argument.type()->annotation_str().find("Tensor") != std::string::npos;
         });
}

TORCH_LIBRARY_IMPL(aten, DeferredInit, library) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& operation : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(operation);
    if (!op || operation.getNamespace() != "aten" || !is_factory(op->schema())) continue;
    library.impl(c10::toString(operation).c_str(),
                 torch::CppFunction::makeFromBoxedFunction<&factory>());
  }
}

}  // namespace

DefaultDeviceGuard::DefaultDeviceGuard(c10::Device device)
    : scope_(std::make_unique<detail::DispatchScope>(
          detail::ScopeSettings{.factory_device = detail::present_device(device)})) {}

DefaultDeviceGuard::~DefaultDeviceGuard() = default;

}  // namespace use_gpu
