// Chapter cell "try_gpu(), try_gpu(10), try_all_gpus()": a GPU if it is there, else the CPU.
// Look at: the same lines run on every machine, and each says which device it got.

#include <use_gpu/device.hpp>

#include <iostream>

int main() {
  std::cout << "try_gpu()       " << use_gpu::try_gpu() << '\n'
            << "try_gpu(10)     " << use_gpu::try_gpu(10) << '\n'
            << "try_all_gpus() ";
  for (const c10::Device device : use_gpu::try_all_gpus()) {
    std::cout << ' ' << device;
  }
  std::cout << '\n';
}
