#include <torch/torch.h>
#include <iostream>
#include <use_gpu/device.hpp>
#include <use_gpu/tensor.hpp>
#include <use_gpu/transfers.hpp>

int main() {
  const use_gpu::TransferLedger ledger({.call_sites = true});
  const torch::Tensor X = torch::ones({2, 3}, use_gpu::try_gpu());  // the CPU if there is no GPU
  const torch::Tensor Y = torch::ones({2, 3});
  while (X.norm().item<double>() < 100) X.mul_(1.1);  // each item() waits for the device
  try {
    std::cout << use_gpu::show(X + Y) << '\n';
  } catch (const c10::Error& error) {
    std::cout << "LibTorch: " << error.what_without_backtrace() << '\n';
  }
  try {
    std::cout << use_gpu::show(use_gpu::checked_add(X, Y)) << '\n';
  } catch (const use_gpu::DeviceMismatch& error) {
    std::cout << "use_gpu: " << error.what() << '\n';
  }
  std::cout << ledger;
}
