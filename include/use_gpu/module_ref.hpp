// SPDX-License-Identifier: MIT
//
// How every function of this library takes a network: as a torch::nn::Module, as a module holder
// (torch::nn::Linear, Sequential, any TORCH_MODULE of yours) or as a std::shared_ptr, without an
// overload for each and without including torch/nn (8 seconds to compile).
//
//   void place(ModuleRef net, c10::Device device);
//   place(net, device);        // net: Linear, Sequential, std::shared_ptr<Net>, Net&, *this ...
//
// A light reference: pass it by value and do not store it, because it does not own the module. A
// function that takes a ModuleRef may change the module, so no other thread may use it then;
// several threads may pass one module as ConstModuleRef.
#pragma once

#include <use_gpu/errors.hpp>

#include <concepts>

namespace torch {
namespace USE_GPU_EXPORT nn {
class Module;  // visible, as in LibTorch
}
}  // namespace torch

namespace USE_GPU_EXPORT use_gpu {

/// A reference to a module. Holders and pointers are handles, as in LibTorch: a const one refers
/// to a mutable module. Functions that only read take a ConstModuleRef.
template <class AnyModule>
class BasicModuleRef {
 public:
  /// From a module itself, of any class derived from torch::nn::Module.
  // NOLINTNEXTLINE(google-explicit-constructor): the conversion is what this class is for
  BasicModuleRef(AnyModule& module) : module_(&module) {}

  /// From a module holder, empty or not.
  template <class Holder>
  requires requires(const Holder& holder) {
    holder.is_empty();
    { *holder.ptr() } -> std::convertible_to<AnyModule&>;
  }
  // NOLINTNEXTLINE(google-explicit-constructor)
  BasicModuleRef(const Holder& holder) : module_(holder.is_empty() ? nullptr : &*holder.ptr()) {}

  /// From a pointer to a module, smart or not, null or not.
  template <class Pointer>
  requires(!requires(const Pointer& pointer) { pointer.is_empty(); }) &&
      requires(const Pointer& pointer) {
    static_cast<bool>(pointer);
    { *pointer } -> std::convertible_to<AnyModule&>;
  }
  // NOLINTNEXTLINE(google-explicit-constructor)
  BasicModuleRef(const Pointer& pointer) : module_(pointer ? &*pointer : nullptr) {}

  /// The module.
  ///
  /// Throws: ArgumentError if the holder or pointer was empty.
  [[nodiscard]] AnyModule& get() const {
    if (module_ != nullptr) return *module_;
    throw ArgumentError(
        "The network is empty: its module holder or pointer was initialized with nullptr. Give it "
        "a module first, for example net = torch::nn::Linear(3, 1).");
  }

 private:
  AnyModule* module_;
};

/// A network that a function may change.
using ModuleRef = BasicModuleRef<torch::nn::Module>;
/// A network that a function only reads.
using ConstModuleRef = BasicModuleRef<const torch::nn::Module>;

/// A handle to a module: a holder or a pointer. Not a module itself: its copies would share
/// parameters.
template <class Net>
concept ModuleHandle = std::convertible_to<const Net&, ModuleRef>;

}  // namespace use_gpu
