// Chapter cell "Y + Z": operands on one device can be added.
// Look at: the sum is on that device too; and the two errors of X + Y, on different devices: LibTorch's,
// and the library's, which has both tensors and the call that helps.

#include <torch/types.h>
#include <use_gpu/device.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/tensor.hpp>

#include <iostream>

int main() {
  torch::manual_seed(0);
  const c10::Device first = use_gpu::try_gpu();
  const c10::Device second = use_gpu::try_gpu(1);
  const torch::Tensor X = torch::ones({2, 3}, first);
  const torch::Tensor Y = torch::rand({2, 3}, second);
  const torch::Tensor Z = use_gpu::to_device(X, second);
  std::cout << "Y + Z =\n" << use_gpu::show(use_gpu::checked_add(Y, Z)) << '\n';

  try {
    const torch::Tensor sum = X + Y;
    std::cout << "X + Y is on " << sum.device() << '\n';
  } catch (const c10::Error& error) {
    std::cout << "X + Y: " << error.what_without_backtrace() << '\n';
  }
  try {
    const torch::Tensor sum = use_gpu::checked_add(X, Y);
    std::cout << "checked_add(X, Y) is on " << sum.device() << '\n';
  } catch (const use_gpu::DeviceMismatch& error) {
    std::cout << error.what() << '\n';
  }
}
