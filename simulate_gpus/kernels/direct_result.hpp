// SPDX-License-Identifier: MIT
//
// The shortest way of an operation that gives a new tensor: past boxes for its arguments, and past what only tools, graphs and
// several streams need.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <optional>

#include "kernels/inside_kernel.hpp"
#include "kernels/operation.hpp"
#include "runtime/interface.hpp"
#include "runtime/settings.hpp"

namespace simulate_gpus {

/// LibTorch has none since 2.15.
bool has_names(const auto& x) {
  if constexpr (requires { x.has_names(); }) return x.has_names();
  return false;
}

/// On the current GPU, in the order of its indices.
inline at::Tensor empty_on_gpu(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::Tensor(at::detail::empty_generic(sizes, c10::cuda::CUDACachingAllocator::get(),
                                              c10::DispatchKeySet(c10::DispatchKey::CUDA), dtype,
                                              std::nullopt));
}

/// The operation's result, which `make` returns. None, and nothing is done, where somebody looks into the operation, or what it
/// writes is recorded for a graph or hidden from other streams: compute() does such. Throws LibTorch's errors.
std::optional<at::Tensor> direct_result(const Operation& operation, c10::Device device,
                                        const auto& make) {
  const OnDevice on_device(device);
  cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device.index()).stream();
  const bool is_watched = has_tools();
  if (rehearses() || postpones() || is_captured(stream) ||
      (is_watched && (wants_parts() || settings().check)))
    return std::nullopt;
  const cudaError_t refused = begin_operation(stream);
  if (refused != cudaSuccess) C10_CUDA_CHECK(refused);  // slow, also on success
  const InsideKernel inside;
  at::Tensor made = make();
  if (is_watched) tell_operation(stream, operation.schema().name());
  return made;
}

}  // namespace simulate_gpus
