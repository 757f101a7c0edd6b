// Exercise 3: 1000 products of 100 x 100 matrices, logging the Frobenius norm of each: one result
// at a time, against a log that stays on the GPU.
// Look at: the item reads, because the host waits for each; and the speed-up that is possible where
// products do not depend on each other.

#include <torch/types.h>
#include <use_gpu/device.hpp>
#include <use_gpu/metric_log.hpp>
#include <use_gpu/tensor.hpp>
#include <use_gpu/transfers.hpp>

#include <algorithm>
#include <cstdio>

#include "timing/timing.hpp"

int main() {
  const c10::Device device = use_gpu::try_gpu();
  torch::manual_seed(1);
  const auto host_a = torch::randn({1000, 100, 100}) / 10, host_b = torch::randn({1000, 100, 100});
  const auto a = use_gpu::to_device(host_a, device), b = use_gpu::to_device(host_b, device);
  const auto norm = [&](int i) { return torch::mm(a[i], b[i]).norm(); };
  const auto one_at_a_time = [&] {
    std::vector<double> norms;
    for (int i = 0; i < 1000; ++i) norms.push_back(norm(i).item<double>());
    return std::vector{torch::tensor(norms)};
  };
  const auto logged = [&] {
    use_gpu::MetricLog log(device, /*block_size=*/256);
    for (int i = 0; i < 1000; ++i) log.push(norm(i));
    return std::vector{torch::tensor(log.values())};
  };
  const auto by_hand = [&] {
    const auto norms = torch::empty({1000}, device);
    for (int i = 0; i < 1000; ++i) norms[i].copy_(norm(i));
    return std::vector{norms.cpu()};
  };
  const auto batched = [&] { return std::vector{torch::bmm(a, b).flatten(1).norm(2, 1).cpu()}; };

  // In float64, and once more as the Java edition does: the square root of the trace of M M^T.
  const auto products = torch::bmm(host_a.to(torch::kDouble), host_b.to(torch::kDouble));
  const auto expected = products.flatten(1).norm(2, 1);
  const auto traces = torch::bmm(products, products.mT()).diagonal(0, 1, 2).sum(1);
  TORCH_CHECK(expected.allclose(traces.sqrt(), 1e-12), "the two forms of the norm disagree");
  const auto are_right = [&](const std::vector<torch::Tensor>& results) {
    return results.front().to(torch::kDouble).allclose(expected, 1e-5);
  };
  const double least = 1000 * 2e6 / 3e14;  // seconds, on any hardware
  const std::vector<Contender> contenders = {
      {"one result at a time", {device}, one_at_a_time, are_right, least},
      {"MetricLog", {device}, logged, are_right, least},
      {"select and copy_ by hand", {device}, by_hand, are_right, least},
      {"batched", {device}, batched, are_right, least}};
  std::printf("1000 products of 100 x 100, float32, on %s. %s.\n\n", label(device).c_str(),
              machine().c_str());
  const auto figures = measure(contenders, 3.0);

  std::puts(
      "norms                       time, median (least to most)  speed-up  copies  item reads");
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const use_gpu::TransferLedger ledger;
    (void)run(contenders[i]);
    const auto copies = ledger.count(use_gpu::TransferDirection::device_to_host).copies;
    std::printf("%-26s  %-28s  %8s  %6lld  %10lld\n", contenders[i].name.c_str(),
                text_of(figures[i]).c_str(), speed_up(figures[0], figures[i]).c_str(),
                static_cast<long long>(copies), static_cast<long long>(ledger.item_reads()));
  }
  if (!std::ranges::all_of(figures, &Figure::is_right)) return 1;
  std::puts("\nAll norms agree with those in float64, and with the square root of tr(M M^T).");
  std::puts("A log pays where the host would wait for the device. On the CPU it does not wait.");
}
