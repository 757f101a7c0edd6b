// Chapter cell "num_gpus()": how many GPUs this program can use.
// Look at: without a GPU the count is 0, not an error; and the explanation of it.

#include <use_gpu/device.hpp>
#include <use_gpu/diagnosis.hpp>

#include <iostream>

int main() {
  const int count = use_gpu::num_gpus();
  std::cout << "num_gpus()  " << count << '\n';
  for (int i = 0; i < count; ++i) {
    std::cout << "  " << use_gpu::gpu(i) << '\n';
  }
  std::cout << use_gpu::explain_gpus() << '\n';
}
