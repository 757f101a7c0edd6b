// SPDX-License-Identifier: MIT
#include "trace.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>

#include "interface.hpp"
#include "settings.hpp"

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

}  // namespace

bool is_traced() { return writer() != nullptr; }

void trace(const CUstream_st& stream, const std::string& what) {
  write(stream.name(), (is_captured(stream) ? "capture: " : "") + what);
}

void trace_host_wait(const std::string& what) { write("host", "waits for " + what); }

}  // namespace simulated_cuda

void simulated_cuda_set_trace(void (*line)(const char* text)) { simulated_cuda::writer() = line; }
