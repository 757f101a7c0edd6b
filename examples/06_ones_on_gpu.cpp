// Chapter cell "X = ones(2, 3) on try_gpu()": a tensor created on the first GPU.
// Look at: the last line of X, which names its device; and the device's memory. X takes 512 bytes, the
// smallest piece that LibTorch allocates. LibTorch takes 2 MiB from the driver.

#include <torch/types.h>
#include <use_gpu/device.hpp>
#include <use_gpu/memory.hpp>
#include <use_gpu/tensor.hpp>

#include <iostream>

int main() {
  const c10::Device device = use_gpu::try_gpu();
  const auto before = use_gpu::memory_report(device);
  const torch::Tensor X = torch::ones({2, 3}, device);
  const auto after = use_gpu::memory_report(device);
  std::cout << "X =\n" << use_gpu::show(X) << '\n';
  std::cout << "Memory before and after:\n" << std::vector{before, after};
}
