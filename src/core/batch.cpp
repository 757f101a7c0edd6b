// SPDX-License-Identifier: MIT
#include <use_gpu/batch.hpp>

namespace use_gpu::detail {

USE_GPU_EXPORT void check_divisible(at::TensorList tensors, std::size_t parts) {
  if (parts == 0) {
    throw ArgumentError(
        "split_batch: there are no devices. use_gpu::try_all_gpus() is never empty.");
  }
  if (tensors.empty())
    throw ArgumentError("split_batch: the batch has no tensor, so there are no rows.");
  for (const auto& x : tensors) {
    if (x.dim() == 0) {
      throw ArgumentError("split_batch: the batch has a tensor without dimensions, " + describe(x) +
                          ", so it has no rows to divide. Give it one row for each row of the "
                          "others, or pass it beside the batch.");
    }
    if (x.size(0) == tensors[0].size(0)) continue;
    throw ArgumentError(c10::str("split_batch: the batch has tensors of ", tensors[0].size(0),
                                 " rows and one of ", x.size(0), ", ", describe(x),
                                 ". size(0) must be the same for all that are divided together."));
  }
}

}  // namespace use_gpu::detail
