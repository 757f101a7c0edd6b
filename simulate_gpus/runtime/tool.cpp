// SPDX-License-Identifier: MIT
#include "tool.hpp"

#include <mutex>

namespace simulate_gpus {
namespace {

std::atomic<Tool*> head_of_tools = nullptr;

// Runs after LibTorch's destructors: libraries are finalized in reverse order.
struct AtExit {
  ~AtExit() {
    if (head_of_tools != nullptr) tell(&Tool::finish);
  }
} at_exit;

}  // namespace

Tool* first_tool() {
  static const bool has_started = (start_tools(), true);
  static_cast<void>(has_started);
  return head_of_tools;
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

void simulate_gpus::add_tool(Tool& tool) {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  if (std::exchange(tool.is_added_, true)) return;
  std::atomic<Tool*>* place = &head_of_tools;
  while (Tool* const earlier = *place) place = &earlier->next_;
  *place = &tool;
}
