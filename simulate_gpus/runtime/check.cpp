// SPDX-License-Identifier: MIT
#include "check.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>
#include <vector>

#include "captures.hpp"
#include "current_operation.hpp"
#include "device_memory.hpp"
#include "reports.hpp"
#include "settings.hpp"
#include "shadow_memory.hpp"
#include "tensor_blocks.hpp"
#include "watched_memory.hpp"

namespace simulated_cuda {
namespace {

using Ranges = std::vector<simulated_cuda_range>;
using Operation = std::shared_ptr<const CheckedOperation>;

struct Checker {
  std::mutex mutex;  // not held while places are found or told, for which Python's lock is needed
  ShadowMemory memory;
  Clock host, host_memory;  // what the host has waited for, and what is done as far as it has seen
  std::array<Clock, k_most_gpus> of_ended_streams;
  std::size_t num_streams = 0;
  TensorBlocks blocks;
};

Checker& checker() {
  static auto* const checker =
      new Checker;  // never destroyed: used until the very end of a process
  return *checker;
}

const void* address_of(std::uintptr_t byte) {
  return reinterpret_cast<const void*>(byte);  // NOLINT(performance-no-int-to-ptr)  an address
}

// The block that this thread has freed, until it looks whether work is done.
thread_local const void* just_freed = nullptr;

// The rest expects that the mutex is held, where it does not say otherwise.

// Begins an operation of the stream, or a look at it.
Clock& known_by(CUstream_st& stream) {
  if (!stream.clock_number) stream.clock_number = checker().num_streams++;
  stream.known.join(checker().host);
  return stream.known;
}

std::string text_of(std::uintptr_t byte, const Access& earlier, bool earlier_wrote, bool writes,
                    std::uint64_t block) {
  const auto device = device_pointer(address_of(byte));
  std::string text = earlier_wrote ? writes ? " both write" : " write and read" : " read and write";
  text += " the same memory of " +
          (device ? "cuda:" + std::to_string(device->device) : std::string("the host"));
  if (device && earlier.block != block && earlier.block != 0) {
    return text +
           ", which got another tensor meanwhile: call record_stream() before a tensor is freed "
           "that another stream still uses";
  }
  return text +
         ", and nothing orders them: let one stream wait for an event of the other, or "
         "synchronize";
}

// Does not expect the mutex.
void check(CUstream_st& stream, const Operation& operation, const Ranges& ranges) {
  std::vector<Bug> bugs;
  {
    const std::scoped_lock lock(checker().mutex);
    Clock& known = known_by(stream);
    const std::uint64_t number = known.next(*stream.clock_number);
    for (const auto& [begin, end, writes] : ranges) {
      const bool is_on_device = device_pointer(address_of(begin)).has_value();
      Clock known_of_host;  // for its own memory: also what it has seen done
      if (!is_on_device) {
        known_of_host = known;
        known_of_host.join(checker().host_memory);
      }
      const Access access{operation, *stream.clock_number, number,
                          checker().blocks.number_at(begin)};
      checker().memory.access(
          begin, end, access, writes, is_on_device ? known : known_of_host,
          [&](const Access& earlier, bool earlier_wrote) {
            if (bugs.empty() || bugs.back().first != earlier.operation) {
              bugs.push_back({"race", earlier.operation, operation,
                              text_of(begin, earlier, earlier_wrote, writes, access.block)});
            }
          });
      if (!is_on_device) watch({begin, end, writes, *stream.clock_number, number, operation});
    }
  }
  for (const Bug& bug : bugs) report(bug);
}

// What a graph uses. Does not expect the mutex.
struct InGraph {
  Operation captured;
  Ranges ranges;
  std::vector<std::uint64_t> blocks;  // that had the memory when it was captured

  void operator()(CUstream_st& launched) const {
    const auto operation = std::make_shared<const CheckedOperation>(
        CheckedOperation{captured->name, "a graph in " + launched.name(), captured->place});
    if (has_lost_memory()) {
      report({"use after free", operation, operation_here("the launch", launched.name()),
              ": the operation uses a tensor that was freed after the capture. Keep what a graph "
              "uses, and copy new values into it"});
    }
    check(launched, operation, ranges);
  }

  [[nodiscard]] bool has_lost_memory() const {
    const std::scoped_lock lock(checker().mutex);
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      if (blocks[i] != 0 && checker().blocks.number_at(ranges[i].begin) != blocks[i]) return true;
    }
    return false;
  }
};

}  // namespace

bool is_checked() { return settings().check; }

void check_operation(CUstream_st& stream, const char* name,
                     std::span<const simulated_cuda_range> ranges) {
  if (!is_checked() || ranges.empty()) return;
  tell_reports();
  const auto operation = operation_here(name, stream.name());
  Ranges copied(ranges.begin(), ranges.end());
  const auto capture = stream.capture.load();
  if (!capture) return check(stream, operation, copied);
  InGraph use{operation, std::move(copied), {}};
  {
    const std::scoped_lock lock(checker().mutex);
    for (const auto& range : use.ranges)
      use.blocks.push_back(checker().blocks.number_at(range.begin));
  }
  record_check(*capture, std::move(use));
}

Clock clock_of(CUstream_st& stream) {
  if (!is_checked()) return {};
  const std::scoped_lock lock(checker().mutex);
  return known_by(stream);
}

void check_stream_waits(CUstream_st& stream, const Clock& clock) {
  if (!is_checked()) return;
  const std::scoped_lock lock(checker().mutex);
  known_by(stream).join(clock);
}

void check_host_waits(const Clock& clock) {
  if (!is_checked()) return;
  const std::scoped_lock lock(checker().mutex);
  checker().host.join(clock);
  checker().host_memory.join(clock);
  end_watches(checker().host_memory);
}

void check_stream_ends(CUstream_st& stream) {
  if (!is_checked()) return;
  const std::scoped_lock lock(checker().mutex);
  checker().of_ended_streams[static_cast<std::size_t>(stream.device)].join(known_by(stream));
}

void check_host_waits_for_device(int device) {
  if (!is_checked()) return;
  check_host_waits([device] {
    const std::scoped_lock lock(checker().mutex);
    return checker().of_ended_streams[static_cast<std::size_t>(device)];
  }());
  for_each_stream([&](CUstream_st& stream) {
    if (stream.device == device) check_host_waits(clock_of(stream));
  });
}

void check_host_looks(const Clock& clock) {
  if (!is_checked()) return;
  just_freed = nullptr;
  if (gives_work() && !is_in_libtorchs_operation()) return check_host_waits(clock);
  const std::scoped_lock lock(checker().mutex);
  checker().host_memory.join(clock);
  end_watches(checker().host_memory);
}

void check_freed(const void* address, std::size_t bytes) {
  if (!is_checked()) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::scoped_lock lock(checker().mutex);
  checker().memory.forget(begin, begin + bytes);
}

void check_block(const void* address, std::size_t bytes, simulated_cuda_block what) {
  const auto device = device_pointer(address);
  if (!is_checked() || !device) return;
  const bool is_of_graph = is_capturing_on(device->device);
  const auto begin = reinterpret_cast<std::uintptr_t>(address), end = begin + bytes;
  const std::scoped_lock lock(checker().mutex);
  if (what == simulated_cuda_block_freed) {
    just_freed = address;
    checker().blocks.take_back(begin);
    return;
  }
  if (what == simulated_cuda_block_released) {
    // Later than it was freed: the allocator has seen that the streams of record_stream() are done.
    if (just_freed != address) checker().memory.forget_known(begin, end, checker().host_memory);
    return;
  }
  checker().blocks.give(begin, end, is_of_graph);
}

bool check_host_access(const void* address, bool writes) {
  if (!is_checked()) return false;  // in a program's fault handler nothing else may be done
  const auto accessed = host_accesses(address, writes);
  if (!accessed) return false;
  if (const auto& disturbed = *accessed) {
    std::string operation = current_operation();
    if (operation.empty()) operation = writes ? "a write" : "a read";
    const auto host = operation_here(std::move(operation), "the host");
    report_later({"race", disturbed->operation, host,
                  disturbed->writes
                      ? ": the copy may be under way, and its values not be there yet. "
                        "Synchronize with its stream or an event first"
                      : ": the copy may be under way, and get the new values. Synchronize with "
                        "its stream or an event first"});
  }
  return true;
}

}  // namespace simulated_cuda

using namespace simulated_cuda;

bool simulated_cuda_is_checked() { return is_checked(); }

void simulated_cuda_check_operation(cudaStream_t stream, const char* name,
                                    const simulated_cuda_range* ranges, std::size_t count) {
  check_operation(stream_of(stream), name, {ranges, count});
}

void simulated_cuda_check_host_wait(cudaStream_t stream) {
  check_host_waits(clock_of(stream_of(stream)));
}
