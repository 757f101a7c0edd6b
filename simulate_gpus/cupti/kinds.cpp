// SPDX-License-Identifier: MIT
#include "cupti/kinds.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "cupti/profiler.hpp"
#include "cupti/records.hpp"
#include "runtime/interface.hpp"

namespace simulate_gpus::cupti {
namespace {

constexpr std::uint64_t k_not_ending = ~std::uint64_t{0};

std::atomic<std::uint64_t> enabled = 0;  // a bit for each kind
static_assert(CUPTI_ACTIVITY_KIND_COUNT <= 64);

std::uint64_t bit_of(CUpti_ActivityKind kind) {
  return static_cast<unsigned>(kind) < 64 ? std::uint64_t{1} << kind : 0;
}

// Functions that are recorded, or not, whatever their kind is.
struct Choices {
  std::mutex mutex;
  std::map<std::pair<CUpti_CallbackDomain, CUpti_CallbackId>, bool> of_functions;
};

Choices& choices() {
  static auto* const choices = new Choices;
  return *choices;
}

CUptiResult choose(CUpti_CallbackDomain domain, CUpti_CallbackId id, bool is_wanted) {
  const std::scoped_lock lock(choices().mutex);
  choices().of_functions[{domain, id}] = is_wanted;
  return CUPTI_SUCCESS;
}

std::atomic<std::uint64_t> ending = k_not_ending;

std::atomic<CUpti_TimestampCallbackFunc> clock_of_program = nullptr;
std::atomic<std::uint32_t> clocks = 0;

// Nothing has a record of an overhead here; Kineto asks for those always.
bool is_offered(CUpti_ActivityKind kind) {
  return size_of(kind) > 0 || kind == CUPTI_ACTIVITY_KIND_OVERHEAD;
}

CUptiResult refuse_kind(const char* function, CUpti_ActivityKind kind) {
  static_cast<void>(not_offered(std::string(function) + " of kind " + std::to_string(kind)));
  return CUPTI_ERROR_NOT_SUPPORTED;
}

}  // namespace

bool is_enabled(CUpti_ActivityKind kind) {
  return (enabled.load(std::memory_order_relaxed) & bit_of(kind)) != 0;
}

bool is_any_enabled() { return enabled.load(std::memory_order_relaxed) != 0; }

bool is_recorded(const Function& function) {
  const bool is_of_runtime = function.domain == CUPTI_CB_DOMAIN_RUNTIME_API;
  if (!is_enabled(is_of_runtime ? CUPTI_ACTIVITY_KIND_RUNTIME : CUPTI_ACTIVITY_KIND_DRIVER))
    return false;
  const std::scoped_lock lock(choices().mutex);
  const auto& chosen = choices().of_functions;
  const auto found = chosen.find({function.domain, function.id});
  return found == chosen.end() || found->second;
}

std::optional<std::uint64_t> last_call_of_ending() {
  const std::uint64_t call = ending;
  return call == k_not_ending ? std::nullopt : std::optional(call);
}

std::uint64_t now() {
  if (const auto clock = clock_of_program.load()) return clock();
  const auto time = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}

std::uint32_t clock_number() { return clocks; }

void disable_all() {
  enabled = 0;
  clock_of_program = nullptr;
  ++clocks;
  watch();
}

}  // namespace simulate_gpus::cupti

using namespace simulate_gpus::cupti;

extern "C" {

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (!is_offered(kind)) return refuse_kind("cuptiActivityEnable", kind);
  enabled |= bit_of(kind);
  watch();
  return CUPTI_SUCCESS;
}

// What is under way then would be missing: Kineto waits for the current GPU alone.
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  if (is_enabled(kind)) {
    ending = end_of_last_call();
    simulate_gpus::advance_streams();
    ending = k_not_ending;
  }
  enabled &= ~bit_of(kind);
  watch();
  return CUPTI_SUCCESS;
}

// Kineto leaves out some functions of both, which say little.
CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId id, std::uint8_t is_wanted) {
  return choose(CUPTI_CB_DOMAIN_RUNTIME_API, id, is_wanted != 0);
}
CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId id, std::uint8_t is_wanted) {
  return choose(CUPTI_CB_DOMAIN_DRIVER_API, id, is_wanted != 0);
}

// They always have a time.
CUptiResult cuptiActivityEnableCudaEventDeviceTimestamps(std::uint8_t) { return CUPTI_SUCCESS; }

// How a card buffers its records: nothing here does.
CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, std::size_t* size,
                                      void* value) {
  if (size == nullptr || value == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  constexpr int k_last_of_buffers = 9;  // CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER
  if (attribute >= 0 && attribute <= k_last_of_buffers) return CUPTI_SUCCESS;
  static_cast<void>(simulate_gpus::not_offered("cuptiActivitySetAttribute of attribute " +
                                               std::to_string(attribute)));
  return CUPTI_ERROR_NOT_SUPPORTED;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock) {
  if (clock == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  clock_of_program = clock;
  ++clocks;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp(std::uint64_t* time) {
  if (time == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *time = now();
  return CUPTI_SUCCESS;
}
}
