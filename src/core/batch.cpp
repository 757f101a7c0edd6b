// SPDX-License-Identifier: MIT
#include <use_gpu/batch.hpp>

#include <c10/util/StringUtil.h>
#include <use_gpu/errors.hpp>

#include <algorithm>

namespace use_gpu::detail {

at::Tensor RowCounter::operator()(const at::Tensor& x) {
  if (x.dim() == 0) {
    throw ArgumentError(c10::str("split_batch: the batch has a tensor without dimensions, ",
                                 describe(x),
                                 ", so it has no rows to divide. Give it one row for each "
                                 "row of the others, or pass it beside the batch."));
  }
  if (!rows_) rows_ = x.size(0);
  if (*rows_ != x.size(0)) {
    throw ArgumentError(c10::str("split_batch: the batch has tensors of ", *rows_,
                                 " rows and one of ", x.size(0), ", ", describe(x),
                                 ". size(0) must be the same for all that are divided together."));
  }
  return x;
}

void RowCounter::check(std::size_t parts) const {
  if (parts == 0) {
    throw ArgumentError(
        "split_batch: there are no devices. use_gpu::try_all_gpus() is never empty.");
  }
  if (!rows_) throw ArgumentError("split_batch: the batch has no tensor, so there are no rows.");
}

at::Tensor RowCounter::part_of(const at::Tensor& x, std::size_t part, std::size_t parts) {
  const auto i = static_cast<std::int64_t>(part), n = static_cast<std::int64_t>(parts);
  const auto size = x.size(0) / n, longer = x.size(0) % n;  // the first parts have a row more
  return x.narrow(0, i * size + std::min(i, longer), size + (i < longer ? 1 : 0));
}

}  // namespace use_gpu::detail
