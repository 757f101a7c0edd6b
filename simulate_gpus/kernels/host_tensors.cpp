// SPDX-License-Identifier: MIT
#include "kernels/host_tensors.hpp"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/native/SparseTensorUtils.h>
#include <c10/core/CPUAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <cstring>

#include "kernels/inside_kernel.hpp"
#include "runtime/interface.hpp"

namespace simulate_gpus {
namespace {

at::Tensor host_view_of_strided(const at::Tensor& tensor) {
  return host_view(tensor, host_storage(tensor.storage()), tensor.storage_offset());
}

// Where the tensor is expanded, the first element of those that are one.
at::Tensor without_repeats(at::Tensor of, const at::Tensor& tensor) {
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) == 0 && tensor.size(d) > 1) of = of.narrow(d, 0, 1);
  }
  return of;
}

// Whether a copy of the bytes is one of the values.
bool are_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.layout() == at::kStrided && a.is_non_overlapping_and_dense() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.dtype() == b.dtype() && a.is_conj() == b.is_conj() &&
         a.is_neg() == b.is_neg();
}

// Both without a look at the indices, as a program can ask for: they may not be written yet.
at::Tensor compressed(const at::Tensor& compressed_indices, const at::Tensor& plain_indices,
                      const at::Tensor& values, const at::Tensor& like) {
  const auto key =
      values.is_cuda() ? c10::DispatchKey::SparseCsrCUDA : c10::DispatchKey::SparseCsrCPU;
  at::Tensor made = at::detail::make_tensor<at::SparseCsrTensorImpl>(
      c10::DispatchKeySet(key), values.device(), like.layout(), values.dtype());
  at::sparse_csr::get_sparse_csr_impl(made)->set_member_tensors(compressed_indices, plain_indices,
                                                                values, like.sizes());
  return made;
}

std::pair<at::Tensor, at::Tensor> indices_of(const at::Tensor& tensor) {
  return at::sparse_csr::getCompressedPlainIndices(tensor);
}

at::Tensor coordinates(const at::Tensor& indices, const at::Tensor& values,
                       const at::Tensor& like) {
  return at::_sparse_coo_tensor_with_dims_and_tensors(
      like.sparse_dim(), like.dense_dim(), like.sizes(), indices, values,
      values.options().layout(at::kSparse), like.is_coalesced());
}

// All memory of a nested tensor, which is one buffer.
at::Tensor buffer_of(const at::Tensor& nested) {
  return at::native::get_nested_tensor_impl(nested)->get_unsafe_storage_as_tensor();
}

at::Tensor nested(const at::Tensor& buffer, const at::Tensor& like) {
  const auto* const impl = at::native::get_nested_tensor_impl(like);
  return at::detail::make_tensor<at::native::NestedTensorImpl>(
      buffer, impl->get_nested_sizes(), impl->get_nested_strides(), impl->get_storage_offsets());
}

}  // namespace

c10::Storage host_storage(const c10::Storage& storage) {
  void* const memory = host_address(storage.data());
  // With an allocator, so that an operation can resize its output; see update_device_tensor.
  return {c10::Storage::use_byte_size_t(), storage.nbytes(),
          c10::DataPtr(memory, c10::Device(c10::kCPU)), c10::GetCPUAllocator(),
          /*resizable=*/true};
}

at::Tensor host_view(const at::Tensor& tensor, c10::Storage on_host, std::int64_t offset) {
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      std::move(on_host), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), offset);
  if (tensor.is_conj()) view._set_conj(true);
  if (tensor.is_neg()) view._set_neg(true);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
    view.unsafeGetTensorImpl()->set_wrapped_number(true);
  return view;
}

at::Tensor host_view(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  if (tensor.is_sparse()) {
    return coordinates(host_view(tensor._indices()), host_view(tensor._values()), tensor);
  }
  if (at::sparse_csr::is_sparse_compressed(tensor)) {
    const auto [compressed_indices, plain_indices] = indices_of(tensor);
    return compressed(host_view(compressed_indices), host_view(plain_indices),
                      host_view(tensor.values()), tensor);
  }
  if (tensor.is_nested()) return nested(host_view_of_strided(buffer_of(tensor)), tensor);
  return host_view_of_strided(tensor);
}

void for_each_part(const at::Tensor& tensor, const std::function<void(const at::Tensor&)>& visit) {
  if (tensor.is_sparse()) {
    visit(tensor._indices());
    visit(tensor._values());
  } else if (at::sparse_csr::is_sparse_compressed(tensor)) {
    const auto [compressed_indices, plain_indices] = indices_of(tensor);
    visit(compressed_indices);
    visit(plain_indices);
    visit(tensor.values());
  } else {
    visit(tensor.is_nested() ? buffer_of(tensor) : tensor);
  }
}

at::Tensor copied(const at::Tensor& view) {
  if (!view.defined()) return view;
  if (view.is_nested()) return nested(buffer_of(view).clone(), view);
  if (view.layout() != at::kStrided) return view.clone();
  return without_repeats(view, view).clone().expand_as(view);
}

at::Tensor make_device_tensor(const at::Tensor& host, Writes& writes) {
  if (!host.defined() || !host.is_cpu()) return host;
  if (host.is_sparse()) {
    return coordinates(make_device_tensor(host._indices(), writes),
                       make_device_tensor(host._values(), writes), host);
  }
  if (at::sparse_csr::is_sparse_compressed(host)) {
    const auto [compressed_indices, plain_indices] = indices_of(host);
    return compressed(make_device_tensor(compressed_indices, writes),
                      make_device_tensor(plain_indices, writes),
                      make_device_tensor(host.values(), writes), host);
  }
  if (host.is_nested()) {
    return nested(make_device_tensor(buffer_of(host), writes), host);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(!host.is_quantized(), "Simulated GPUs have no quantized tensors");
  const at::Tensor made(at::detail::empty_strided_generic(
      host.sizes(), host.strides(), c10::cuda::CUDACachingAllocator::get(),
      c10::DispatchKeySet(c10::DispatchKey::CUDA), host.scalar_type()));
  if (host.is_conj()) made._set_conj(true);
  if (host.is_neg()) made._set_neg(true);
  if (host.numel() > 0) writes.emplace_back(made, host);
  return made;
}

bool move_to_device(const at::Tensor& host) {
  if (!host.defined()) return false;
  c10::TensorImpl& impl = *host.unsafeGetTensorImpl();
  constexpr auto k_of_any =
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;
  if (impl.key_set() - k_of_any != c10::DispatchKeySet(c10::DispatchKey::CPU)) return false;
  const c10::Storage& storage = impl.unsafe_storage();
  const std::size_t bytes = storage.nbytes();
  const bool is_its_own = host.use_count() == 1 && storage.use_count() == 1 &&
                          storage.data_ptr().get_context() != nullptr;
  const bool is_as_made =
      storage.resizable() && impl.allow_tensor_metadata_change() && !impl.is_wrapped_number();
  if (!is_its_own || !is_as_made || bytes == 0 || bytes != host.nbytes() ||
      !host.is_non_overlapping_and_dense())
    return false;
  auto* const allocator = c10::cuda::CUDACachingAllocator::get();
  c10::DataPtr memory = allocator->allocate(bytes);
  std::memcpy(host_address(memory.get()), storage.data(), bytes);
  impl._change_backend_component_keys(memory.device());
  storage.set_data_ptr_noswap(std::move(memory));
  storage.unsafeGetStorageImpl()->set_allocator(allocator);
  impl.set_storage_keep_dtype(storage);  // for its device
  return true;
}

void resize_like(const at::Tensor& tensor, const at::Tensor& result) {
  if (tensor.is_nested() || tensor.sizes() == result.sizes()) return;
  const void* const before = tensor.has_storage() ? tensor.storage().data() : nullptr;
  tensor.resize_(result.sizes());
  // What was there is copied in the stream, and must not come after the result.
  if (before != nullptr && before != tensor.storage().data() && tensor.is_cuda()) {
    cudaStream_t stream = c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
    if (!is_captured(stream)) C10_CUDA_CHECK(begin_operation(stream));
  }
  if (tensor.strides() != result.strides() && result.is_non_overlapping_and_dense())
    tensor.as_strided_(result.sizes(), result.strides());
}

void update_device_tensor(const at::Tensor& tensor, const at::Tensor& host, Writes& writes) {
  if (tensor.is_sparse()) {
    auto* const impl = at::sparse::get_sparse_impl(tensor);
    impl->raw_resize_(host.sparse_dim(), host.dense_dim(), host.sizes());
    impl->set_indices_and_values_unsafe(make_device_tensor(host._indices(), writes),
                                        make_device_tensor(host._values(), writes));
    impl->set_coalesced(host.is_coalesced());
    return;
  }
  if (at::sparse_csr::is_sparse_compressed(tensor)) {
    const auto [compressed_indices, plain_indices] = indices_of(host);
    at::sparse_csr::get_sparse_csr_impl(tensor)->set_member_tensors(
        make_device_tensor(compressed_indices, writes), make_device_tensor(plain_indices, writes),
        make_device_tensor(host.values(), writes), host.sizes());
    return;
  }
  if (tensor.is_nested()) {  // of the same layout
    update_device_tensor(buffer_of(tensor), buffer_of(host), writes);
    return;
  }
  resize_like(tensor, host);
  if (host.numel() == 0) {  // some operations give an empty output other strides
    if (tensor.strides() != host.strides()) tensor.as_strided_(host.sizes(), host.strides());
    return;
  }
  if (tensor.is_conj() != host.is_conj()) tensor._set_conj(host.is_conj());
  if (host_address(tensor.const_data_ptr()) != host.const_data_ptr())
    writes.emplace_back(tensor, host);
}

Writes on_host(Writes writes) {
  for (auto& [target, value] : writes) target = host_view(target);
  return writes;
}

void write(const Writes& writes) {
  for (const auto& [target, value] : writes) {
    if (are_alike(target, value)) {
      void* const there =
          target.is_cuda() ? host_address(target.const_data_ptr()) : target.mutable_data_ptr();
      std::memmove(there, value.const_data_ptr(), value.nbytes());
      continue;
    }
    const InsideKernel inside;
    const at::Tensor view = host_view(target);
    without_repeats(view, view).copy_(without_repeats(value, view));
  }
}

}  // namespace simulate_gpus
