// SPDX-License-Identifier: MIT
#include <use_gpu/module_ref.hpp>

namespace USE_GPU_EXPORT use_gpu {

template <class AnyModule>
AnyModule& BasicModuleRef<AnyModule>::get() const {
  if (module_ != nullptr) return *module_;
  throw ArgumentError(
      "The network is empty: its module holder or pointer was initialized with nullptr. Give it a "
      "module first, for example net = torch::nn::Linear(3, 1).");
}

template torch::nn::Module& BasicModuleRef<torch::nn::Module>::get() const;
template const torch::nn::Module& BasicModuleRef<const torch::nn::Module>::get() const;

}  // namespace use_gpu
