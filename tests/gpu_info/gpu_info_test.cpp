// SPDX-License-Identifier: MIT
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <nvml.h>
#include <use_gpu/gpu_info.hpp>

#include <functional>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "gpu_info/nvml_query.hpp"

namespace use_gpu::detail {
namespace {

// fake_nvml.cpp, open for as long as this lives, with that many healthy GPUs to begin with.
class FakeNvml {
 public:
  explicit FakeNvml(unsigned gpus, const char* path = FAKE_NVML_PATH)
      : path_(path), library_(dlopen(path, RTLD_NOW)) {
    if (!library_) throw std::runtime_error(dlerror());
    function<void(unsigned)>("fake_nvml_reset")(gpus);
  }
  ~FakeNvml() { dlclose(library_); }
  FakeNvml(const FakeNvml&) = delete;
  FakeNvml& operator=(const FakeNvml&) = delete;

  void fail(const char* call, nvmlReturn_t code, int gpu = -1) {
    function<void(const char*, int, int)>("fake_nvml_fail")(call, gpu, code);
  }
  void set_names(const std::string& gpu, const std::string& process) {
    function<void(const char*, const char*)>("fake_nvml_set_names")(gpu.c_str(), process.c_str());
  }
  void set_processes(unsigned count) { function<void(unsigned)>("fake_nvml_set_processes")(count); }
  int inits() { return function<int()>("fake_nvml_inits")(); }

  // The report; fails the test if NVML was left initialised.
  GpuReport query() {
    GpuReport report = query_gpus_from(path_);
    EXPECT_EQ(function<int()>("fake_nvml_left_open")(), 0);
    return report;
  }

 private:
  template <class Function>
  Function* function(const char* name) {
    return reinterpret_cast<Function*>(dlsym(library_, name));
  }

  const char* path_;
  void* library_;
};

constexpr std::uint64_t k_gib = 1ULL << 30;

// The fake's GPU `index` as it is reported when all is well and two processes compute.
GpuInfo healthy(int index) {
  return {.index = index,
          .name = "NVIDIA H200",
          .uuid = "GPU-" + std::to_string(index),
          .pci_bus_id = "00000000:0" + std::to_string(index) + ":00.0",
          .memory_total_bytes = 192 * k_gib,
          .memory_used_bytes = 8 * k_gib,
          .utilization_percent = 93,
          .temperature_celsius = 41,
          .power_watts = 76.5,
          .power_limit_watts = 700.0,
          .processes = {{1000, "/usr/bin/python3", 8 * k_gib},
                        {1001, "/usr/bin/python3", 8 * k_gib},
                        {999, "/usr/bin/python3", std::nullopt}},
          .memory_free_bytes = 183 * k_gib};
}

// A GPU of which nothing is known.
GpuInfo unknown(int index) {
  GpuInfo gpu;
  gpu.index = index;
  return gpu;
}

GpuReport report_of(std::vector<GpuInfo> gpus, std::string problem = {}) {
  return {"580.65.06", "13.0", std::move(gpus), std::move(problem)};
}

template <class Value>
std::string text_of(const std::optional<Value>& value) {
  return value ? std::to_string(*value) : "empty";
}

// All that is known of the GPUs, to compare and to be read when they differ.
std::string text_of(const std::vector<GpuInfo>& gpus) {
  std::ostringstream text;
  for (const GpuInfo& gpu : gpus) {
    text << gpu.index << " '" << gpu.name << "' '" << gpu.uuid << "' '" << gpu.pci_bus_id
         << "' memory " << text_of(gpu.memory_total_bytes) << ' ' << text_of(gpu.memory_used_bytes)
         << ' ' << text_of(gpu.memory_free_bytes) << " utilization "
         << text_of(gpu.utilization_percent) << " temperature " << text_of(gpu.temperature_celsius)
         << " power " << text_of(gpu.power_watts) << ' ' << text_of(gpu.power_limit_watts);
    for (const GpuProcess& process : gpu.processes) {
      text << " process " << process.pid << " '" << process.name << "' "
           << text_of(process.memory_bytes);
    }
    text << '\n';
  }
  return text.str();
}

std::string printed(const GpuReport& report) {
  std::ostringstream text;
  text << report;
  return text.str();
}

// Whether a text can be shown to a user: short, on one line, in characters that every terminal has.
void expect_readable(const std::string& problem) {
  EXPECT_LE(problem.size(), 400U) << problem;
  EXPECT_GE(problem.size(), 60U) << problem;
  EXPECT_EQ(printed(report_of({}, problem)), problem + '\n');
}

void expect_fits_100_columns(const std::string& table) {
  std::istringstream lines(table);
  std::string line;
  while (std::getline(lines, line)) {
    EXPECT_EQ(line.size(), 91U) << line;
    for (const char c : line) EXPECT_TRUE(c >= ' ' && c <= '~') << line;
  }
}

std::vector<nvmlReturn_t> every_error() {
  std::vector<nvmlReturn_t> codes{NVML_ERROR_UNKNOWN, static_cast<nvmlReturn_t>(500)};
  for (int code = 1; code <= NVML_ERROR_RESET_TYPE_NOT_SUPPORTED; ++code) {
    codes.push_back(static_cast<nvmlReturn_t>(code));
  }
  return codes;
}

TEST(QueryGpus, ReportsAllOfEveryGpu) {
  for (const int count : {1, 2, 8}) {
    FakeNvml nvml(static_cast<unsigned>(count));
    nvml.set_processes(2);
    const GpuReport report = nvml.query();
    std::vector<GpuInfo> expected;
    for (int i = 0; i < count; ++i) expected.push_back(healthy(i));
    EXPECT_EQ(text_of(report.gpus), text_of(expected));
    EXPECT_EQ(report.driver_version, "580.65.06");
    EXPECT_EQ(report.cuda_version, "13.0");
    EXPECT_EQ(report.problem, "");
  }
}

TEST(QueryGpus, SaysThatADriverFindsNoGpu) {
  FakeNvml nvml(0);
  const GpuReport report = nvml.query();
  EXPECT_TRUE(report.gpus.empty());
  EXPECT_EQ(report.driver_version, "580.65.06");
  expect_readable(report.problem);
  EXPECT_NE(report.problem.find("the driver finds none"), std::string::npos) << report.problem;
  EXPECT_NE(report.problem.find("`lspci | grep -i nvidia`"), std::string::npos) << report.problem;
}

TEST(QueryGpus, HasGpusOrSaysWhyNotOnThisMachine) {
  const GpuReport report = query_gpus();
  EXPECT_TRUE(!report.gpus.empty() || !report.problem.empty());
}

TEST(QueryGpus, SaysWhatToDoWithoutADriver) {
  const std::string absent = "/nowhere/libnvidia-ml.so.1";
  for (const std::string& library :
       {absent, "/nowhere/" + std::string(3000, 'x'), {"/etc/passwd"}}) {
    const GpuReport report = query_gpus_from(library);
    EXPECT_TRUE(report.gpus.empty());
    expect_readable(report.problem);
    EXPECT_EQ(report.problem.find("No NVIDIA driver was found (/"), 0U) << report.problem;
    EXPECT_NE(report.problem.find("install its driver"), std::string::npos) << report.problem;
  }
}

TEST(QueryGpus, SaysWhatToDoAboutALibraryThatIsNotNvml) {
  const GpuReport report = query_gpus_from("libm.so.6");
  EXPECT_TRUE(report.gpus.empty());
  expect_readable(report.problem);
  EXPECT_NE(report.problem.find("is not NVIDIA's management library"), std::string::npos);
  EXPECT_NE(report.problem.find("Reinstall the NVIDIA driver"), std::string::npos);
}

TEST(QueryGpus, LeavesEmptyWhatAnOldDriverLacks) {
  FakeNvml nvml(2, FAKE_NVML_OLD_PATH);
  nvml.set_processes(2);
  std::vector<GpuInfo> expected{healthy(0), healthy(1)};
  for (GpuInfo& gpu : expected) {
    gpu.pci_bus_id.clear();
    gpu.memory_used_bytes = 9 * k_gib;
    gpu.processes.clear();
  }
  const GpuReport report = nvml.query();
  EXPECT_EQ(text_of(report.gpus), text_of(expected));
  EXPECT_EQ(report.driver_version, "580.65.06");
  EXPECT_EQ(report.cuda_version, "");
  EXPECT_EQ(report.problem, "");
}

TEST(QueryGpus, NamesTheCauseAndTheNextStepOfEachErrorThatHasOne) {
  const struct {
    nvmlReturn_t code;
    const char *cause, *next_step;
  } cases[] = {
      {NVML_ERROR_DRIVER_NOT_LOADED, "its kernel module is not loaded", "`sudo modprobe nvidia`"},
      {NVML_ERROR_LIB_RM_VERSION_MISMATCH, "have different versions", "Reboot the machine"},
      {NVML_ERROR_NO_PERMISSION, "has no permission", "`ls -l /dev/nvidia*`"},
      {NVML_ERROR_OPERATING_SYSTEM, "the operating system blocks its devices",
       "Restart the container"},
      {NVML_ERROR_UNKNOWN, "the operating system blocks its devices", "Restart the container"},
      {NVML_ERROR_GPU_NOT_FOUND, "the driver finds none", "`lspci | grep -i nvidia`"},
      {NVML_ERROR_GPU_IS_LOST, "the card is lost", "Reboot"},
      {NVML_ERROR_RESET_REQUIRED, "the card must be reset", "`sudo nvidia-smi --gpu-reset`"},
      {NVML_ERROR_INSUFFICIENT_POWER, "power cable", "attach it"},
      {NVML_ERROR_TIMEOUT, "In The Driver's Words", "`sudo dmesg | grep NVRM`"},
  };
  for (const auto& [code, cause, next_step] : cases) {
    for (const char* call : {"nvmlInit_v2", "nvmlDeviceGetHandleByIndex_v2"}) {
      FakeNvml nvml(1);
      nvml.fail(call, code);
      const std::string problem = nvml.query().problem;
      EXPECT_NE(problem.find(cause), std::string::npos) << problem;
      EXPECT_NE(problem.find(next_step), std::string::npos) << problem;
    }
  }
}

TEST(QueryGpus, ExplainsEveryErrorThatLeavesNoGpu) {
  for (const char* call : {"nvmlInit_v2", "nvmlDeviceGetCount_v2"}) {
    for (const nvmlReturn_t code : every_error()) {
      FakeNvml nvml(2);
      nvml.fail(call, code);
      const GpuReport report = nvml.query();
      EXPECT_TRUE(report.gpus.empty());
      expect_readable(report.problem);
      EXPECT_NE(report.problem.find("error " + std::to_string(code) + ")"), std::string::npos);
    }
  }
}

TEST(QueryGpus, ReportsTheOtherGpusWhenOneCannotBeReached) {
  for (const nvmlReturn_t code : every_error()) {
    FakeNvml nvml(2);
    nvml.set_processes(2);
    nvml.fail("nvmlDeviceGetHandleByIndex_v2", code, 1);
    const GpuReport report = nvml.query();
    EXPECT_EQ(text_of(report.gpus), text_of(std::vector<GpuInfo>{healthy(0), unknown(1)}));
    expect_readable(report.problem);
    EXPECT_EQ(report.problem.find("GPU 1 cannot be used: "), 0U) << report.problem;
  }
}

TEST(QueryGpus, LeavesEmptyWhatOneGpuDoesNotOffer) {
  const struct {
    std::vector<const char*> calls;
    std::function<void(GpuInfo&)> blank;
  } cases[] = {
      {{"nvmlDeviceGetName"}, [](GpuInfo& gpu) { gpu.name.clear(); }},
      {{"nvmlDeviceGetUUID"}, [](GpuInfo& gpu) { gpu.uuid.clear(); }},
      {{"nvmlDeviceGetPciInfo_v3"}, [](GpuInfo& gpu) { gpu.pci_bus_id.clear(); }},
      {{"nvmlDeviceGetUtilizationRates"}, [](GpuInfo& gpu) { gpu.utilization_percent.reset(); }},
      {{"nvmlDeviceGetTemperature"}, [](GpuInfo& gpu) { gpu.temperature_celsius.reset(); }},
      {{"nvmlDeviceGetPowerUsage"}, [](GpuInfo& gpu) { gpu.power_watts.reset(); }},
      {{"nvmlDeviceGetEnforcedPowerLimit"}, [](GpuInfo& gpu) { gpu.power_limit_watts.reset(); }},
      {{"nvmlDeviceGetMemoryInfo_v2"}, [](GpuInfo& gpu) { gpu.memory_used_bytes = 9 * k_gib; }},
      {{"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"},
       [](GpuInfo& gpu) {
         gpu.memory_total_bytes.reset();
         gpu.memory_used_bytes.reset();
         gpu.memory_free_bytes.reset();
       }},
      {{"nvmlDeviceGetComputeRunningProcesses_v2"},
       [](GpuInfo& gpu) {
         gpu.processes = {{999, "/usr/bin/python3", std::nullopt},
                          {1000, "/usr/bin/python3", std::nullopt}};
       }},
      {{"nvmlDeviceGetGraphicsRunningProcesses_v2"},
       [](GpuInfo& gpu) { gpu.processes.pop_back(); }},
      {{"nvmlDeviceGetMPSComputeRunningProcesses_v2"}, [](GpuInfo&) {}},
  };
  for (const auto& [calls, blank] : cases) {
    for (const nvmlReturn_t code : every_error()) {
      FakeNvml nvml(2);
      nvml.set_processes(2);
      for (const char* call : calls) nvml.fail(call, code, 1);
      std::vector<GpuInfo> expected{healthy(0), healthy(1)};
      blank(expected[1]);
      const GpuReport report = nvml.query();
      EXPECT_EQ(text_of(report.gpus), text_of(expected)) << calls[0] << " answers " << code;
      const bool ill = code == NVML_ERROR_GPU_IS_LOST || code == NVML_ERROR_RESET_REQUIRED;
      EXPECT_EQ(report.problem.find("GPU 1 cannot be used: ") == 0, ill) << report.problem;
    }
  }
}

TEST(QueryGpus, DoesWithoutVersionsProcessNamesAndAnOrderlyEnd) {
  for (const nvmlReturn_t code : every_error()) {
    FakeNvml nvml(1);
    nvml.set_processes(2);
    for (const char* call : {"nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion_v2",
                             "nvmlSystemGetProcessName", "nvmlShutdown"}) {
      nvml.fail(call, code);
    }
    GpuInfo expected = healthy(0);
    for (GpuProcess& process : expected.processes) process.name.clear();
    const GpuReport report = nvml.query();
    EXPECT_EQ(text_of(report.gpus), text_of(std::vector<GpuInfo>{expected}));
    EXPECT_EQ(report.driver_version + report.cuda_version + report.problem, "");
  }
}

TEST(QueryGpus, KeepsNamesAsTheyAreAndEndsThoseWithoutAnEnd) {
  FakeNvml nvml(1);
  nvml.set_processes(1);
  const struct {
    std::string given, reported;
  } cases[] = {{"", ""},
               {"Grafik \xc3\xbc \x1b[2J\n", "Grafik \xc3\xbc \x1b[2J\n"},
               {std::string(5000, 'x'), std::string(1024, 'x')}};
  for (const auto& [given, reported] : cases) {
    nvml.set_names(given, given);
    const GpuReport report = nvml.query();
    EXPECT_EQ(report.gpus.at(0).name, reported);
    EXPECT_EQ(report.gpus.at(0).processes.at(0).name, reported);
    expect_fits_100_columns(printed(report));
  }
}

TEST(QueryGpus, ListsHundredsOfProcesses) {
  FakeNvml nvml(1);
  nvml.set_processes(500);
  const GpuReport report = nvml.query();
  EXPECT_EQ(report.gpus.at(0).processes.size(), 501U);
}

TEST(QueryGpus, LeavesNothingBehindAfterAThousandCalls) {
  FakeNvml nvml(8);
  nvml.set_processes(2);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(nvml.query().gpus.size(), 8U);
  EXPECT_EQ(nvml.inits(), 1000);
}

TEST(QueryGpus, ServesTwoThreadsAtOnce) {
  FakeNvml nvml(2);
  const std::string expected = text_of(nvml.query().gpus);
  const auto query_often = [&] {
    for (int i = 0; i < 200; ++i)
      EXPECT_EQ(text_of(query_gpus_from(FAKE_NVML_PATH).gpus), expected);
  };
  std::thread other(query_often);
  query_often();
  other.join();
  EXPECT_EQ(text_of(nvml.query().gpus), expected);
}

TEST(GpuReport, PrintsTheTableThatNvidiaSmiUsersKnow) {
  const GpuReport report = report_of({healthy(0)});
  EXPECT_EQ('\n' + printed(report), R"(
+-----------------------------------------------------------------------------------------+
| Driver Version: 580.65.06                                            CUDA Version: 13.0 |
+--------------------------------------------------+-------------------------+------------+
| GPU  Name                                        |                  Bus-Id |       Temp |
|                                    Pwr:Usage/Cap |            Memory-Usage |   GPU-Util |
|==================================================+=========================+============|
|   0  NVIDIA H200                                 |        00000000:00:00.0 |        41C |
|                                       77W / 700W |     8192MiB / 196608MiB |        93% |
+--------------------------------------------------+-------------------------+------------+
| Processes:                                                                              |
| GPU         PID  Process name                                                GPU Memory |
|=========================================================================================|
|   0        1000  /usr/bin/python3                                               8192MiB |
|   0        1001  /usr/bin/python3                                               8192MiB |
|   0         999  /usr/bin/python3                                                   N/A |
+-----------------------------------------------------------------------------------------+
)");
}

TEST(GpuReport, PrintsWhatIsNotKnownAsNotAvailable) {
  const std::string table = printed({"", "", {unknown(0)}, ""});
  expect_fits_100_columns(table);
  for (const char* text : {"Driver Version: N/A", "CUDA Version: N/A", "|   0  N/A ",
                           " N/A / N/A |", "       N/A |", "No running processes found"}) {
    EXPECT_NE(table.find(text), std::string::npos) << text << " in\n" << table;
  }
}

TEST(GpuReport, PrintsOnlyTheProblemWhereThereIsNoGpu) {
  EXPECT_EQ(printed(report_of({}, "No GPU.")), "No GPU.\n");
}

TEST(GpuReport, PrintsTheProblemOfOneGpuBelowTheTable) {
  const std::vector<GpuInfo> gpus{healthy(0), unknown(1)};
  EXPECT_EQ(printed(report_of(gpus, "GPU 1 cannot be used.")),
            printed(report_of(gpus)) + "GPU 1 cannot be used.\n");
}

TEST(GpuReport, KeepsTheEndOfALongProcessName) {
  GpuInfo gpu = healthy(0);
  gpu.processes.at(0).name = "/home/someone/" + std::string(100, 'x') + "/bin/python3";
  const std::string table = printed(report_of({gpu}));
  EXPECT_NE(table.find(" ...xxx"), std::string::npos) << table;
  EXPECT_NE(table.find("xxx/bin/python3  "), std::string::npos) << table;
}

TEST(GpuReport, FitsAHundredColumnsWhateverItHolds) {
  GpuReport report{std::string(500, '5'), std::string(500, '1'), {}, ""};
  constexpr auto k_most_bytes = std::numeric_limits<std::uint64_t>::max();
  constexpr auto k_most = std::numeric_limits<int>::max();
  for (int i = 0; i < 128; ++i) report.gpus.push_back(healthy(i));
  report.gpus.push_back(
      {k_most,
       std::string(500, 'n'),
       std::string(500, 'u'),
       std::string(500, 'p'),
       k_most_bytes,
       k_most_bytes,
       -k_most,
       -k_most,
       1e12,
       -1e12,
       {{std::numeric_limits<std::uint32_t>::max(), std::string(500, '\xff'), k_most_bytes}}});
  expect_fits_100_columns(printed(report));
}

}  // namespace
}  // namespace use_gpu::detail
