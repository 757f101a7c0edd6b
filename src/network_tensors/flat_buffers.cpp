// SPDX-License-Identifier: MIT
#include "network_tensors/flat_buffers.hpp"

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <use_gpu/log.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "messages/error_text.hpp"
#include "messages/message.hpp"

namespace use_gpu::detail {
namespace {

constexpr std::int64_t k_bucket_bytes = std::int64_t{64} << 20;

std::int64_t bytes_in(const at::Tensor& x) { return static_cast<std::int64_t>(x.nbytes()); }

std::int64_t bytes_in(at::TensorList tensors, const Bucket& bucket) {
  std::int64_t bytes = 0;
  for (const auto i : bucket) bytes += bytes_in(tensors[i]);
  return bytes;
}

// Conjugated or negated lazily, by LibTorch.
bool has_lazy_bit(const at::Tensor& x) { return x.is_conj() || x.is_neg(); }

// Not every device can concatenate every dtype, but all can do bytes. A view if x is contiguous.
at::Tensor as_bytes(const at::Tensor& x) {
  return x.detach().resolve_conj().resolve_neg().contiguous().flatten().view(at::kByte);
}

at::Tensor empty_bytes(std::int64_t bytes, c10::Device device, bool pinned = false) {
  return at::empty({bytes}, at::TensorOptions(at::kByte).device(device).pinned_memory(pinned));
}

// The buffer between host and device: pinned memory, from which CUDA copies several times faster.
// Ordinary memory elsewhere, so that the same code runs on every device.
at::Tensor staging_for(c10::Device device, std::int64_t bytes) {
  return empty_bytes(std::min(bytes, k_bucket_bytes), at::kCPU, /*pinned=*/device.is_cuda());
}

// Between host and device, in either direction, piece by piece through the staging memory.
void transfer(const at::Tensor& to, const at::Tensor& from, const at::Tensor& staging) {
  for (std::int64_t begin = 0; begin < from.numel(); begin += staging.numel()) {
    const auto size = std::min(staging.numel(), from.numel() - begin);
    const auto piece = staging.narrow(0, 0, size);
    piece.copy_(from.narrow(0, begin, size));
    to.narrow(0, begin, size).copy_(piece);
  }
}

// In place, on one device or between any two. LibTorch splits a copy on the CPU among threads that
// busy-wait for each other; on a busy machine this took ten times as long as one thread.
void write_to(const at::Tensor& target, const at::Tensor& value) {
  const auto is_plain = [](const at::Tensor& x) {
    return x.is_cpu() && x.is_contiguous() && !has_lazy_bit(x);
  };
  if (!is_plain(target) || !is_plain(value)) {
    target.copy_(value);
    return;
  }
  if (target.nbytes() > 0) {
    std::memmove(target.mutable_data_ptr(), value.const_data_ptr(), target.nbytes());
  }
  target.unsafeGetTensorImpl()->bump_version();  // autograd sees writes by copy_ only
}

bool have_equal_strides(const at::Tensor& a, const at::Tensor& b) {
  for (std::int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) != 1 && a.stride(d) != b.stride(d)) return false;
  }
  return true;
}

// CUDA's _foreach_copy_ has no code for these dtypes; it copies integers of their size instead.
at::ScalarType copied_as(at::ScalarType dtype) {
  switch (dtype) {
    case at::kUInt16:
      return at::kShort;
    case at::kUInt32:
    case at::kComplexHalf:
      return at::kInt;
    case at::kUInt64:
      return at::kLong;
    case at::kFloat8_e8m0fnu:
    case at::kFloat4_e2m1fn_x2:
      return at::kByte;
    default:
      return dtype;
  }
}

// Whether the values can be copied directly into their target's memory.
bool is_straight(const std::vector<at::Tensor>& targets) {
  return targets.size() == 1 && targets.front().is_contiguous() && !has_lazy_bit(targets.front());
}

// The copy of a bucket from the host to a device. Its memory is allocated before it starts: running
// out of memory half-way would leave some targets with the old values.
class Load {
 public:
  Load(std::vector<at::Tensor> targets, const std::vector<at::Tensor>& values,
       const at::Tensor& staging, const at::Tensor& landing)
      : targets_(std::move(targets)), staging_(staging) {
    for (const auto& x : values) values_.push_back(as_bytes(x));
    if (is_straight(targets_)) {
      landing_ = as_bytes(targets_.front());
      return;
    }
    std::int64_t bytes = 0;
    for (const auto& x : values_) bytes += x.numel();
    landing_ = landing.narrow(0, 0, bytes);
    copies_ =
        EachCopy(unflatten(landing_.view(targets_.front().scalar_type()), targets_), targets_);
  }

  void send() const {
    if (values_.size() == 1) {
      transfer(landing_, values_.front(), staging_);
    } else {  // they fit into the staging memory
      auto together = staging_.narrow(0, 0, landing_.numel());
      at::cat_out(together, values_);
      landing_.copy_(together);
    }
    if (copies_) {
      copies_->run();
    } else {  // autograd sees writes by copy_ only
      targets_.front().unsafeGetTensorImpl()->bump_version();
    }
  }

 private:
  std::vector<at::Tensor> targets_;
  std::vector<at::Tensor> values_;  // bytes, on the host
  at::Tensor staging_;              // on the host
  at::Tensor landing_;              // bytes on the device: the target's own memory, if straight
  std::optional<EachCopy> copies_;  // from landing_ into the targets; none if straight
};

}  // namespace

std::vector<Bucket> buckets(at::TensorList tensors) {
  struct Filling {
    std::size_t bucket;
    std::int64_t bytes;
  };
  std::map<std::tuple<c10::DeviceType, c10::DeviceIndex, at::ScalarType>, Filling> filling;
  std::vector<Bucket> all;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& x = tensors[i];
    const auto [found, is_new] = filling.try_emplace(
        {x.device().type(), x.device().index(), x.scalar_type()}, Filling{all.size(), 0});
    auto& [bucket, bytes] = found->second;
    if (is_new || bytes + bytes_in(x) > k_bucket_bytes) {
      bucket = all.size();
      bytes = 0;
      all.emplace_back();
    }
    all[bucket].push_back(i);
    bytes += bytes_in(x);
  }
  return all;
}

std::vector<at::Tensor> select(at::TensorList tensors, const Bucket& bucket) {
  std::vector<at::Tensor> selected;
  for (const auto i : bucket) selected.push_back(tensors[i]);
  return selected;
}

at::Tensor flatten(at::TensorList tensors) {
  std::vector<at::Tensor> bytes;
  for (const auto& x : tensors) bytes.push_back(as_bytes(x));
  return (bytes.size() == 1 ? bytes.front() : at::cat(bytes)).view(tensors.front().scalar_type());
}

std::vector<at::Tensor> unflatten(const at::Tensor& flat, at::TensorList like) {
  std::vector<at::Tensor> views;
  std::int64_t begin = 0;
  for (const auto& x : like) {
    views.push_back(flat.narrow(0, begin, x.numel()).view(x.sizes()));
    begin += x.numel();
  }
  return views;
}

std::vector<at::Tensor> gather_to_host(at::TensorList tensors) {
  std::vector<at::Tensor> host(tensors.size());
  for (const auto& bucket : buckets(tensors)) {
    const auto group = select(tensors, bucket);
    const auto device = group.front().device();
    if (device.is_cpu()) {
      for (const auto i : bucket) host[i] = tensors[i].resolve_conj().resolve_neg().contiguous();
      continue;
    }
    const auto flat = flatten(group).view(at::kByte);
    const auto staging = staging_for(device, flat.numel());
    const bool is_alone = bucket.size() == 1;  // may be larger than the staging memory
    const auto copy = is_alone ? empty_bytes(flat.numel(), at::kCPU) : staging;
    if (is_alone) {
      transfer(copy, flat, staging);
    } else {
      copy.copy_(flat);
    }
    const auto views = unflatten(copy.view(group.front().scalar_type()), group);
    for (std::size_t i = 0; i < bucket.size(); ++i) {
      host[bucket[i]] = is_alone ? views[i] : views[i].clone();
    }
  }
  return host;
}

EachCopy::EachCopy(at::TensorList values, at::TensorList targets) {
  std::map<at::ScalarType, Pairs> alike;  // _foreach_copy_ runs a kernel per pair if any differs
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto& value = values[i];
    const auto& target = targets[i];
    const bool is_alike = have_equal_strides(value, target) &&
                          target.is_non_overlapping_and_dense() && !has_lazy_bit(value) &&
                          !has_lazy_bit(target);
    const auto dtype = is_alike ? copied_as(target.scalar_type()) : target.scalar_type();
    const bool is_viewed = dtype != target.scalar_type();
    if (is_alike) own_alike_.push_back(target);
    auto& pairs = is_alike ? alike[dtype] : unlike_;
    pairs.values.push_back(is_viewed ? value.view(dtype) : value);
    pairs.targets.push_back(is_viewed ? target.view(dtype) : target);
  }
  for (auto& [dtype, pairs] : alike) alike_.push_back(std::move(pairs));
}

void EachCopy::run() const {
  for (const auto& [values, targets] : alike_) at::_foreach_copy_(targets, values);
  // In inference mode autograd sees writes by copy_, but not these.
  for (const auto& x : own_alike_) x.unsafeGetTensorImpl()->bump_version();
  for (std::size_t i = 0; i < unlike_.targets.size(); ++i)
    unlike_.targets[i].copy_(unlike_.values[i]);
}

void write_with_retry(c10::function_ref<void()> write) {
  try {
    write();
    return;
  } catch (const c10::Error& error) {
    log_message(LogLevel::warning, "A write to a device failed and is tried again: " +
                                       clipped(error_text(error), 200));
  }
  try {
    at::accelerator::emptyCache();
  } catch (const c10::Error&) {  // no accelerator, or one without a cache
  }
  write();
}

void scatter(at::TensorList values, at::TensorList targets) {
  Bucket through_host;
  Bucket direct;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    (values[i].is_cpu() && !targets[i].is_cpu() ? through_host : direct).push_back(i);
  }
  const auto host_values = select(values, through_host);
  const auto device_targets = select(targets, through_host);
  const auto plan = buckets(device_targets);

  struct Way {
    std::int64_t staging_bytes = 0, landing_bytes = 0;
    at::Tensor staging, landing;
  };
  std::unordered_map<c10::Device, Way> ways;
  for (const auto& bucket : plan) {
    const auto bytes = bytes_in(device_targets, bucket);
    auto& way = ways[device_targets[bucket.front()].device()];
    way.staging_bytes = std::max(way.staging_bytes, bytes);
    if (!is_straight(select(device_targets, bucket)))
      way.landing_bytes = std::max(way.landing_bytes, bytes);
  }
  for (auto& [device, way] : ways) {
    way.staging = staging_for(device, way.staging_bytes);
    way.landing = empty_bytes(way.landing_bytes, device);
  }
  std::vector<Load> loads;
  for (const auto& bucket : plan) {
    const auto group = select(device_targets, bucket);
    const auto& way = ways[group.front().device()];
    loads.emplace_back(group, select(host_values, bucket), way.staging, way.landing);
  }

  for (const auto i : direct) write_with_retry([&] { write_to(targets[i], values[i]); });
  for (const auto& load : loads) write_with_retry([&] { load.send(); });
}

}  // namespace use_gpu::detail
