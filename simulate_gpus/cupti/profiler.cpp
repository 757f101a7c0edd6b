// SPDX-License-Identifier: MIT
#include "cupti/profiler.hpp"

#include <pthread.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "cupti/batch.hpp"
#include "cupti/buffers.hpp"
#include "cupti/host_records.hpp"
#include "cupti/kinds.hpp"
#include "cupti/subscriber.hpp"
#include "runtime/streams.hpp"
#include "runtime/tool.hpp"

namespace simulate_gpus::cupti {
namespace {

// A call of this thread which is not within another one.
struct OutermostCall {
  const char* called = nullptr;
  const Function* function = nullptr;  // null for one that CUPTI does not know
  Origin origin = {};
  std::uint64_t begin = 0;
  int result = cudaSuccess;
  std::uint64_t data_of_subscriber = 0;
  std::shared_ptr<Batch> batch = {};

  [[nodiscard]] bool is_async() const { return std::string_view(called).ends_with("Async"); }

  // Nobody told which launches the CPU computes: what they are is told after they were.
  [[nodiscard]] bool is_launch() const {
    return !batch && result == cudaSuccess && std::string_view(called) == "cudaLaunchKernel";
  }

  [[nodiscard]] ToldOfCall told() {
    return {function, called, origin.correlation, &result, &data_of_subscriber};
  }
};

struct Launch {
  Origin origin;
  std::uint64_t end;
};

struct Thread {
  int depth = 0;
  std::optional<OutermostCall> call = {};
  std::optional<Launch> launch = {};
  std::optional<std::vector<Given>> parts = {};  // of the operation that begins
  std::uint64_t begin_of_wait = 0;
  std::uint64_t end_of_call = 0;

  ~Thread();
};

// Destructors of the program's static objects call CUDA too, when the thread's own are gone.
thread_local bool thread_is_over = false;
thread_local Thread this_thread;
Thread::~Thread() { thread_is_over = true; }

// What is noted of an event: each time it is recorded is an event of its own, so that a wait finds the right one.
struct EventNote {
  std::uint32_t number;
  int device;
};
std::atomic<std::uint32_t> last_event = 0;

bool records_waits() { return is_enabled(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION); }
bool records_events() { return records_waits() || is_enabled(CUPTI_ACTIVITY_KIND_CUDA_EVENT); }

std::uint32_t number_of_event(const Notes& notes) {
  const auto* const note = notes.find<EventNote>();
  return note ? note->number : k_none;
}

template <class Record>
void emit_record(const OutermostCall& call, const Record& record) {
  Block block = call.origin.block();
  block.add(record);
  emit(block);
}

class Profiler final : public Tool {
 public:
  bool wants_parts() override { return is_enabled(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL); }

  void begins_call(const char* called) override {
    if (thread_is_over || this_thread.depth++ > 0 || rehearses()) return;
    auto& call = this_thread.call.emplace(OutermostCall{.called = called,
                                                        .function = find_function(called),
                                                        .origin = new_origin(),
                                                        .begin = now()});
    if (call.function) call_subscriber(CUPTI_API_ENTER, call.told());
  }

  void ends_call() override {
    if (thread_is_over || --this_thread.depth > 0) return;
    auto call = std::exchange(this_thread.call, std::nullopt);
    if (!call) return;
    const std::uint64_t end = this_thread.end_of_call = now();
    if (call->is_launch()) begin_computed(call->origin, end);
    if (call->function && is_recorded(*call->function))
      emit_record(*call, call_record(*call->function, call->origin.correlation, call->begin, end,
                                     call->result));
    if (call->batch) call->batch->close();
    if (call->function) call_subscriber(CUPTI_API_EXIT, call->told());
  }

  void fails(cudaError_t code) override {
    if (!thread_is_over && this_thread.call) this_thread.call->result = code;
  }

  void given(CUstream_st& stream, const Given& given, bool is_captured) override {
    if (thread_is_over) return;
    auto& call = this_thread.call;
    if (!call) {
      const auto launch = std::exchange(this_thread.launch, std::nullopt);
      const bool is_shown = launch && !is_captured && is_any_enabled();
      if (is_shown && given.kind == Kind::operation) emit_computed(stream, given, *launch);
    } else if (is_captured || !is_any_enabled()) {
      return;
    } else if (given.kind == Kind::event) {
      if (records_events())
        emit_record(*call,
                    event_record(stream, number_of_event(given.notes), call->origin.correlation));
    } else if (given.kind == Kind::wait) {
      emit_wait({CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT, stream.device,
                 number_of(stream), number_of_event(given.notes), call->begin});
    } else if (auto record = record_of(stream, given, call->origin.correlation, call->is_async())) {
      if (!call->batch) call->batch = std::make_shared<Batch>(call->origin);
      call->batch->add(*std::move(record));
    }
  }

  void begins_step(CUstream_st& stream, std::span<const Captured> step) override {
    if (thread_is_over || !this_thread.call) return;
    OutermostCall& call = *this_thread.call;
    if (const auto before = std::exchange(call.batch, nullptr)) before->close();
    for (const Captured& captured : step) {
      auto record = record_of(stream, captured.given, call.origin.correlation, /*is_async=*/true);
      if (!record) continue;
      if (!call.batch) call.batch = std::make_shared<Batch>(call.origin);
      call.batch->add(*std::move(record));
    }
  }

  Work wraps(CUstream_st&, Work work) override {
    if (thread_is_over || !this_thread.call || !this_thread.call->batch) return work;
    return this_thread.call->batch->wrap(std::move(work));
  }

  void would_give(const std::vector<Given>& parts) override {
    if (!thread_is_over) this_thread.parts = parts;
  }

  void note(CUstream_st& stream, Notes& notes) override {
    if (records_events()) notes.add(EventNote{++last_event, stream.device});
  }

  void host_waits(const HostWait&) override {
    if (!thread_is_over && records_waits()) this_thread.begin_of_wait = now();
  }

  void host_has_waited(const HostWait& wait) override {
    if (thread_is_over || !this_thread.call) return;
    const std::uint64_t begin = this_thread.begin_of_wait;
    if (wait.reason == HostWait::Reason::stream) {
      emit_wait({CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE, wait.stream->device,
                 number_of(*wait.stream), k_none, begin});
    } else if (wait.reason == HostWait::Reason::device) {
      emit_wait({CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE, *wait.device, k_none,
                 k_none, begin});
    } else if (wait.reason == HostWait::Reason::event) {
      const auto* const note = wait.event->find<EventNote>();
      emit_wait({CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE, note ? note->device : 0,
                 k_none, note ? note->number : k_none, begin});
    }
  }

 private:
  static void emit_wait(const Waited& waited) {
    const OutermostCall& call = *this_thread.call;
    if (records_waits()) emit_record(call, wait_record(waited, call.origin.correlation));
  }

  // One operation may tell twice that it begins: where it gives its result another size.
  static void begin_computed(const Origin& origin, std::uint64_t end) {
    const auto& before = this_thread.launch;
    const bool is_same = before && !origin.external_ids.empty() &&
                         before->origin.external_ids == origin.external_ids;
    if (!is_same) this_thread.launch = Launch{origin, end};
  }

  // An operation that the CPU has computed since the end of its launch: its parts share the time.
  static void emit_computed(const CUstream_st& stream, const Given& given, const Launch& launch) {
    const auto parts = std::exchange(this_thread.parts, std::nullopt).value_or(std::vector{given});
    if (parts.empty()) return;
    Block block = launch.origin.block();
    std::uint64_t begin = launch.end;
    const std::uint64_t share = (now() - begin) / parts.size();
    for (const Given& part : parts) {
      const bool is_unknown = part.kind == Kind::operation && part.kernel == nullptr;
      auto record = record_of(stream, is_unknown ? given : part, launch.origin.correlation,
                              /*is_async=*/true);
      if (record) add_with_times(block, *std::move(record), begin, begin + share);
      begin += share;
    }
    emit(block);
  }
};

// A child of fork has no GPU, and nobody gives back the locks that its copies hold.
void add_once() {
  static const bool is_added = [] {
    add_tool(*new Profiler);  // never destroyed: told until the very end of a process
    pthread_atfork(nullptr, nullptr, [] { watch_calls(false); });
    return true;
  }();
  static_cast<void>(is_added);
}

}  // namespace

void watch() {
  static std::mutex mutex;  // who looks last says so last
  const std::scoped_lock lock(mutex);
  const bool is_wanted = is_any_enabled() || is_any_subscribed();
  if (is_wanted) add_once();
  watch_calls(is_wanted);
}

std::uint64_t end_of_last_call() { return thread_is_over ? 0 : this_thread.end_of_call; }

}  // namespace simulate_gpus::cupti
