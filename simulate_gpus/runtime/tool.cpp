// SPDX-License-Identifier: MIT
#include "tool.hpp"

#include <mutex>

namespace simulate_gpus {
namespace {

std::atomic<Tool*> first = nullptr;

// Runs after LibTorch's destructors: libraries are finalized in reverse order.
struct AtExit {
  ~AtExit() {
    if (first != nullptr) tell(&Tool::finish);
  }
} at_exit;

}  // namespace

std::atomic<bool> calls_are_watched = false;

Tool* first_tool() {
  static const bool has_started = (start_tools(), true);
  static_cast<void>(has_started);
  return first;
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

void simulate_gpus::add_tool(Tool& tool) {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  if (std::exchange(tool.is_added_, true)) return;
  std::atomic<Tool*>* place = &first;
  while (Tool* const earlier = *place) place = &earlier->next_;
  *place = &tool;
}

void simulate_gpus::watch_calls(bool watched) { calls_are_watched = watched; }

simulate_gpus::ToldCall::ToldCall(const char* function)
    : is_watched_(calls_are_watched.load(std::memory_order_relaxed)) {
  if (is_watched_) tell(&Tool::begins_call, function);
}

simulate_gpus::ToldCall::~ToldCall() {
  if (is_watched_) tell(&Tool::ends_call);
}
