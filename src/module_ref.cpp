// SPDX-License-Identifier: MIT
#include <use_gpu/module_ref.hpp>

#include <torch/nn/module.h>
#include <use_gpu/errors.hpp>

namespace USE_GPU_EXPORT use_gpu {
namespace {

template <class AnyModule>
AnyModule& checked(AnyModule* module) {
  if (module != nullptr) return *module;
  throw ArgumentError(
      "The network is empty: its module holder or pointer was initialized with nullptr. Give it a "
      "module first, for example net = torch::nn::Linear(3, 1).");
}

}  // namespace

template <>
torch::nn::Module& ModuleRef::get() const {
  return checked(module_);
}

template <>
const torch::nn::Module& ConstModuleRef::get() const {
  return checked(module_);
}

}  // namespace use_gpu
