// SPDX-License-Identifier: MIT
#include "kernels/program_kernels.hpp"

#include <torch/library.h>

#include <memory>
#include <utility>

#include "kernels/own_kernels.hpp"

namespace simulate_gpus {
namespace {

class StayingKernel : public c10::OperatorKernel {
 public:
  explicit StayingKernel(c10::SafeKernelFunction kernel) : kernel_(std::move(kernel)) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    kernel_.callBoxed(handle, keys, stack);
  }

 private:
  c10::SafeKernelFunction kernel_;
};

// LibTorch's own are known by the sources, made by its build, that register them.
bool is_libtorchs(const c10::SafeKernelFunction& kernel) {
  return kernel.debug().find("/ATen/Register") != std::string::npos;
}

}  // namespace

ProgramKernels program_kernels() {
  using enum c10::DispatchKey;
  auto& dispatcher = c10::Dispatcher::singleton();
  ProgramKernels found;
  for (const auto key : {CUDA, NestedTensorCUDA, SparseCUDA, SparseCsrCUDA}) {
    for (const c10::OperatorName& name : dispatcher.getRegistrationsForDispatchKey(key)) {
      if (!name.name.starts_with("aten::")) continue;
      auto kernel = dispatcher.findOp(name)->getComputedKernelForDispatchKey(key);
      if (!is_libtorchs(kernel)) found.push_back({key, short_name(name), std::move(kernel)});
    }
  }
  return found;
}

void put_back(ProgramKernels kernels) {
  for (auto& [key, operation, kernel] : kernels)
    library_of(key).impl(operation.c_str(),
                         torch::CppFunction::makeFromBoxedFunctor(
                             std::make_unique<StayingKernel>(std::move(kernel))));
}

}  // namespace simulate_gpus
