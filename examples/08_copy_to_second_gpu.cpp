// Chapter cell "Z = X.cuda(1)": before X and Y can be added, X must be copied to Y's GPU.
// Look at: the two devices. X stays where it was; Z has the same values on the second GPU, or on the
// CPU, if there is none.

#include <torch/types.h>
#include <use_gpu/device.hpp>
#include <use_gpu/tensor.hpp>

#include <iostream>

int main() {
  const c10::Device second = use_gpu::try_gpu(1);
  if (use_gpu::num_gpus() < 2) std::cout << "There is no second GPU: " << second << " instead.\n";
  const torch::Tensor X = torch::ones({2, 3}, use_gpu::try_gpu());
  const torch::Tensor Z = use_gpu::copy_to(X, second);
  std::cout << "X =\n" << use_gpu::show(X) << "\nZ =\n" << use_gpu::show(Z) << '\n';
}
