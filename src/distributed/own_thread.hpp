// SPDX-License-Identifier: MIT
//
// For what LibTorch does without a time-out: whoever waits for the result may give up.
#pragma once

#include <signal.h>

#include <future>
#include <thread>
#include <type_traits>
#include <utility>

namespace use_gpu::detail {

/// What the work will return. It runs on a thread of its own that blocks SIGPIPE, as do the threads
/// that it starts: Gloo and the store's server write to connections whose peer may be gone, which
/// would otherwise end the process (Python ignores the signal).
template <class Work>
[[nodiscard]] auto on_own_thread(Work work) {
  std::packaged_task<std::invoke_result_t<Work>()> task([work = std::move(work)] {
    sigset_t sigpipe{};
    ::sigemptyset(&sigpipe);
    ::sigaddset(&sigpipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &sigpipe, nullptr);
    return work();
  });
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  return result;
}

}  // namespace use_gpu::detail
