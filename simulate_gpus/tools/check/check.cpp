// SPDX-License-Identifier: MIT
#include "tools/check/check.hpp"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/captures.hpp"
#include "runtime/current_operation.hpp"
#include "runtime/device_memory.hpp"
#include "runtime/devices.hpp"
#include "runtime/settings.hpp"
#include "runtime/streams.hpp"
#include "runtime/tool.hpp"
#include "tools/check/clock.hpp"
#include "tools/check/reports.hpp"
#include "tools/check/shadow_memory.hpp"
#include "tools/check/tensor_blocks.hpp"
#include "tools/check/watched_memory.hpp"

namespace simulate_gpus {
namespace {

using Ranges = std::vector<MemoryRange>;
using Operation = std::shared_ptr<const CheckedOperation>;

struct StreamClock {
  std::size_t number;  // in clocks
  Clock known;         // before the stream's next operation
};

const void* address_of(std::uintptr_t byte) {
  return reinterpret_cast<const void*>(byte);  // NOLINT(performance-no-int-to-ptr)  an address
}

// The block that this thread has freed, until it looks whether work is done.
thread_local const void* just_freed = nullptr;

class Checker final : public Tool {
 public:
  void given(CUstream_st& stream, const Given& given, bool is_captured) override {
    if (given.kind != Kind::wait || is_captured) return;
    if (const auto* const clock = given.notes.find<Clock>()) wait(stream, *clock);
  }

  void uses(CUstream_st& stream, std::string_view name,
            std::span<const MemoryRange> ranges) override {
    if (ranges.empty()) return;
    tell_reports();
    const auto operation = operation_here(std::string(name), stream.name());
    Ranges copied(ranges.begin(), ranges.end());
    const auto capture = stream.capture.load();
    if (!capture) return check(stream, operation, copied);
    std::vector<std::uint64_t> blocks;
    {
      const std::scoped_lock lock(mutex_);
      for (const auto& range : copied) blocks.push_back(blocks_.number_at(range.begin));
    }
    at_each_launch(*capture, [this, operation, ranges = std::move(copied),
                              blocks = std::move(blocks)](CUstream_st& launched) {
      check_in_graph(launched, *operation, ranges, blocks);
    });
  }

  void launched(CUstream_st& stream, std::span<const Captured>) override {
    submit(stream, [] {});  // then it is known what the stream waits for
  }

  void note(CUstream_st& stream, Notes& notes) override { notes.add(clock_of(stream)); }

  void waits(CUstream_st& stream, CUstream_st& other) override { wait(stream, clock_of(other)); }

  void ends(CUstream_st& stream) override {
    const std::scoped_lock lock(mutex_);
    of_ended_streams_[static_cast<std::size_t>(stream.device)].join(clock_at(stream).known);
    clocks_.erase(&stream);  // its work is not yet known to be done
  }

  void host_has_waited(const HostWait& wait) override {
    using Reason = HostWait::Reason;
    if (wait.reason == Reason::staging) return;
    const bool is_for_device = wait.reason == Reason::device || wait.reason == Reason::free;
    is_for_device ? wait_for_device(current_device()) : wait_in_host(awaited(wait));
    // Where no lock of LibTorch's allocators can be held, as Python's is taken.
    if (wait.reason == Reason::stream || wait.reason == Reason::device) tell_reports();
  }

  // Nobody has waited for the work, but host memory may be used again, if LibTorch looks by itself: its
  // allocators within an operation, c10d's thread that looks for hung work and gives none.
  void host_sees(const HostWait& what) override {
    just_freed = nullptr;
    const Clock clock = awaited(what);
    if (gives_work() && !is_in_libtorchs_operation()) return wait_in_host(clock);
    const std::scoped_lock lock(mutex_);
    host_memory_.join(clock);
    end_watches(host_memory_);
  }

  void frees(const void* address, std::size_t bytes) override {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    const std::scoped_lock lock(mutex_);
    memory_.forget(begin, begin + bytes);
  }

  void changes(const TensorBlock& block) override {
    const bool is_of_graph = is_capturing_on(block.device);
    const auto begin = reinterpret_cast<std::uintptr_t>(block.address), end = begin + block.bytes;
    const std::scoped_lock lock(mutex_);
    if (block.what == BlockChange::given) {
      blocks_.give(begin, end, is_of_graph);
    } else if (block.what == BlockChange::freed) {
      just_freed = block.address;
      blocks_.take_back(begin);
    } else if (just_freed != block.address) {
      // Later than it was freed: the allocator has seen that the streams of record_stream() are done.
      memory_.forget_known(begin, end, host_memory_);
    }
  }

  void* allocate_pinned(std::size_t bytes) override { return allocate_watched(bytes); }
  bool free_pinned(void* address) override { return release_watched(address); }
  void* runtimes_address(const void* address) override { return unwatched_address(address); }

  bool allows_access(const void* address, bool writes) override {
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

  void finish() override {
    if (!has_used_gpus() || end_reports()) return;
    std::fflush(nullptr);
    _exit(3);
  }

 private:
  // What is known when the stream has done all that it was given.
  Clock clock_of(CUstream_st& stream) {
    const std::scoped_lock lock(mutex_);
    return clock_at(stream).known;
  }

  // What the stream or the event is known to be after.
  Clock awaited(const HostWait& wait) {
    if (wait.stream != nullptr) return clock_of(*wait.stream);
    const auto* const noted = wait.event->find<Clock>();
    return noted ? *noted : Clock();
  }

  // Begins an operation of the stream, or a look at it. Expects the mutex.
  StreamClock& clock_at(const CUstream_st& stream) {
    const auto [found, is_new] = clocks_.try_emplace(&stream, StreamClock{clocks_made_, {}});
    if (is_new) ++clocks_made_;
    found->second.known.join(host_);
    return found->second;
  }

  void wait(CUstream_st& stream, const Clock& clock) {
    const std::scoped_lock lock(mutex_);
    clock_at(stream).known.join(clock);
  }

  void wait_in_host(const Clock& clock) {
    const std::scoped_lock lock(mutex_);
    host_.join(clock);
    host_memory_.join(clock);
    end_watches(host_memory_);
  }

  void wait_for_device(int device) {
    wait_in_host([&] {
      const std::scoped_lock lock(mutex_);
      return of_ended_streams_[static_cast<std::size_t>(device)];
    }());
    for_each_stream([&](CUstream_st& stream) {
      if (stream.device == device) wait_in_host(clock_of(stream));
    });
  }

  void check(CUstream_st& stream, const Operation& operation, const Ranges& ranges) {
    std::vector<Bug> bugs;
    {
      const std::scoped_lock lock(mutex_);
      auto& [stream_number, known] = clock_at(stream);
      const std::uint64_t number = known.next(stream_number);
      for (const auto& [begin, end, writes] : ranges) {
        const bool is_on_device = device_at(address_of(begin)).has_value();
        Clock known_of_host;  // for its own memory: also what it has seen done
        if (!is_on_device) {
          known_of_host = known;
          known_of_host.join(host_memory_);
        }
        const Access access{operation, stream_number, number, blocks_.number_at(begin)};
        memory_.access(begin, end, access, writes, is_on_device ? known : known_of_host,
                       [&](const Access& earlier, bool earlier_wrote) {
                         if (bugs.empty() || bugs.back().first != earlier.operation) {
                           bugs.push_back({"race", earlier.operation, operation,
                                           text_of_race(earlier, earlier_wrote, access, writes,
                                                        device_at(address_of(begin)))});
                         }
                       });
        if (!is_on_device) watch({begin, end, writes, stream_number, number, operation});
      }
    }
    for (const Bug& bug : bugs) report(bug);
  }

  // What a graph uses; `blocks` had the memory when it was captured.
  void check_in_graph(CUstream_st& launched, const CheckedOperation& captured, const Ranges& ranges,
                      const std::vector<std::uint64_t>& blocks) {
    const auto operation = std::make_shared<const CheckedOperation>(
        CheckedOperation{captured.name, "a graph in " + launched.name(), captured.place});
    const bool has_lost_memory = [&] {
      const std::scoped_lock lock(mutex_);
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        if (blocks[i] != 0 && blocks_.number_at(ranges[i].begin) != blocks[i]) return true;
      }
      return false;
    }();
    if (has_lost_memory) {
      report({"use after free", operation, operation_here("the launch", launched.name()),
              ": the operation uses a tensor that was freed after the capture. Keep what a graph "
              "uses, and copy new values into it"});
    }
    check(launched, operation, ranges);
  }

  std::mutex mutex_;  // not held while places are found or told, for which Python's lock is needed
  ShadowMemory memory_;
  Clock host_,
      host_memory_;  // what the host has waited for, and what is done as far as it has seen
  std::map<const CUstream_st*, StreamClock> clocks_;
  std::size_t clocks_made_ = 0;
  std::array<Clock, k_most_gpus> of_ended_streams_;
  TensorBlocks blocks_;
};

}  // namespace

void start_check() {
  // Never destroyed: used until the very end of a process.
  if (settings().check) add_tool(*new Checker);
}

}  // namespace simulate_gpus
