// SPDX-License-Identifier: MIT
#include "cupti/buffers.hpp"

#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "cupti/kinds.hpp"

namespace simulate_gpus::cupti {
namespace {

struct Buffers {
  std::mutex mutex;  // guards the rest
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  std::uint8_t* buffer = nullptr;
  std::size_t size = 0, used = 0;

  void hand_out() {
    if (buffer == nullptr) return;
    complete(nullptr, 0, std::exchange(buffer, nullptr), size, used);
  }

  void ask_for_one() {
    std::size_t most_records = 0;
    size = used = 0;
    request(&buffer, &size, &most_records);
  }
};

// Never destroyed: used until the very end of a process.
Buffers& buffers() {
  static auto* const buffers = new Buffers;
  return *buffers;
}

// Asked for within the program's callback, while the mutex is held.
std::atomic<std::size_t> dropped = 0;

}  // namespace

void emit(const Block& block) {
  const auto bytes = block.bytes();
  if (bytes.empty()) return;
  Buffers& all = buffers();
  const std::scoped_lock lock(all.mutex);
  if (all.request != nullptr) {
    if (all.size - all.used < bytes.size()) all.hand_out();
    if (all.buffer == nullptr) all.ask_for_one();
  }
  if (all.buffer == nullptr || all.size - all.used < bytes.size()) {
    dropped += block.count();
    return;
  }
  std::memcpy(all.buffer + all.used, bytes.data(), bytes.size());
  all.used += bytes.size();
}

void flush() {
  const std::scoped_lock lock(buffers().mutex);
  buffers().hand_out();
}

}  // namespace simulate_gpus::cupti

using namespace simulate_gpus::cupti;

extern "C" {

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  if (request == nullptr || complete == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const std::scoped_lock lock(buffers().mutex);
  buffers().request = request;
  buffers().complete = complete;
  return CUPTI_SUCCESS;
}

// Kineto collects nothing, not even what is complete, unless a buffer is out: it gets a new one out.
CUptiResult cuptiActivityFlushAll(std::uint32_t flag) {
  const std::scoped_lock lock(buffers().mutex);
  buffers().hand_out();
  const bool is_last = (flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != 0;
  if (!is_last && is_any_enabled() && buffers().request != nullptr) buffers().ask_for_one();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid_bytes,
                                       CUpti_Activity** record) {
  if (buffer == nullptr || record == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  std::uint8_t* next = buffer;
  if (*record != nullptr) {
    const std::size_t size = size_of((*record)->kind);
    if (size == 0) return CUPTI_ERROR_INVALID_KIND;
    next = reinterpret_cast<std::uint8_t*>(*record) + size;
  }
  if (next >= buffer + valid_bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t, std::size_t* count) {
  if (count == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *count = dropped.exchange(0);
  return CUPTI_SUCCESS;
}
}
