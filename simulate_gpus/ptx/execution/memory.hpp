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

  // Where the host has these bytes, all of one allocation. Throws: LaneFault.
  std::byte* find(std::uint64_t address, std::size_t bytes, Access access, int lane) {
    const Known& last = known_[0];
    const std::uint64_t offset = address - last.begin;
    if (offset < last.bytes && bytes <= last.bytes - offset &&
        (access == Access::read || last.may_write))
      return last.host + offset;
    return find_slowly(address, bytes, access, lane);
  }
  bool is_constant(std::uint64_t address) const;
  void forget() { known_ = {}; }  // an allocation has ended

 private:
  struct Known {
    std::uint64_t begin = 0, bytes = 0;
    std::byte* host = nullptr;
    bool may_write = true;
  };
  std::byte* find_slowly(std::uint64_t address, std::size_t bytes, Access access, int lane);
  void note(std::uint64_t address, std::size_t bytes, Access access);

  LaunchState* launch_;
  std::array<Known, 4> known_ = {};
};

}  // namespace simulate_gpus::ptx
