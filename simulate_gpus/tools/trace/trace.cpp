// SPDX-License-Identifier: MIT
#include "tools/trace/trace.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <span>
#include <string>

#include "runtime/device_memory.hpp"
#include "runtime/settings.hpp"
#include "runtime/streams.hpp"
#include "runtime/tool.hpp"
#include "tools/trace/timeline.hpp"
#include "tools/trace/trace_file.hpp"

namespace simulate_gpus {
namespace {

using Writer = void(const char* line);

void print(const char* line) { std::fprintf(stderr, "simulate_gpus: %s\n", line); }

std::atomic<Writer*>& writer() {
  static std::atomic<Writer*> writer = settings().trace ? &print : nullptr;
  return writer;
}

void write(std::string who, const std::string& what) {
  static auto* const mutex = new std::mutex;  // used until the very end of a process
  constexpr std::size_t k_width = 17;
  who.resize(std::max(who.size(), k_width), ' ');
  const std::scoped_lock lock(*mutex);
  if (Writer* const line = writer()) line((who + "  " + what).c_str());
}

// By the reason of a wait.
constexpr const char* k_reasons[] = {"stream synchronization",
                                     "event synchronization",
                                     "device synchronization",
                                     "copy",
                                     "copy",
                                     "free",
                                     "wait"};

class Trace final : public Tool {
 public:
  void given(CUstream_st& stream, const Given& given, bool is_captured) override {
    if (writer()) write_line(stream, given, is_captured);
    if (has_trace_file() && !is_captured) draw(stream, given);
  }

  void launched(CUstream_st& stream, std::span<const Captured> graph) override {
    const Given launch{.kind = Kind::operation, .name = "graph launch"};
    if (writer()) write_line(stream, launch, is_captured(stream));
    if (has_trace_file()) draw_launch(stream, graph);
  }

  void note(CUstream_st& stream, Notes& notes) override {
    if (writer() || has_trace_file()) notes.add(SharedMark(new Mark{stream.name()}));
  }

  void host_waits(const HostWait& wait) override {
    const auto* const mark = wait.event ? wait.event->find<SharedMark>() : nullptr;
    const std::string what = "waits for " + (wait.stream   ? wait.stream->name()
                                             : mark        ? "an event of " + (*mark)->stream
                                             : wait.event  ? "an event that was not recorded"
                                             : wait.device ? "cuda:" + std::to_string(*wait.device)
                                                           : "all devices");
    const bool is_recorded = mark != nullptr || wait.event == nullptr;
    if (writer() && is_recorded) write("host", what);
    if (has_trace_file())
      draw_host_wait(k_reasons[static_cast<std::size_t>(wait.reason)], what, wait);
  }

  void allocates(int device) override {
    if (has_trace_file()) draw_memory(device, "allocated by cudaMalloc", allocated_bytes(device));
  }

  void changes(const TensorBlock& block) override {
    if (has_trace_file() && block.what != BlockChange::released)
      draw_memory(block.device, "tensors", block.bytes_of_tensors);
  }

  void finish() override { finish_trace_file(); }

 private:
  static void write_line(const CUstream_st& stream, const Given& given, bool is_captured) {
    std::string line = given.call.empty() ? name_of(given) : std::string(given.call);
    if (line.empty()) return;
    if (given.is_pinned) line += *given.is_pinned ? ", pinned" : ", pageable";
    if (given.bytes && given.call.empty()) line += ", " + std::to_string(*given.bytes) + " bytes";
    write(stream.name(), (is_captured ? "capture: " : "") + line);
  }
};

Trace& trace() {
  static auto* const trace = new Trace;  // never destroyed: used until the very end of a process
  return *trace;
}

}  // namespace

void start_trace() {
  if (settings().trace || has_trace_file()) add_tool(trace());
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

void simulated_cuda_set_trace(void (*line)(const char* text)) {
  writer() = line;
  add_tool(trace());
}
