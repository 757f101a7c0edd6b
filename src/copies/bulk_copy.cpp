// SPDX-License-Identifier: MIT
#include "copies/bulk_copy.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "copies/each_copy.hpp"
#include "copies/flat_buffers.hpp"
#include "copies/memory_view.hpp"

namespace use_gpu::detail {
namespace {

// What Staging::pinned() leaves free before its memory, which stays aligned.
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

// Plain memory in one dimension, as bytes or as elements of x's dtype.
at::Tensor as_bytes(const at::Tensor& x) {
  return memory_view(x, begin_of(x), at::kByte, {bytes_in(x)}, {1});
}
at::Tensor as_elements(const at::Tensor& x) {
  return memory_view(x, begin_of(x), x.scalar_type(), {x.numel()}, {1});
}

// The memory between the host and one device: two buffers, used in turn. CUDA copies from pinned
// memory several times faster, and without the host. Ordinary memory elsewhere, so that the same
// code runs on every device.
class Staging {
 public:
  explicit Staging(c10::Device device)
      : device_(device), is_pinned_(device.is_cuda()), guard_(device.type()) {}
  // Here and below: using or destroying an event of another device would create a CUDA context on
  // the current one.
  ~Staging() {
    const c10::DeviceGuard current(device_);
    if (buffers_[0].is_under_way || buffers_[1].is_under_way) {  // after an error
      try {
        guard_.synchronizeStream(guard_.getStream(device_));
      } catch (const c10::Error&) {  // the device is lost: it reads nothing any more
      }
    }
    for (auto& buffer : buffers_) buffer.sent.reset();
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // For so many bytes, in pieces that fit into a buffer. Before allocate().
  void reserve(std::int64_t bytes) {
    bytes_ = std::max(bytes_, std::min(bytes, k_parcel_bytes));
    pieces_ += static_cast<std::size_t>((bytes + k_parcel_bytes - 1) / k_parcel_bytes);
  }
  void allocate() {
    count_ = std::min(pieces_, buffers_.size());
    for (std::size_t i = 0; i < count_; ++i)
      buffers_[i].memory = is_pinned_ ? pinned(bytes_) : empty_bytes(bytes_, at::kCPU);
  }

  // The number of the next piece.
  std::size_t next() { return next_++; }

  // The memory for the i-th piece.
  [[nodiscard]] const at::Tensor& memory(std::size_t i) const {
    return buffers_[i % count_].memory;
  }

  // Copies what lies there to the device; does not wait.
  void send(std::size_t i, const at::Tensor& target) {
    auto& [memory, sent, is_under_way] = buffers_[i % count_];
    is_under_way = is_pinned_;
    target.copy_(memory.narrow(0, 0, target.numel()), /*non_blocking=*/is_pinned_);
    if (!is_pinned_) return;
    const c10::DeviceGuard current(device_);
    if (!sent) sent.emplace(device_.type());
    sent->record(guard_.getStream(device_));
  }

  // Waits until the device has read the memory for the i-th piece.
  void wait(std::size_t i) {
    auto& buffer = buffers_[i % count_];
    if (!buffer.is_under_way) return;
    const c10::DeviceGuard current(device_);
    if (buffer.sent) buffer.sent->synchronize();  // none if the copy has failed
    buffer.is_under_way = false;
  }
  void wait() {
    for (std::size_t i = 0; i < count_; ++i) wait(i);
  }

 private:
  struct Buffer {
    at::Tensor memory;
    std::optional<c10::Event> sent;  // recorded after the copy to the device
    bool is_under_way = false;
  };

  // LibTorch records when copies end that do not wait, where it finds their pinned memory among its
  // own; and as that is freed, in a destructor, it ends the program if the device has failed. By its
  // address this memory is not LibTorch's own: the events above do the same, and can fail.
  static at::Tensor pinned(std::int64_t bytes) {
    auto own = empty_bytes(k_gap + bytes, at::kCPU, /*pinned=*/true);
    auto* const begin = own.mutable_data_ptr<std::uint8_t>() + k_gap;
    return at::from_blob(
        begin, {bytes}, [own = std::move(own)](void*) {}, at::kByte);
  }

  c10::Device device_;
  bool is_pinned_;
  c10::impl::VirtualGuardImpl guard_;
  std::int64_t bytes_ = 0;  // of a buffer
  std::size_t pieces_ = 0;  // that go through them
  std::size_t count_ = 0;   // of buffers that are needed
  std::size_t next_ = 0;
  std::array<Buffer, 2> buffers_;
};

// From one device to another.
struct Route {
  c10::Device from, to;

  [[nodiscard]] bool has_host() const { return from.is_cpu() || to.is_cpu(); }
  [[nodiscard]] c10::Device other_than_host() const { return from.is_cpu() ? to : from; }
  bool operator<(const Route& other) const {
    const auto key = [](const Route& x) {
      return std::tuple(x.from.type(), x.from.index(), x.to.type(), x.to.index());
    };
    return key(*this) < key(other);
  }
};

// A large tensor, between host and device: in pieces.
void send_alone(const at::Tensor& value, const at::Tensor& target, Staging& staging) {
  const auto to = as_bytes(target);
  target.unsafeGetTensorImpl()->bump_version();  // autograd sees no write to its memory
  // Elements only where they are converted: bytes need not be aligned.
  const bool is_converted = value.scalar_type() != target.scalar_type();
  const auto from = is_converted ? as_elements(value) : as_bytes(value);
  const auto width = to.numel() / from.numel();  // of an element, once it is converted
  const auto piece_size = staging.memory(0).numel();
  for (std::int64_t begin = 0; begin < to.numel(); begin += piece_size) {
    const auto i = staging.next();
    const auto size = std::min(piece_size, to.numel() - begin);
    const auto piece = staging.memory(i).narrow(0, 0, size);
    staging.wait(i);
    (is_converted ? piece.view(target.scalar_type()) : piece)
        .copy_(from.narrow(0, begin / width, size / width));
    if (from.is_cpu()) {
      staging.send(i, to.narrow(0, begin, size));
    } else {
      to.narrow(0, begin, size).copy_(piece);
    }
  }
}

// Where `like` lies in flat memory: as it lies in its own.
at::Tensor place_in(const at::Tensor& flat, std::int64_t begin, const at::Tensor& like) {
  return memory_view(flat, begin, like.scalar_type(), like.sizes(), like.strides());
}

// Small tensors that travel together.
class Parcel {
 public:
  // `from` and `to` are memory on the device of the values and of the targets. One of them is the
  // i-th piece of the staging memory, if there is any.
  Parcel(const std::vector<at::Tensor>& values, const std::vector<at::Tensor>& targets,
         const at::Tensor& from, const at::Tensor& to, Staging* staging, std::size_t i)
      : staging_(staging), i_(i) {
    const FlatLayout layout(targets);
    std::vector<at::Tensor> packed;
    std::vector<at::Tensor> unpacked;
    for (std::size_t k = 0; k < targets.size(); ++k) {
      packed.push_back(place_in(from, layout.begins[k], targets[k]));
      unpacked.push_back(place_in(to, layout.begins[k], targets[k]));
    }
    pack_ = EachCopy(values, packed);
    unpack_ = EachCopy(unpacked, targets);
    from_ = from.narrow(0, 0, layout.bytes);
    to_ = to.narrow(0, 0, layout.bytes);
  }

  void send() const {
    const bool leaves_host = from_.is_cpu();
    if (leaves_host) staging_->wait(i_);
    pack_.run();
    if (leaves_host) {
      staging_->send(i_, to_);
    } else {
      to_.copy_(from_);  // to the host: waits
    }
    unpack_.run();
  }

 private:
  Staging* staging_;
  std::size_t i_;
  EachCopy pack_, unpack_;
  at::Tensor from_, to_;
};

// A write within one device, once all else is written.
struct Late {
  at::Tensor value, target;
};

// Lets each value that goes to another device lie in memory as its target does, so that memory is
// all that travels. On the host it may keep another dtype: it is converted as it is packed. Targets
// with gaps are written at last, from memory beside them.
std::vector<Late> make_alike(std::vector<at::Tensor>& values, std::vector<at::Tensor>& targets) {
  std::vector<Late> late;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    auto& value = values[i];
    auto& target = targets[i];
    if (value.device() == target.device()) continue;
    if (!is_dense_and_resolved(target)) {
      late.push_back({at::empty(target.sizes(), target.options()), target});
      target = late.back().value;
    }
    if (value.is_cpu() ? !have_same_order(value, target) : !are_alike(value, target)) {
      const auto copy = at::empty_like(target, target.options().device(value.device()));
      value = copy.copy_(value);
    }
  }
  return late;
}

// How each pair travels: its position in the lists.
struct Plan {
  std::map<Route, Positions> within;  // one device
  Positions by_copy;                  // as LibTorch copies it
  Positions alone;                    // large, between host and device
  std::map<Route, std::vector<Positions>> parcels;
};

Plan plan(at::TensorList values, at::TensorList targets) {
  Plan plan;
  std::map<Route, Positions> small;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Route route{values[i].device(), targets[i].device()};
    if (targets[i].numel() == 0) continue;
    if (route.from == route.to) {
      plan.within[route].push_back(i);
    } else if (bytes_in(targets[i]) < k_large_bytes) {
      small[route].push_back(i);
    } else {
      const auto& on_host = route.from.is_cpu() ? values[i] : targets[i];
      (route.has_host() && !on_host.is_pinned() ? plan.alone : plan.by_copy).push_back(i);
    }
  }
  for (const auto& [route, all] : small) {
    if (all.size() < (route.has_host() ? k_worth_a_parcel : k_worth_a_peer_parcel)) {
      plan.by_copy.insert(plan.by_copy.end(), all.begin(), all.end());
      continue;
    }
    std::int64_t bytes = k_parcel_bytes;
    for (const auto i : all) {
      const auto size = bytes_in(targets[i]) + 8;  // at most, as FlatLayout aligns it
      bytes += size;
      if (bytes > k_parcel_bytes) {
        plan.parcels[route].emplace_back();
        bytes = size;
      }
      plan.parcels[route].back().push_back(i);
    }
  }
  return plan;
}

}  // namespace

void bulk_copy(at::TensorList given_values, at::TensorList given_targets) {
  // First all memory.
  auto values = given_values.vec();
  auto targets = given_targets.vec();
  const auto late = make_alike(values, targets);
  const auto ways = plan(values, targets);
  // LibTorch's copy_ would convert in memory of its own.
  for (const auto i : ways.by_copy) values[i] = values[i].to(targets[i].scalar_type());
  std::unordered_map<c10::Device, Staging> stagings;
  std::unordered_map<c10::Device, std::int64_t> parcel_bytes;
  const auto route_of = [&](std::size_t i) {
    return Route{values[i].device(), targets[i].device()};
  };
  const auto staging_for = [&](const Route& route) -> Staging& {
    const auto device = route.other_than_host();
    return stagings.try_emplace(device, device).first->second;
  };
  for (const auto i : ways.alone) staging_for(route_of(i)).reserve(bytes_in(targets[i]));
  for (const auto& [route, parcels] : ways.parcels) {
    for (const auto& parcel : parcels) {
      const auto bytes = FlatLayout(select(targets, parcel)).bytes;
      if (route.has_host()) staging_for(route).reserve(bytes);
      for (const auto device : {route.from, route.to})
        if (!device.is_cpu()) parcel_bytes[device] = std::max(parcel_bytes[device], bytes);
    }
  }
  for (auto& [device, staging] : stagings) staging.allocate();
  std::unordered_map<c10::Device, at::Tensor> memory;
  for (const auto& [device, bytes] : parcel_bytes) memory[device] = empty_bytes(bytes, device);

  std::vector<EachCopy> within;
  for (const auto& [route, all] : ways.within)
    within.emplace_back(select(values, all), select(targets, all));
  std::vector<Parcel> parcels;
  for (const auto& [route, of_route] : ways.parcels) {
    auto* const staging = route.has_host() ? &staging_for(route) : nullptr;
    for (const auto& parcel : of_route) {
      const auto i = staging != nullptr ? staging->next() : 0;
      const auto memory_on = [&](c10::Device device) {
        return device.is_cpu() ? staging->memory(i) : memory.at(device);
      };
      parcels.emplace_back(select(values, parcel), select(targets, parcel), memory_on(route.from),
                           memory_on(route.to), staging, i);
    }
  }

  for (const auto& copies : within) write_with_retry([&] { copies.run(); });
  for (const auto i : ways.by_copy) write_with_retry([&] { targets[i].copy_(values[i]); });
  for (const auto& parcel : parcels) write_with_retry([&] { parcel.send(); });
  for (const auto i : ways.alone) {
    auto& staging = staging_for(route_of(i));
    write_with_retry([&] { send_alone(values[i], targets[i], staging); });
  }
  for (const auto& x : late) write_with_retry([&] { x.target.copy_(x.value); });
  for (auto& entry : stagings) write_with_retry([&] { entry.second.wait(); });
}

}  // namespace use_gpu::detail
