// SPDX-License-Identifier: MIT
//
// The device for tensors that name none: TensorFlow's `with tf.device(...)`, which LibTorch
// has in Python (torch.set_default_device) and not in C++. A network made in it has its parameters
// on the GPU from the start, with no copy:
//
//   use_gpu::DefaultDeviceGuard scope(use_gpu::try_gpu(1));
//   torch::Tensor Y = torch::rand({2, 3});              // there
//   torch::nn::Linear net(3, 1);                        // weight and bias too
//
// It holds for this thread, the backward passes that it starts, and threads that take over its
// at::ThreadLocalState; scopes nest. It reaches every factory of LibTorch that takes a device and
// no tensor (ones, rand, arange, empty ...). A device named in the call wins, and so does pinned
// memory, which is the CPU's. Not reached, because they name the CPU themselves or hand over memory
// that lies there: torch::tensor({...}) with several values, torch::from_blob and torch::from_file.
//
// LibTorch's own code in the scope is reached too. Keep it around the making of tensors and
// networks: a data loader used inside would draw its indices on the GPU and read them as if they
// were the host's.
#pragma once

#include <c10/core/Device.h>
#include <use_gpu/export.hpp>

#include <memory>

namespace use_gpu::detail {
class DispatchScope;
}

namespace USE_GPU_EXPORT use_gpu {

/// Until it ends, tensors that name no device are created on its device.
class DefaultDeviceGuard {
 public:
  /// DeviceError if the device is not there.
  [[nodiscard]] explicit DefaultDeviceGuard(c10::Device device);
  ~DefaultDeviceGuard();
  DefaultDeviceGuard(const DefaultDeviceGuard&) = delete;
  DefaultDeviceGuard& operator=(const DefaultDeviceGuard&) = delete;

 private:
  std::unique_ptr<detail::DispatchScope> scope_;
};

}  // namespace use_gpu
