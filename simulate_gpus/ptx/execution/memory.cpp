#include "ptx/execution/memory.hpp"

#include <algorithm>
#include <cstdio>

#include "ptx/execution/launch_state.hpp"

namespace simulate_gpus::ptx {
namespace {

std::string access_text(std::uint64_t address, std::size_t bytes, Access access) {
  char text[96];
  std::snprintf(text, sizeof text, "%s of %zu byte%s at 0x%llx",
                access == Access::read ? "a read" : "a write", bytes, bytes == 1 ? "" : "s",
                static_cast<unsigned long long>(address));
  return text;
}

}  // namespace

bool GlobalMemory::is_constant(std::uint64_t address) const {
  return address - launch_->constants.begin < launch_->constants.end - launch_->constants.begin;
}

std::byte* GlobalMemory::find_slowly(std::int32_t pc, std::uint64_t address, std::size_t bytes,
                                     Access access, int lane) {
  for (const Known& each : known_) {
    if (!each.allows(address, bytes, access)) continue;
    last_used(pc) = each;
    return each.host + (address - each.begin);
  }
  const Allocation found = launch_->host.find(address);
  if (address < found.begin || address >= found.end)
    throw LaneFault{Kind::illegal_address,
                    access_text(address, bytes, access) + ", which is in no allocation", lane};
  if (bytes > found.end - address)
    throw LaneFault{Kind::illegal_address,
                    access_text(address, bytes, access) + ", past the end of an allocation of " +
                        std::to_string(found.end - found.begin) + " bytes",
                    lane};
  const bool may_write = !is_constant(address);
  if (access == Access::write && !may_write)
    throw LaneFault{Kind::launch_failure,
                    access_text(address, bytes, access) + ", which is constant", lane};
  if (launch_->request.touched != nullptr) {
    note(address, bytes, access);  // each access comes here
  } else {
    std::rotate(known_.begin(), known_.end() - 1, known_.end());
    known_[0] = {found.begin, found.end - found.begin, found.host, may_write};
    last_used(pc) = known_[0];
  }
  return found.host + (address - found.begin);
}

void GlobalMemory::note(std::uint64_t address, std::size_t bytes, Access access) {
  const Allocation found = launch_->host.find(address);
  const std::scoped_lock lock(launch_->mutex);
  LaunchState::Range& range = launch_->touched[found.begin];
  range.begin = std::min(range.begin, address);
  range.end = std::max(range.end, address + bytes);
  (access == Access::read ? range.read : range.written) = true;
}

}  // namespace simulate_gpus::ptx
