// Chapter cell "x = [1, 2, 3]; x.device": where a tensor lives.
// Look at: tensors are created on the CPU unless a device is named.

#include <torch/types.h>
#include <use_gpu/tensor.hpp>

#include <iostream>

int main() {
  const torch::Tensor x = torch::tensor({1, 2, 3});
  std::cout << "x.device()   " << x.device() << '\n'
            << "describe(x)  " << use_gpu::describe(x) << '\n';
}
