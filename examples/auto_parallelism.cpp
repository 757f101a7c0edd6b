// Chapter "Automatic Parallelism": devices compute at the same time, because the host only queues their work;
// and results travel to the host while the next are computed, in a stream of their own, into pinned memory.
// Look at: "at once" takes no longer than the slowest device. See by --trace that each copy of the last row
// waits for one product, and no product for a copy:
//   build/release/simulate_gpus/bin/simulate_gpus --trace 2 build/release/examples/auto_parallelism

#include <ATen/DeviceAccelerator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>
#include <use_gpu/device.hpp>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>

using Tensors = std::vector<torch::Tensor>;

Tensors run(const Tensors& all, bool waits) {
  Tensors y;
  for (const auto& x : all) {
    for (int i = 0; i < 10; ++i) y.push_back(x.mm(x));
    if (waits) use_gpu::synchronize(x.device());
  }
  return y;
}

// Each result is copied in that stream. The host waits for each copy, unless non_blocking.
Tensors run_and_copy(const torch::Tensor& x, const c10::Stream& copying, bool non_blocking) {
  Tensors copies;
  for (int i = 0; i < 10; ++i) {
    const auto y = x.mm(x);
    c10::Event is_computed(x.device().type());
    is_computed.record(at::accelerator::getCurrentStream(x.device().index()));
    is_computed.block(copying);  // copying waits for this product, the host for nothing
    const c10::StreamGuard in_stream(copying);
    copies.push_back(y.to(at::kCPU, non_blocking));
    y.record_stream(copying);  // its memory is not reused before the copy is done
  }
  return copies;
}

void tell(const char* name, const Tensors& all, const std::function<Tensors()>& work) {
  const auto right = all[0].mm(all[0]).cpu();
  for (const bool is_warm : {false, true}) {
    const auto start = std::chrono::steady_clock::now();
    const Tensors results = work();
    for (const auto& x : all) use_gpu::synchronize(x.device());
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    for (const auto& y : results) TORCH_CHECK(y.cpu().allclose(right, 1e-3), "wrong: ", name);
    const bool is_timed = all[0].is_cpu() || std::getenv("SIMULATE_GPUS") == nullptr;
    const auto text = is_timed ? c10::str(time.count(), " ms") : "right (simulated)";
    if (is_warm) std::cout << "  " << name << ": " << text << '\n';
  }
}

int main() {
  const auto devices = use_gpu::try_all_gpus();
  const auto device = devices.front();
  Tensors all(devices.size(), torch::rand({1000, 1000}));  // the same matrix on each device
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = all[i].to(devices[i]);
  std::cout << "Ten products of 1000 x 1000, on " << at::ArrayRef(devices) << ":\n";
  tell("one after the other", all, [&] { return run(all, /*waits=*/true); });
  if (device.is_cpu()) return 0;  // nothing runs beside the CPU, and nothing travels
  tell("at once", all, [&] { return run(all, /*waits=*/false); });
  const auto same = at::accelerator::getCurrentStream(device.index());
  const auto other = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  tell("copied, the host waits", all, [&] { return run_and_copy(all[0], same, false); });
  tell("copied, it goes on", all, [&] { return run_and_copy(all[0], same, true); });
  tell("copied meanwhile", all, [&] { return run_and_copy(all[0], other, true); });
}
