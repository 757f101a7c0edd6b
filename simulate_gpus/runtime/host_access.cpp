// SPDX-License-Identifier: MIT
#include "host_access.hpp"

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>

#include "device_memory.hpp"

namespace simulated_cuda {
namespace {

struct sigaction previous;

void on_fault(int signal, siginfo_t* info, void* context) {
  if (const auto pointer = device_pointer(info->si_addr)) {
    constexpr greg_t k_write = 2;  // bit of the page fault's error code
    const bool wrote = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & k_write;
    char line[200];
    const int size = std::snprintf(
        line, sizeof line,
        "simulate_gpus: the host %s memory of cuda:%d (address %p), which only the GPU can reach. "
        "Copy the tensor to the CPU first: x.cpu()\n",
        wrote ? "wrote" : "read", pointer->device, info->si_addr);
    static_cast<void>(!write(STDERR_FILENO, line, static_cast<std::size_t>(size)));
    ::signal(signal, SIG_DFL);  // the same instruction now ends the program
  } else {
    sigaction(signal, &previous, nullptr);
  }
}

}  // namespace

void report_host_access() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction ours {};
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &ours, &previous);
  });
}

}  // namespace simulated_cuda
