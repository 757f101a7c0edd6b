// Chapter "Automatic Parallelism": devices compute at the same time, because the host only queues their work;
// and results travel to the host while the next are computed, in a stream of their own, into pinned memory.
// Look at: on GPUs "at once" takes no longer than the slowest of them. See by --trace that the copies wait for one
// product each, and the products for no copy:
//   build/release/simulate_gpus/bin/simulate_gpus --trace 2 build/release/examples/auto_parallelism

#include <ATen/DeviceAccelerator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <use_gpu/device.hpp>

#include <algorithm>
#include <cstdio>

#include "timing/products.hpp"
#include "timing/timing.hpp"

using Tensors = std::vector<at::Tensor>;

// Ten products on the factors' device.
Tensors run(const Factors& x) {
  Tensors products;
  for (int i = 0; i < 10; ++i) products.push_back(x.a.mm(x.b));
  return products;
}

Tensors copy_to_cpu(const Tensors& products) {
  Tensors copies;
  for (const auto& y : products) copies.push_back(y.cpu());  // each waits
  return copies;
}

// The same, but each result leaves while the next is computed. The caller must wait for the device.
Tensors run_and_copy(const Factors& x) {
  const auto device = x.a.device();
  if (device.is_cpu()) return run(x);  // nothing travels
  const auto computing = at::accelerator::getCurrentStream(device.index());
  const auto copying = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  Tensors copies;
  for (int i = 0; i < 10; ++i) {
    const auto y = x.a.mm(x.b);
    c10::Event is_computed(device.type());
    is_computed.record(computing);
    is_computed.block(copying);
    const c10::StreamGuard in_stream(copying);
    copies.push_back(y.to(at::kCPU, /*non_blocking=*/true));  // into pinned memory
    y.record_stream(copying);                                 // until then its memory is not reused
  }
  return copies;
}

int main() {
  auto devices = use_gpu::try_all_gpus();
  if (!devices.front().is_cpu())
    devices.push_back(use_gpu::cpu());  // last: there the host computes
  const auto gpu = devices.front();
  const std::int64_t n = gpu.is_cpu() || is_simulated(gpu) ? 512 : 4000;
  std::vector<Factors> all, each;  // ten times each
  std::vector<Contender> ways;
  for (const auto device : devices) {
    const auto& x = all.emplace_back(random_factors(n, device, k_float32));
    const std::vector ten(10, x);
    each.insert(each.end(), ten.begin(), ten.end());
    ways.push_back({"on " + label(device), {device}, [x] { return run(x); }, check_of(ten)});
  }
  const auto run_all = [&](bool waits) {
    Tensors products;
    for (const auto& x : all) {
      for (const auto& y : run(x)) products.push_back(y);
      if (waits && !x.a.is_cpu()) at::accelerator::synchronizeDevice(x.a.device().index());
    }
    return products;
  };
  const auto first = all.front();
  const auto ten = [&, check = check_of(std::vector(10, first))](Tensors copies) {
    for (auto& y : copies) y = y.to(gpu);
    return check(copies);
  };
  ways.push_back({"one after the other", devices, [&] { return run_all(true); }, check_of(each)});
  ways.push_back({"at once", devices, [&] { return run_all(false); }, check_of(each)});
  ways.push_back({"copied after all", {gpu}, [&] { return copy_to_cpu(run(first)); }, ten});
  ways.push_back({"copied meanwhile", {gpu}, [&] { return run_and_copy(first); }, ten});
  for (auto& way : ways) way.least_seconds = 10 * least_seconds(first);
  const auto figures = measure(ways, 1.0);
  std::printf("Ten products of %d x %d, float32. %s.\n\n", static_cast<int>(n), static_cast<int>(n),
              machine().c_str());
  for (std::size_t i = 0; i < ways.size(); ++i)
    std::printf("%-19s  %s\n", ways[i].name.c_str(), text_of(figures[i]).c_str());
  if (gpu.is_cpu())
    std::puts("\nThere is only the CPU: nothing runs beside it, and nothing travels.");
  return std::ranges::all_of(figures, &Figure::is_right) ? 0 : 1;
}
