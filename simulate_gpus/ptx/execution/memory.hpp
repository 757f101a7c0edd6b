// Memory as a kernel addresses it. Generic addresses of shared, local and parameter memory are in windows above all
// addresses of the host.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "ptx/execution/instruction.hpp"
#include "ptx/ptx.hpp"

namespace simulate_gpus::ptx {

constexpr std::uint64_t window_bytes = std::uint64_t{1} << 32;
constexpr std::uint64_t shared_window = std::uint64_t{1} << 48;
constexpr std::uint64_t local_window = shared_window + window_bytes;
constexpr std::uint64_t parameter_window = local_window + window_bytes;

enum class Access : std::uint8_t { read, write };

// What a lane does wrong; the block adds the rest.
struct LaneFault : std::exception {
  LaneFault(Kind its_kind, std::string its_text, int its_lane)
      : kind(its_kind), text(std::move(its_text)), lane(its_lane) {}
  Kind kind;
  std::string text;
  int lane;
};

// What all blocks of a launch share.
struct LaunchState;

class GlobalMemory {
 public:
  explicit GlobalMemory(LaunchState& launch) : launch_(&launch) {}

  struct Known {  // an allocation
    std::uint64_t begin = 0, bytes = 0;
    std::byte* host = nullptr;
    bool may_write = true;

    bool allows(std::uint64_t address, std::size_t size, Access access) const {
      const std::uint64_t offset = address - begin;
      return offset < bytes && size <= bytes - offset && (access == Access::read || may_write);
    }
  };

  // Where the host has these bytes, all of one allocation, for the instruction at `pc`. Throws: LaneFault.
  std::byte* find(std::int32_t pc, std::uint64_t address, std::size_t bytes, Access access,
                  int lane) {
    const Known& last = last_used(pc);
    if (last.allows(address, bytes, access)) return last.host + (address - last.begin);
    return find_slowly(pc, address, bytes, access, lane);
  }
  // What an instruction last used, as most use the same again.
  Known& last_used(std::int32_t pc) {
    return last_used_[static_cast<std::size_t>(pc) % last_used_.size()];
  }
  bool is_constant(std::uint64_t address) const;
  void forget() {  // an allocation has ended
    last_used_ = {};
    known_ = {};
  }

 private:
  std::byte* find_slowly(std::int32_t pc, std::uint64_t address, std::size_t bytes, Access access,
                         int lane);
  void note(std::uint64_t address, std::size_t bytes, Access access);

  LaunchState* launch_;
  std::array<Known, 8> last_used_ = {};
  std::array<Known, 4> known_ = {};
};

}  // namespace simulate_gpus::ptx
