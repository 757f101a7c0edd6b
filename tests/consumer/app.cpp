// SPDX-License-Identifier: MIT
// Says where it runs, if an error of the library's reaches it there: the project's own names are hidden.
#include <ATen/ops/ones.h>
#include <use_gpu/device.hpp>
#include <use_gpu/tensor.hpp>

#include <cstdio>

int main() {
  const c10::Device device = use_gpu::try_gpu();
  bool is_caught = false;
  try {
    static_cast<void>(use_gpu::checked_add(at::ones({2}, device), at::ones({2})));
  } catch (const use_gpu::DeviceMismatch&) {
    is_caught = true;
  }
  if (is_caught == device.is_cuda()) std::printf("on %s\n", device.str().c_str());
}
