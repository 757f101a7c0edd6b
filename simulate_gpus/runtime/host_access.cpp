// SPDX-License-Identifier: MIT
#include "host_access.hpp"

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <mutex>

#include "device_memory.hpp"
#include "tool.hpp"

namespace simulate_gpus {
namespace {

struct sigaction previous;
std::mutex previous_mutex;

// A fault that is not ours: that handler may pass it on to this one, and this one steps aside for good.
std::atomic<bool> was_passed_on = false;

void on_fault(int signal, siginfo_t* info, void* context) {
  constexpr greg_t k_write = 2;  // bit of the page fault's error code
  const bool wrote = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & k_write;
  if (ask<bool, const void*, bool>(&Tool::allows_access, info->si_addr, wrote)) return;
  if (const auto device = device_at(info->si_addr)) {
    char line[200];
    const int size = std::snprintf(
        line, sizeof line,
        "simulate_gpus: the host %s memory of cuda:%d (address %p), which only the GPU can reach. "
        "Copy the tensor to the CPU first: x.cpu()\n",
        wrote ? "wrote" : "read", *device, info->si_addr);
    static_cast<void>(!write(STDERR_FILENO, line, static_cast<std::size_t>(size)));
    ::signal(signal, SIG_DFL);  // the same instruction now ends the program
  } else {
    was_passed_on.exchange(true) ? static_cast<void>(::signal(signal, SIG_DFL))
                                 : static_cast<void>(sigaction(signal, &previous, nullptr));
  }
}

}  // namespace

void report_host_access() {
  if (was_passed_on) return;
  const std::scoped_lock lock(previous_mutex);
  struct sigaction installed {};
  sigaction(SIGSEGV, nullptr, &installed);
  if ((installed.sa_flags & SA_SIGINFO) != 0 && installed.sa_sigaction == on_fault) return;
  struct sigaction ours {};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  previous = installed;
  sigaction(SIGSEGV, &ours, nullptr);
}

}  // namespace simulate_gpus
