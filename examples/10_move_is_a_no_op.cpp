// Chapter cell "Z.cuda(1) is Z": moving a tensor to where it is costs nothing.
// Look at: to_device gives Z itself; copy_to always allocates new memory.

#include <torch/types.h>
#include <use_gpu/device.hpp>
#include <use_gpu/tensor.hpp>

#include <iostream>

int main() {
  const c10::Device second = use_gpu::try_gpu(1);
  if (use_gpu::num_gpus() < 2) std::cout << "There is no second GPU: " << second << " instead.\n";
  const torch::Tensor Z = torch::ones({2, 3}, second);
  const torch::Tensor moved = use_gpu::to_device(Z, second);
  const torch::Tensor copied = use_gpu::copy_to(Z, second);

  std::cout << std::boolalpha;
  std::cout << "Z is " << use_gpu::describe(Z) << '\n'
            << "to_device(Z, " << second << ") is Z itself: " << moved.is_same(Z) << '\n'
            << "copy_to(Z, " << second << ") is Z itself: " << copied.is_same(Z) << '\n'
            << "and equal to it: " << copied.equal(Z) << '\n';
}
