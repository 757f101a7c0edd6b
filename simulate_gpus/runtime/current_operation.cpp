// SPDX-License-Identifier: MIT
#include "current_operation.hpp"

#include <atomic>
#include <iterator>
#include <mutex>
#include <string_view>
#include <vector>

namespace simulate_gpus {
namespace {

// Destructors of the program's static objects run operations too, when the thread's own are gone.
thread_local bool is_over = false;

// Copies: a scope of the program may end in another order than it began.
struct Operations : std::vector<std::string> {
  ~Operations() { is_over = true; }
};
thread_local Operations operations;

std::atomic<std::shared_ptr<const ProgramPlace> (*)()> find_place = nullptr;

std::atomic<bool (*)()> attach_when_used = nullptr;
std::atomic<bool> is_attached = false;
// This thread began to use CUDA, maybe in an operation that began before operations were followed.
thread_local bool has_begun = false;

}  // namespace

bool is_in_operation() { return !is_over && !operations.empty(); }

bool is_in_libtorchs_operation() {
  return is_in_operation() && operations.back().starts_with("aten::");
}

std::string current_operation() {
  if (!is_in_operation()) return "";
  // What only allocates does so for the operation around it.
  auto inner = operations.rbegin();
  while (inner->starts_with("aten::empty") && std::next(inner) != operations.rend()) ++inner;
  std::string_view outermost = operations.front();
  constexpr std::string_view k_evaluates = "autograd::engine::evaluate_function: ";
  if (outermost.starts_with(k_evaluates)) outermost.remove_prefix(k_evaluates.size());
  if (*inner == operations.front() || *inner == outermost) return std::string(outermost);
  return *inner + " in " + std::string(outermost);
}

std::shared_ptr<const ProgramPlace> place_here() {
  auto* const find = find_place.load();
  return find ? find() : nullptr;
}

void meet_allocator() {
  if (attach_when_used.load(std::memory_order_relaxed) == nullptr) return;
  if (!has_begun && !is_in_operation()) return;
  // The other threads wait, so that none allocates unseen.
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  if (const auto attach = attach_when_used.load(); attach != nullptr && attach()) {
    attach_when_used = nullptr;
    is_attached = true;
  }
}

bool knows_blocks() { return is_attached; }

}  // namespace simulate_gpus

using namespace simulate_gpus;

void simulate_gpus::enter_operation(const char* name) {
  if (!is_over) operations.emplace_back(name);
}

void simulate_gpus::leave_operation() {
  if (is_in_operation()) operations.pop_back();
}

void simulate_gpus::set_places(std::shared_ptr<const ProgramPlace> (*here)()) { find_place = here; }

void simulate_gpus::attach_to_allocator(bool (*attach)()) {
  attach_when_used = attach;
  has_begun = true;
}
