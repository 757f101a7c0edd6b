// What all blocks of a launch share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "ptx/execution/instruction.hpp"
#include "ptx/ptx.hpp"

namespace simulate_gpus::ptx {

struct LaunchState {
  const Program& program;
  const Launch& request;
  const Host& host;
  Allocation constants = {};                // of the module: a kernel may not write them
  const std::map<int, std::string>& files;  // of the source, for lines of faults
  std::size_t shared_bytes = 0;             // static and dynamic
  std::uint64_t workspace = 0;  // where the blocks of a cooperative launch wait for each other

  std::atomic<bool> stopped = false;  // a block has failed
  std::atomic<std::uint64_t> writes =
      0;                  // grows whenever a lane may have changed what another one waits for
  std::mutex mutex = {};  // of what follows
  std::exception_ptr failure = {};
  struct Range {
    std::uint64_t begin = ~std::uint64_t{0}, end = 0;
    bool read = false, written = false;
  };
  std::map<std::uint64_t, Range> touched = {};  // by the beginning of the allocation

  void print(const std::string& text, bool to_stderr) {
    if (text.empty() || !host.print) return;
    const std::scoped_lock lock(mutex);
    host.print(text, to_stderr);
  }
};

}  // namespace simulate_gpus::ptx
