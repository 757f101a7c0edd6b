// Exercise 3: 1000 products of 100 x 100 matrices, logging the Frobenius norm of each: one result
// at a time, against a log that stays on the GPU.
// Look at: the item reads, for each of which the host waits; and the possible speed-up, since the
// products are independent.

#include <use_gpu/device.hpp>
#include <use_gpu/transfers.hpp>

#include <cstdio>

#include "measuring/norm_log.hpp"

int main() {
  const c10::Device device = use_gpu::try_gpu();
  std::printf("1000 products of 100 x 100, float32, on %s. %s.\n\n", label(device).c_str(),
              machine().c_str());
  const auto contenders = norm_log_contenders(device);
  const auto figures = measure(contenders, 5.0);

  std::printf("%-26s  %-28s  %8s  %6s  %10s\n", "norms", "time, median (least to most)", "speed-up",
              "copies", "item reads");
  bool all_right = true;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const use_gpu::TransferLedger ledger;
    static_cast<void>(run(contenders[i]));
    const auto copies = ledger.count(use_gpu::TransferDirection::device_to_host).copies;
    std::printf("%-26s  %-28s  %8s  %6lld  %10lld\n", contenders[i].name.c_str(),
                text_of(figures[i]).c_str(), speed_up(figures[0], figures[i]).c_str(),
                static_cast<long long>(copies), static_cast<long long>(ledger.item_reads()));
    all_right = all_right && figures[i].is_right;
  }
  if (!all_right) return 1;
  std::puts(
      "\nAll norms agree with those in float64, and with the square root of tr(M M^T). A log pays "
      "where"
      "\nthe host would wait for the device: on the CPU there is nothing to wait for.");
}
