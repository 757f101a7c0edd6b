// SPDX-License-Identifier: MIT
//
// Functions and lines by address. There are two sources: symbols_libdw.cpp reads symbol tables and
// debug information by elfutils' libdw; symbols_dlfcn.cpp, for builds without that library, knows
// the exported functions only.
#pragma once

#include <cstdint>
#include <functional>
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

/// Gives the function at an address, after those that are inlined there, the innermost first.
using Symbols = std::function<std::vector<Frame>(std::uintptr_t address)>;

/// The program's symbols, of what is loaded now. Not thread-safe.
[[nodiscard]] Symbols loaded_symbols();

}  // namespace use_gpu::detail
