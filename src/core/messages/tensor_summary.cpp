// SPDX-License-Identifier: MIT
#include "core/messages/tensor_summary.hpp"

#include <ATen/SparseCsrTensorImpl.h>

namespace use_gpu::detail {

std::string dtype_and_shape(const at::Tensor& x) {
  const std::string dtype(c10::getDtypeNames(x.scalar_type()).first);
  if (x.is_nested()) return dtype + "[nested]";  // a size for each of its tensors
  return c10::str(dtype, x.sizes());
}

std::size_t bytes_of(const at::Tensor& x) {
  if (x.layout() == c10::kStrided) return x.nbytes();
  if (x.layout() == c10::kSparse) return x._values().nbytes() + x._indices().nbytes();
  // CSR, BSR, CSC and BSC, which name their indices differently.
  const auto* const rows = dynamic_cast<at::SparseCsrTensorImpl*>(x.unsafeGetTensorImpl());
  if (rows == nullptr) return static_cast<std::size_t>(x.numel()) * x.itemsize();
  return rows->values().nbytes() + rows->compressed_indices().nbytes() +
         rows->plain_indices().nbytes();
}

}  // namespace use_gpu::detail
