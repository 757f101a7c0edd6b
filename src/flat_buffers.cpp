// SPDX-License-Identifier: MIT
#include "flat_buffers.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>
#include <unordered_map>

namespace use_gpu {
namespace {

constexpr std::int64_t k_bucket_bytes = std::int64_t{64} << 20;

std::int64_t bytes_in(const at::Tensor& x) { return static_cast<std::int64_t>(x.nbytes()); }

std::int64_t bytes_in(at::TensorList tensors, const Bucket& bucket) {
  std::int64_t bytes = 0;
  for (const auto i : bucket) bytes += bytes_in(tensors[i]);
  return bytes;
}

// Not every device can concatenate every dtype, but each can bytes. A view where x is contiguous.
at::Tensor bytes_of(const at::Tensor& x) {
  return x.detach().resolve_conj().resolve_neg().contiguous().flatten().view(at::kByte);
}

at::Tensor empty_bytes(std::int64_t bytes, c10::Device device, bool pinned = false) {
  return at::empty({bytes}, at::TensorOptions(at::kByte).device(device).pinned_memory(pinned));
}

// What bytes pass through between host and device: pinned memory, from which CUDA copies several
// times faster. Ordinary memory elsewhere, so that the same code runs on every device.
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

// In place, on one device or between any two. LibTorch shares a copy on the CPU among threads that
// wait for each other actively, which on a busy machine took ten times as long as one thread alone.
void write_to(const at::Tensor& target, const at::Tensor& value) {
  const auto is_plain = [](const at::Tensor& x) {
    return x.is_cpu() && x.is_contiguous() && !x.is_conj() && !x.is_neg();
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

// Whether the values can be transferred right into the memory of their target.
bool is_straight(const std::vector<at::Tensor>& targets) {
  return targets.size() == 1 && targets.front().is_contiguous() && !targets.front().is_conj() &&
         !targets.front().is_neg();
}

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
  for (const auto& x : tensors) bytes.push_back(bytes_of(x));
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
    const auto flat = flatten(group);
    const auto copy = empty_bytes(bytes_in(flat), at::kCPU);
    transfer(copy, flat.view(at::kByte), staging_for(device, copy.numel()));
    const auto views = unflatten(copy.view(flat.scalar_type()), group);
    for (std::size_t i = 0; i < bucket.size(); ++i) {
      host[bucket[i]] = bucket.size() == 1 ? views[i] : views[i].clone();
    }
  }
  return host;
}

void scatter(at::TensorList values, at::TensorList targets) {
  struct Way {
    at::Tensor staging;  // on the host
    at::Tensor landing;  // on the device
  };
  Bucket through_host;
  Bucket direct;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    (values[i].is_cpu() && !targets[i].is_cpu() ? through_host : direct).push_back(i);
  }
  const auto host_values = select(values, through_host);
  const auto device_targets = select(targets, through_host);
  const auto plan = buckets(device_targets);

  std::unordered_map<c10::Device, std::pair<std::int64_t, std::int64_t>> bytes;  // staging, landing
  for (const auto& bucket : plan) {
    const auto group = select(device_targets, bucket);
    auto& [staging, landing] = bytes[group.front().device()];
    staging = std::max(staging, bytes_in(device_targets, bucket));
    if (!is_straight(group)) landing = std::max(landing, bytes_in(device_targets, bucket));
  }
  std::unordered_map<c10::Device, Way> ways;
  for (const auto& [device, sizes] : bytes) {
    ways[device] = {staging_for(device, sizes.first), empty_bytes(sizes.second, device)};
  }

  for (const auto i : direct) write_to(targets[i], values[i]);
  for (const auto& bucket : plan) {
    const auto group = select(device_targets, bucket);
    const auto flat = flatten(select(host_values, bucket));
    const auto& [staging, landing] = ways[group.front().device()];
    if (is_straight(group)) {
      transfer(bytes_of(group.front()), flat.view(at::kByte), staging);
      group.front().unsafeGetTensorImpl()->bump_version();  // autograd sees writes by copy_ only
      continue;
    }
    const auto landed = landing.narrow(0, 0, bytes_in(flat));
    transfer(landed, flat.view(at::kByte), staging);
    const auto pieces = unflatten(landed.view(flat.scalar_type()), group);
    for (std::size_t i = 0; i < group.size(); ++i) group[i].copy_(pieces[i]);
  }
}

}  // namespace use_gpu
