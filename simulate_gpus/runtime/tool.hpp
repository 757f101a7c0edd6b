// SPDX-License-Identifier: MIT
//
// What the runtime tells the tools that watch it (tools/), none of which it knows.
#pragma once

#include <driver_types.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "given.hpp"
#include "interface.hpp"
#include "queue.hpp"

namespace simulate_gpus {

/// What the host waits for: a stream, an event (its notes; none if it was not recorded), or a device; else all devices.
struct HostWait {
  /// Staging is a copy from pageable memory, which it has left when the wait is over.
  enum class Reason { stream, event, device, copy, staging, free, other };
  Reason reason = Reason::other;
  CUstream_st* stream = nullptr;
  const Notes* event = nullptr;
  std::optional<int> device = {};
};

/// What became of a block of LibTorch's cache, and how many bytes the tensors of its device have now.
struct TensorBlock {
  int device;
  const void* address;
  std::uint64_t bytes, bytes_of_tensors;
  BlockChange what;
};

class Tool;

inline namespace interface {  // what the library exports

/// From now on the tool, which stays, is told; after those that were added before.
void add_tool(Tool& tool);

/// Whether tools are told of calls and of work, from now on.
void watch_calls(bool watched);

}  // namespace interface

class Tool {
 public:
  virtual ~Tool() = default;

  /// Null for the last one.
  [[nodiscard]] Tool* next() const { return next_; }

  /// The stream is given something, or its capture is.
  virtual void given(CUstream_st&, const Given&, bool /*is_captured*/) {}
  /// What it was given, by name, uses this memory. Told where --check was given.
  virtual void uses(CUstream_st&, std::string_view, std::span<const MemoryRange>) {}
  /// A graph is launched, which gives to the stream what was captured.
  virtual void launched(CUstream_st&, std::span<const Captured>) {}

  /// Where a tool wants it: what LibTorch's own code would give for the operation that this thread begins.
  virtual void would_give(const std::vector<Given>&) {}

  /// Somebody may wait for all that the stream was given so far.
  virtual void note(CUstream_st&, Notes&) {}
  /// What the stream is given from now on waits for all that the other was given.
  virtual void waits(CUstream_st&, CUstream_st& /*other*/) {}
  virtual void ends(CUstream_st&) {}

  virtual void host_waits(const HostWait&) {}
  virtual void host_has_waited(const HostWait&) {}
  /// The host has looked, and what it could wait for is over.
  virtual void host_sees(const HostWait&) {}

  /// The program has other memory of the device than before.
  virtual void allocates(int /*device*/) {}
  /// The program gives device or pinned memory back.
  virtual void frees(const void*, std::size_t) {}
  virtual void changes(const TensorBlock&) {}

  // While calls are watched:

  /// This thread begins a call of that function of CUDA, and ends it; calls within it are told too.
  virtual void begins_call(const char*) {}
  virtual void ends_call() {}
  /// The innermost call returns that error.
  virtual void fails(cudaError_t) {}
  /// What the stream is given next is a graph's step, and was captured as these.
  virtual void begins_step(CUstream_st&, std::span<const Captured>) {}
  /// What the stream does in place of this work, which its call has given to it.
  virtual Work wraps(CUstream_st&, Work work) { return work; }

  /// The process ends.
  virtual void finish() {}

  // What a tool may decide; the first answer that is not zero counts.

  /// Whether to tell what operations launch, which takes time.
  virtual bool wants_parts() { return false; }

  /// The error that this call of a function of CUDA returns at once.
  virtual cudaError_t fault(const char*) { return cudaSuccess; }
  /// Pinned memory in place of the runtime's; where the runtime finds a byte of it; whether it was that, and is freed.
  virtual void* allocate_pinned(std::size_t) { return nullptr; }
  virtual void* runtimes_address(const void*) { return nullptr; }
  virtual bool free_pinned(void*) { return false; }
  /// Whether an access of the host that has faulted is to be tried again. In a handler of signals.
  virtual bool allows_access(const void*, bool /*writes*/) { return false; }

 private:
  friend void interface::add_tool(Tool& tool);
  std::atomic<Tool*> next_ = nullptr;
  bool is_added_ = false;
};

/// Adds the tools that are there from the beginning. Defined by these.
void start_tools();

/// At the first call it starts the tools.
Tool* first_tool();

template <class... Parameters, class... Arguments>
void tell(void (Tool::*event)(Parameters...), Arguments&&... arguments) {
  for (Tool* tool = first_tool(); tool != nullptr; tool = tool->next())
    (tool->*event)(arguments...);
}

/// Tells before and after what the host does in its wait.
template <class Action>
void tell_wait(const HostWait& wait, const Action& action) {
  tell(&Tool::host_waits, wait);
  action();
  tell(&Tool::host_has_waited, wait);
}

template <class Answer, class... Parameters>
Answer ask(Answer (Tool::*question)(Parameters...), Parameters... arguments) {
  for (Tool* tool = first_tool(); tool != nullptr; tool = tool->next()) {
    if (const Answer answer = (tool->*question)(arguments...)) return answer;
  }
  return {};
}

}  // namespace simulate_gpus
