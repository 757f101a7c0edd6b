// SPDX-License-Identifier: MIT
#include <use_gpu/parallel.hpp>

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/stat.h>
#include <torch/types.h>
#include <unistd.h>
#include <use_gpu/default_device.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/log.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <latch>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "support.hpp"

extern "C" [[gnu::weak]] int MKL_Get_Max_Threads();  // null where LibTorch has no MKL

namespace use_gpu {
namespace {

using test::error_of;
using test::has;

// Two entries: two GPUs, the one that there is, or the CPU.
std::vector<c10::Device> two_entries() {
  auto devices = try_all_gpus();
  devices.resize(2, devices.front());
  return devices;
}

std::vector<c10::Device> entries(std::size_t count) {
  const auto all = try_all_gpus();
  std::vector<c10::Device> devices;
  for (std::size_t i = 0; i < count; ++i) devices.push_back(all[i % all.size()]);
  return devices;
}

// Whether this thread has a current CUDA context; asked of the driver.
bool has_cuda_context() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  auto* const current = reinterpret_cast<int (*)(void**)>(dlsym(driver, "cuCtxGetCurrent"));
  void* context = nullptr;
  EXPECT_EQ(current(&context), 0);
  return context != nullptr;
}

// What the action writes to the log.
std::string log_of(const std::function<void()>& action) {
  testing::internal::CaptureStderr();
  action();
  return testing::internal::GetCapturedStderr();
}

TEST(ParallelOn, BindsTheDevicesCudaContextToEachThread) {
  USE_GPU_TEST_NEEDS(1);
  if (!gpu().is_cuda()) GTEST_SKIP() << "needs CUDA";
  synchronize(gpu());
  std::thread([] { EXPECT_FALSE(has_cuda_context()) << "a new thread has none"; }).join();
  parallel_on(try_all_gpus(), [](c10::Device, int) { EXPECT_TRUE(has_cuda_context()); });
}

TEST(ParallelOn, CallsTheWorkOnceForEachEntryInAThreadOfItsOwn) {
  for (const std::size_t count : {0U, 1U, 2U, 16U}) {
    const auto devices = entries(count);
    std::mutex mutex;
    std::set<std::thread::id> threads{std::this_thread::get_id()};
    std::vector<int> calls(count);
    std::latch all_run(static_cast<std::ptrdiff_t>(count));
    parallel_on(devices, [&](c10::Device device, int entry) {
      const auto i = static_cast<std::size_t>(entry);
      all_run.arrive_and_wait();  // at once, not one after the other
      const std::lock_guard lock(mutex);
      ++calls[i];
      threads.insert(std::this_thread::get_id());
      EXPECT_EQ(device, devices[i]);
    });
    EXPECT_EQ(calls, std::vector<int>(count, 1));
    EXPECT_EQ(threads.size(), count + 1);
  }
}

TEST(ParallelOn, MakesTheDeviceCurrentAndLeavesTheCallersAlone) {
  USE_GPU_TEST_NEEDS(2);
  const c10::DeviceGuard guard(gpu(1));
  parallel_on(entries(16), [](c10::Device device, int) {
    EXPECT_EQ(test::current_gpu(), device);
    EXPECT_EQ(torch::ones({1}, c10::Device(gpu().type())).device(), device);
  });
  parallel_on({c10::Device(gpu().type()), c10::Device("cpu:0")}, [](c10::Device device, int entry) {
    EXPECT_EQ(device, entry == 0 ? gpu(1) : cpu()) << "the caller's current one";
  });
  EXPECT_EQ(test::current_gpu(), gpu(1));
}

TEST(ParallelOn, MakesTheCallersStreamCurrent) {
  USE_GPU_TEST_NEEDS(2);
  const c10::impl::VirtualGuardImpl impl(gpu().type());
  const std::vector<c10::Stream> streams{impl.getStreamFromGlobalPool(gpu(0)),
                                         impl.getDefaultStream(gpu(1))};
  const c10::StreamGuard guard(streams[0]);
  parallel_on({gpu(0), gpu(1)}, [&](c10::Device device, int entry) {
    EXPECT_EQ(impl.getStream(device), streams[static_cast<std::size_t>(entry)]);
  });
}

TEST(ParallelOn, GivesEntriesThatShareAGpuAStreamEachAfterTheCallersWork) {
  USE_GPU_TEST_NEEDS(1);
  const c10::impl::VirtualGuardImpl impl(gpu().type());
  const auto callers = impl.getStreamFromGlobalPool(gpu());
  const c10::StreamGuard guard(callers);
  auto x = torch::ones({1 << 20}, gpu());
  for (int i = 0; i < 20; ++i) x.add_(1);  // under way when the entries start
  std::vector<c10::Stream> streams(3, callers);
  std::vector<at::Tensor> sums(3);
  parallel_on({gpu(), gpu(), cpu()}, [&](c10::Device device, std::size_t i) {
    if (device.is_cpu()) return;
    streams[i] = impl.getStream(device);
    sums[i] = x.sum() + static_cast<double>(i);
  });
  EXPECT_NE(streams[0], streams[1]);
  EXPECT_NE(streams[0], callers);
  EXPECT_NE(streams[1], callers);
  EXPECT_EQ(sums[0].item<float>(), 21.F * (1 << 20));
  EXPECT_EQ(sums[1].item<float>(), 21.F * (1 << 20) + 1);
}

TEST(ParallelOn, IsDoneWhenItReturns) {
  const auto devices = two_entries();
  std::vector<at::Tensor> sums(2);
  parallel_on(devices, [&](c10::Device device, int entry) {
    const auto x =
        torch::full({256, 256}, entry + 1, torch::TensorOptions(device).dtype(torch::kFloat));
    sums[static_cast<std::size_t>(entry)] = x.mm(x).sum();
  });
  EXPECT_EQ(sums[0].item<float>(), 256.F * 256 * 256);
  EXPECT_EQ(sums[1].item<float>(), 4 * 256.F * 256 * 256);
}

TEST(ParallelOn, TakesOverGradAndInferenceMode) {
  const auto both = two_entries();
  parallel_on(both, [](c10::Device, int) {
    EXPECT_TRUE(c10::GradMode::is_enabled());
    EXPECT_FALSE(c10::InferenceMode::is_enabled());
  });
  {
    const at::NoGradGuard no_grad;
    parallel_on(both, [](c10::Device device, int) {
      const auto x = torch::ones({2}, torch::TensorOptions(device).requires_grad(true));
      EXPECT_FALSE((x * 2).requires_grad());
    });
  }
  const c10::InferenceMode inference;
  parallel_on(
      both, [](c10::Device device, int) { EXPECT_TRUE(torch::ones({2}, device).is_inference()); });
}

TEST(ParallelOn, RunsBackwardPassesAtOnce) {
  const auto devices = entries(16);
  std::vector<at::Tensor> gradients(16);
  parallel_on(devices, [&](c10::Device device, int entry) {
    const auto x = torch::full({8}, 3.F, torch::TensorOptions(device).requires_grad(true));
    for (int step = 0; step < 20; ++step) (x * x).sum().backward();
    gradients[static_cast<std::size_t>(entry)] = x.grad();
  });
  for (const auto& gradient : gradients)
    EXPECT_TRUE(gradient.to(cpu()).equal(torch::full({8}, 120.F)));
}

TEST(ParallelOn, TakesOverDeviceScopes) {
  const auto device = try_gpu(1);
  const DefaultDeviceGuard scope(device);
  parallel_on({cpu(), cpu()}, [&](c10::Device, int) {
    EXPECT_EQ(torch::ones({2}).device(), device);
    const DefaultDeviceGuard inner(cpu());
    EXPECT_EQ(torch::ones({2}).device(), cpu());
  });
}

TEST(ParallelOn, RethrowsTheFirstErrorUnchangedAndLogsEach) {
  const auto devices = two_entries();
  const auto something_is_logged = [] {
    struct stat file {};
    return ::fstat(STDERR_FILENO, &file) == 0 && file.st_size > 0;
  };
  std::exception_ptr thrown;
  const auto log = log_of([&] {
    try {
      parallel_on(devices, [&](c10::Device, int entry) {
        if (entry == 1) {
          try {
            throw std::out_of_range("first in time");
          } catch (...) {
            thrown = std::current_exception();
          }
          std::rethrow_exception(thrown);
        }
        while (!something_is_logged()) std::this_thread::yield();
        TORCH_CHECK(false, "last in time");
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (...) {
      EXPECT_EQ(std::current_exception(), thrown);
    }
  });
  EXPECT_TRUE(has(log, "entry 1, on " + devices[1].str() + ", failed: first in time\n"));
  EXPECT_TRUE(has(log, "entry 0, on " + devices[0].str() + ", failed: last in time\n"));
}

TEST(ParallelOn, RethrowsWhatIsNoStdException) {
  std::atomic<int> finished = 0;
  const auto log = log_of([&] {
    try {
      parallel_on(entries(16), [&](c10::Device, int entry) {
        if (entry == 3) throw 42;
        ++finished;
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (int number) {
      EXPECT_EQ(number, 42);
    }
  });
  EXPECT_EQ(finished, 15);
  EXPECT_TRUE(
      has(log, "entry 3, on " + entries(16)[3].str() + ", failed: an exception that is no"));
}

TEST(ParallelOn, LosesNoErrorWhenAllFail) {
  const auto log = log_of([&] {
    EXPECT_THROW(parallel_on(entries(16),
                             [](c10::Device, int entry) {
                               throw std::runtime_error("error " + std::to_string(entry) + '.');
                             }),
                 std::runtime_error);
  });
  for (int entry = 0; entry < 16; ++entry)
    EXPECT_TRUE(has(log, "failed: error " + std::to_string(entry) + "."));
}

TEST(ParallelOn, PrintsNothingWhereNothingFails) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(log_of([] { parallel_on(two_entries(), [](c10::Device, int) {}); }), "");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(ParallelOn, Nests) {
  std::atomic<int> calls = 0;
  parallel_on(two_entries(), [&](c10::Device outer, int) {
    parallel_on(two_entries(), [&](c10::Device, int) {
      parallel_on({outer}, [&](c10::Device device, int) {
        EXPECT_EQ(device, outer);
        ++calls;
      });
    });
  });
  EXPECT_EQ(calls, 4);
  const auto log = log_of([] {
    try {
      parallel_on(two_entries(), [](c10::Device, int entry) {
        if (entry == 0) parallel_on(two_entries(), [](c10::Device, int) { throw 'x'; });
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (char) {
    }
  });
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 3) << "two inside, one outside:\n" << log;
}

int threads_of_a_new_thread() {
  int count = 0;
  std::thread([&] { count = at::get_num_threads(); }).join();
  return count;
}

void expect_threads(int count) {
  EXPECT_EQ(at::get_num_threads(), count);
  if (MKL_Get_Max_Threads != nullptr) {
    EXPECT_EQ(MKL_Get_Max_Threads(), count) << "for products";
  }
}

TEST(ParallelOn, SharesOutTheIntraOpThreads) {
  const int usual = at::get_num_threads();
  for (const bool named : {false, true}) {
    const int all = named ? 8 : usual;
    if (named) at::set_num_threads(all);  // from here on each new thread is given 8
    parallel_on(entries(2), [&](c10::Device, int) {
      expect_threads(std::max(1, all / 2));
      parallel_on(entries(2), [&](c10::Device, int) { expect_threads(std::max(1, all / 4)); });
      expect_threads(std::max(1, all / 2));
      EXPECT_EQ(threads_of_a_new_thread(), all) << "nobody else's";
    });
    parallel_on(entries(16), [](c10::Device, int) { expect_threads(1); });
    parallel_on({cpu()}, [&](c10::Device, int) { expect_threads(all); });
    log_of([&] { EXPECT_THROW(parallel_on(entries(2), [](c10::Device, int) { throw 42; }), int); });
    expect_threads(all);
    EXPECT_EQ(threads_of_a_new_thread(), all);
  }
  at::set_num_threads(usual);
}

// While it lives, no thread can start: the required stack is too large.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, std::size_t{1} << 50);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoMoreThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

TEST(ParallelOn, WaitsForTheOthersWhenAThreadCannotBeStarted) {
  std::atomic<int> started = 0;
  std::atomic<int> finished = 0;
  const auto log = log_of([&] {
    std::optional<NoMoreThreads> no_more_threads;
    EXPECT_THROW(parallel_on(std::vector<c10::Device>(2000, cpu()),
                             [&](c10::Device, int entry) {
                               ++started;
                               if (entry == 0) no_more_threads.emplace();
                               std::this_thread::sleep_for(std::chrono::milliseconds(1));
                               ++finished;
                             }),
                 std::system_error);
  });
  EXPECT_GT(finished, 0);
  EXPECT_LT(finished, 2000);
  EXPECT_EQ(finished, started);
  EXPECT_TRUE(has(log, "entry " + std::to_string(finished) + ", on cpu, failed: "));
}

TEST(ParallelOn, ChecksEverythingBeforeItStarts) {
  const auto never = [](c10::Device, int) { ADD_FAILURE() << "it was called"; };
  const auto text = error_of<DeviceError>([&] {
    parallel_on({try_gpu(), test::absent_gpu()}, never);
  });
  EXPECT_TRUE(has(text, test::absent_gpu().str()));
  EXPECT_TRUE(
      has(error_of<ArgumentError>([] { parallel_on({cpu()}, nullptr); }), "the work is empty"));
  error_of<ArgumentError>([] { parallel_on({}, nullptr); });
}

}  // namespace
}  // namespace use_gpu
