// SPDX-License-Identifier: MIT
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <use_gpu/device.hpp>
#include <use_gpu/diagnosis.hpp>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <regex>

#include "core/explanation.hpp"
#include "support.hpp"

namespace use_gpu::detail {
namespace {

using std::string_literals::operator""s;
using test::has;

// Some of CUDA's errors, in its own words.
struct CudaError {
  int code;
  const char* words;
};
constexpr CudaError k_cuda_out_of_memory{2, "out of memory"};
constexpr CudaError k_cuda_initialization{3, "initialization error"};
constexpr CudaError k_cuda_stub_library{34, "CUDA driver is a stub library"};
constexpr CudaError k_cuda_insufficient_driver{
    35, "CUDA driver version is insufficient for CUDA runtime version"};
constexpr CudaError k_cuda_devices_unavailable{46,
                                               "CUDA-capable device(s) is/are busy or unavailable"};
constexpr CudaError k_cuda_no_device{100, "no CUDA-capable device is detected"};
constexpr CudaError k_cuda_invalid_device{101, "invalid device ordinal"};
constexpr CudaError k_cuda_no_kernel_image{
    209, "no kernel image is available for execution on the device"};
constexpr CudaError k_cuda_ecc{214, "uncorrectable ECC error encountered"};
constexpr CudaError k_cuda_operating_system{304,
                                            "OS call failed or operation not supported on this OS"};
constexpr CudaError k_cuda_launch_failure{719, "unspecified launch failure"};
constexpr CudaError k_cuda_not_supported{801, "operation not supported"};
constexpr CudaError k_cuda_system_not_ready{802, "system not yet initialized"};
constexpr CudaError k_cuda_compat_not_supported{
    804, "forward compatibility was attempted on non supported HW"};
constexpr CudaError k_cuda_unknown{999, "unknown error"};

// The text names the cause and the next step, whole and in one line. It is printed as well: only a
// person can tell whether it helps.
void expect_explains(const std::string& text, const std::vector<std::string>& cause,
                     const std::vector<std::string>& next_step) {
  std::cout << text << "  [" << text.size() << "]\n";
  for (const std::string& part : cause) EXPECT_NE(text.find(part), std::string::npos) << part;
  for (const std::string& part : next_step) EXPECT_NE(text.find(part), std::string::npos) << part;
  EXPECT_LE(text.size(), 400U);
  EXPECT_EQ(text.back(), '.');
  EXPECT_FALSE(text.ends_with("...")) << "cut";
  EXPECT_EQ(std::ranges::count(text, '\n'), 0);
}

// A machine where the driver sees that many cards, CUDA sees `gpus` of them and each works.
GpuFacts machine(std::size_t cards, std::size_t gpus) {
  GpuFacts facts{.kind = "cuda"};
  facts.report.driver_version = "580.65.06";
  facts.report.gpus.resize(cards);
  facts.cuda = CudaFacts{.driver_version = "13.0", .runtime_version = "13.0"};
  for (std::size_t i = 0; i < gpus; ++i) {
    facts.gpus.push_back({.name = "cuda:" + std::to_string(i),
                          .model = "NVIDIA H200, compute capability 9.0, 139.8 GiB"});
  }
  return facts;
}

GpuFacts counting_fails(std::size_t cards, CudaError error) {
  GpuFacts facts = machine(cards, 0);
  facts.cuda->error = "CUDA error " + std::to_string(error.code) + ": " + error.words;
  return facts;
}

GpuFacts no_device(std::size_t cards) { return counting_fails(cards, k_cuda_no_device); }

// LibTorch's message for it.
std::string by_libtorch(CudaError error) { return std::string("CUDA error: ") + error.words; }

// The second of two GPUs fails. It has the longest name of any so far.
GpuFacts second_fails(const std::string& error) {
  GpuFacts facts = machine(2, 2);
  facts.gpus[1].model =
      "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition, compute capability 12.0, "
      "95.6 GiB";
  facts.gpus[1].error = error;
  return facts;
}

TEST(Explain, NamesTheGpusThatCanBeUsed) {
  expect_explains(explain(machine(1, 1)), {"1 GPU can be used", "cuda:0"},
                  {"NVIDIA H200, compute capability 9.0, 139.8 GiB"});
}

TEST(Explain, NamesEqualGpusTogether) {
  GpuFacts facts = machine(9, 9);
  facts.gpus[8].model = "NVIDIA L4, compute capability 8.9, 22.0 GiB";
  expect_explains(explain(facts),
                  {"9 GPUs can be used",
                   "cuda:0 to cuda:7 (NVIDIA H200, compute capability 9.0, 139.8 GiB each)"},
                  {"cuda:8 (NVIDIA L4, compute capability 8.9, 22.0 GiB)"});
}

TEST(Explain, SaysThatVisibleDevicesHidesSomeGpus) {
  GpuFacts facts = machine(8, 1);
  facts.visible_devices = "3";
  expect_explains(explain(facts), {"1 GPU can be used"},
                  {"The machine has 8; CUDA_VISIBLE_DEVICES hides the others"});
}

TEST(Explain, StaysShortWithManyDifferentGpus) {
  GpuFacts facts = machine(128, 128);
  for (ProbedGpu& gpu : facts.gpus) gpu.model = gpu.name + std::string(1000, 'x');
  facts.visible_devices = std::string(1'000'000, '\n');
  facts.report.gpus.resize(200);
  expect_explains(explain(facts), {"128 GPUs can be used", "cuda:0"}, {"The machine has 200"});
}

TEST(Explain, NamesTheDevicesOfAnotherAccelerator) {
  const GpuFacts facts{.kind = "xpu", .gpus = {{.name = "xpu:0"}, {.name = "xpu:1"}}};
  expect_explains(explain(facts), {"2 GPUs can be used"}, {"xpu:0 to xpu:1"});
}

TEST(Explain, SaysThatLibTorchHasNoCuda) {
  expect_explains(explain({}), {"built without CUDA", "so no GPU can be used."},
                  {"scripts/setup", "-DTorch_DIR="});
}

TEST(Explain, CountsTheCardsThatALibTorchWithoutCudaLeavesUnused) {
  GpuFacts facts;
  facts.report.gpus.resize(2);
  expect_explains(explain(facts), {"built without CUDA", "though the driver sees 2 GPUs"},
                  {"scripts/setup", "-DTorch_DIR="});
}

TEST(Explain, SaysThatTheLinkerDroppedLibtorchCuda) {
  expect_explains(explain({.cuda_not_loaded = true}),
                  {"libtorch_cuda.so is not loaded", "the linker drops it"},
                  {"target_link_libraries(app use_gpu::use_gpu)", "\"${TORCH_LIBRARIES}\"",
                   "-Wl,--no-as-needed -ltorch_cuda"});
}

TEST(Explain, SaysThatThereIsNoDriver) {
  GpuFacts facts = counting_fails(0, k_cuda_insufficient_driver);
  facts.cuda->driver_version.clear();
  facts.report.problem =
      "No NVIDIA driver was found (libnvidia-ml.so.1: cannot open shared object file). If this "
      "machine has an NVIDIA GPU, install its driver.";
  expect_explains(explain(facts), {"No NVIDIA driver was found"}, {"install its driver"});
}

TEST(Explain, LeavesTheDriversOwnProblemWhole) {
  GpuFacts facts = no_device(0);
  facts.report.problem = std::string(399, 'x') + '.';
  EXPECT_EQ(explain(facts), facts.report.problem);
  facts.report.gpus.resize(1);
  EXPECT_EQ(explain(facts), facts.report.problem);
}

TEST(Explain, SaysThatOnlyThePartOfTheDriverForComputingIsMissing) {
  GpuFacts facts = counting_fails(1, k_cuda_insufficient_driver);
  facts.cuda->driver_version.clear();
  expect_explains(explain(facts), {"The driver sees 1 GPU", "libcuda.so.1, is not found"},
                  {"NVIDIA_DRIVER_CAPABILITIES=compute,utility", "libnvidia-compute"});
}

TEST(Explain, NamesBothVersionsWhenTheDriverIsTooOld) {
  GpuFacts facts = counting_fails(1, k_cuda_insufficient_driver);
  facts.report.driver_version = "550.54.14";
  facts.cuda->driver_version = "12.4";
  expect_explains(explain(facts),
                  {"driver 550.54.14 is too old", "CUDA up to 12.4", "built for CUDA 13.0"},
                  {"Update the driver", "a LibTorch built for CUDA 12.4 or older"});
}

TEST(Explain, QuotesTheVisibleDevicesThatHideEveryGpu) {
  for (const auto& [value, quoted] :
       {std::pair("", "\"\""), {"-1", "\"-1\""}, {"\x1b[2J", "\"\\x1b[2J\""}}) {
    GpuFacts facts = no_device(2);
    facts.visible_devices = value;
    expect_explains(explain(facts),
                    {"The driver sees 2 GPUs", std::string("CUDA_VISIBLE_DEVICES=") + quoted},
                    {"Unset it", "`nvidia-smi -L`"});
  }
}

TEST(Explain, KeepsLongVisibleDevicesShort) {
  GpuFacts facts = counting_fails(2, k_cuda_invalid_device);
  facts.visible_devices = std::string(1'000'000, '\n');
  expect_explains(explain(facts), {"CUDA_VISIBLE_DEVICES=\"\\x0a"}, {"Unset it"});
}

TEST(Explain, DoesNotBlameVisibleDevicesForAnotherError) {
  GpuFacts facts = counting_fails(8, k_cuda_system_not_ready);
  facts.visible_devices = "0";
  EXPECT_EQ(explain(facts).find("CUDA_VISIBLE_DEVICES"), std::string::npos);
}

TEST(Explain, GivesCudasOwnErrorAndTheNextStep) {
  const std::vector<std::pair<CudaError, std::string>> next_steps = {
      {k_cuda_stub_library, "lib64/stubs"},
      {k_cuda_no_device, "MIG"},
      {k_cuda_operating_system, "modprobe nvidia_uvm"},
      {k_cuda_system_not_ready, "start nvidia-fabricmanager"},
      {k_cuda_compat_not_supported, "LD_LIBRARY_PATH"},
      {k_cuda_unknown, "modprobe nvidia_uvm"},
      {k_cuda_initialization, "forked"},
      {k_cuda_out_of_memory, "ulimit -v"},
      {k_cuda_devices_unavailable, "--compute-mode=DEFAULT"},
      {k_cuda_ecc, "`sudo dmesg | grep NVRM`"}};
  for (const auto& [error, next_step] : next_steps) {
    expect_explains(
        explain(counting_fails(8, error)),
        {"The driver sees 8 GPUs", "CUDA error " + std::to_string(error.code) + ": " + error.words},
        {next_step});
  }
}

TEST(Explain, GivesTheErrorThatCudaHasGotSinceLibTorchCounted) {
  GpuFacts facts = machine(2, 2);
  facts.cuda->error = "CUDA error 3: initialization error";
  for (auto& gpu : facts.gpus)
    gpu.error = "CUDA driver initialization failed, you might not have a CUDA gpu";
  expect_explains(explain(facts), {"LibTorch counted 2 GPUs", "CUDA error 3"},
                  {"forked", "\"spawn\""});
}

TEST(Explain, DoubtsTheAllocatorsSettingsWhereTheyAreSet) {
  const std::string settings = "PYTORCH_CUDA_ALLOC_CONF=\"" + std::string(1000, 'x') + '"';
  for (const std::string& error :
       {by_libtorch(k_cuda_not_supported) + ": " + std::string(1000, 'y'),
        "Unrecognized key 'foo'"s, "CUDA driver error: invalid device ordinal"s}) {
    GpuFacts facts = second_fails(error);
    facts.allocator_settings = settings;
    expect_explains(explain(facts), {"PYTORCH_CUDA_ALLOC_CONF=\"xxx"}, {"unset it"});
  }
  for (const auto error : {k_cuda_launch_failure, k_cuda_operating_system, k_cuda_out_of_memory}) {
    GpuFacts facts = second_fails(by_libtorch(error));
    facts.allocator_settings = settings;
    EXPECT_EQ(explain(facts).find("ALLOC_CONF"), std::string::npos);
  }
}

TEST(Explain, SaysThatAnEarlierCountIsKept) {
  expect_explains(explain(machine(1, 0)), {"LibTorch keeps its first count"}, {"Restart"});
}

TEST(Explain, NamesTheArchitectureThatLibTorchHasNoCodeFor) {
  GpuFacts facts = machine(1, 1);
  facts.gpus[0].model = "NVIDIA GeForce GTX 750, compute capability 5.0, 2.0 GiB";
  facts.gpus[0].error = by_libtorch(k_cuda_no_kernel_image);
  expect_explains(
      explain(facts),
      {"Of 1 GPU counted, 0 can be used", "cuda:0", "compute capability 5.0", "no code"},
      {"an older CUDA", "TORCH_CUDA_ARCH_LIST"});
  expect_explains(explain(second_fails(by_libtorch(k_cuda_no_kernel_image))),
                  {"Of 2 GPUs counted, 1 can be used", "cuda:1", "compute capability 12.0"},
                  {"a newer LibTorch", "TORCH_CUDA_ARCH_LIST"});
}

TEST(Explain, SaysThatAGpuIsBusyInExclusiveMode) {
  expect_explains(explain(second_fails(by_libtorch(k_cuda_devices_unavailable))),
                  {"Of 2 GPUs counted, 1 can be used", "cuda:1", "busy", "exclusive"},
                  {"End that program", "--compute-mode=DEFAULT"});
}

TEST(Explain, GivesAGpusOwnErrorAndTheNextStep) {
  expect_explains(explain(second_fails(by_libtorch(k_cuda_launch_failure))),
                  {"Of 2 GPUs counted, 1 can be used", "cuda:1", "unspecified launch failure"},
                  {"Restart the program", "`nvidia-smi`"});
  expect_explains(explain(second_fails("CUDA out of memory. Tried " + std::string(1000, 'x'))),
                  {"cuda:1", "out of memory"}, {"what else uses the device"});
}

TEST(Explain, DoesNotReadAnotherRuntimesCodesAsCudas) {
  GpuFacts facts = second_fails("HIP error: no kernel image is available");
  facts.cuda.reset();
  expect_explains(explain(facts), {"HIP error: no kernel image is available"},
                  {"Restart the program"});
}

TEST(Explain, GivesTheDriversReasonWhateverCudaAnswers) {
  for (const CudaError& error :
       {k_cuda_out_of_memory, k_cuda_initialization, k_cuda_stub_library,
        k_cuda_devices_unavailable, k_cuda_no_device, k_cuda_invalid_device,
        k_cuda_operating_system, k_cuda_system_not_ready, k_cuda_compat_not_supported,
        k_cuda_unknown}) {
    GpuFacts facts = counting_fails(0, error);
    facts.report.problem = "No GPU was found: the driver finds none.";
    EXPECT_EQ(explain(facts), facts.report.problem);
  }
}

TEST(Explain, GivesTheErrorOfAnotherAcceleratorWithoutDevices) {
  GpuFacts facts{.kind = "xpu", .error = "No XPU devices are available"};
  facts.report.problem = "No NVIDIA driver was found.";
  expect_explains(explain(facts), {"built for xpu", "No XPU devices are available"},
                  {"driver is installed", "may open the device"});
}

// What explain_gpus() returns in another process, where `variables` configure the simulated CUDA.
// That process runs only the last test of this file.
std::string explained_with(const std::map<std::string, std::string>& variables) {
  std::string command = "env";
  for (const auto& [name, value] : variables) command += ' ' + name + "='" + value + '\'';
  const auto self = std::filesystem::read_symlink("/proc/self/exe").string();
  command += ' ' + self + " --gtest_filter=ExplainGpus.ExplainsThisMachineAndChangesNothing";
  FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return "no process";
  std::string output;
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) output += static_cast<char>(c);
  EXPECT_EQ(::pclose(pipe), 0) << output;
  return output;
}

TEST(ExplainGpus, HasARemedyForWhatCudaAnswersWhenItCounts) {
  if (num_gpus() != 2 || !test::simulated()) GTEST_SKIP() << "needs 2 simulated GPUs";
  const std::string seen = "The driver sees 2 GPUs, but ";
  const std::map<std::string, std::pair<std::string, std::string>> explained = {
      {"2", {"CUDA error 2: out of memory", "ulimit -v"}},
      {"3", {"CUDA error 3: initialization error", "forked"}},
      {"34", {"CUDA error 34: CUDA driver is a stub library", "lib64/stubs"}},
      {"46", {"CUDA error 46: CUDA-capable device(s) is/are busy", "--compute-mode=DEFAULT"}},
      {"100", {"CUDA error 100: no CUDA-capable device is detected", "MIG"}},
      {"101", {"CUDA error 101: invalid device ordinal", "dmesg"}},
      {"304", {"CUDA error 304: OS call failed", "modprobe nvidia_uvm"}},
      {"802", {"CUDA error 802: system not yet initialized", "nvidia-fabricmanager"}},
      {"804", {"CUDA error 804: forward compatibility", "cuda/compat"}},
      {"999", {"CUDA error 999: unknown error", "modprobe nvidia_uvm"}}};
  for (const auto& [code, texts] : explained) {
    const auto text = explained_with({{"SIMULATE_GPUS_FAULTS", "cudaGetDeviceCount:*:" + code}});
    EXPECT_TRUE(has(text, seen));
    EXPECT_TRUE(has(text, texts.first));
    EXPECT_TRUE(has(text, texts.second));
  }
  const auto no_card = explained_with(
      {{"SIMULATE_GPUS_FAULTS", "cudaGetDeviceCount:*:999"}, {"SIMULATE_GPUS", "0"}});
  EXPECT_TRUE(has(no_card, "the driver finds none"));
  for (const std::string value : {"7", "0,0"}) {
    const auto hidden = explained_with({{"CUDA_VISIBLE_DEVICES", value}});
    EXPECT_TRUE(has(hidden, "CUDA_VISIBLE_DEVICES=\"" + value + "\" shows this program none"));
    EXPECT_TRUE(has(hidden, "one named twice hides all"));
  }
}

TEST(ExplainGpus, NamesTheAllocatorSettingsThatLibTorchRefuses) {
  if (num_gpus() != 2 || !test::simulated()) GTEST_SKIP() << "needs 2 simulated GPUs";
  const std::map<std::string, std::string> explained = {
      {"foo:bar", "Unrecognized key 'foo'"},
      {"max_split_size_mb:1", "max_split_size_mb too small"},
      {"max_split_size_mb:abc", "stoull"},
      {"backend:cudaMallocAsync", "not offered by simulated GPUs"}};
  for (const std::string variable : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    for (const auto& [value, reason] : explained) {
      const auto text = explained_with({{variable, value}});
      EXPECT_TRUE(has(text, reason));
      EXPECT_TRUE(has(text, variable + "=\"" + value + '"'));
      EXPECT_TRUE(has(text, "unset it"));
    }
  }
  const auto full = explained_with({{"PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128"},
                                    {"SIMULATE_GPUS_FAULTS", "cudaMalloc:*:2"}});
  EXPECT_TRUE(has(full, "CUDA out of memory"));
  EXPECT_TRUE(has(full, "see what else uses the device"));  // the settings are well
}

// A child that uses what its parent has begun to use.
TEST(ExplainGpus, SaysThatThisProcessWasForked) {
  if (num_gpus() != 2 || !test::simulated()) GTEST_SKIP() << "needs 2 simulated GPUs";
  EXPECT_EXIT(
      {
        static_cast<void>(explain_gpus());
        if (const auto child = ::fork(); child != 0) {
          ::waitpid(child, nullptr, 0);
          ::_exit(0);
        }
        std::cerr << explain_gpus() << std::endl;
        ::_exit(0);
      },
      testing::ExitedWithCode(0), "LibTorch counted 2 GPUs, but.*CUDA error 3.*forked.*spawn");
}

TEST(ExplainGpus, TellsAnOldDriverFromOneWithoutItsPartForComputing) {
  if (num_gpus() != 2 || !test::simulated()) GTEST_SKIP() << "needs 2 simulated GPUs";
  for (const char* cards : {"2", "0"}) {
    const auto text =
        explained_with({{"SIMULATE_GPUS_DRIVER_VERSION", "12040"}, {"SIMULATE_GPUS", cards}});
    EXPECT_TRUE(has(text, "is too old for this LibTorch: it runs CUDA up to 12.4"));
    EXPECT_TRUE(has(text, "Update the driver"));
  }
  const auto text = explained_with(
      {{"SIMULATE_GPUS_FAULTS", "cudaGetDeviceCount:*:35,cudaDriverGetVersion:*:35"}});
  EXPECT_TRUE(has(text, "The driver sees 2 GPUs, but its library for computing"));
  EXPECT_TRUE(has(text, "NVIDIA_DRIVER_CAPABILITIES=compute,utility"));
}

TEST(ExplainGpus, HasARemedyForALaunchThatFails) {
  if (num_gpus() != 2 || !test::simulated()) GTEST_SKIP() << "needs 2 simulated GPUs";
  const std::map<std::string, std::pair<std::string, std::string>> explained = {
      {"46", {"is busy or closed", "--compute-mode=DEFAULT"}},
      {"209", {"is of an architecture that this LibTorch has no code for", "TORCH_CUDA_ARCH_LIST"}},
      {"719", {"unspecified launch failure", "`sudo dmesg`"}}};
  for (const auto& [code, texts] : explained) {
    // The launch on the second GPU: the first one works.
    const auto text = explained_with({{"SIMULATE_GPUS_FAULTS", "cudaLaunchKernel:2:" + code}});
    EXPECT_TRUE(has(text, "Of 2 GPUs counted, 1 can be used. cuda:1 (Simulated GPU"));
    EXPECT_TRUE(has(text, texts.first));
    EXPECT_TRUE(has(text, texts.second));
  }
}

TEST(QueryGpus, ShowsThisProcessOnTheSimulatedGpuThatItUses) {
  if (num_gpus() != 2 || !test::simulated()) GTEST_SKIP() << "needs 2 simulated GPUs";
  const auto x = at::ones({1 << 20}, at::device(gpu(1)));
  const auto report = query_gpus();
  ASSERT_EQ(report.gpus.size(), 2U);
  for (const auto& card : report.gpus) {
    EXPECT_EQ(card.name, "Simulated GPU");
    EXPECT_EQ(card.memory_total_bytes, std::uint64_t{8} << 30);
  }
  const auto& processes = report.gpus[1].processes;
  ASSERT_EQ(processes.size(), 1U);
  EXPECT_EQ(processes[0].pid, static_cast<unsigned>(::getpid()));
  EXPECT_GE(processes[0].memory_bytes, x.nbytes());
}

// Whatever this machine is.
TEST(ExplainGpus, ExplainsThisMachineAndChangesNothing) {
  const int count = num_gpus();
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  const std::string text = explain_gpus();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  // Simulated GPUs name what they refuse; LibTorch 2.14 logs that memory is used up.
  const std::regex own_log(
      "simulate_gpus: [^\n]* is not offered by simulated GPUs\n"
      "|\\[W[^\n]* memory allocation failed with OOM [^\n]*\n");
  EXPECT_EQ(std::regex_replace(testing::internal::GetCapturedStderr(), own_log, ""), "");
  expect_explains(text, {count > 0 ? c10::DeviceTypeName(gpu().type(), true) + ":" : ""}, {});
  EXPECT_EQ(text.find("cannot be examined"), std::string::npos);
  EXPECT_EQ(text.find("Simulated GPU") != text.npos, test::simulated());  // their model
  EXPECT_EQ(num_gpus(), count);
  EXPECT_EQ(try_gpu(), count > 0 ? gpu() : cpu());
}

}  // namespace
}  // namespace use_gpu::detail
