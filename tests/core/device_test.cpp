// SPDX-License-Identifier: MIT
#include <ATen/DeviceAccelerator.h>
#include <ATen/Functions.h>
#include <use_gpu/errors.hpp>

#include <climits>
#include <thread>

#include "support.hpp"

namespace use_gpu {
namespace {

using test::error_of;
using test::has;
using test::printed;

TEST(Cpu, IsTheCpu) { EXPECT_EQ(cpu(), c10::Device(c10::kCPU)); }

TEST(Gpu, NamesAGpuWhetherItIsThereOrNot) {
  for (const int index : {0, 1, 44, 127}) {
    EXPECT_EQ(gpu(index).index(), index);
    EXPECT_EQ(gpu(index).type(), gpu().type());
  }
  EXPECT_EQ(gpu(), gpu(0));
  EXPECT_EQ(gpu().type(), at::accelerator::getAccelerator().value_or(c10::kCUDA));
}

TEST(Gpu, RefusesIndicesThatLibTorchWouldWrapAround) {
  EXPECT_EQ(c10::Device("cuda:300").index(), 44) << "LibTorch no longer wraps: simplify gpu()";
  for (const int index : {-1, 128, 200, 300, INT_MIN, INT_MAX}) {
    const auto text = error_of<DeviceError>([&] { (void)gpu(index); });
    EXPECT_TRUE(has(text, "gpu(" + std::to_string(index) + ")"));
    EXPECT_TRUE(has(text, "0 to 127"));
    EXPECT_TRUE(has(text, "num_gpus()"));
  }
}

TEST(NumGpus, CountsWhatLibTorchCanUse) {
  EXPECT_EQ(num_gpus(), static_cast<int>(at::accelerator::deviceCount()));
  static_assert(noexcept(num_gpus()));
}

TEST(NumGpus, PrintsAsANumberUnlikeLibTorchsByte) {
  EXPECT_EQ(printed(num_gpus()), std::to_string(at::accelerator::deviceCount()));
}

TEST(TryGpu, GivesEachGpuThatIsThere) {
  for (int i = 0; i < num_gpus(); ++i) EXPECT_EQ(try_gpu(i), gpu(i));
}

TEST(TryGpu, FallsBackToTheCpuPastTheLastGpu) {
  for (const int index : {num_gpus(), 127, 128, 300, INT_MAX}) EXPECT_EQ(try_gpu(index), cpu());
}

TEST(TryGpu, RefusesNegativeIndices) {
  for (const int index : {-1, INT_MIN}) {
    const auto text = error_of<DeviceError>([&] { (void)try_gpu(index); });
    EXPECT_TRUE(has(text, "try_gpu(" + std::to_string(index) + ")"));
  }
}

TEST(TryAllGpus, GivesEveryGpuOrJustTheCpu) {
  const auto devices = try_all_gpus();
  ASSERT_EQ(devices.size(), static_cast<std::size_t>(std::max(num_gpus(), 1)));
  for (int i = 0; i < num_gpus(); ++i) EXPECT_EQ(devices[static_cast<std::size_t>(i)], gpu(i));
  if (num_gpus() == 0) {
    EXPECT_EQ(devices.front(), cpu());
  }
}

TEST(SameDevice, KnowsTheOtherNamesOfTheCpu) {
  EXPECT_NE(c10::Device("cpu"), c10::Device("cpu:0")) << "LibTorch's == has changed";
  EXPECT_TRUE(same_device(c10::Device("cpu"), c10::Device("cpu:0")));
  EXPECT_FALSE(same_device(cpu(), gpu()));
}

TEST(SameDevice, TakesAGpuWithoutIndexForTheCurrentOne) {
  const c10::Device current(gpu().type());
  EXPECT_NE(current, gpu());
  EXPECT_TRUE(same_device(current, current));
  if (num_gpus() == 0) {
    EXPECT_TRUE(same_device(current, gpu(0)));
    EXPECT_FALSE(same_device(current, gpu(1)));
    return;
  }
  for (int i = 0; i < num_gpus(); ++i) {
    const c10::DeviceGuard guard(gpu(i));
    for (int j = 0; j < num_gpus(); ++j) EXPECT_EQ(same_device(current, gpu(j)), i == j);
  }
}

TEST(SameDevice, KeepsDevicesThatAreNotThereApart) {
  EXPECT_TRUE(same_device(gpu(100), gpu(100)));
  EXPECT_FALSE(same_device(gpu(100), gpu(101)));
}

TEST(ParseDevice, ReadsWhatItAccepts) {
  const auto type = c10::DeviceTypeName(gpu().type(), /*lower_case=*/true);
  EXPECT_EQ(parse_device("cpu"), cpu());
  EXPECT_EQ(parse_device("cpu:0"), cpu());
  EXPECT_EQ(parse_device("gpu"), gpu());
  EXPECT_EQ(parse_device("gpu:0"), gpu());
  EXPECT_EQ(parse_device("gpu:1"), gpu(1));
  EXPECT_EQ(parse_device("gpu:127"), gpu(127));
  EXPECT_EQ(parse_device("auto"), try_gpu());
  EXPECT_EQ(parse_device("cuda"), c10::Device(c10::kCUDA));
  EXPECT_EQ(parse_device("cuda:1"), c10::Device(c10::kCUDA, 1));
  EXPECT_EQ(parse_device("xpu:2"), c10::Device(c10::kXPU, 2));
  EXPECT_EQ(parse_device(type + ":1"), gpu(1));
}

TEST(ParseDevice, ReadsWhatItsDevicesPrint) {
  for (const auto device : {cpu(), gpu(), gpu(1), gpu(127)}) {
    EXPECT_EQ(parse_device(printed(device)), device);
  }
}

TEST(ParseDevice, SaysWhatIsAcceptedInsteadOfAnythingElse) {
  using std::string_view_literals::operator""sv;
  for (const auto name : {""sv,
                          ":"sv,
                          ":0"sv,
                          "cuda:"sv,
                          "cuda:-1"sv,
                          "cuda:+1"sv,
                          "cuda:01"sv,
                          "cuda:00"sv,
                          "cuda:300"sv,
                          "cuda:128"sv,
                          "cuda:99999999999999999999"sv,
                          "cuda:1x"sv,
                          "cuda:0x1"sv,
                          "cuda:1:1"sv,
                          " cuda:0"sv,
                          "cuda:0 "sv,
                          "cuda: 0"sv,
                          "GPU:0"sv,
                          "Cuda"sv,
                          "cuda\0"sv,
                          "cuda:0\0"sv,
                          "cpu:1"sv,
                          "auto:0"sv,
                          "gpu:-0"sv,
                          "meta"sv,
                          "vulkan"sv,
                          "nosuchdevice:0"sv,
                          "gpu1"sv,
                          "\x1b[2J"sv,
                          "\xff\xfe"sv}) {
    const auto text = error_of<DeviceError>([&] { (void)parse_device(name); });
    for (const char* accepted :
         {"\"cpu\"", "\"gpu\"", "\"gpu:1\"", "\"cuda:1\"", "\"auto\"", "0 to 127"}) {
      EXPECT_TRUE(has(text, accepted));
    }
    for (const char c : text) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << "unprintable byte in " << text;
  }
}

TEST(ParseDevice, SurvivesAMegabyteOfText) {
  for (const char c : {'c', '0', ':', '\0'}) {
    error_of<DeviceError>([&] { (void)parse_device(std::string(1 << 20, c)); });
    error_of<DeviceError>([&] { (void)parse_device("cuda:" + std::string(1 << 20, c)); });
  }
}

TEST(Synchronize, DoesNothingOnTheCpu) {
  synchronize(cpu());
  synchronize(c10::Device("cpu:0"));
}

TEST(Synchronize, WaitsForEachGpuAndKeepsTheCurrentOne) {
  const auto before = test::current_gpu();
  for (int i = 0; i < num_gpus(); ++i) synchronize(gpu(i));
  if (num_gpus() > 0) synchronize(c10::Device(gpu().type()));
  EXPECT_EQ(before, test::current_gpu());
}

TEST(Synchronize, SaysWhichDevicesThereAreInsteadOfAMissingOne) {
  const auto text = error_of<DeviceError>([] { synchronize(test::absent_gpu()); });
  EXPECT_TRUE(has(text, printed(test::absent_gpu())));
  EXPECT_TRUE(has(text, "use_gpu::try_gpu(127)"));
  if (num_gpus() == 0) {
    EXPECT_TRUE(has(text, "none"));
  }
  if (num_gpus() == 1) {
    EXPECT_TRUE(has(text, "available: " + printed(gpu(0)) + "."));
  }
  if (num_gpus() > 1) {
    EXPECT_TRUE(has(text, printed(gpu(0)) + " to " + printed(gpu(num_gpus() - 1))));
  }
}

TEST(Synchronize, RefusesADeviceOfAKindThatThisLibTorchLacks) {
  for (const auto type : {c10::kVulkan, c10::kXLA, c10::kXPU}) {
    EXPECT_TRUE(has(error_of<DeviceError>([&] { synchronize(c10::Device(type, 0)); }), "none"));
    EXPECT_FALSE(same_device(c10::Device(type, 0), c10::Device(type, 1)));
  }
}

TEST(Device, CanBeAskedFromManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(try_gpu(i % 16).is_cpu(), i % 16 >= num_gpus());
        EXPECT_TRUE(same_device(parse_device("gpu:3"), gpu(3)));
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace use_gpu
