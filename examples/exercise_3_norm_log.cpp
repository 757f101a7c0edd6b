// Exercise 3: 1000 products of 100 x 100 matrices and the Frobenius norm of each: one norm at a time to
// the host, against a log that stays on the GPU.
// Look at: the item reads, because the host waits for each; and what one call for all products changes,
// which is possible where they do not depend on each other.

#include <torch/types.h>
#include <use_gpu/device.hpp>
#include <use_gpu/metric_log.hpp>
#include <use_gpu/transfers.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>

torch::Tensor one_at_a_time(const torch::Tensor& a, const torch::Tensor& b) {
  std::vector<double> norms;
  for (int i = 0; i < 1000; ++i) norms.push_back(a[i].mm(b[i]).norm().item<double>());
  return torch::tensor(norms);
}

torch::Tensor logged(const torch::Tensor& a, const torch::Tensor& b) {
  use_gpu::MetricLog log(a.device(), /*block_size=*/256);
  for (int i = 0; i < 1000; ++i) log.push(a[i].mm(b[i]).norm());
  return torch::tensor(log.values());
}

torch::Tensor in_one_call(const torch::Tensor& a, const torch::Tensor& b) {
  return a.bmm(b).flatten(1).norm(2, 1).cpu();
}

int main() {
  const c10::Device device = use_gpu::try_gpu();
  const bool is_timed = device.is_cpu() || std::getenv("SIMULATE_GPUS") == nullptr;
  const auto a = torch::rand({1000, 100, 100}, device), b = torch::rand({1000, 100, 100}, device);
  const auto m = a.to(torch::kDouble).bmm(b.to(torch::kDouble));
  const auto expected = m.bmm(m.mT()).diagonal(0, 1, 2).sum(1).sqrt().cpu();  // tr(M M^T)

  std::printf("1000 products of 100 x 100 on %s\n%-13s  copies  item reads  time\n",
              device.str().c_str(), "norms");
  for (const auto& [name, norms_of] : {std::pair("one at a time", &one_at_a_time),
                                       {"MetricLog", &logged},
                                       {"in one call", &in_one_call}}) {
    (void)norms_of(a, b);  // warms up
    use_gpu::synchronize(device);
    const use_gpu::TransferLedger ledger;
    const auto start = std::chrono::steady_clock::now();
    const torch::Tensor norms = norms_of(a, b);  // on the host: the device is done
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    TORCH_CHECK(norms.to(torch::kDouble).allclose(expected, 1e-4), "wrong norms ", name);
    std::printf("%-13s  %6ld  %10ld  %s\n", name,
                ledger.count(use_gpu::TransferDirection::device_to_host).copies,
                ledger.item_reads(),
                is_timed ? c10::str(time.count(), " ms").c_str() : "none: simulated");
  }
  std::puts("All norms are right: the square roots of tr(M M^T), in float64.");
}
