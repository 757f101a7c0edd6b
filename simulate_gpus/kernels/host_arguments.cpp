// SPDX-License-Identifier: MIT
#include "kernels/host_arguments.hpp"

#include <ATen/ATen.h>
#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <tuple>
#include <vector>

#include "kernels/host_tensors.hpp"
#include "kernels/reused_views.hpp"
#include "runtime/interface.hpp"

namespace simulate_gpus {
namespace {

// What is written gets memory of its own, before anybody asks where it is.
void end_lazy_copies(const Operation& operation, const Values& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!operation.writes[i]) continue;
    for_each_tensor(arguments[i], [](const at::Tensor& tensor) {
      if (tensor.defined() && tensor.is_cuda() && is_strided(tensor))
        tensor.storage().mutable_data();
    });
  }
}

// Bytes of a storage, from its begin.
struct Range {
  const c10::StorageImpl* storage;
  std::size_t begin, end;
  bool writes;
};

Range range_of(const at::Tensor& dense, bool writes) {
  const auto begin = static_cast<std::size_t>(dense.storage_offset()) * dense.itemsize();
  return {dense.storage().unsafeGetStorageImpl(), begin, begin + dense.nbytes(), writes};
}

// The same bytes, of which some are written, in memory of their own.
struct Copy {
  Range range;
  c10::Storage storage;
};

class Views {
 public:
  Views(const Operation& operation, const Values& arguments, bool apart)
      : apart_(apart), shares_(!operation.is_of_lists), writes_(operation.writes_any) {
    if (apart && shares_) make_copies(operation, arguments);
  }

  at::Tensor operator()(const at::Tensor& tensor, bool writes) {
    if (!tensor.defined() || !tensor.is_cuda()) return tensor;
    const bool is_copied = apart_ && writes;
    if (!is_strided(tensor)) {
      return is_copied ? copied(host_view(tensor)) : host_view(tensor);
    }
    if (const Copy* const copy = copy_of(tensor)) {
      const auto begin = static_cast<std::int64_t>(copy->range.begin / tensor.itemsize());
      return host_view(tensor, copy->storage, tensor.storage_offset() - begin);
    }
    at::Tensor view = shares_ ? sharing_view(tensor) : reused_.next(tensor);
    return is_copied ? copied(view) : view;
  }

 private:
  // Of the tensors that are dense; of others LibTorch does not find out either whether they overlap.
  void make_copies(const Operation& operation, const Values& arguments) {
    std::vector<Range> ranges;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const bool writes = operation.writes[i];
      for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
        if (!tensor.defined() || !tensor.is_cuda() || !is_strided(tensor)) return;
        if (tensor.is_non_overlapping_and_dense() && tensor.numel() > 0)
          ranges.push_back(range_of(tensor, writes));
      });
    }
    std::ranges::sort(ranges, {},
                      [](const Range& range) { return std::tuple(range.storage, range.begin); });
    for (auto range = ranges.begin(); range != ranges.end();) {
      Range whole = *range;
      for (++range;
           range != ranges.end() && range->storage == whole.storage && range->begin < whole.end;
           ++range) {
        whole.end = std::max(whole.end, range->end);
        whole.writes |= range->writes;
      }
      if (whole.writes) copies_.push_back(copy_range(whole));
    }
  }

  static Copy copy_range(Range range) {
    constexpr std::size_t k_largest_item = 16;  // at whose multiples every element begins
    range.begin = range.begin / k_largest_item * k_largest_item;
    const std::size_t bytes = range.end - range.begin;
    c10::Storage storage = at::empty({static_cast<std::int64_t>(bytes)}, at::kByte).storage();
    std::memcpy(storage.mutable_data(),
                static_cast<const char*>(host_address(range.storage->data())) + range.begin, bytes);
    return {range, std::move(storage)};
  }

  // Sorted, as the ranges were.
  [[nodiscard]] const Copy* copy_of(const at::Tensor& tensor) const {
    if (copies_.empty() || !tensor.is_non_overlapping_and_dense()) return nullptr;
    const Range range = range_of(tensor, false);
    const auto after = std::ranges::upper_bound(
        copies_, std::tuple(range.storage, range.begin), {},
        [](const Copy& copy) { return std::tuple(copy.range.storage, copy.range.begin); });
    if (after == copies_.begin()) return nullptr;
    const Copy& found = *std::prev(after);
    return found.range.storage == range.storage && range.end <= found.range.end ? &found : nullptr;
  }

  at::Tensor sharing_view(const at::Tensor& tensor) {
    // Of many tensors only what writes is asked whether they overlap; of two at::equal asks too.
    if (!writes_ && first_.size() == k_first) return reused_.next(tensor);
    const auto* const storage = tensor.storage().unsafeGetStorageImpl();
    for (const auto& [known, on_host] : first_) {
      if (known == storage) return host_view(tensor, on_host, tensor.storage_offset());
    }
    if (others_) {
      const auto found = others_->find(storage);
      if (found != others_->end()) return host_view(tensor, found->second, tensor.storage_offset());
    }
    at::Tensor view = reused_.next(tensor);
    if (first_.size() < k_first) {
      first_.emplace_back(storage, view.storage());
    } else {
      if (!others_) others_.emplace();
      others_->emplace(storage, view.storage());
    }
    return view;
  }

  bool apart_;
  bool shares_;  // LibTorch does not look whether tensors of lists overlap
  bool writes_;
  std::vector<Copy> copies_;
  // The storages on the host. Few operations have more than these few, which take no memory.
  static constexpr std::size_t k_first = 8;
  c10::SmallVector<std::pair<const c10::StorageImpl*, c10::Storage>, k_first> first_;
  std::optional<ska::flat_hash_map<const c10::StorageImpl*, c10::Storage>> others_;
  ReusedViews reused_;
};

}  // namespace

Values host_arguments(const Operation& operation, const Values& arguments, bool apart) {
  end_lazy_copies(operation, arguments);
  Views views(operation, arguments, apart);
  Values made;
  made.reserve(arguments.size());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto view = [&](const at::Tensor& tensor) { return views(tensor, operation.writes[i]); };
    made.push_back(with_tensors(arguments[i], view));
    if (made.back().isDevice()) made.back() = c10::Device(c10::kCPU);
  }
  return made;
}

}  // namespace simulate_gpus
