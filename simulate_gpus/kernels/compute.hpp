// SPDX-License-Identifier: MIT
//
// One operation of a simulated GPU: a CUDA kernel of aten, done by the CPU's on the same memory.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/stack.h>

#include <atomic>

#include "kernels/operation.hpp"

namespace simulate_gpus {

/// Computes the operation with the CPU's kernel; the stack's arguments become its results. Throws LibTorch's
/// errors. During a capture it is computed for its shapes and errors, and again at each replay.
void compute(const Operation& operation, torch::jit::Stack* stack);

/// The same for an operation of the CPU, without an overload, by its name. Returns the results.
torch::jit::Stack compute(const char* name, torch::jit::Stack arguments);

/// The same, as LibTorch's dispatcher calls it, by the CPU's kernel for `host_key`.
class ComputingKernel : public c10::OperatorKernel {
 public:
  explicit ComputingKernel(c10::DispatchKey host_key) : host_key_(host_key) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet, torch::jit::Stack* stack);

 private:
  c10::DispatchKey host_key_;
  std::atomic<const Operation*> operation_ = nullptr;  // until the first call: few are ever called
};

}  // namespace simulate_gpus
