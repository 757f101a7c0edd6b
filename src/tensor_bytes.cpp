// SPDX-License-Identifier: MIT
#include "tensor_bytes.hpp"

namespace use_gpu {

std::size_t bytes_of(const at::Tensor& x) {
  switch (x.layout()) {
    case c10::kStrided:
      return x.nbytes();
    case c10::kSparse:
      return x._values().nbytes() + x._indices().nbytes();
    case c10::kSparseCsr:
    case c10::kSparseBsr:
      return x.values().nbytes() + x.crow_indices().nbytes() + x.col_indices().nbytes();
    case c10::kSparseCsc:
    case c10::kSparseBsc:
      return x.values().nbytes() + x.ccol_indices().nbytes() + x.row_indices().nbytes();
    default:
      return static_cast<std::size_t>(x.numel()) * x.itemsize();
  }
}

}  // namespace use_gpu
