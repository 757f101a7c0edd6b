// SPDX-License-Identifier: MIT
#include "cupti/host_records.hpp"

#include <pthread.h>
#include <unistd.h>

#include "cupti/device_records.hpp"
#include "cupti/kinds.hpp"
#include "runtime/streams.hpp"

namespace simulate_gpus::cupti {
namespace {

// Older headers have no place for the time.
void set_time(auto& record, int device) {
  if constexpr (requires { record.deviceTimestamp; }) {
    record.deviceId = static_cast<std::uint32_t>(device);
    record.deviceTimestamp = now();
  }
}

}  // namespace

CallRecord call_record(const Function& function, std::uint32_t correlation, std::uint64_t begin,
                       std::uint64_t end, int result) {
  const bool is_of_runtime = function.domain == CUPTI_CB_DOMAIN_RUNTIME_API;
  CallRecord record{};
  record.kind = is_of_runtime ? CUPTI_ACTIVITY_KIND_RUNTIME : CUPTI_ACTIVITY_KIND_DRIVER;
  record.cbid = function.id;
  record.start = begin;
  record.end = end;
  record.processId = static_cast<std::uint32_t>(getpid());
  record.threadId = static_cast<std::uint32_t>(pthread_self());
  record.correlationId = correlation;
  record.returnValue = static_cast<std::uint32_t>(result);
  return record;
}

WaitRecord wait_record(const Waited& waited, std::uint32_t correlation) {
  WaitRecord record{};
  record.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  record.type = waited.type;
  record.start = waited.begin;
  record.end = now();
  record.correlationId = correlation;
  record.contextId = context_of(waited.device);
  record.streamId = waited.stream;
  record.cudaEventId = waited.event;
  return record;
}

EventRecord event_record(const CUstream_st& stream, std::uint32_t number,
                         std::uint32_t correlation) {
  EventRecord record{};
  record.kind = CUPTI_ACTIVITY_KIND_CUDA_EVENT;
  record.correlationId = correlation;
  record.contextId = context_of(stream.device);
  record.streamId = number_of(stream);
  record.eventId = number;
  set_time(record, stream.device);
  return record;
}

}  // namespace simulate_gpus::cupti
