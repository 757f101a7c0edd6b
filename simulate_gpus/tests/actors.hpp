// SPDX-License-Identifier: MIT
//
// Processes that share memory and an event of GPUs, of which a test tells each what to do: this one, and others, which
// are copies of the test's program.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace actors {

constexpr std::size_t k_bytes = std::size_t{1} << 20;
constexpr int k_old = 1, k_new = 2;

/// Of memory or an event: they have one size.
using Handle = cudaIpcMemHandle_t;
static_assert(sizeof(Handle) == sizeof(cudaIpcEventHandle_t));
Handle as_handle(const cudaIpcEventHandle_t& event);

/// What a process is told to do, with `place` bytes after the beginning of one of its memories, and the event of the
/// same number.
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
  wait_for_event,    // in a stream
  write_and_record,  // the copy stays in the stream
  query_event,
  synchronize_event,
  read_after_event,  // as work of the stream
  synchronize
};

struct Request {
  Task task;
  int value = 0;
  std::size_t place = 0;
  Handle handle = {};
  std::size_t which = 0;
};

struct Reply {
  cudaError_t error = cudaSuccess;
  std::int64_t value = 0;
  Handle handle = {};
  std::array<char, 400> text = {};  // of the error
};

class Actor {
 public:
  virtual ~Actor() = default;
  Reply act(Task task, int value = 0, std::size_t place = 0) { return act({task, value, place}); }
  Reply act(Task task, const Handle& handle) { return act({.task = task, .handle = handle}); }
  virtual Reply act(const Request& request) = 0;
};

/// This process, with memory and events, its own or another's, and a stream.
class Here : public Actor {
 public:
  Here() = default;
  ~Here() override;
  Here(const Here&) = delete;
  Here& operator=(const Here&) = delete;

  using Actor::act;
  Reply act(const Request& request) override;

 private:
  cudaError_t act_on(const Request& request);
  cudaStream_t stream();
  int* pinned();

  std::array<void*, 4> memories_ = {};
  std::array<cudaEvent_t, 4> events_ = {};
  cudaStream_t stream_ = nullptr;
  int* pinned_ = nullptr;
  Reply reply_;
};

/// Another process.
class Other : public Actor {
 public:
  /// Which GPUs it sees, as in CUDA_VISIBLE_DEVICES; all where nothing is given.
  explicit Other(const char* visible = nullptr);
  ~Other() override { kill(); }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;

  using Actor::act;
  Reply act(const Request& request) override;
  void kill();

 private:
  pid_t process_ = 0;
  int end_ = -1;
};

/// Where another process goes on, in `main`.
[[noreturn]] void act_for(int end);

/// Memory of one that the other opens, with an old value.
void share(Actor& owner, Actor& opener);
void share_event(Actor& owner, Actor& opener);

}  // namespace actors
