// SPDX-License-Identifier: MIT
//
// Moving, adding and printing tensors on several devices. LibTorch prints no GPU index, and its
// error for operands on different devices names neither operand, shape nor remedy; these do:
//
//   at::Tensor Z = use_gpu::to_device(X, use_gpu::try_gpu(1));  // X itself if it is there already
//   std::cout << use_gpu::show(use_gpu::checked_add(Y, Z));  // values, "float32[2, 3] on cuda:1"
//   use_gpu::check_same_device("attention", {{"query", q}, {"key", k}});
//
// Threads: several may call these at once, on the same tensors too.
#pragma once

#include <ATen/core/Tensor.h>
#include <use_gpu/errors.hpp>

#include <iosfwd>
#include <string_view>

namespace USE_GPU_EXPORT use_gpu {

/// x on that device: x itself (same TensorImpl, no copy) if it is there already, also for "cpu:0",
/// where LibTorch's x.to() copies. Otherwise one copy, which autograd records.
///
/// Waits: for a copy from or to the CPU, not for one between two GPUs.
///
/// Throws: ArgumentError if x is undefined, DeviceError if the device is not there.
///
/// Chapter: `Z.cuda(1) is Z`, `Z.as_in_ctx(try_gpu(1))`.
[[nodiscard]] at::Tensor to_device(const at::Tensor& x, c10::Device device);

/// A copy of x in new memory on that device, even if x is there already. Otherwise as to_device.
///
/// Chapter: `Z = X.cuda(1)`, `X.copyto(try_gpu(1))`.
[[nodiscard]] at::Tensor copy_to(const at::Tensor& x, c10::Device device);

/// x + y, as LibTorch's x.add(y) with broadcasting and type promotion. A CPU tensor of zero
/// dimensions fits any device, as in LibTorch. Copies and synchronizes nothing. Not named "add":
/// argument-dependent look-up would find at::add beside it.
///
/// Throws: before anything is computed: DeviceMismatch if x and y are on different devices,
/// ArgumentError if one is undefined.
///
/// Chapter: `Y + Z`.
[[nodiscard]] at::Tensor checked_add(const at::Tensor& x, const at::Tensor& y);

/// An operand and its name in error messages.
struct Operand {
  std::string_view name;  ///< "query"
  at::Tensor tensor;      ///< the operand itself
};

/// The check of checked_add, for any operation.
///
/// Throws: DeviceMismatch, which names the operation, the first two operands that disagree, their
/// shapes and devices, and the call that fixes it; ArgumentError if an operand is undefined.
void check_same_device(std::string_view operation, c10::ArrayRef<Operand> operands);

/// What x is and where it is stored: "float32[2, 3] on cuda:1", with the layout where it is not
/// strided. "undefined tensor" for an undefined one. Safe in messages, as no tensor makes it throw.
[[nodiscard]] std::string describe(const at::Tensor& x);

/// A tensor to be streamed by operator<<; holds a reference to the same memory.
struct Shown {
  at::Tensor tensor;  ///< as passed to show(), not copied
};

/// For `std::cout << show(x)`: x's values as LibTorch prints them, then describe(x) in the last
/// line. Printing copies the values of a GPU tensor to the CPU, once.
///
/// Waits: when it prints, for the values.
[[nodiscard]] Shown show(const at::Tensor& x);
/// Prints it; see show().
std::ostream& operator<<(std::ostream& out, const Shown& shown);

}  // namespace use_gpu
