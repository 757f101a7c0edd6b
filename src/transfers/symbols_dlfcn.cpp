// SPDX-License-Identifier: MIT
#include <dlfcn.h>

#include <bit>
#include <filesystem>

#include "transfers/symbols.hpp"

namespace use_gpu::detail {

Symbols loaded_symbols() {
  return [](std::uintptr_t address) -> std::vector<Frame> {
    Frame frame;
    Dl_info found{};
    if (dladdr(std::bit_cast<void*>(address), &found) != 0) {
      frame.object = std::filesystem::path(found.dli_fname).filename();
      if (found.dli_sname != nullptr) frame.function = found.dli_sname;
      const void* const start = found.dli_sname != nullptr ? found.dli_saddr : found.dli_fbase;
      frame.offset = address - reinterpret_cast<std::uintptr_t>(start);
    }
    return {frame};
  };
}

}  // namespace use_gpu::detail
