// Chapter "Automatic Parallelism": devices compute at the same time, because the host only queues their work;
// and results travel to the host while the next are computed, in a stream of their own, into pinned memory.
// Look at: on GPUs "at once" takes no longer than the slowest of them. See by --trace that the copies of the last
// row wait for one product each, and the products for no copy:
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

Tensors run(const Factors& x) {
  Tensors products;
  for (int i = 0; i < 10; ++i) products.push_back(x.a.mm(x.b));
  return products;
}

// Each copy waits for all that was queued before it; the host waits for each copy, unless
// non_blocking, into pinned memory. Then the caller must wait for the device.
Tensors copy_to_cpu(const Tensors& y, bool non_blocking) {
  Tensors copies;
  for (const auto& x : y) copies.push_back(x.to(at::kCPU, non_blocking));
  return copies;
}

// Each result leaves while the next is computed. The caller must wait for the device.
Tensors run_and_copy(const Factors& x) {
  const auto device = x.a.device();
  const auto computing = at::accelerator::getCurrentStream(device.index());
  const auto copying = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  Tensors copies;
  for (int i = 0; i < 10; ++i) {
    const auto y = x.a.mm(x.b);
    c10::Event is_computed(device.type());
    is_computed.record(computing);
    is_computed.block(copying);
    const c10::StreamGuard in_stream(copying);
    copies.push_back(y.to(at::kCPU, /*non_blocking=*/true));
    y.record_stream(copying);  // its memory is not reused before the copy is done
  }
  return copies;
}

int main() {
  auto devices = use_gpu::try_all_gpus();
  const auto gpu = devices.front();
  if (!gpu.is_cpu()) devices.push_back(use_gpu::cpu());  // last: there the host computes
  const int n = gpu.is_cpu() || is_simulated(gpu) ? 512 : 4000;
  std::vector<Factors> all, each;  // ten times each
  std::vector<Contender> ways;
  for (const auto device : devices) {
    const auto& x = all.emplace_back(
        random_factors(device.is_cpu() && devices.size() > 1 ? n / 4 : n, device, k_float32));
    const std::vector ten(10, x);
    each.insert(each.end(), ten.begin(), ten.end());
    ways.push_back({"on " + label(device),
                    {device},
                    [x] { return run(x); },
                    check_of(ten),
                    10 * least_seconds(x)});
  }
  const auto run_all = [&](bool waits) {
    Tensors products;
    for (const auto& x : all) {
      for (const auto& y : run(x)) products.push_back(y);
      if (waits) use_gpu::synchronize(x.a.device());
    }
    return products;
  };
  if (!gpu.is_cpu()) {
    const auto x = all.front();
    const auto y = run(x);
    const double least = 10 * least_seconds(x);
    const auto check = check_of(std::vector(10, Factors{k_float32, x.a.cpu(), x.b.cpu()}));
    const auto copied = [=](bool non_blocking) { return copy_to_cpu(run(x), non_blocking); };
    ways.insert(
        ways.end(),
        {{"one after the other", devices, [&] { return run_all(true); }, check_of(each), least},
         {"at once", devices, [&] { return run_all(false); }, check_of(each), least},
         {"copy to the CPU", {gpu}, [=] { return copy_to_cpu(y, false); }, check},
         {"run, then copy", {gpu}, [=] { return copied(false); }, check, least},
         {"  into pinned memory", {gpu}, [=] { return copied(true); }, check, least},
         {"  and meanwhile", {gpu}, [=] { return run_and_copy(x); }, check, least}});
  }
  const auto figures = measure(ways, 1.0);
  std::printf("Ten products of %d x %d, float32. %s.\n\n", n, n, machine().c_str());
  for (std::size_t i = 0; i < ways.size(); ++i)
    std::printf("%-20s  %s\n", ways[i].name.c_str(), text_of(figures[i]).c_str());
  std::puts(gpu.is_cpu() ? "\nThere is only the CPU: nothing runs beside it, and nothing travels."
                         : "\nThe CPU's matrices have a quarter of the rows and columns.");
  return std::ranges::all_of(figures, &Figure::is_right) ? 0 : 1;
}
