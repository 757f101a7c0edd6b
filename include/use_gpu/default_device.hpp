// SPDX-License-Identifier: MIT
//
// The default device of new tensors, like TensorFlow's `with tf.device(...)`. LibTorch has it only
// in Python (torch.set_default_device). A network created in the scope has its parameters on the
// GPU from the start, without a copy:
//
//   use_gpu::DefaultDeviceGuard scope(use_gpu::try_gpu(1));
//   torch::Tensor Y = torch::rand({2, 3});              // there
//   torch::nn::Linear net(3, 1);                        // weight and bias too
//
// Threads: it applies to this thread, to backward passes started by it, and to threads that use its
// at::ThreadLocalState; scopes nest, and end as those of transfers.hpp. It affects every LibTorch
// factory that takes a device and no tensor (ones, rand, arange, empty ...), where the program calls
// it, not where an operator does (repeat makes indices on the host). A device given in the call takes
// precedence; pinned memory stays on the CPU. Not affected, because they name the CPU or use host
// memory: torch::tensor({...}) with several values, torch::from_blob, from_file; and at::tensor(...),
// whose values are written by the host.
//
// LibTorch's own code outside of operators is affected too: the modules, which make parameters there,
// but also a data loader, which would make its indices on the GPU and read them as host memory.
// In the scope an operation takes some hundred instructions more.
#pragma once

#include <c10/core/Device.h>
#include <use_gpu/errors.hpp>

#include <memory>

namespace use_gpu::detail {
class DispatchScope;
}

namespace USE_GPU_EXPORT use_gpu {

/// While it lives, tensors without a device are created on its device.
///
/// Chapter: `with try_gpu(1):` of the TensorFlow edition.
class DefaultDeviceGuard {
 public:
  /// Begins the scope.
  ///
  /// Throws: DeviceError if the device is not there.
  [[nodiscard]] explicit DefaultDeviceGuard(c10::Device device);
  ~DefaultDeviceGuard();

 private:
  std::unique_ptr<detail::DispatchScope> scope_;
};

}  // namespace use_gpu
