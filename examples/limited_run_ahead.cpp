// Chapter "Asynchronous Computation": a wait after each step keeps the GPU idle meanwhile. A loop that never
// waits queues all its steps at once, and an error shows long after its cause. So let each step wait for the
// one before the last.
// Look at: how many steps are queued at most. A simulated GPU is done with each when the host looks at it;
// there see the waits by --trace:
//   build/release/simulate_gpus/bin/simulate_gpus --trace 1 build/release/examples/limited_run_ahead

#include <ATen/DeviceAccelerator.h>
#include <c10/core/Event.h>
#include <torch/types.h>
#include <use_gpu/device.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <iostream>

// Adds 1 to x a hundred times; no more than `limit` steps are queued at a time. Returns how many were.
std::size_t most_queued(const torch::Tensor& x, std::size_t limit) {
  const auto stream = at::accelerator::getCurrentStream(x.device().index());
  std::deque<c10::Event> steps;  // those that may not be done
  std::size_t most = 0;
  for (int step = 0; step < 100; ++step) {
    x.add_(1);
    steps.emplace_back(x.device().type());
    steps.back().record(stream);
    while (!steps.empty() && steps.front().query()) steps.pop_front();
    most = std::max(most, steps.size());
    if (steps.size() < limit) continue;
    steps.front().synchronize();  // waits for that step alone, not for those after it
    steps.pop_front();
  }
  return most;
}

int main() {
  const c10::Device device = use_gpu::try_gpu();
  if (device.is_cpu()) {
    std::cout << "On the CPU each step is done before the next one begins: nothing is queued.\n";
    return 0;
  }
  std::cout << "100 additions of 3000 x 3000 on " << device << ":\n";
  for (const std::size_t limit : {1U, 2U, 100U}) {
    const auto x = torch::zeros({3000, 3000}, device);
    (void)most_queued(x, limit);  // warm-up
    use_gpu::synchronize(device);
    const auto start = std::chrono::steady_clock::now();
    const std::size_t most = most_queued(x, limit);
    use_gpu::synchronize(device);
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    TORCH_CHECK(x.eq(200).all().item<bool>(), "a step was lost");
    std::cout << "  limit " << limit << ": at most " << most << " were queued";
    if (std::getenv("SIMULATE_GPUS") == nullptr) std::cout << ", " << time.count() << " ms";
    std::cout << '\n';
  }
}
