// SPDX-License-Identifier: MIT
#include "kernels/reused_views.hpp"

#include <c10/core/InferenceMode.h>

#include <array>
#include <atomic>
#include <vector>

#include "kernels/arguments.hpp"
#include "kernels/host_tensors.hpp"
#include "runtime/interface.hpp"

namespace simulate_gpus {
namespace {

bool is_number(const at::Tensor& x) { return x.unsafeGetTensorImpl()->is_wrapped_number(); }

// Null if the view was made to forget it.
const c10::Storage& storage_of(const at::Tensor& view) {
  return view.unsafeGetTensorImpl()->unsafe_storage();
}

bool is_used_by_nobody_else(const at::Tensor& view) {
  if (view.use_count() != 1 || storage_of(view).use_count() != 1) return false;
  std::atomic_thread_fence(std::memory_order_acquire);  // whoever had it may be in another thread
  return true;
}

// By whether they were made in InferenceMode.
using ViewsByMode = std::array<std::vector<at::Tensor>, 2>;

// This thread's. Null before its first, and when it is past them, in destructors of what is older.
constinit thread_local ViewsByMode* views_of_thread = nullptr;
constinit thread_local bool views_are_over = false;

void begin_views() {
  thread_local struct Owner {
    Owner() { views_of_thread = &views; }
    ~Owner() {
      views_of_thread = nullptr;
      views_are_over = true;
    }
    ViewsByMode views;
  } owner;
  (void)owner;
}

// Whatever the last call has done to the view, for example in another size.
void make_view_of(const at::Tensor& tensor, const at::Tensor& view) {
  c10::TensorImpl& impl = *view.unsafeGetTensorImpl();
  c10::StorageImpl& memory = *storage_of(view).unsafeGetStorageImpl();
  const c10::StorageImpl& on_device = *tensor.storage().unsafeGetStorageImpl();
  void* const address = host_address(on_device.data());
  if (memory.data() != address) memory.set_data_ptr_noswap({address, c10::Device(c10::kCPU)});
  if (memory.nbytes() != on_device.nbytes()) memory.set_nbytes(on_device.nbytes());
  if (view.dtype() != tensor.dtype()) impl.set_storage_and_dtype(storage_of(view), tensor.dtype());
  if (!are_equal(view.sizes(), tensor.sizes()) || !are_equal(view.strides(), tensor.strides()) ||
      view.storage_offset() != tensor.storage_offset())
    impl.set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  constexpr c10::DispatchKeySet k_bits({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
  if ((view.key_set() & k_bits) != (tensor.key_set() & k_bits)) {
    view._set_conj(tensor.is_conj());
    view._set_neg(tensor.is_neg());
  }
}

}  // namespace

ReusedViews::ReusedViews() {
  if (views_of_thread == nullptr && !views_are_over) begin_views();
  if (views_of_thread != nullptr)
    kept_ = &(*views_of_thread)[c10::InferenceMode::is_enabled() ? 1 : 0];
}

at::Tensor ReusedViews::next(const at::Tensor& tensor) {
  constexpr std::size_t k_most = 256;
  const std::size_t place = place_++;
  if (kept_ == nullptr || place >= k_most) return host_view(tensor);
  if (place >= kept_->size()) return kept_->emplace_back(host_view(tensor));
  at::Tensor& view = (*kept_)[place];
  if (is_used_by_nobody_else(view) && !is_number(view) && !is_number(tensor)) {
    make_view_of(tensor, view);
  } else {
    view = host_view(tensor);
  }
  return view;
}

}  // namespace simulate_gpus
