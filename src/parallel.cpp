// SPDX-License-Identifier: MIT
#include <use_gpu/parallel.hpp>

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <use_gpu/device.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/log.hpp>

#include <algorithm>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "device/device_check.hpp"
#include "device/device_cuda.hpp"
#include "messages/error_text.hpp"
#include "messages/message.hpp"

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

}  // namespace

void parallel_on(const std::vector<c10::Device>& devices,
                 const std::function<void(c10::Device, int)>& work) {
  if (!work) {
    throw ArgumentError(
        "parallel_on: the work is empty: give it a function of (c10::Device, int).");
  }
  if (devices.empty()) return;
  std::vector<c10::Stream> streams;  // each knows its device
  for (const auto device : devices) {
    const auto present = detail::present_device(device);
    streams.push_back(c10::impl::VirtualGuardImpl(present.type()).getStream(present));
  }
  const int share = std::max(1, at::get_num_threads() / static_cast<int>(devices.size()));
  const at::ThreadLocalState callers;
  at::autocast::increment_nesting();  // the only way to ask for it
  const bool in_autocast = at::autocast::decrement_nesting() > 0;

  std::mutex mutex;
  std::exception_ptr first_error;
  // Logs an error at once: other threads may run long, or wait for this one forever.
  const auto attempt = [&](c10::Device device, int entry, const auto& action) noexcept {
    try {
      action();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first_error) first_error = std::current_exception();
      try {
        constexpr std::size_t k_most_bytes = 1000;
        log_message(LogLevel::error,
                    "parallel_on: entry " + std::to_string(entry) + ", on " + device.str() +
                        ", failed: " + detail::clipped(detail::current_error_text(), k_most_bytes));
      } catch (...) {  // no memory for a text: the error itself is kept
      }
    }
  };
  const auto run = [&](c10::Stream stream, int entry) {
    const auto device = stream.device();
    attempt(device, entry, [&] {
      const at::ThreadLocalStateGuard state(callers);
      if (in_autocast)
        at::autocast::increment_nesting();  // so that no scope of the work is outermost
      detail::bind_context(device);
      const c10::StreamGuard current(stream);
      set_intra_op_threads(share);
      work(device, entry);
    });
    attempt(device, entry, [&] { synchronize(device); });
  };

  std::vector<std::thread> threads;
  threads.reserve(devices.size());
  for (int entry = 0; const auto stream : streams) {
    attempt(stream.device(), entry, [&] { threads.emplace_back(run, stream, entry); });
    if (std::ssize(threads) != ++entry) break;  // no more threads: wait for those that run
  }
  for (auto& thread : threads) thread.join();
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace use_gpu
