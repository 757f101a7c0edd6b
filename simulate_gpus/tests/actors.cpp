// SPDX-License-Identifier: MIT
#include "actors.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

namespace actors {
namespace {

cudaIpcEventHandle_t as_event(const Handle& handle) {
  cudaIpcEventHandle_t event;
  std::memcpy(&event, &handle, sizeof event);
  return event;
}

}  // namespace

Handle as_handle(const cudaIpcEventHandle_t& event) {
  Handle handle;
  std::memcpy(&handle, &event, sizeof handle);
  return handle;
}

Here::~Here() {
  for (cudaEvent_t event : events_) {
    if (event) cudaEventDestroy(event);
  }
  if (stream_) cudaStreamDestroy(stream_);
  cudaFreeHost(pinned_);
  for (void* memory : memories_) {  // its own, or another's, or closed already
    if (cudaFree(memory) != cudaSuccess) cudaIpcCloseMemHandle(memory);
  }
  cudaGetLastError();
}

Reply Here::act(const Request& request) {
  reply_ = {};
  reply_.error = act_on(request);
  if (reply_.error != cudaSuccess)
    std::strncpy(reply_.text.data(), cudaGetErrorString(reply_.error), reply_.text.size() - 1);
  return reply_;
}

cudaError_t Here::act_on(const Request& request) {
  void*& memory = memories_.at(request.which);
  cudaEvent_t& event = events_.at(request.which);
  char* const byte = static_cast<char*>(memory) + request.place;
  switch (request.task) {
    case Task::allocate:
      return cudaMalloc(&memory, k_bytes);
    case Task::share:
      return cudaIpcGetMemHandle(&reply_.handle, byte);
    case Task::open:
      return cudaIpcOpenMemHandle(&memory, request.handle, cudaIpcMemLazyEnablePeerAccess);
    case Task::close:
      return cudaIpcCloseMemHandle(memory);
    case Task::read:
      return cudaMemcpy(&reply_.value, byte, sizeof(int), cudaMemcpyDefault);
    case Task::write:
      return cudaMemcpy(byte, &request.value, sizeof request.value, cudaMemcpyDefault);
    case Task::device: {
      cudaPointerAttributes found{};
      const cudaError_t failed = cudaPointerGetAttributes(&found, memory);
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
      cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming);
      const cudaError_t failed = cudaIpcGetEventHandle(&handle, event);
      reply_.handle = as_handle(handle);
      return failed;
    }
    case Task::open_event:
      return cudaIpcOpenEventHandle(&event, as_event(request.handle));
    case Task::wait_for_event:
      return cudaStreamWaitEvent(stream(), event, 0);
    case Task::write_and_record:
      *pinned() = request.value;
      cudaMemcpyAsync(byte, pinned(), sizeof(int), cudaMemcpyDefault, stream());
      return cudaEventRecord(event, stream());
    case Task::query_event:
      return cudaEventQuery(event);
    case Task::synchronize_event:
      return cudaEventSynchronize(event);
    case Task::read_after_event:
      cudaStreamWaitEvent(stream(), event, 0);
      cudaMemcpyAsync(&reply_.value, byte, sizeof(int), cudaMemcpyDefault, stream());
      return cudaStreamSynchronize(stream());
    case Task::synchronize:
      return cudaDeviceSynchronize();
  }
  return cudaErrorUnknown;
}

cudaStream_t Here::stream() {
  if (!stream_) cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  return stream_;
}

int* Here::pinned() {
  if (!pinned_) cudaMallocHost(reinterpret_cast<void**>(&pinned_), sizeof(int));
  return pinned_;
}

Other::Other(const char* visible) {
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

void Other::kill() {
  if (process_ <= 0) return;
  ::kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  close(end_);
  process_ = 0;
}

Reply Other::act(const Request& request) {
  Reply reply;
  EXPECT_EQ(write(end_, &request, sizeof request), static_cast<ssize_t>(sizeof request));
  EXPECT_EQ(recv(end_, &reply, sizeof reply, MSG_WAITALL), static_cast<ssize_t>(sizeof reply));
  return reply;
}

void act_for(int end) {
  Here here;
  Request request{};
  while (recv(end, &request, sizeof request, MSG_WAITALL) == sizeof request) {
    const Reply reply = here.act(request);
    if (write(end, &reply, sizeof reply) != sizeof reply) break;
  }
  std::exit(0);
}

void share(Actor& owner, Actor& opener) {
  ASSERT_EQ(owner.act(Task::allocate).error, cudaSuccess);
  ASSERT_EQ(owner.act(Task::write, k_old).error, cudaSuccess);
  const Reply shared = owner.act(Task::share);
  ASSERT_EQ(shared.error, cudaSuccess);
  const Reply opened = opener.act(Task::open, shared.handle);
  ASSERT_EQ(opened.error, cudaSuccess) << opened.text.data();
}

void share_event(Actor& owner, Actor& opener) {
  const Reply made = owner.act(Task::make_event);
  ASSERT_EQ(made.error, cudaSuccess);
  ASSERT_EQ(opener.act(Task::open_event, made.handle).error, cudaSuccess);
}

}  // namespace actors
