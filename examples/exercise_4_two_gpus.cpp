// Exercise 4: two products of matrices at the same time on two GPUs, against one after the other on
// one GPU.
// Look at: one thread keeps two GPUs busy with large products, which it only starts. With tiny ones
// the GPUs wait for it, unless each GPU has a thread.

#include <use_gpu/device.hpp>
#include <use_gpu/parallel.hpp>

#include <algorithm>
#include <cstdio>

#include "timing/products.hpp"
#include "timing/timing.hpp"

namespace {

// Two devices compute the product of two n by n matrices `times` times each.
bool compare(int n, int times, c10::Device first, c10::Device second) {
  const auto x = random_factors(n, first, k_float32), y = random_factors(n, first, k_float32),
             z = random_factors(n, second, k_float32);
  const auto multiply = [times](const Factors& factors) {
    at::Tensor product;
    for (int i = 0; i < times; ++i) product = factors.a.mm(factors.b);
    return product;
  };
  const auto in_sequence = [&] { return std::vector{multiply(x), multiply(y)}; };
  const auto from_one_thread = [&] { return std::vector{multiply(x), multiply(z)}; };
  const auto from_two_threads = [&] {
    std::vector<at::Tensor> products(2);
    use_gpu::parallel_on({first, second}, [&](c10::Device, int i) {
      products.at(static_cast<std::size_t>(i)) = multiply(i == 0 ? x : z);
    });
    return products;
  };
  const double least = times * least_seconds(x);
  const std::vector<Contender> contenders = {
      {"in sequence on one device", {first}, in_sequence, check_of({x, y}), 2 * least},
      {"on two from one thread", {first, second}, from_one_thread, check_of({x, z}), least},
      {"on two, a thread for each", {first, second}, from_two_threads, check_of({x, z}), least}};
  const auto figures = measure(contenders, 1.0);

  std::printf("\n2 x %d products of %d x %d, speed-up and time of all:\n", times, n, n);
  for (std::size_t i = 0; i < figures.size(); ++i) {
    std::printf("  %-26s  %6s  %s\n", contenders[i].name.c_str(),
                speed_up(figures[0], figures[i]).c_str(), text_of(figures[i]).c_str());
  }
  return std::ranges::all_of(figures, &Figure::is_right);
}

}  // namespace

int main() {
  const auto devices = use_gpu::try_all_gpus();
  const auto first = devices.front(), second = devices.at(devices.size() > 1 ? 1 : 0);
  std::printf("Products of matrices, float32, on %s and %s. %s.\n", label(first).c_str(),
              label(second).c_str(), machine().c_str());
  if (first == second) {
    std::printf("Fewer than two GPUs here: %s stands for both, and what runs at once shares it.\n",
                first.str().c_str());
  }
  const bool large = compare(first.is_cpu() || is_simulated(first) ? 1024 : 8192, 1, first, second);
  const bool tiny = compare(16, 5000, first, second);
  std::puts("\nA GPU multiplies tiny matrices in less time than a launch takes: with them one");
  std::puts(
      "thread keeps no more than one GPU busy. parallel_on gives each GPU a thread of its own.");
  return large && tiny ? 0 : 1;
}
