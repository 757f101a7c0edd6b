// SPDX-License-Identifier: MIT
#include <use_gpu/parallel.hpp>

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <use_gpu/device.hpp>

#include <algorithm>
#include <mutex>
#include <thread>

#include "core/device_check.hpp"
#include "core/device_cuda.hpp"
#include "core/messages/error_text.hpp"
#include "gpu_info/message.hpp"

// Functions of LibTorch's own OpenMP and MKL; null if it uses none. Not linked: the wheels contain
// an OpenMP, and a process should not have two.
extern "C" {
[[gnu::weak]] void omp_set_num_threads(int count);
[[gnu::weak]] int MKL_Set_Num_Threads_Local(int count);
}

namespace USE_GPU_EXPORT use_gpu {
namespace {

// For this thread only. at::set_num_threads would also set the number for every thread that the
// process starts later, and this cannot be undone.
void set_intra_op_threads(int count) {
  if (omp_set_num_threads == nullptr) return;
  // At its first query LibTorch sets the default number, so query before setting it.
  (void)at::get_num_threads();
  omp_set_num_threads(count);
  if (MKL_Set_Num_Threads_Local != nullptr) MKL_Set_Num_Threads_Local(count);
}

// One for each entry, which knows its device: the caller's current one, or where entries share a
// GPU, one of its pool that waits for what the caller has queued.
std::vector<c10::Stream> streams_for(const std::vector<c10::Device>& devices) {
  std::vector<c10::Device> present;
  for (const auto device : devices) present.push_back(detail::present_device(device));
  std::vector<c10::Stream> streams;
  for (const auto device : present) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    auto stream = guard.getStream(device);
    const bool has_pool = !detail::is_always_there(device) && !device.is_mps();
    if (has_pool && std::ranges::count(present, device) > 1) {
      const c10::DeviceGuard current(device);  // another device's event would make a context here
      c10::Event queued(device.type());
      queued.record(stream);
      stream = guard.getStreamFromGlobalPool(device);
      queued.block(stream);
    }
    streams.push_back(stream);
  }
  return streams;
}

}  // namespace

void parallel_on(const std::vector<c10::Device>& devices,
                 const std::function<void(c10::Device, std::size_t)>& work) {
  if (!work) {
    throw ArgumentError(
        "parallel_on: the work is empty: give it a function of (c10::Device, std::size_t).");
  }
  if (devices.empty()) return;
  const auto streams = streams_for(devices);
  const int share = std::max(1, at::get_num_threads() / static_cast<int>(devices.size()));
  const at::ThreadLocalState callers;
  at::autocast::increment_nesting();  // the only way to ask for it
  const bool in_autocast = at::autocast::decrement_nesting() > 0;

  std::mutex mutex;
  std::exception_ptr first_error;
  // Logs an error at once: other threads may run long, or wait for this one forever.
  const auto attempt = [&](c10::Device device, std::size_t entry, const auto& action) noexcept {
    try {
      action();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first_error) first_error = std::current_exception();
      try {
        const auto cause = detail::clipped(detail::current_error_text(), /*most=*/1000);
        detail::log_message(LogLevel::error, c10::str("parallel_on: entry ", entry, ", on ", device,
                                                      ", failed: ", cause));
      } catch (...) {  // no memory for a text: the error itself is kept
      }
    }
  };
  const auto run = [&](c10::Stream stream, std::size_t entry) {
    const auto device = stream.device();
    attempt(device, entry, [&] {
      const at::ThreadLocalStateGuard state(callers);
      // So that no scope of the work is outermost.
      if (in_autocast) at::autocast::increment_nesting();
      detail::bind_context(device);
      const c10::StreamGuard current(stream);
      set_intra_op_threads(share);
      work(device, entry);
    });
    attempt(device, entry, [&] { synchronize(device); });
  };

  std::vector<std::thread> threads;
  threads.reserve(devices.size());
  for (std::size_t entry = 0; const auto stream : streams) {
    attempt(stream.device(), entry, [&] { threads.emplace_back(run, stream, entry); });
    if (threads.size() != ++entry) break;  // no more threads: wait for those that run
  }
  for (auto& thread : threads) thread.join();
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace use_gpu
