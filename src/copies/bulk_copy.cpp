// SPDX-License-Identifier: MIT
#include "copies/bulk_copy.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "copies/each_copy.hpp"
#include "copies/flat_buffers.hpp"

namespace use_gpu::detail {
namespace {

// What host_bytes() leaves free before its memory, which stays aligned.
constexpr std::int64_t k_gap = 256;
// With the gap a power of two, to which LibTorch rounds pinned memory up.
constexpr std::int64_t k_parcel_bytes = (std::int64_t{32} << 20) - k_gap;
// From this size on a tensor travels alone: at 50 GB/s for 20 us, longer than a call takes.
constexpr std::int64_t k_large_bytes = std::int64_t{1} << 20;
// So many small tensors need fewer calls together than one by one, whatever their sizes: between
// two devices each is one call, between host and device also a wait.
constexpr std::size_t k_worth_a_parcel = 4;
constexpr std::size_t k_worth_a_peer_parcel = 10;

at::Tensor empty_bytes(std::int64_t bytes, c10::Device device, bool pinned = false) {
  return at::empty({bytes}, at::TensorOptions(at::kByte).device(device).pinned_memory(pinned));
}

// The host's memory for what goes to or comes from a device. CUDA copies from pinned memory several
// times faster, and without the host. Ordinary memory elsewhere, so that the same code runs on every
// device.
//
// LibTorch records when copies end that do not wait, where it finds their pinned memory among its
// own; and as that is freed, in a destructor, it ends the program if the device has failed. By its
// address this memory is not LibTorch's own: Buffer's event does the same, and can fail.
at::Tensor host_bytes(std::int64_t bytes, c10::Device device) {
  auto own = empty_bytes(k_gap + bytes, at::kCPU, /*pinned=*/device.is_cuda());
  auto* const begin = own.mutable_data_ptr<std::uint8_t>() + k_gap;
  return at::from_blob(
      begin, {bytes}, [own = std::move(own)](void*) {}, at::kByte);
}

// Memory of the host that is sent to a device, again and again.
class Buffer {
 public:
  Buffer(c10::Device device, std::int64_t bytes)
      : stream_(c10::impl::VirtualGuardImpl(device.type()).getStream(device)),
        memory_(host_bytes(bytes, device)),
        sent_(device.type()) {}
  // Here and below: using or destroying an event of another device would create a CUDA context on
  // the current one.
  ~Buffer() {
    const c10::DeviceGuard current(stream_.device());
    if (is_under_way_) {  // after an error
      try {
        stream_.synchronize();
      } catch (const c10::Error&) {  // the device is lost: it reads nothing any more
      }
    }
    sent_.reset();
  }

  [[nodiscard]] const at::Tensor& memory() const { return memory_; }

  // Copies `from`, a part of the memory, to the device; does not wait.
  void send(const at::Tensor& from, const at::Tensor& to) {
    is_under_way_ = stream_.device().is_cuda();
    to.copy_(from, /*non_blocking=*/is_under_way_);
    if (!is_under_way_) return;
    const c10::DeviceGuard current(stream_.device());
    sent_->record(stream_);
  }

  // Waits until the device has read the memory.
  void wait() {
    if (!is_under_way_) return;
    const c10::DeviceGuard current(stream_.device());
    sent_->synchronize();
    is_under_way_ = false;
  }

 private:
  c10::Stream stream_;
  at::Tensor memory_;
  std::optional<c10::Event> sent_;  // recorded after the copy to the device
  bool is_under_way_ = false;
};

// The steps in their order, and then the waits for what they left under way.
struct Plan {
  std::vector<Step> steps, waits;
};

// What is sent at once, as bytes: its values lie one after the other.
struct Parcel {
  Pairs pairs = {};
  std::int64_t bytes = 0;

  void add(const at::Tensor& value, const at::Tensor& target) {
    pairs.add(value, target);
    bytes += bytes_in(target);
  }

  // Views of that memory where the targets' values lie in it.
  [[nodiscard]] std::vector<at::Tensor> places_in(const at::Tensor& memory) const {
    std::vector<at::Tensor> places;
    auto begin = begin_of(memory);
    for (const auto& x : pairs.targets) {
      places.push_back(memory_view(memory, begin, x.scalar_type(), x.sizes(), x.strides()));
      begin += bytes_in(x);
    }
    return places;
  }
};

// A large tensor, in pieces.
void add_pieces(const at::Tensor& value, const at::Tensor& target, std::vector<Parcel>& parcels) {
  const auto most = k_parcel_bytes / static_cast<std::int64_t>(target.element_size());
  const auto from = flat_view(value, value.scalar_type()).split(most);
  const auto to = flat_view(target, target.scalar_type()).split(most);
  for (std::size_t i = 0; i < to.size(); ++i) parcels.emplace_back().add(from[i], to[i]);
  target.unsafeGetTensorImpl()->bump_version();  // autograd sees no write to its memory
}

// Small tensors, as many together as fit. Sizes that 16 divides come first, then 8, and so on: so
// each begins at a multiple of its dtype's size, and each_copy moves many as one row.
void add_parcels(const Pairs& small, std::vector<Parcel>& parcels) {
  Parcel parcel;
  for (const std::int64_t divisor : {16, 8, 4, 2, 1}) {
    for (std::size_t i = 0; i < small.targets.size(); ++i) {
      const auto size = bytes_in(small.targets[i]);
      if (std::gcd(size, 16) != divisor) continue;
      if (parcel.bytes + size > k_parcel_bytes) parcels.push_back(std::exchange(parcel, {}));
      parcel.add(small.values[i], small.targets[i]);
    }
  }
  parcels.push_back(std::move(parcel));
}

// Sends the parcels from one device to another: each is packed, sent and unpacked, all through the
// same memory: on a device as much as the largest needs, on the host, which receives one after the
// other, too; but it sends from two buffers in turn. On a device a tensor that is alone in its
// parcel is its own memory.
void add_parcel_steps(const std::vector<Parcel>& parcels, c10::Device from, c10::Device to,
                      Plan& plan) {
  std::int64_t bytes = 0;
  std::int64_t device_bytes = 0;
  for (const auto& parcel : parcels) {
    bytes = std::max(bytes, parcel.bytes);
    if (parcel.pairs.targets.size() > 1) device_bytes = std::max(device_bytes, parcel.bytes);
  }
  std::array<std::shared_ptr<Buffer>, 2> buffers;
  const auto shared_from = from.is_cpu() ? at::Tensor() : empty_bytes(device_bytes, from);
  const auto shared_to = to.is_cpu() ? host_bytes(bytes, from) : empty_bytes(device_bytes, to);
  for (std::size_t i = 0; i < parcels.size(); ++i) {
    const auto& parcel = parcels[i];
    const auto& [values, targets] = parcel.pairs;
    auto& buffer = buffers[i % 2];
    if (from.is_cpu() && !buffer) buffer = std::make_shared<Buffer>(to, bytes);
    const auto memory_of = [&](const std::vector<at::Tensor>& tensors, const at::Tensor& shared) {
      const bool is_own = tensors.size() == 1 && !tensors.front().is_cpu();
      return (is_own ? flat_view(tensors.front(), at::kByte) : shared).narrow(0, 0, parcel.bytes);
    };
    const auto packed = memory_of(values, buffer ? buffer->memory() : shared_from);
    const auto unpacked = memory_of(targets, shared_to);
    if (buffer) {
      plan.steps.emplace_back([buffer] { buffer->wait(); });
      plan.waits.push_back(plan.steps.back());
    }
    plan.steps.push_back(each_copy(values, parcel.places_in(packed)));
    if (buffer) {
      plan.steps.emplace_back([=] { buffer->send(packed, unpacked); });
    } else {
      plan.steps.emplace_back([=] { unpacked.copy_(packed); });  // to the host: waits
    }
    plan.steps.push_back(each_copy(parcel.places_in(unpacked), targets));
  }
}

// Allocates all memory that the steps need.
Plan make_plan(at::TensorList values, at::TensorList targets) {
  struct Route {
    Pairs together;  // small ones, or all within one device
    std::vector<Parcel> parcels;
  };
  std::unordered_map<c10::Device, std::unordered_map<c10::Device, Route>> routes;
  Plan plan;
  // LibTorch's copy_ would convert in memory of its own.
  const auto add_alone = [&](const at::Tensor& value, const at::Tensor& target) {
    plan.steps.emplace_back(
        [target, same = value.to(target.scalar_type())] { target.copy_(same); });
  };
  Pairs beside;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    auto value = values[i];
    auto target = targets[i];
    auto& route = routes[value.device()][target.device()];
    if (target.numel() == 0) continue;
    if (value.device() == target.device()) {
      route.together.add(value, target);
      continue;
    }
    // Only memory travels, so the value must lie in it as its target does. On the host it may keep
    // another dtype: it is converted as it is packed. A target with gaps is written at last, from
    // memory beside it.
    if (!is_dense_and_resolved(target)) {
      beside.add(at::empty(target.sizes(), target.options()), target);
      target = beside.values.back();
    }
    if (value.is_cpu() ? !have_same_order(value, target) : !are_alike(value, target)) {
      const auto copy = at::empty_like(target, target.options().device(value.device()));
      value = copy.copy_(value);
    }
    const auto& on_host = value.is_cpu() ? value : target;
    if (bytes_in(target) < k_large_bytes) {
      route.together.add(value, target);
    } else if (on_host.is_cpu() && !on_host.is_pinned()) {
      add_pieces(value, target, route.parcels);
    } else {
      add_alone(value, target);
    }
  }
  for (auto& [from, by_target] : routes) {
    for (auto& [to, route] : by_target) {
      const auto& [small, of_small] = route.together;
      const bool has_host = from.is_cpu() || to.is_cpu();
      if (from == to) {
        plan.steps.push_back(each_copy(small, of_small));
      } else if (small.size() >= (has_host ? k_worth_a_parcel : k_worth_a_peer_parcel)) {
        add_parcels(route.together, route.parcels);
      } else {
        for (std::size_t i = 0; i < small.size(); ++i) add_alone(small[i], of_small[i]);
      }
      if (!route.parcels.empty()) add_parcel_steps(route.parcels, from, to, plan);
    }
  }
  plan.steps.push_back(each_copy(beside.values, beside.targets));
  return plan;
}

}  // namespace

void bulk_copy(at::TensorList values, at::TensorList targets) {
  const c10::InferenceMode inference;  // in which tensors that were made in it can be written too
  const auto plan = make_plan(values, targets);
  for (const auto& step : plan.steps) step();
  for (const auto& wait : plan.waits) wait();
}

}  // namespace use_gpu::detail
