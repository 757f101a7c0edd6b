// SPDX-License-Identifier: MIT
//
// What the smallest operations take, on 2x3 tensors on the CPU: the same as small_operations.py,
// which scripts/bench runs in turn with it. Prints the name of each and the median of its
// nanoseconds.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int k_batch = 10'000;

template <class Work>
void time(const char* name, const Work& work) {
  std::array<double, 21> batches;
  work();
  for (double& nanoseconds : batches) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < k_batch; ++i) work();
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    nanoseconds = time.count() / k_batch;
  }
  std::ranges::nth_element(batches, batches.begin() + batches.size() / 2);
  std::printf("%s %.1f\n", name, batches[batches.size() / 2]);
}

}  // namespace

int main() {
  const at::Tensor x = at::arange(6, at::kFloat).reshape({2, 3}), y = at::full({2, 3}, 2.0F);
  at::Tensor z;
  float number = 0;
  time("add", [&] { z = x + y; });
  const bool is_sum = z.equal(at::arange(2, 8, at::kFloat).reshape({2, 3}));
  time("mul", [&] { z = x * y; });
  const bool is_product = z.equal(at::arange(0, 12, 2, at::kFloat).reshape({2, 3}));
  time("index+item", [&] { number = x[1][2].item<float>(); });
  if (is_sum && is_product && number == 5) return EXIT_SUCCESS;
  std::fputs("small_operations: WRONG RESULT\n", stderr);
  return EXIT_FAILURE;
}
