// SPDX-License-Identifier: MIT
#include "trace.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>

#include "interface.hpp"
#include "settings.hpp"
#include "timeline.hpp"
#include "trace_file.hpp"

namespace simulated_cuda {
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

std::string line_of(const Traced& given) {
  if (!given.call.empty()) return given.call;
  std::string line = given.name;
  if (given.is_pinned) line += *given.is_pinned ? ", pinned" : ", pageable";
  if (given.bytes) line += ", " + std::to_string(*given.bytes) + " bytes";
  return line;
}

void trace_wait(const char* why, const std::string& what, const auto& awaited) {
  if (writer()) write("host", "waits for " + what);
  if (has_trace_file()) draw_host_wait(why, "waits for " + what, awaited);
}

}  // namespace

bool is_traced() { return writer() != nullptr || has_trace_file(); }

void trace(const CUstream_st& stream, const Traced& given) {
  const bool captured = is_captured(stream);
  if (writer()) write(stream.name(), (captured ? "capture: " : "") + line_of(given));
  if (has_trace_file()) captured ? keep_for_launches(stream, given) : draw(stream, given);
}

void trace_launch(const CUstream_st& stream, const std::vector<CapturedTrace>& captured) {
  const Traced launch{"graph", "graph launch"};
  if (writer()) write(stream.name(), (is_captured(stream) ? "capture: " : "") + launch.name);
  if (has_trace_file()) draw_launch(stream, launch, captured);
}

void trace_host_wait(const char* why, const CUstream_st& stream) {
  trace_wait(why, stream.name(), stream);
}

void trace_host_wait(const char* why, const std::shared_ptr<Mark>& mark) {
  if (mark) return trace_wait(why, "an event of " + mark->stream, mark.get());
  if (has_trace_file()) draw_host_wait(why, "waits for an event that was not recorded", nullptr);
}

void trace_host_wait(const char* why, std::optional<int> device) {
  trace_wait(why, device ? "cuda:" + std::to_string(*device) : "all devices", device);
}

void trace_memory(int device, const char* what, std::uint64_t bytes) {
  if (has_trace_file()) draw_memory(device, what, bytes);
}

}  // namespace simulated_cuda

void simulated_cuda_set_trace(void (*line)(const char* text)) { simulated_cuda::writer() = line; }
