// Chapter "Asynchronous Computation": on a GPU the host only queues work, and goes on before it is done.
// What needs a value waits for all that was queued before it; an event makes the host wait for one tensor.
// Look at: what returns before it is done, and what waits. A simulated GPU computes what is queued at once;
// there count the waits, "synchronizations", or see them by --trace:
//   build/release/simulate_gpus/bin/simulate_gpus --summary 1 build/release/examples/async_computation

#include <ATen/DeviceAccelerator.h>
#include <c10/core/Event.h>
#include <torch/types.h>
#include <use_gpu/device.hpp>
#include <use_gpu/tensor.hpp>
#include <use_gpu/transfers.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>

torch::Tensor ten_products(const torch::Tensor& a) {
  for (int i = 0; i < 9; ++i) (void)a.mm(a);
  return a.mm(a);
}

void tell_time(const torch::Tensor& a) {
  const torch::Tensor expected = ten_products(a);  // warm-up
  use_gpu::synchronize(a.device());
  const auto start = std::chrono::steady_clock::now();
  const torch::Tensor product = ten_products(a);
  const std::chrono::duration<double, std::milli> queued = std::chrono::steady_clock::now() - start;
  use_gpu::synchronize(a.device());
  const std::chrono::duration<double, std::milli> done = std::chrono::steady_clock::now() - start;
  TORCH_CHECK(product.allclose(expected), "a wrong product");
  std::printf("Ten products on %s: returned after %.2f ms, done after %.2f ms\n",
              a.device().str().c_str(), queued.count(), done.count());
}

void tell_waits(const char* name, const torch::Tensor& a, const std::function<void()>& action) {
  (void)ten_products(a);
  const use_gpu::TransferLedger ledger;
  action();
  const bool is_done = at::accelerator::getCurrentStream(a.device().index()).query();
  const bool is_real = std::getenv("SIMULATE_GPUS") == nullptr;
  const auto copies = ledger.count(use_gpu::TransferDirection::device_to_host).copies;
  std::printf("%-16s  %6d  %10d%s\n", name, static_cast<int>(copies),
              static_cast<int>(ledger.item_reads()),
              !is_real  ? ""
              : is_done ? "  waits"
                        : "  goes on");
}

int main() {
  const c10::Device device = use_gpu::try_gpu();
  const auto x = torch::ones({1, 2}, device), y = torch::ones({1, 2}, device);
  const torch::Tensor z = x * y + 2;      // queued
  std::cout << use_gpu::show(z) << '\n';  // printing needs the values: it waits

  const bool is_timed = device.is_cpu() || std::getenv("SIMULATE_GPUS") == nullptr;
  const auto a = torch::rand({1000, 1000}, device);
  tell_time(a.cpu());
  if (device.is_cpu()) return std::puts("On the CPU a call returns when it is done."), 0;
  if (is_timed) tell_time(a);

  std::puts("action            copies  item reads");
  tell_waits("z + 1", a, [&] { (void)(z + 1); });
  tell_waits("z.sum().item()", a, [&] { (void)z.sum().item<float>(); });
  tell_waits("z.cpu()", a, [&] { (void)z.cpu(); });
  tell_waits("synchronize", a, [&] { use_gpu::synchronize(device); });
  c10::Event z_is_done(device.type());  // after what was queued so far, and z is part of that
  z_is_done.record(at::accelerator::getCurrentStream(device.index()));
  tell_waits("an event after z", a, [&] { z_is_done.synchronize(); });
}
