// SPDX-License-Identifier: MIT
#include <use_gpu/default_device.hpp>

#include <ATen/ops/tensor.h>
#include <torch/library.h>
#include <unwind.h>

#include <cstdint>

#include "device/device_check.hpp"
#include "transfers/dispatch_scope.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

// All factories that take a device and no tensor, except empty.memory_format (see below), from_file
// (its memory is the host's) and LibTorch's internal ones (_cudnn_init_dropout_state,
// _make_dep_token).
// clang-format off: several names to a line
constexpr const char* k_factories[] = {
    "_efficientzerotensor",
    "_empty_affine_quantized",
    "_sparse_compressed_tensor_with_dims",
    "_sparse_coo_tensor_with_dims",
    "arange",
    "arange.start",
    "arange.start_step",
    "bartlett_window",
    "bartlett_window.periodic",
    "blackman_window",
    "blackman_window.periodic",
    "empty.names",
    "empty_permuted",
    "empty_strided",
    "eye",
    "eye.m",
    "fft_fftfreq",
    "fft_rfftfreq",
    "full",
    "full.names",
    "hamming_window",
    "hamming_window.periodic",
    "hamming_window.periodic_alpha",
    "hamming_window.periodic_alpha_beta",
    "hann_window",
    "hann_window.periodic",
    "kaiser_window",
    "kaiser_window.beta",
    "kaiser_window.periodic",
    "linspace",
    "logspace",
    "normal.float_float",
    "ones",
    "ones.names",
    "rand",
    "rand.generator",
    "rand.generator_with_names",
    "rand.names",
    "randint",
    "randint.generator",
    "randint.low",
    "randint.low_generator",
    "randn",
    "randn.generator",
    "randn.generator_with_names",
    "randn.names",
    "randperm",
    "randperm.generator",
    "range",
    "range.step",
    "scalar_tensor",
    "sparse_coo_tensor.size",
    "tril_indices",
    "triu_indices",
    "zeros",
    "zeros.names",
};
// clang-format on

// Operations whose CUDA kernels create a tensor without a device, the dropout seed, and read it on
// the host.
constexpr const char* k_with_host_tensors[] = {
    "_cudnn_attention_forward",
    "_efficient_attention_forward",
    "_flash_attention_forward",
    "_flash_attention_forward.quantized",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention.quantized",
};

// The argument that gets the DefaultDeviceGuard's device; null if the call names one, or if no
// guard is open.
c10::IValue* missing_device(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (!detail::DispatchState::current().factory_device) return nullptr;
  const auto& arguments = op.schema().arguments();
  const auto first = stack->size() - arguments.size();
  const auto argument = [&](const char* name) {
    return &(*stack)[first + static_cast<std::size_t>(*op.schema().argumentIndexWithName(name))];
  };
  const auto& pinned = *argument("pin_memory");
  const bool is_pinned = pinned.isBool() && pinned.toBool();
  return argument("device")->isNone() && !is_pinned ? argument("device") : nullptr;
}

void factory(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (auto* const device = missing_device(op, stack))
    *device = *detail::DispatchState::current().factory_device;
  op.redispatchBoxed(keys & detail::k_keys_below, stack);
}

template <class... Value>
bool is_tensor_of(std::uintptr_t function) {
  const auto start_of = [](auto* overload) { return reinterpret_cast<std::uintptr_t>(overload); };
  return ((function ==
           start_of(static_cast<at::Tensor (*)(at::ArrayRef<Value>, const at::TensorOptions&)>(
               &at::tensor))) ||
          ...);
}

// Whether at::tensor(values) has made this call. It writes the values from the host and would crash
// on a GPU, but only the stack tells it from other callers of at::empty.
bool is_called_by_at_tensor() {
  struct Search {
    bool found;
    int frames;
  };
  constexpr int k_most_frames = 10;  // the dispatcher's are fewer than ten
  Search search{};
  const auto look = [](_Unwind_Context* frame, void* argument) {
    auto& [found, frames] = *static_cast<Search*>(argument);
    found =
        is_tensor_of<bool, std::uint8_t, std::int8_t, std::int16_t, int, std::int64_t, float,
                     double, c10::Half, c10::BFloat16, c10::complex<float>, c10::complex<double>>(
            _Unwind_GetRegionStart(frame));
    return found || ++frames == k_most_frames ? _URC_END_OF_STACK : _URC_NO_REASON;
  };
  _Unwind_Backtrace(look, &search);
  return search.found;
}

// The tensor of at::tensor(values) stays on the host, as torch::tensor's does.
void empty(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (auto* const device = missing_device(op, stack)) {
    const auto wanted = *detail::DispatchState::current().factory_device;
    if (wanted.is_cpu() || !is_called_by_at_tensor()) *device = wanted;
  }
  op.redispatchBoxed(keys & detail::k_keys_below, stack);
}

void without_factory_device(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                            torch::jit::Stack* stack) {
  auto state = detail::DispatchState::current();
  state.factory_device.reset();
  const detail::DispatchScope inside(state);
  op.redispatchBoxed(keys & detail::k_keys_below, stack);
}

TORCH_LIBRARY_IMPL(aten, DeferredInit, library) {
  for (const char* name : k_with_host_tensors) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&without_factory_device>());
  }
  library.impl("empty.memory_format", torch::CppFunction::makeFromBoxedFunction<&empty>());
  for (const char* name : k_factories) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&factory>());
  }
}

}  // namespace

DefaultDeviceGuard::DefaultDeviceGuard(c10::Device device) {
  auto state = detail::DispatchState::current();
  state.factory_device = detail::present_device(device);
  scope_ = std::make_unique<detail::DispatchScope>(state);
}

DefaultDeviceGuard::~DefaultDeviceGuard() = default;

}  // namespace use_gpu
