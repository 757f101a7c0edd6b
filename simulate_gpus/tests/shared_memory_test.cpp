// SPDX-License-Identifier: MIT
//
// CUDA IPC between processes: this program, and copies of it that do what it tells them.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr std::size_t k_bytes = std::size_t{1} << 20;
constexpr int k_old = 1, k_new = 2;

// The handles of memory and of events have one size.
using Handle = cudaIpcMemHandle_t;
static_assert(sizeof(Handle) == sizeof(cudaIpcEventHandle_t));

cudaIpcEventHandle_t as_event(const Handle& handle) {
  cudaIpcEventHandle_t event;
  std::memcpy(&event, &handle, sizeof event);
  return event;
}

Handle as_handle(const cudaIpcEventHandle_t& event) {
  Handle handle;
  std::memcpy(&handle, &event, sizeof handle);
  return handle;
}

/// What a process is told to do, with `place` bytes after the beginning of its memory.
enum class Task {
  allocate,
  share,
  open,
  close,
  read,
  write,
  device,
  free_bytes,
  make_event,
  open_event,
  write_and_record,  // later: the copy stays in a stream
  query_event,
  synchronize_event,
  read_after_event,  // as the work of a stream
  synchronize
};

struct Request {
  Task task;
  int value = 0;
  std::size_t place = 0;
  Handle handle = {};
};

struct Reply {
  cudaError_t error = cudaSuccess;
  std::int64_t value = 0;
  Handle handle = {};
  std::array<char, 400> text = {};
};

/// What a process has: memory and an event, its own or another's, and a stream.
class Actor {
 public:
  Reply act(const Request& request) {
    reply_ = {};
    reply_.error = act_on(request);
    if (reply_.error != cudaSuccess)
      std::strncpy(reply_.text.data(), cudaGetErrorString(reply_.error), reply_.text.size() - 1);
    return reply_;
  }

 private:
  cudaError_t act_on(const Request& request) {
    char* const byte = static_cast<char*>(memory_) + request.place;
    switch (request.task) {
      case Task::allocate:
        return cudaMalloc(&memory_, k_bytes);
      case Task::share:
        return cudaIpcGetMemHandle(&reply_.handle, byte);
      case Task::open:
        return cudaIpcOpenMemHandle(&memory_, request.handle, cudaIpcMemLazyEnablePeerAccess);
      case Task::close:
        return cudaIpcCloseMemHandle(memory_);
      case Task::read:
        return read(cudaMemcpy(&value_, byte, sizeof value_, cudaMemcpyDefault));
      case Task::write:
        return cudaMemcpy(byte, &request.value, sizeof request.value, cudaMemcpyDefault);
      case Task::device: {
        cudaPointerAttributes found{};
        const cudaError_t failed = cudaPointerGetAttributes(&found, memory_);
        reply_.value = found.type == cudaMemoryTypeDevice ? found.device : -1;
        return failed;
      }
      case Task::free_bytes: {
        std::size_t free = 0, total = 0;
        const cudaError_t failed = cudaMemGetInfo(&free, &total);
        reply_.value = static_cast<std::int64_t>(free);
        return failed;
      }
      case Task::make_event: {
        cudaIpcEventHandle_t handle{};
        cudaEventCreateWithFlags(&event_, cudaEventInterprocess | cudaEventDisableTiming);
        const cudaError_t failed = cudaIpcGetEventHandle(&handle, event_);
        reply_.handle = as_handle(handle);
        return failed;
      }
      case Task::open_event:
        return cudaIpcOpenEventHandle(&event_, as_event(request.handle));
      case Task::write_and_record:
        *pinned() = request.value;
        cudaMemcpyAsync(byte, pinned(), sizeof(int), cudaMemcpyDefault, stream());
        return cudaEventRecord(event_, stream());
      case Task::query_event:
        return cudaEventQuery(event_);
      case Task::synchronize_event:
        return cudaEventSynchronize(event_);
      case Task::read_after_event:
        cudaStreamWaitEvent(stream(), event_, 0);
        cudaMemcpyAsync(&value_, byte, sizeof value_, cudaMemcpyDefault, stream());
        return read(cudaStreamSynchronize(stream()));
      case Task::synchronize:
        return cudaDeviceSynchronize();
    }
    return cudaErrorUnknown;
  }

  cudaError_t read(cudaError_t failed) {
    reply_.value = value_;
    return failed;
  }

  cudaStream_t stream() {
    if (!stream_) cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    return stream_;
  }

  int* pinned() {
    if (!pinned_) cudaMallocHost(reinterpret_cast<void**>(&pinned_), sizeof(int));
    return pinned_;
  }

  void* memory_ = nullptr;
  cudaEvent_t event_ = nullptr;
  cudaStream_t stream_ = nullptr;
  int* pinned_ = nullptr;
  int value_ = 0;
  Reply reply_;
};

/// Another process.
class Other {
 public:
  /// Which GPUs it sees, as in CUDA_VISIBLE_DEVICES; all where nothing is given.
  explicit Other(const char* visible = nullptr) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) std::abort();
    process_ = fork();
    if (process_ == 0) {
      if (visible) setenv("CUDA_VISIBLE_DEVICES", visible, 1);
      const std::string end = std::to_string(dup(ends[1]));  // which stays open
      execl("/proc/self/exe", "other", "--act", end.c_str(), nullptr);
      _exit(1);
    }
    close(ends[1]);
    end_ = ends[0];
  }
  ~Other() { kill(); }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;

  Reply act(Task task, int value = 0, std::size_t place = 0) { return ask({task, value, place}); }
  Reply act(Task task, const Handle& handle) { return ask({.task = task, .handle = handle}); }

  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    close(end_);
    process_ = 0;
  }

 private:
  Reply ask(const Request& request) {
    Reply reply;
    EXPECT_EQ(::write(end_, &request, sizeof request), static_cast<ssize_t>(sizeof request));
    EXPECT_EQ(recv(end_, &reply, sizeof reply, MSG_WAITALL), static_cast<ssize_t>(sizeof reply));
    return reply;
  }

  pid_t process_ = 0;
  int end_ = -1;
};

[[noreturn]] void act_for(int end) {
  Actor actor;
  Request request{};
  while (recv(end, &request, sizeof request, MSG_WAITALL) == sizeof request) {
    const Reply reply = actor.act(request);
    if (write(end, &reply, sizeof reply) != sizeof reply) break;
  }
  std::exit(0);
}

/// This process.
class Here : public Actor {
 public:
  Reply act(Task task, int value = 0, std::size_t place = 0) {
    return Actor::act({task, value, place});
  }
  Reply act(Task task, const Handle& handle) {
    return Actor::act({.task = task, .handle = handle});
  }
};

// Memory of one process that another has opened, with an old value.
void share(auto& owner, auto& opener) {
  ASSERT_EQ(owner.act(Task::allocate).error, cudaSuccess);
  ASSERT_EQ(owner.act(Task::write, k_old).error, cudaSuccess);
  const Reply shared = owner.act(Task::share);
  ASSERT_EQ(shared.error, cudaSuccess);
  const Reply opened = opener.act(Task::open, shared.handle);
  ASSERT_EQ(opened.error, cudaSuccess) << opened.text.data();
}

void share_event(auto& owner, auto& opener) {
  const Reply made = owner.act(Task::make_event);
  ASSERT_EQ(made.error, cudaSuccess);
  ASSERT_EQ(opener.act(Task::open_event, made.handle).error, cudaSuccess);
}

TEST(SharedMemory, IsReadAndWrittenByBothProcesses) {
  Here here;
  Other other;
  share(here, other);
  EXPECT_EQ(other.act(Task::read).value, k_old);
  other.act(Task::write, k_new);
  EXPECT_EQ(here.act(Task::read).value, k_new);
  here.act(Task::write, 3, k_bytes - sizeof(int));
  EXPECT_EQ(other.act(Task::read, 0, k_bytes - sizeof(int)).value, 3);
  EXPECT_EQ(other.act(Task::read, 0, k_bytes).error, cudaErrorInvalidValue);
}

// TensorPipe counts on it: "cudaIpcGetMemHandle" of an address inside of an allocation, and its distance.
TEST(SharedMemory, BeginsWhereTheAllocationDoes) {
  Here here;
  Other other;
  here.act(Task::allocate);
  here.act(Task::write, k_old);
  here.act(Task::write, k_new, 512);
  const Reply of_middle = here.act(Task::share, 0, 512), of_begin = here.act(Task::share);
  EXPECT_EQ(std::memcmp(&of_middle.handle, &of_begin.handle, sizeof(Handle)), 0);
  ASSERT_EQ(other.act(Task::open, of_middle.handle).error, cudaSuccess);
  EXPECT_EQ(other.act(Task::read).value, k_old);
}

TEST(SharedMemory, IsClosedAsOftenAsItWasOpened) {
  Here here;
  Other other;
  share(here, other);
  other.act(Task::open, here.act(Task::share).handle);
  EXPECT_EQ(other.act(Task::close).error, cudaSuccess);
  EXPECT_EQ(other.act(Task::read).value, k_old);
  EXPECT_EQ(other.act(Task::close).error, cudaSuccess);
  EXPECT_EQ(other.act(Task::close).error, cudaErrorInvalidValue);
  EXPECT_EQ(other.act(Task::read).error, cudaErrorInvalidValue);
  ASSERT_EQ(other.act(Task::open, here.act(Task::share).handle).error, cudaSuccess);
  EXPECT_EQ(other.act(Task::read).value, k_old);
}

TEST(SharedMemory, IsCountedWhereItWasAllocated) {
  Here here;
  Other other;
  const auto own = here.act(Task::free_bytes).value, others = other.act(Task::free_bytes).value;
  share(here, other);
  EXPECT_EQ(own - here.act(Task::free_bytes).value, static_cast<std::int64_t>(k_bytes));
  EXPECT_EQ(others, other.act(Task::free_bytes).value);
}

// On an H100 (card/h100/calls.txt), but for freed memory.
TEST(SharedMemory, RefusesWhatIsNotOfAnotherProcess) {
  void *memory = nullptr, *opened = nullptr;
  cudaMalloc(&memory, k_bytes);
  Handle handle{};
  constexpr unsigned k_lazy = cudaIpcMemLazyEnablePeerAccess;
  EXPECT_EQ(cudaIpcGetMemHandle(nullptr, memory), cudaErrorInvalidValue);
  EXPECT_EQ(cudaIpcGetMemHandle(&handle, &handle), cudaErrorInvalidValue);
  EXPECT_EQ(cudaIpcOpenMemHandle(&opened, handle, k_lazy), cudaErrorInvalidValue);
  ASSERT_EQ(cudaIpcGetMemHandle(&handle, memory), cudaSuccess);
  EXPECT_EQ(cudaIpcOpenMemHandle(&opened, handle, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaIpcOpenMemHandle(&opened, handle, k_lazy), cudaErrorDeviceUninitialized);
  EXPECT_EQ(cudaIpcCloseMemHandle(memory), cudaErrorInvalidValue);
  cudaFree(memory);
  EXPECT_EQ(cudaIpcGetMemHandle(&handle, memory), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST(SharedMemory, OfAHandleIsNotThatOfALaterAllocation) {
  Other other;
  void* memory = nullptr;
  Handle freed{}, later{};
  cudaMalloc(&memory, k_bytes);
  ASSERT_EQ(cudaIpcGetMemHandle(&freed, memory), cudaSuccess);
  cudaFree(memory);
  void* again = nullptr;
  cudaMalloc(&again, k_bytes);
  ASSERT_EQ(again, memory);
  ASSERT_EQ(cudaIpcGetMemHandle(&later, again), cudaSuccess);
  const Reply refused = other.act(Task::open, freed);
  EXPECT_EQ(refused.error, cudaErrorInvalidResourceHandle);
  EXPECT_NE(std::string(refused.text.data()).find("has freed that memory"), std::string::npos);
  EXPECT_EQ(other.act(Task::open, later).error, cudaSuccess);
  EXPECT_EQ(cudaFree(again), cudaSuccess);  // before the other has closed it
  EXPECT_EQ(other.act(Task::read).error, cudaSuccess);
  EXPECT_EQ(other.act(Task::close).error, cudaSuccess);
}

TEST(SharedMemory, OutlivesItsProcessWhereItIsOpen) {
  Here here;
  Other other;
  share(other, here);
  const Handle handle = other.act(Task::share).handle;
  other.kill();
  EXPECT_EQ(here.act(Task::read).value, k_old);
  EXPECT_EQ(here.act(Task::close).error, cudaSuccess);
  EXPECT_EQ(here.act(Task::open, handle).error, cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

TEST(SharedMemory, OfAHiddenCardBelongsToTheCurrentDevice) {
  Here here;
  Other hides_it("1"), turns_it("1,0");
  share(here, hides_it);
  EXPECT_EQ(hides_it.act(Task::device).value, 0);
  EXPECT_EQ(hides_it.act(Task::read).value, k_old);
  ASSERT_EQ(turns_it.act(Task::open, here.act(Task::share).handle).error, cudaSuccess);
  EXPECT_EQ(turns_it.act(Task::device).value, 1);
  EXPECT_EQ(turns_it.act(Task::read).value, k_old);
}

TEST(SharedEvent, OrdersTheWorkOfTwoProcesses) {
  Here here;
  Other other;
  share(here, other);
  share_event(here, other);
  EXPECT_EQ(other.act(Task::query_event).error, cudaSuccess);  // not recorded yet
  here.act(Task::write_and_record, k_new);
  EXPECT_EQ(other.act(Task::read).value, k_old);  // who does not wait sees the old value
  EXPECT_EQ(other.act(Task::read_after_event).value, k_new);
  EXPECT_EQ(here.act(Task::query_event).error, cudaSuccess);
  here.act(Task::write_and_record, 3);
  EXPECT_EQ(other.act(Task::synchronize_event).error, cudaSuccess);
  EXPECT_EQ(other.act(Task::read).value, 3);
}

TEST(SharedEvent, IsRecordedByTheProcessThatOpenedItToo) {
  Here here;
  Other other;
  share(here, other);
  share_event(here, other);
  for (int round = k_new; round < 20; ++round) {
    other.act(Task::write_and_record, round);
    EXPECT_EQ(here.act(Task::read).value, round - 1);
    EXPECT_EQ(here.act(Task::query_event).error, cudaErrorNotReady);
    EXPECT_EQ(here.act(Task::read_after_event).value, round);
    here.act(Task::write_and_record, ++round);
    EXPECT_EQ(other.act(Task::read_after_event).value, round);
  }
}

TEST(SharedEvent, IsOverForAllWhenItsProcessHasWaited) {
  Here here;
  Other other;
  share(here, other);
  share_event(here, other);
  here.act(Task::write_and_record, k_new);
  here.act(Task::synchronize);
  EXPECT_EQ(other.act(Task::query_event).error, cudaSuccess);
}

TEST(SharedEvent, OfADeadProcessEndsTheWaitInAnError) {
  Here here;
  Other other;
  share(other, here);
  share_event(other, here);
  other.act(Task::write_and_record, k_new);
  other.kill();
  const Reply waited = here.act(Task::synchronize_event);
  EXPECT_EQ(waited.error, cudaErrorLaunchFailure);
  EXPECT_NE(std::string(waited.text.data()).find("has ended"), std::string::npos);
  cudaGetLastError();
}

TEST(SharedEvent, RefusesWhatIsNotOfAnotherProcess) {
  cudaEvent_t plain{}, shared{}, opened{};
  cudaIpcEventHandle_t handle{};
  cudaEventCreateWithFlags(&plain, cudaEventDisableTiming);
  cudaEventCreateWithFlags(&shared, cudaEventDisableTiming | cudaEventInterprocess);
  EXPECT_EQ(cudaIpcGetEventHandle(&handle, plain), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaIpcOpenEventHandle(&opened, handle), cudaErrorInvalidValue);
  ASSERT_EQ(cudaIpcGetEventHandle(&handle, shared), cudaSuccess);
  EXPECT_EQ(cudaIpcOpenEventHandle(&opened, handle), cudaErrorDeviceUninitialized);
  cudaEventDestroy(plain);
  cudaEventDestroy(shared);
  Other other;
  EXPECT_EQ(other.act(Task::open_event, as_handle(handle)).error, cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 3 && std::string(arguments[1]) == "--act") act_for(std::atoi(arguments[2]));
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
