// SPDX-License-Identifier: MIT
//
// New tensors and views of tensors: what a backend must implement itself, because nothing can be
// computed on tensors that cannot be made. LibTorch's own kernels do the work; they ask the
// storage's allocator for memory, which gives that of the current device: hence the guards.
#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "backend.hpp"

namespace use_gpu::simulated {
namespace {

constexpr c10::DispatchKeySet k_keys(c10::DispatchKey::PrivateUse1);

void refuse_pinned(std::optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<c10::Device> device,
                 std::optional<bool> pin_memory, std::optional<at::MemoryFormat> memory_format) {
  refuse_pinned(pin_memory);
  const c10::DeviceGuard guard(device.value_or(current_device()));
  return at::detail::empty_generic(size, &allocator(), k_keys, c10::dtype_or_default(dtype),
                                   memory_format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  refuse_pinned(pin_memory);
  const c10::DeviceGuard guard(device.value_or(current_device()));
  return at::detail::empty_strided_generic(size, stride, &allocator(), k_keys,
                                           c10::dtype_or_default(dtype));
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size,
                          std::optional<at::MemoryFormat> memory_format) {
  const c10::DeviceGuard guard(self.device());
  return at::native::resize_(self, size, memory_format);
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage, std::int64_t offset,
                        c10::IntArrayRef size, c10::IntArrayRef stride) {
  const c10::DeviceGuard guard(self.device());
  return at::native::set_storage_cpu_(self, std::move(storage), offset, size, stride);
}

// Tensor::set_data, and so Module::to, swaps a CPU tensor's data for that of a device only where
// this says that their implementations are alike.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  return self.layout() == from.layout();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("unfold", at::native::unfold);
  m.impl("view", at::native::view);
  m.impl("view.dtype", at::native::view_dtype);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
}

}  // namespace

at::Tensor host_view(const at::Tensor& x) {
  auto view = at::from_blob(x.data_ptr(), x.sizes(), x.strides(),
                            at::TensorOptions().dtype(x.scalar_type()).device(c10::kCPU));
  if (x.is_conj()) view._set_conj(true);
  if (x.is_neg()) view._set_neg(true);
  return view;
}

}  // namespace use_gpu::simulated
