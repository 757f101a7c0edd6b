// SPDX-License-Identifier: MIT
//
// Who accessed each byte of memory last: the write, and all reads since that are not known to one
// another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tools/check/clock.hpp"

namespace simulate_gpus {

struct CheckedOperation;

struct Access {
  std::shared_ptr<const CheckedOperation> operation;
  std::size_t stream = 0;    ///< its number in clocks
  std::uint64_t number = 0;  ///< of the operation in its stream
  std::uint64_t block = 0;   ///< the tensor that had the memory; 0 if that is not known
};

class ShadowMemory {
 public:
  using Conflict = std::function<void(const Access& earlier, bool earlier_wrote)>;

  /// Calls conflict() for each earlier access to the bytes that the clock does not know, unless both
  /// only read.
  void access(std::uintptr_t begin, std::uintptr_t end, const Access& access, bool writes,
              const Clock& known, const Conflict& conflict);

  /// The bytes are given back.
  void forget(std::uintptr_t begin, std::uintptr_t end);

  /// Of the accesses to the bytes, those that the clock knows are over and disturb nothing any more.
  void forget_known(std::uintptr_t begin, std::uintptr_t end, const Clock& known);

 private:
  struct Segment {
    std::uintptr_t end;
    Access write;
    std::vector<Access> reads;
  };

  void split(std::uintptr_t place);

  std::map<std::uintptr_t, Segment> segments_;  // by their begin; none overlap
};

}  // namespace simulate_gpus
