// SPDX-License-Identifier: MIT
//
// Functions and lines by address. There are two sources: symbols_libdw.cpp reads symbol tables and
// debug information by elfutils' libdw; symbols_dlfcn.cpp, for builds without that library, knows
// the exported functions only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace use_gpu::detail {

/// A function that was called, perhaps inlined.
struct Frame {
  std::string function;      ///< its mangled name, or in debug information its own; empty: unknown
  std::string file;          ///< without its folder; empty without debug information
  int line = 0;              ///< of the call that it makes
  std::string object;        ///< the program or library, without its folder; empty: unknown
  std::uint64_t offset = 0;  ///< of the address in the function, if unknown in the object
};

/// The program's symbols, of what was loaded when this was made. Not thread-safe.
class Symbols {
 public:
  Symbols();
  ~Symbols();
  Symbols(const Symbols&) = delete;
  Symbols& operator=(const Symbols&) = delete;

  /// The function at the address, after those that are inlined there, the innermost first.
  [[nodiscard]] std::vector<Frame> frames_at(std::uintptr_t address) const;

 private:
  struct Reader;
  std::unique_ptr<Reader> reader_;
};

}  // namespace use_gpu::detail
