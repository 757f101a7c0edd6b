// SPDX-License-Identifier: MIT
#include "shared_memory.hpp"

#include <cuda_runtime_api.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "device_memory.hpp"
#include "devices.hpp"
#include "errors.hpp"
#include "interface.hpp"
#include "physical_memory.hpp"
#include "settings.hpp"
#include "shared_slots.hpp"
#include "virtual_memory.hpp"

namespace simulate_gpus {
namespace {

constexpr std::uint32_t k_magic = 0x6d656d31;

// An allocation in the arena of a card of another process.
struct MemoryHandle {
  std::uint32_t magic;
  std::int32_t file;  // its number there
  SlotName slot;
  std::uint64_t inode;  // of the file, as numbers of files are used again
  std::uint64_t offset, bytes;
  std::int32_t card;
};
static_assert(sizeof(MemoryHandle) <= sizeof(cudaIpcMemHandle_t));

struct Exported {
  std::mutex mutex;
  std::map<const void*, MemoryHandle> handles;  // by the beginning of the allocation
  std::atomic<bool> has_any = false;
};

Exported& exported() {
  static auto* const exported = new Exported;  // LibTorch frees memory until the end of a process
  return *exported;
}

struct Opened {
  // A device maps an allocation once, however often it is opened.
  using Key = std::tuple<std::uint64_t, std::uint64_t, int>;  // file and serial of its slot, device
  struct Mapping {
    char* address;
    std::size_t bytes, reserved_bytes;
    int count;
  };
  std::mutex mutex;
  std::map<Key, Mapping> mappings;
  std::map<std::pair<std::uint64_t, int>, std::weak_ptr<PhysicalMemory>> memory;  // inode, device
};

Opened& opened() {
  static auto* const opened = new Opened;  // as above
  return *opened;
}

// The memory that a handle leads to; null where its process has ended. With the lock. The device is that of the card;
// of a card that is hidden here, the current one, as CUDA opens handles of hidden cards too.
std::shared_ptr<PhysicalMemory> memory_behind(const MemoryHandle& handle) {
  const int own = device_of_card(handle.card);
  const int device = own >= 0 ? own : current_device();
  auto& known = opened().memory[{handle.inode, device}];
  if (auto memory = known.lock()) return memory;
  const int file = open_file_of(handle.slot.process, handle.file);
  struct stat found {};
  if (file < 0) return nullptr;
  if (fstat(file, &found) != 0 || found.st_ino != handle.inode) {
    close(file);
    return nullptr;
  }
  auto memory = adopt_memory(file, static_cast<std::size_t>(found.st_size), device);
  known = memory;
  return memory;
}

std::optional<Opened::Mapping> map_allocation(const MemoryHandle& handle) {
  const auto memory = memory_behind(handle);
  if (!memory) return std::nullopt;
  // Few different sizes, so that places can be used again.
  constexpr std::size_t k_least = std::size_t{2} << 20;
  const std::size_t reserved = std::bit_ceil(std::max<std::size_t>(handle.bytes, k_least));
  void* const address = reserve_addresses(reserved);
  if (!address) return std::nullopt;
  if (!map_memory(address, handle.bytes, handle.offset, memory)) {
    static_cast<void>(free_addresses(address, reserved));
    return std::nullopt;
  }
  static_cast<void>(set_access(address, handle.bytes, true));
  return Opened::Mapping{static_cast<char*>(address), handle.bytes, reserved, 0};
}

cudaError_t fail_as_gone(const MemoryHandle& handle) {
  return fail(cudaErrorInvalidResourceHandle,
              "a handle of memory of process " + std::to_string(handle.slot.process) +
                  " was opened, which has ended or has freed that memory. It must keep the memory "
                  "until all others have opened it");
}

}  // namespace

void stop_sharing(const void* allocation) {
  if (!exported().has_any) return;
  const std::scoped_lock lock(exported().mutex);
  const auto found = exported().handles.find(allocation);
  if (found == exported().handles.end()) return;
  free_slot(found->second.slot);
  exported().handles.erase(found);
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

extern "C" {

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* address) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, handle, address);
  const auto place = allocation_at(address);
  if (!place) return fail(cudaErrorInvalidValue);
  *handle = {};
  const std::scoped_lock lock(exported().mutex);
  auto found = exported().handles.find(place->begin);
  if (found == exported().handles.end()) {
    struct stat file {};
    const auto slot = take_slot();
    if (!slot) return fail(cudaErrorMemoryAllocation, "no more handles can be made");
    if (fstat(place->file, &file) != 0) {
      free_slot(*slot);
      return fail(cudaErrorMapBufferObjectFailed, "the program has closed the GPU's memory");
    }
    const MemoryHandle made{k_magic,      place->file,           *slot, file.st_ino, place->offset,
                            place->bytes, card_of(place->device)};
    found = exported().handles.emplace(place->begin, made).first;
    exported().has_any = true;
  }
  std::memcpy(handle, &found->second, sizeof found->second);
  return cudaSuccess;
}

// The address is that of the whole allocation, also where the handle was made of one inside.
cudaError_t cudaIpcOpenMemHandle(void** address, cudaIpcMemHandle_t handle, unsigned flags) {
  SIMULATE_GPUS_ENTER();
  MemoryHandle wanted{};
  std::memcpy(&wanted, &handle, sizeof wanted);
  if (address == nullptr || flags != cudaIpcMemLazyEnablePeerAccess || wanted.magic != k_magic)
    return fail(cudaErrorInvalidValue);
  make_context(current_device());
  if (is_own(wanted.slot)) {
    return fail(cudaErrorDeviceUninitialized,
                "this process opened a handle of its own memory; handles are for other processes");
  }
  const std::scoped_lock lock(opened().mutex);
  const Opened::Key key{wanted.slot.file, wanted.slot.serial, current_device()};
  auto found = opened().mappings.find(key);
  if (found == opened().mappings.end()) {
    SharedSlot* const slot = find_slot(wanted.slot);
    if (!slot || !is_live(*slot, wanted.slot)) return fail_as_gone(wanted);
    const auto mapping = map_allocation(wanted);
    if (!mapping) return fail_as_gone(wanted);
    found = opened().mappings.emplace(key, *mapping).first;
  }
  ++found->second.count;
  *address = found->second.address;
  return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void* address) {
  SIMULATE_GPUS_ENTER();
  Opened::Mapping mapping{};
  {
    const std::scoped_lock lock(opened().mutex);
    auto& mappings = opened().mappings;
    const auto found = std::ranges::find_if(
        mappings, [&](const auto& each) { return each.second.address == address; });
    if (found == mappings.end()) return fail(cudaErrorInvalidValue);
    if (--found->second.count > 0) return cudaSuccess;
    mapping = found->second;
    mappings.erase(found);
  }
  static_cast<void>(unmap_memory(address, mapping.bytes));
  static_cast<void>(free_addresses(address, mapping.reserved_bytes));
  return cudaSuccess;
}
}
