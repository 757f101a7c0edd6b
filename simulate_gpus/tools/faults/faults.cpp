// SPDX-License-Identifier: MIT
#include "tools/faults/faults.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "runtime/tool.hpp"

namespace simulate_gpus {
namespace {

// "cudaMalloc:3:2": the third call returns 2. "cudaGetDeviceCount:*:35": each call returns 35.
// "*:7:2": the seventh of all calls that no earlier entry answers returns 2. Code 0 lets a call
// succeed.
struct Fault {
  std::string function;
  long call;  // 0: each
  cudaError_t code;
  std::atomic<long> calls = 0;

  Fault(std::string name, long number, cudaError_t answer)
      : function(std::move(name)), call(number), code(answer) {}
};

// Replaced as a whole; old ones are kept, as calls may still read them.
class Faults final : public Tool {
 public:
  explicit Faults(const char* text) { set(text ? text : ""); }

  void set(const std::string& text) {
    auto parsed = std::make_unique<std::deque<Fault>>();
    std::istringstream entries(text);
    for (std::string entry; std::getline(entries, entry, ',');) {
      std::istringstream parts(entry);
      std::string function, call, code;
      std::getline(parts, function, ':');
      std::getline(parts, call, ':');
      std::getline(parts, code);
      const long number = call == "*" ? 0 : std::atol(call.c_str());
      const int answer = std::atoi(code.c_str());
      if (answer < 0 || code.empty() || number < 0 || (number == 0 && call != "*") ||
          (function != "*" && dlsym(RTLD_DEFAULT, function.c_str()) == nullptr)) {
        std::fprintf(
            stderr,
            "simulate_gpus: SIMULATE_GPUS_FAULTS has \"%s\"; expected a function of CUDA's "
            "runtime or *, the number of a call or *, and an error code, as in cudaMalloc:3:2\n",
            entry.c_str());
        _exit(2);
      }
      parsed->emplace_back(std::move(function), number, static_cast<cudaError_t>(answer));
    }
    const std::scoped_lock lock(mutex_);
    current_ = all_.emplace_back(std::move(parsed)).get();
    failed_function_ = nullptr;
  }

  cudaError_t fault(const char* function) override {
    for (Fault& fault : *current_.load()) {
      if (fault.function != function && fault.function != "*") continue;
      if (const long call = ++fault.calls; fault.call == 0 || fault.call == call) {
        if (fault.code != cudaSuccess) failed_function_ = function;
        return fault.code;
      }
    }
    return cudaSuccess;
  }

  [[nodiscard]] const char* failed_function() const { return failed_function_; }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<std::deque<Fault>>> all_;
  std::atomic<std::deque<Fault>*> current_ = nullptr;
  std::atomic<const char*> failed_function_ = nullptr;
};

const char* requested() { return std::getenv("SIMULATE_GPUS_FAULTS"); }

Faults& faults() {
  static auto* const faults = new Faults(requested());
  return *faults;
}

}  // namespace

void start_faults() {
  if (requested() != nullptr) add_tool(faults());
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

void simulated_cuda_set_faults(const char* text) {
  faults().set(text);
  add_tool(faults());
}

const char* simulated_cuda_failed_function() { return faults().failed_function(); }
