// Exercise 4: two products of matrices at the same time on two GPUs, against one after the other on
// one GPU.
// Look at: one thread keeps two GPUs busy with large products, which it only starts. With tiny ones
// the GPUs wait for it, unless each GPU has a thread.

#include <use_gpu/device.hpp>
#include <use_gpu/parallel.hpp>

#include <cstdio>

#include "measuring/contender.hpp"
#include "measuring/matmul.hpp"

namespace {

// Two devices compute the product of two n by n matrices `times` times each.
bool compare(int n, int times, c10::Device first, c10::Device second) {
  const Matmul a(n, first, k_float32), b(n, first, k_float32), c(n, second, k_float32);
  using Products = std::vector<at::Tensor>;
  const auto in_sequence = [&] { return Products{a.product(times), b.product(times)}; };
  const auto from_one_thread = [&] { return Products{a.product(times), c.product(times)}; };
  const auto from_two_threads = [&] {
    Products products(2);
    use_gpu::parallel_on({first, second}, [&](c10::Device, int i) {
      products.at(static_cast<std::size_t>(i)) = (i == 0 ? a : c).product(times);
    });
    return products;
  };
  const double least = times * a.least_seconds();
  const std::vector<Contender> contenders = {
      {"in sequence on one device", {first}, in_sequence, check_of({a, b}), 2 * least},
      {"on two from one thread", {first, second}, from_one_thread, check_of({a, c}), least},
      {"on two, a thread for each", {first, second}, from_two_threads, check_of({a, c}), least}};
  const auto figures = measure(contenders, 1.0);

  std::printf("\n2 x %d products of %d x %d, speed-up and time of all:\n", times, n, n);
  bool all_right = true;
  for (std::size_t i = 0; i < figures.size(); ++i) {
    std::printf("  %-26s  %6s  %s\n", contenders[i].name.c_str(),
                speed_up(figures[0], figures[i]).c_str(), text_of(figures[i]).c_str());
    all_right = all_right && figures[i].is_right;
  }
  return all_right;
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
