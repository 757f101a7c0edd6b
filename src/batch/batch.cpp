// SPDX-License-Identifier: MIT
#include <use_gpu/batch.hpp>

namespace USE_GPU_EXPORT use_gpu {
namespace detail {

at::Tensor& MovedTensors::of(const at::Tensor& x) { return moved_[x.unsafeGetTensorImpl()]; }

}  // namespace detail
}  // namespace use_gpu
