// SPDX-License-Identifier: MIT
//
// What a program leaves in static storage is destroyed after LibTorch's thread-local objects and
// after those static ones of LibTorch and of the CUDA runtime that were made later. Each program
// here ends with exit(0) and must have that status.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <use_gpu/default_device.hpp>
#include <use_gpu/device.hpp>
#include <use_gpu/diagnosis.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/gpu_info.hpp>
#include <use_gpu/log.hpp>
#include <use_gpu/memory.hpp>
#include <use_gpu/metric_log.hpp>
#include <use_gpu/mixed_precision.hpp>
#include <use_gpu/parallel.hpp>
#include <use_gpu/prefetch.hpp>
#include <use_gpu/transfers.hpp>

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "support.hpp"

// Here alone: what a GPU may still use when the program ends. In all other programs it is a leak.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT: LeakSanitizer's name
  return "leak:use_gpu::detail::MetricBlocks\nleak:use_gpu::detail::Prefetch\n";
}

namespace use_gpu {
namespace {

using Batches = std::vector<std::vector<at::Tensor>>;

// The first is destroyed last.
struct LastAct {
  ~LastAct() {
    if (act) act();
  }
  std::function<void()> act;
} last;
Batches batches;
at::Tensor destroyed_late;
std::unique_ptr<MetricLog> metric_log;
std::unique_ptr<TransferLedger> ledger;
std::unique_ptr<TransferGuard> guard;
std::unique_ptr<AllowTransfers> allowed;
std::unique_ptr<DefaultDeviceGuard> default_device;
std::unique_ptr<detail::Prefetch<Batches>> range;
at::Tensor destroyed_early;

// Writes over what the thread's objects have freed, so that nobody can read it unnoticed.
struct FirstAct {
  ~FirstAct() {
    for (std::size_t size = 16; size <= 256; size += 16)
      for (int i = 0; i < 8; ++i) std::memset(blocks.emplace_back(std::malloc(size)), 0xff, size);
    for (void* block : blocks) std::free(block);
  }
  std::vector<void*> blocks;
} first;

thread_local std::unique_ptr<MetricLog> log_of_thread;
thread_local std::unique_ptr<TransferGuard> guard_of_thread;

// Values in a full block, and in one that is not full; kept ones and copied ones.
void fill(MetricLog& log) {
  for (int i = 0; i < 25; ++i) {
    auto value = torch::full({}, i, try_gpu());
    i % 2 == 0 ? log.push(value) : log.push(std::move(value));
  }
}

class StaticStorage : public testing::Test {
 protected:
  // Each program is started anew, as the CUDA runtime does not survive a fork.
  static void SetUpTestSuite() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  static void expect_good_end(void (*program)()) {
    const auto run = [&] {
      // Their destructors read LibTorch's thread-local state.
      destroyed_early = torch::ones({3}, try_gpu());
      destroyed_late = torch::ones({3}, try_gpu());
      program();
      std::exit(0);
    };
    EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
  }
};

TEST_F(StaticStorage, TakesAMetricLogWithUnreadValues) {
  expect_good_end([] {
    metric_log = std::make_unique<MetricLog>(try_gpu(), 10);
    fill(*metric_log);
  });
  expect_good_end([] {
    static MetricLog log(try_gpu(), 10);
    fill(log);
  });
  expect_good_end([] {
    log_of_thread = std::make_unique<MetricLog>(try_gpu(), 10);
    fill(*log_of_thread);
  });
}

TEST_F(StaticStorage, TakesOpenScopes) {
  expect_good_end([] { guard = std::make_unique<TransferGuard>(); });
  expect_good_end([] { ledger = std::make_unique<TransferLedger>(LedgerOptions{true}); });
  expect_good_end([] { default_device = std::make_unique<DefaultDeviceGuard>(try_gpu()); });
  expect_good_end([] { guard_of_thread = std::make_unique<TransferGuard>(); });
  expect_good_end([] { static const TransferGuard inside; });
  expect_good_end([] { std::thread([] { guard = std::make_unique<TransferGuard>(); }).join(); });
  expect_good_end([] {  // several, of which the last is not destroyed first
    guard = std::make_unique<TransferGuard>();
    default_device = std::make_unique<DefaultDeviceGuard>(try_gpu());
    ledger = std::make_unique<TransferLedger>();
    allowed = std::make_unique<AllowTransfers>();
  });
}

TEST_F(StaticStorage, TakesARangeWithBatchesUnderWay) {
  expect_good_end([] {
    batches.assign(5, {torch::ones({100})});
    range.reset(new detail::Prefetch<Batches>(batches, try_gpu(), 2));
    range->begin()->front() += 1;
  });
}

// All that needs no argument but a device.
void call_each(c10::Device device) {
  const auto refused_or_done = [](const auto& call) {
    try {
      call();
    } catch (const Error&) {  // the device is there no more
    }
  };
  static_cast<void>(explain_gpus());
  static_cast<void>(query_gpus());
  static_cast<void>(try_emptiest_gpu());
  static_cast<void>(try_all_gpus());
  static_cast<void>(same_device(device, gpu(1)));
  set_log_level(LogLevel::off);
  refused_or_done([&] { synchronize(device); });
  refused_or_done([&] { static_cast<void>(parse_device(device.str())); });
  refused_or_done([&] { static_cast<void>(test::printed(memory_report(device))); });
  refused_or_done([&] { const DefaultDeviceGuard scope(device); });
  refused_or_done([&] { const AutocastGuard scope(device); });
  refused_or_done([&] { const MetricLog log(device); });
  refused_or_done([&] { parallel_on({device}, [](c10::Device, int) {}); });
  const TransferGuard guard_here;
  const AllowTransfers allowed_here;
  const TransferLedger ledger_here({.call_sites = true});
  static_cast<void>(test::printed(ledger_here));
  static_cast<void>(GradScaler().scale_factor());
}

TEST_F(StaticStorage, LetsADestructorCallEachFunction) {
  for (const bool is_explained_before : {false, true}) {
    const auto run = [&] {
      const auto device = try_gpu();
      if (is_explained_before) call_each(device);
      last.act = [device] {
        std::fputs(explain_gpus().c_str(), stderr);
        call_each(cpu());
        call_each(device);
      };
      std::exit(0);
    };
    EXPECT_EXIT(run(), testing::ExitedWithCode(0), "LibTorch has gone");
  }
}

TEST_F(StaticStorage, LetsThreadsGoOnWithoutTheMainThread) {
  const auto run = [] {
    static const int count = num_gpus();
    std::thread([] {
      std::this_thread::sleep_for(
          std::chrono::milliseconds(300));  // until the main thread has ended
      call_each(try_gpu());
      const bool is_good =
          num_gpus() == count && torch::ones({2}, try_gpu()).sum().item<int>() == 2;
      std::_Exit(is_good ? 0 : 1);
    }).detach();
    ::syscall(SYS_exit, 0);  // as pthread_exit() ends, whose unwinding GoogleTest would catch
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

// Afterwards there is no GPU that can be used, and no scope is open.
TEST_F(StaticStorage, LetsADestructorAskForGpus) {
  expect_good_end([] {
    guard = std::make_unique<TransferGuard>();
    last.act = [] {
      set_log_level(LogLevel::debug);  // try_gpu(1) writes a line
      bool is_good = num_gpus() == 0 && try_gpu(1).is_cpu() && try_all_gpus().front().is_cpu();
      is_good = is_good && parse_device("gpu") == gpu(0) && gpu(0).is_cuda();
      try {
        use_gpu::synchronize(gpu(0));
        is_good = false;
      } catch (const DeviceError&) {
      }
      if (!is_good) std::_Exit(1);
    };
  });
}

}  // namespace
}  // namespace use_gpu
