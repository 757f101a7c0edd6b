// Chapter "Asynchronous Computation": on a GPU the host only queues work, and goes on before it is done.
// What needs a value waits for all that was queued before it.
// Look at: what waits and what does not; on a real GPU how far the host runs ahead. A simulated one computes what
// is queued at once; there count the waits, "stream synchronizations", or see them by --trace:
//   build/release/simulate_gpus/bin/simulate_gpus --summary 1 build/release/examples/async_computation

#include <ATen/DeviceAccelerator.h>
#include <c10/core/Event.h>
#include <torch/types.h>
#include <use_gpu/device.hpp>
#include <use_gpu/tensor.hpp>
#include <use_gpu/transfers.hpp>

#include <deque>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "timing/timing.hpp"

using Steps = std::deque<c10::Event>;

// Marks what has been queued so far.
c10::Event& mark(Steps& steps, c10::Device device) {
  auto& event = steps.emplace_back(device.type());
  event.record(at::accelerator::getCurrentStream(device.index()));
  return event;
}

// What an action reads from the GPU; and whether the host waits in it for ten products queued before.
void tell(const std::string& name, const torch::Tensor& a, const std::function<void()>& action) {
  Steps steps;
  for (int i = 0; i < 10; ++i) (void)torch::mm(a, a);
  const auto& products = mark(steps, a.device());
  const use_gpu::TransferLedger ledger;
  action();
  const char* const answer = is_simulated(a.device()) ? ""
                             : products.query()       ? "  waits"
                                                      : "  goes on";
  const auto copies = ledger.count(use_gpu::TransferDirection::device_to_host).copies;
  std::cout << "  " << name << std::setw(14) << copies << std::setw(11) << ledger.item_reads()
            << answer << '\n';
  at::accelerator::synchronizeDevice(a.device().index());
}

// How many steps are queued at most, if the host waits for the one that is `limit` steps behind.
std::size_t most_queued(const torch::Tensor& a, std::size_t limit) {
  Steps steps;
  std::size_t most = 0;
  for (int i = 0; i < 100; ++i) {
    (void)torch::mm(a, a);
    mark(steps, a.device());
    if (steps.size() > limit) steps.front().synchronize();
    while (!steps.empty() && steps.front().query()) steps.pop_front();
    most = std::max(most, steps.size());
  }
  return most;
}

int main() {
  const c10::Device device = use_gpu::try_gpu();
  const auto x = torch::ones({1, 2}, device), y = torch::ones({1, 2}, device);
  const torch::Tensor z = x * y + 2;
  std::cout << use_gpu::show(z) << '\n';  // printing needs the values: it waits

  const bool is_real = !device.is_cpu() && !is_simulated(device);
  const auto a = torch::rand({is_real ? 4000 : 100, is_real ? 4000 : 100}, device);
  if (device.is_cpu()) {
    std::cout << "On the CPU each call returns when its work is done: nothing is queued.\n";
  } else {
    const auto wait = [&] { at::accelerator::synchronizeDevice(device.index()); };
    std::cout << "  the host           copies to it  item reads\n";
    tell("z + 1            ", a, [&] { (void)(z + 1); });
    tell("z.sum().item()   ", a, [&] { (void)z.sum().item<float>(); });
    tell("z.cpu()          ", a, [&] { (void)z.cpu(); });
    tell("printing z       ", a, [&] { std::ostringstream() << use_gpu::show(z); });
    tell("synchronizeDevice", a, wait);
  }
  if (is_real) {
    std::cout << "Of 100 products so many were queued at once: " << most_queued(a, 100)
              << "; where the host waits for the last but one: " << most_queued(a, 2) << '\n';
  }

  const auto add = [&](bool waits) {
    torch::Tensor sum = x;
    for (int i = 0; i < 1000; ++i) {
      sum = sum + 1;
      if (waits && !device.is_cpu()) at::accelerator::synchronizeDevice(device.index());
    }
    return std::vector{sum};
  };
  const auto is_right = [](const auto& sums) { return sums[0].sum().template item<int>() == 2002; };
  const std::vector<Contender> ways = {
      {"a wait after each", {device}, [&] { return add(true); }, is_right},
      {"one after all", {device}, [&] { return add(false); }, is_right}};
  const auto figures = measure(ways, 0.5);
  std::cout << "1000 additions on " << label(device) << ". " << machine() << ".\n";
  std::cout << "  a wait after each  " << text_of(figures[0]) << "\n  one after all      "
            << text_of(figures[1]) << '\n';
  if (is_real) std::cout << "Speed-up: " << speed_up(figures[0], figures[1]) << '\n';
  return figures[0].is_right && figures[1].is_right ? 0 : 1;
}
