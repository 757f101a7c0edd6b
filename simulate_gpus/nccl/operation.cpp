// SPDX-License-Identifier: MIT
#include "nccl/operation.hpp"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "runtime/interface.hpp"
#include "runtime/settings.hpp"

namespace simulate_gpus::nccl {
namespace {

// NCCL's own variable and default: 0 has every sender wait.
std::uint64_t buffer_bytes() {
  static const std::uint64_t bytes = [] {
    std::uint64_t value = std::uint64_t{4} << 20;
    if (const char* const text = std::getenv("NCCL_BUFFSIZE"))
      std::from_chars(text, text + std::strlen(text), value);
    return value;
  }();
  return bytes;
}

}  // namespace

Duty Operation::duty() const {
  if (call.is_collective()) return Duty::collective;
  return call.kind == Kind::send ? Duty::send : Duty::receive;
}

// Whether that rank has a part.
bool Operation::gives(int rank) const {
  const bool only_root = call.kind == Kind::broadcast || call.kind == Kind::scatter;
  return !only_root || rank == call.root;
}

bool Operation::takes_from(int rank) const {
  const bool only_root = call.kind == Kind::reduce || call.kind == Kind::gather;
  return gives(rank) && (!only_root || self->rank == call.root);
}

std::uint32_t Operation::takers() const {
  if (!gives(self->rank)) return 0;
  const bool only_root = call.kind == Kind::reduce || call.kind == Kind::gather;
  return only_root || call.kind == Kind::send ? 1 : static_cast<std::uint32_t>(self->size);
}

std::uint64_t Operation::given_bytes() const {
  if (!gives(self->rank) || !touches(call.bytes())) return 0;
  const bool one_for_each = call.kind == Kind::scatter || call.kind == Kind::reduce_scatter ||
                            call.kind == Kind::all_to_all;
  return call.bytes() * (one_for_each ? static_cast<std::uint64_t>(self->size) : 1);
}

std::vector<MemoryRange> Operation::ranges() const {
  std::vector<MemoryRange> used;
  const auto add = [&](const void* address, std::uint64_t bytes, bool writes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    if (bytes > 0) used.push_back({begin, begin + bytes, writes});
  };
  if (call.kind != Kind::receive) add(from, given_bytes(), false);
  if (call.kind == Kind::send) return used;
  const bool one_of_each =
      call.kind == Kind::all_gather || call.kind == Kind::gather || call.kind == Kind::all_to_all;
  const bool takes = !call.is_collective() || takes_from(call.root);
  if (takes)
    add(to, call.bytes() * (one_of_each ? static_cast<std::uint64_t>(self->size) : 1), true);
  return used;
}

Part& Operation::own_part() const {
  return call.kind == Kind::send ? self->file().message(self->rank, peer, number)
                                 : self->file().part(self->rank, number);
}

bool Operation::waits_for_receipt() const { return call.bytes() > buffer_bytes(); }

bool Operation::try_give() const {
  if (self->is_aborted() || call.kind == Kind::receive) return true;
  self->throw_if_failed();
  Part& part = own_part();
  if (!part.is_free()) {
    self->want_room(duty(), peer, number);
    return false;
  }
  const std::uint64_t bytes = given_bytes();
  std::uint64_t begin = 0;
  if (bytes > 0) {
    begin = self->room_for(bytes, part, number);
    self->or_fail([&] { write_part(begin, bytes); });
  }
  self->file().give(part, number, call, takers(), begin, bytes);
  return true;
}

void Operation::write_part(std::uint64_t begin, std::uint64_t bytes) const {
  const auto* values = static_cast<const std::byte*>(host_address(from));
  std::vector<std::byte> multiplied;
  if (call.reduction == k_made_reduction) {
    multiplied.assign(values, values + bytes);
    const std::uint64_t count = call.count * (bytes / call.bytes());
    const void* const by = scalar.on_device ? host_address(scalar.on_device) : scalar.value.data();
    multiply(call.type, multiplied.data(), count, by);
    values = multiplied.data();
  }
  self->file().write(begin, values, bytes);
}

// Every rank tells its call, whether it has values to give or not: so ranks that wait for each other
// in different calls find out.
void Operation::compare_calls() const {
  for (int rank = 0; rank < self->size; ++rank) {
    const Part& part = self->file().part(rank, number);
    if (!part.is_of(number)) continue;
    const Call other = part.call.load();
    if (other == call || !part.is_of(number)) continue;  // its owner may have gone on
    self->fail_by_difference(number, call, rank, other);
  }
}

bool Operation::try_take() const {
  if (self->is_aborted()) return true;
  self->throw_if_failed();
  if (!call.is_collective()) return try_take_message();
  SharedFile& file = self->file();
  bool all = true;
  for (int rank = 0; rank < self->size; ++rank) {
    if (!takes_from(rank) || file.part(rank, number).is_of(number)) continue;
    self->want(rank, Duty::collective, number);
    all = false;
  }
  compare_calls();
  if (!all) return false;
  self->or_fail([&] { compute(); });
  for (int rank = 0; rank < self->size; ++rank) {
    if (takes_from(rank)) file.take(file.part(rank, number));
  }
  return true;
}

bool Operation::try_take_message() const {
  SharedFile& file = self->file();
  if (call.kind == Kind::send) {
    const Part& part = own_part();
    if (!waits_for_receipt() || !part.is_of(number) || part.is_free()) return true;
    self->want(peer, Duty::receive, number);
    return false;
  }
  Part& part = file.message(peer, self->rank, number);
  if (!part.is_of(number)) {
    self->want(peer, Duty::send, number);
    return false;
  }
  if (const Call sent = part.call.load(); sent.bytes() != call.bytes()) {
    self->fail("rank " + std::to_string(peer) + " makes " + text_of(sent) + " to rank " +
               std::to_string(self->rank) + ", which makes " + text_of(call) +
               ": the bytes differ.");
  }
  self->or_fail([&] { file.read(part.begin, host_address(to), part.bytes); });
  file.take(part);
  return true;
}

void Operation::compute() const {
  const std::uint64_t bytes = call.bytes();
  if (bytes == 0 || !touches(bytes)) return;
  auto* const result = static_cast<std::byte*>(host_address(to));
  // What is for this rank, where a rank gives something else to each.
  const std::uint64_t own = static_cast<std::uint64_t>(self->rank) * bytes;
  const auto read = [&](int rank, std::uint64_t begin, void* target, std::size_t size) {
    self->file().read(self->file().part(rank, number).begin + begin, target, size);
  };
  // This rank's own part is still in its memory too, unless another operation of the group has
  // written there.
  const auto* const given = static_cast<const std::byte*>(host_address(from));
  const auto read_faster = [&](int rank, std::uint64_t begin, void* target, std::size_t size) {
    if (rank != self->rank || !is_alone || call.reduction == k_made_reduction) {
      read(rank, begin, target, size);
    } else {
      std::memcpy(target, given + begin, size);
    }
  };
  const auto read_all = [&](std::uint64_t begin) {
    for (int rank = 0; rank < self->size; ++rank)
      read(rank, begin, result + static_cast<std::uint64_t>(rank) * bytes, bytes);
  };
  switch (call.kind) {
    case Kind::all_reduce:
      return reduce(call, self->size, read_faster, result);
    case Kind::reduce_scatter:
      return reduce(
          call, self->size,
          [&](int rank, std::uint64_t begin, void* target, std::size_t size) {
            read_faster(rank, own + begin, target, size);
          },
          result);
    case Kind::broadcast:
      return read(call.root, 0, result, bytes);
    case Kind::scatter:
      return read(call.root, own, result, bytes);
    case Kind::all_gather:
      return read_all(0);
    case Kind::all_to_all:
      return read_all(own);
    case Kind::reduce:
      return self->rank == call.root ? reduce(call, self->size, read, result) : void();
    case Kind::gather:
      return self->rank == call.root ? read_all(0) : void();
    default:
      return;
  }
}

}  // namespace simulate_gpus::nccl
