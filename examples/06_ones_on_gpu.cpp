// Chapter cell "X = ones(2, 3) on try_gpu()": a tensor created on the first GPU.
// Look at: the last line of X, which names its device, and the device's memory use.

#include <torch/types.h>
#include <use_gpu/device.hpp>
#include <use_gpu/tensor.hpp>

#include <iostream>

namespace {

// The limit matters: what does not fit does not run, and what was not freed is not available.
void print_memory(const char* when, c10::Device device) {
  std::cout << "Memory of " << device << ' ' << when << ": ";
  if (const auto memory = use_gpu::device_memory(device)) {
    std::cout << memory->total_bytes - memory->free_bytes << " of " << memory->total_bytes
              << " bytes used\n";
  } else {
    std::cout << "not reported\n";
  }
}

}  // namespace

int main() {
  const c10::Device device = use_gpu::try_gpu();
  print_memory("before", device);
  const torch::Tensor X = torch::ones({2, 3}, device);
  std::cout << "X =\n" << use_gpu::show(X) << '\n';
  print_memory("after", device);
}
