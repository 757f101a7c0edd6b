// SPDX-License-Identifier: MIT
#include "kernel_memory.hpp"

#include <cstdio>
#include <optional>

#include "device_memory.hpp"
#include "interface.hpp"
#include "peers.hpp"
#include "pinned_memory.hpp"
#include "settings.hpp"
#include "tensor_memory.hpp"

namespace simulate_gpus {
namespace {

void* pointer_to(std::uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): PTX has integers
}

ptx::Allocation allocation_of(const Extent& extent) {
  const auto begin = reinterpret_cast<std::uint64_t>(extent.begin);
  return {begin, begin + extent.bytes, static_cast<std::byte*>(host_address(extent.begin))};
}

ptx::Allocation find_for(int device, std::uint64_t address) {
  const void* const place = pointer_to(address);
  const auto owner = device_at(place);
  if (owner && *owner != device && !reaches(device, *owner)) return {};
  const auto found = owner ? allocation_around(place) : pinned_around(place);
  if (!found) return {};
  // --check is told what a kernel has used tensor by tensor.
  return allocation_of(settings().check ? tensor_around(*found, place) : *found);
}

ptx::Allocation allocate_for(int device, bool managed, std::size_t bytes) {
  void* const made = managed ? allocate_managed(bytes) : allocate(device, bytes);
  return made ? allocation_of({made, bytes}) : ptx::Allocation{};
}

void print(std::string_view text, bool to_stderr) {
  std::FILE* const file = to_stderr ? stderr : stdout;
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

}  // namespace

ptx::Host memory_for_kernels(int device, bool managed) {
  return {.find = [device](std::uint64_t address) { return find_for(device, address); },
          .allocate = [device,
                       managed](std::size_t bytes) { return allocate_for(device, managed, bytes); },
          .release =
              [](std::uint64_t begin) {
                if (!release_managed(pointer_to(begin))) release(pointer_to(begin));
              },
          .print = print};
}

}  // namespace simulate_gpus
