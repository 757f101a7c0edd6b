// SPDX-License-Identifier: MIT
//
// Operations to be counted by callgrind, each a thousand times; benchmarks/instructions runs it and
// prints the figures. Built twice: with the library, and (USE_GPU_BARE) without, to see what its
// mere presence costs.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <valgrind/callgrind.h>

#ifndef USE_GPU_BARE
#include <use_gpu/device.hpp>
#include <use_gpu/metric_log.hpp>
#include <use_gpu/tensor.hpp>
#include <use_gpu/transfers.hpp>
#endif

#include <string>

namespace {

constexpr int k_repeats = 1000;  // the script divides by it

template <class Work>
void count(const std::string& name, const Work& work) {
  for (int i = 0; i < 100; ++i) work();  // caches and first-time set-up
  CALLGRIND_ZERO_STATS;
  for (int i = 0; i < k_repeats; ++i) work();
  CALLGRIND_DUMP_STATS_AT(name.c_str());
}

// The three operations that guards and ledgers look at, or let pass, on tensors of their own.
void count_three(const std::string& where) {
  const at::Tensor x = at::ones({2, 3});
  at::Tensor y = at::ones({2, 3});
  const at::Tensor number = at::ones({});
  count("add_ " + where, [&] { y.add_(x); });
  count("copy_ " + where, [&] { y.copy_(x); });
  count("item " + where, [&] { (void)number.item<float>(); });
}

}  // namespace

int main() {
  const c10::InferenceMode inference;  // no autograd graph: the smallest operations there are
  CALLGRIND_START_INSTRUMENTATION;
  // A memcmp takes a few more instructions if its operands are near the end of a page: the minimum
  // of five counts at different stack positions avoids this.
  for (int i = 0; i < 5; ++i) {
    static_cast<volatile char*>(__builtin_alloca(720))[0] = 0;
#ifdef USE_GPU_BARE
    count_three("bare");
#else
    const at::Tensor x = at::ones({2, 3});
    const at::Tensor y = at::ones({2, 3});
    count("add bare", [&] { (void)x.add(y); });
    count("add checked", [&] { (void)use_gpu::checked_add(x, y); });
    count_three("outside");
    {
      const use_gpu::TransferGuard guard;
      count_three("guarded");
    }
    const use_gpu::TransferLedger ledger;
    count_three("counted");
#endif
  }
#ifndef USE_GPU_BARE
  if (use_gpu::num_gpus() == 0) return 0;  // benchmarks/instructions gives it a simulated one
  const at::Tensor value = at::ones({}, use_gpu::gpu());
  const at::Tensor memory =
      at::empty({4096}, at::TensorOptions(at::kDouble).device(value.device()));
  use_gpu::MetricLog log(value.device(), /*block_size=*/256);
  int next = 0;
  count("push by_hand", [&] { memory.select(0, next++).copy_(value); });
  count("push to_log", [&] { log.push(value); });

  const auto read = [&] { (void)value.item<float>(); };
  count("read bare", read);
  {
    const use_gpu::TransferLedger ledger;
    count("read counted", read);
  }
  const use_gpu::TransferLedger call_sites({.call_sites = true});
  count("read located", read);
#endif
}
