// SPDX-License-Identifier: MIT
//
// What the simulated CUDA runtime tells tests (simulate_gpus.h). It exists if the program runs on
// simulated GPUs.
#pragma once

#include <dlfcn.h>
#include <simulate_gpus.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace use_gpu::test {

template <class Function>
Function* runtime_function(const char* name) {
  auto* const found = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  if (found == nullptr) throw std::runtime_error("there is no simulated CUDA runtime here");
  return found;
}

/// A row of the summary, such as "host to device copies".
inline std::int64_t runtime_count(const std::string& row) {
  static auto* const count =
      runtime_function<decltype(simulated_cuda_count)>("simulated_cuda_count");
  return static_cast<std::int64_t>(count(row.c_str()));
}

/// Whether kernels are counted and not computed; false without simulated GPUs.
inline bool is_dry_run() {
  auto* const asked = reinterpret_cast<decltype(&simulated_cuda_is_dry_run)>(
      dlsym(RTLD_DEFAULT, "simulated_cuda_is_dry_run"));
  return asked != nullptr && asked();
}

/// Collects the lines of simulate_gpus --trace until the scope ends. One at a time.
class RuntimeTrace {
 public:
  RuntimeTrace() {
    lines_.clear();
    set([](const char* line) { lines_.emplace_back(line); });
  }
  ~RuntimeTrace() { set(nullptr); }
  RuntimeTrace(const RuntimeTrace&) = delete;
  RuntimeTrace& operator=(const RuntimeTrace&) = delete;

  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }

 private:
  static void set(void (*line)(const char*)) {
    runtime_function<decltype(simulated_cuda_set_trace)>("simulated_cuda_set_trace")(line);
  }
  inline static std::vector<std::string> lines_;
};

/// Lets calls of CUDA functions fail, as SIMULATE_GPUS_FAULTS does: "cudaMalloc:3:2", "*:7:719".
inline void set_cuda_faults(const std::string& faults) {
  runtime_function<decltype(simulated_cuda_set_faults)>("simulated_cuda_set_faults")(
      faults.c_str());
}

/// The function that failed on request since then; empty for none.
inline std::string failed_cuda_function() {
  const char* const name = runtime_function<decltype(simulated_cuda_failed_function)>(
      "simulated_cuda_failed_function")();
  return name == nullptr ? "" : name;
}

}  // namespace use_gpu::test
