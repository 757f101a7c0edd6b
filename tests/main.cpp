// SPDX-License-Identifier: MIT
//
// main() of every test program. With --real-gpus it runs on the machine's own GPUs and, where there
// are none, says so and exits with the status that CTest shows as "Skipped".
#include <gtest/gtest.h>
#include <use_gpu/device.hpp>

#include <iostream>
#include <string_view>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  constexpr int k_skipped = 77;
  const bool real_gpus = argc > 1 && std::string_view(argv[1]) == "--real-gpus";
  if (real_gpus && use_gpu::num_gpus() == 0) {
    std::cout << "SKIPPED: needs a real GPU, found 0\n";
    return k_skipped;
  }
  std::cout << "GPUs: " << use_gpu::num_gpus() << '\n';
  return RUN_ALL_TESTS();
}
