// SPDX-License-Identifier: MIT
//
// Putting a network on a device, and seeing where it is. torch::nn::Module::to stops half-way where
// one tensor cannot be moved, and leaves the gradients behind, so that the next backward throws:
//
//   torch::nn::Sequential net(torch::nn::Linear(3, 1));
//   use_gpu::place(net, use_gpu::try_gpu());
//   use_gpu::place(net, use_gpu::try_gpu(), at::kBFloat16);   // integers keep their dtype
//   std::cout << use_gpu::placement(net);        // each parameter and buffer, and where it lives
//
// Threads: several may place different networks at once, but not the same network.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <use_gpu/errors.hpp>
#include <use_gpu/module_ref.hpp>

#include <cstdint>
#include <iosfwd>
#include <optional>

namespace USE_GPU_EXPORT use_gpu {

/// Moves parameters, their gradients and buffers, registered in net or below it, to the device. The
/// tensors keep their identity, so optimizers and tied parameters go on working. All or nothing: if
/// a move fails, everything stays where it was, and LibTorch's own error, such as
/// c10::OutOfMemoryError, passes unchanged. Tensors that are there already are not copied. Calls
/// Module::to at the end, for modules that override it. Logs a warning if nothing is registered.
///
/// Small tensors travel together; those from and to the host go through pinned memory. Needs memory
/// for both copies until the end, and at most 32 MB more on each side.
///
/// With a dtype all that is floating point gets it. Integers, booleans and complex numbers keep
/// theirs, as in Python; C++'s Module::to(device, dtype) converts them too.
///
/// An optimizer's own state, such as momenta, stays where it is, and its next step would throw:
/// place(optimizer) moves it too (training.hpp).
///
/// Waits: for what it moves from or to the host.
///
/// Throws: ArgumentError for an empty holder, for a move to "meta", and for a dtype that is not
/// floating point; DeviceError if the device is not there.
///
/// Chapter: `net.to(device=try_gpu())`.
void place(ModuleRef net, c10::Device device, std::optional<at::ScalarType> dtype = {});

/// Where one parameter or buffer lives.
struct PlacedTensor {
  std::string name;                 ///< as in named_parameters(): "0.weight"
  bool is_buffer;                   ///< false for a parameter
  at::ScalarType dtype;             ///< at::kFloat
  std::vector<std::int64_t> shape;  ///< its sizes
  c10::Device device;               ///< where it lives
  std::uint64_t bytes;              ///< of its elements
};

/// Where the tensors of a network were when placement() was called.
class Placement {
 public:
  /// Made of these tensors by placement().
  explicit Placement(std::vector<PlacedTensor> tensors) : tensors_(std::move(tensors)) {}

  /// Parameters first, then buffers, each in the order of registration.
  [[nodiscard]] const std::vector<PlacedTensor>& tensors() const& noexcept { return tensors_; }
  /// By value, so that `for (const auto& x : placement(net).tensors())` is safe.
  [[nodiscard]] std::vector<PlacedTensor> tensors() && { return std::move(tensors_); }

  /// Each device that holds at least one tensor, in the order of first use; empty for an empty
  /// network.
  [[nodiscard]] std::vector<c10::Device> devices() const;

  /// The one device that holds them all.
  ///
  /// Throws: DeviceMismatch, which names the devices, if there are several; ArgumentError if
  /// nothing is registered.
  [[nodiscard]] c10::Device single_device() const;

 private:
  std::vector<PlacedTensor> tensors_;
};

/// Reads where each parameter and buffer is stored; copies nothing.
///
/// Chapter: `net[0].weight.data.device`.
[[nodiscard]] Placement placement(ConstModuleRef net);

/// A table with a row for each tensor: name, kind, dtype, shape, device, bytes.
std::ostream& operator<<(std::ostream& out, const Placement& placement);

}  // namespace use_gpu
