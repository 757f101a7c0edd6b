// SPDX-License-Identifier: MIT
//
// The one place that knows NVML, NVIDIA's management library.
//
// Why it is opened at run time. libnvidia-ml.so.1 comes with the driver, not with the CUDA Toolkit.
// A program linked to it does not start where there is no driver, and that is exactly where a user
// wants to be told why there is no GPU. So it is opened with dlopen on demand, as c10 does, and its
// absence is a result.
//
// Why functions are looked up by name, one by one. Each driver has its own set: an old one lacks
// what a newer nvml.h declares. A missing function returns NVML_ERROR_FUNCTION_NOT_FOUND, which
// callers treat as any other "not supported".
//
// Why NVML_NO_UNVERSIONED_FUNC_DEFS. nvml.h otherwise renames functions by macros (nvmlInit becomes
// nvmlInit_v2 ...), differently in each release. With it, a name in our source is the exported
// name, and the older versions, to which we fall back, are declared too.
//
// Why the library is closed again. Nothing of it remains between two queries: no handle, no
// initialised NVML, no state of ours. NVML counts its users, so neither a second thread nor
// LibTorch, which has the library open as well, is disturbed; NVIDIA's own go-nvml does the same.
#include "gpu_info/nvml_query.hpp"

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <dlfcn.h>
#include <nvml.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "messages/message.hpp"

namespace use_gpu::detail {
namespace {

struct Explanation {
  std::string cause;
  const char* remedy;
};

// The codes with a more helpful text than the driver's own.
Explanation explanation(nvmlReturn_t code, const char* words) {
  switch (code) {
    case NVML_ERROR_DRIVER_NOT_LOADED:
      return {"the NVIDIA driver is installed but its kernel module is not loaded",
              "Load it with `sudo modprobe nvidia`; if that fails, reinstall the driver for the "
              "running kernel (`uname -r`) and reboot. Start a container with `--gpus all`."};
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH:
      return {
          "the driver's library and the loaded kernel module have different versions, as after "
          "an update of the driver",
          "Reboot the machine; restart a container that was started before the update."};
    case NVML_ERROR_NO_PERMISSION:
      return {
          "this user, container or job has no permission",
          "Look at `ls -l /dev/nvidia*`: join the group that owns the devices and log in again, "
          "or ask for the GPU when starting the container (`--gpus all`) or job."};
    case NVML_ERROR_OPERATING_SYSTEM:
    case NVML_ERROR_UNKNOWN:
      return {"the operating system blocks its devices, or the driver failed",
              "Restart the container, if any: it loses its GPUs when the host reloads "
              "systemd. Else see `sudo dmesg | grep NVRM`, and reboot."};
    case NVML_ERROR_GPU_NOT_FOUND:
      return {
          "the driver finds none",
          "See whether `lspci | grep -i nvidia` lists one. A virtual machine or a container must "
          "be given its GPUs (`--gpus all`); a card listed but not found may be too old or too "
          "new for this driver: see `sudo dmesg | grep NVRM`."};
    case NVML_ERROR_GPU_IS_LOST:
      return {"the card is lost, it no longer answers", "Reboot; see `sudo dmesg | grep Xid`."};
    case NVML_ERROR_RESET_REQUIRED:
      return {"the card must be reset first",
              "End its programs, then `sudo nvidia-smi --gpu-reset`, or reboot."};
    case NVML_ERROR_INSUFFICIENT_POWER:
      return {"a power cable of the card is not properly attached",
              "Switch the machine off and attach it."};
    default:
      return {words, "See `sudo dmesg | grep NVRM` for the cause; reboot if in doubt."};
  }
}

// A function of NVML with the type that nvml.h declares. A macro, so that name and type agree.
#define USE_GPU_NVML(nvml, name) (nvml).function<decltype(name)>(#name)

// NVML, initialised for as long as this lives.
class Nvml {
 public:
  // The function of that name, to be called at once. See USE_GPU_NVML.
  template <class Function>
  [[nodiscard]] auto function(const char* name) const {
    return [pointer = reinterpret_cast<Function*>(symbol(name))](auto... arguments) {
      return pointer ? pointer(arguments...) : NVML_ERROR_FUNCTION_NOT_FOUND;
    };
  }

  explicit Nvml(const std::string& library) : library_(dlopen(library.c_str(), RTLD_LAZY)) {
    if (!library_) {
      problem_ =
          fitted(std::string("No NVIDIA driver was found (") + dlerror() +
                 "). If this machine has an NVIDIA GPU, install its driver; start a container "
                 "with `--gpus all`.");
    } else if (!symbol("nvmlInit_v2") || !symbol("nvmlShutdown") || !symbol("nvmlErrorString")) {
      problem_ = in_quotes(library) +
                 " is not NVIDIA's management library: it lacks functions that every version has. "
                 "Reinstall the NVIDIA driver, version 319 or later; it brings the right one.";
    } else {
      const nvmlReturn_t code = USE_GPU_NVML(*this, nvmlInit_v2)();
      initialized_ = code == NVML_SUCCESS;
      if (!initialized_) problem_ = explain("No GPU can be used", code);
    }
  }
  ~Nvml() {
    if (initialized_) USE_GPU_NVML(*this, nvmlShutdown)();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Why NVML is not usable, and what to do; empty if it is.
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }

  // "GPU 1 cannot be used: the card is lost ... (NVML error 15). Reboot ...": the subject, what the
  // code means, and what to do about it.
  [[nodiscard]] std::string explain(const std::string& subject, nvmlReturn_t code) const {
    auto* const words = reinterpret_cast<decltype(nvmlErrorString)*>(symbol("nvmlErrorString"));
    const auto [cause, remedy] = explanation(code, words(code));
    return fitted(subject + ": " + cause + " (NVML error " + std::to_string(code) + "). " + remedy);
  }

 private:
  struct Close {
    void operator()(void* library) const noexcept {
#ifdef __SANITIZE_ADDRESS__  // LeakSanitizer knows the driver's own leaks by the library's name
      static_cast<void>(library);
#else
      dlclose(library);
#endif
    }
  };

  void* symbol(const char* name) const noexcept { return dlsym(library_.get(), name); }

  std::unique_ptr<void, Close> library_;
  bool initialized_ = false;
  std::string problem_;
};

constexpr unsigned k_longest_text = 1024;  // more than NVML needs for any text

// The text that `call` gives for these arguments; empty if it fails. One that fills the buffer may
// lack a terminator.
std::string text_of(const auto& call, auto... arguments) {
  char buffer[k_longest_text];
  if (call(arguments..., buffer, k_longest_text) != NVML_SUCCESS) return {};
  return {buffer, strnlen(buffer, k_longest_text)};
}

// A number that `call` gives for these arguments; nothing if it fails.
std::optional<unsigned> number_of(const auto& call, auto... arguments) {
  unsigned number = 0;
  if (call(arguments..., &number) != NVML_SUCCESS) return std::nullopt;
  return number;
}

std::optional<double> watts_of(const auto& call) {
  const auto milliwatts = number_of(call);
  return milliwatts ? std::optional(*milliwatts / 1000.0) : std::nullopt;
}

// Adds the processes of one of NVML's lists; false if `list` fails.
template <class Process>
bool add_processes(GpuInfo& gpu, const Nvml& nvml, const auto& list) {
  std::vector<Process> listed(128);
  auto count = static_cast<unsigned>(listed.size());
  nvmlReturn_t code = list(&count, listed.data());
  if (code == NVML_ERROR_INSUFFICIENT_SIZE) {
    listed.resize(count + std::size_t{128});  // processes may start between the two calls
    count = static_cast<unsigned>(listed.size());
    code = list(&count, listed.data());
  }
  if (code != NVML_SUCCESS) return false;
  listed.resize(count);
  for (const Process& process : listed) {
    // A program that computes and draws is in two lists.
    if (std::ranges::count(gpu.processes, process.pid, &GpuProcess::pid) > 0) continue;
    const auto name = text_of(USE_GPU_NVML(nvml, nvmlSystemGetProcessName), process.pid);
    gpu.processes.push_back({process.pid, name, std::nullopt});
    if (process.usedGpuMemory != static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE))
      gpu.processes.back().memory_bytes = process.usedGpuMemory;
  }
  return true;
}

// Adds what one of NVML's versions of the memory has; false if `call` fails.
bool add_memory(GpuInfo& gpu, const auto& call, auto memory) {
  if (call(&memory) != NVML_SUCCESS) return false;
  gpu.memory_total_bytes = memory.total;
  gpu.memory_used_bytes = memory.used;
  gpu.memory_free_bytes = memory.free;
  return true;
}

// Adds GPU `index` with all values that it reports. A missing value is normal. A lost GPU, or one
// that needs a reset, is a problem; the report keeps the first.
void add_gpu(GpuReport& report, const Nvml& nvml, unsigned index) {
  GpuInfo& gpu = report.gpus.emplace_back();
  gpu.index = static_cast<int>(index);
  nvmlDevice_t device{};
  nvmlReturn_t illness = USE_GPU_NVML(nvml, nvmlDeviceGetHandleByIndex_v2)(index, &device);
  if (illness == NVML_SUCCESS) {
    // The function for this GPU.
    const auto its = [&](const auto& function) {
      return [&illness, device, function](auto... arguments) {
        const nvmlReturn_t code = function(device, arguments...);
        if (code == NVML_ERROR_GPU_IS_LOST || code == NVML_ERROR_RESET_REQUIRED) illness = code;
        return code;
      };
    };
    gpu.name = text_of(its(USE_GPU_NVML(nvml, nvmlDeviceGetName)));
    gpu.uuid = text_of(its(USE_GPU_NVML(nvml, nvmlDeviceGetUUID)));
    nvmlPciInfo_t pci{};
    if (its(USE_GPU_NVML(nvml, nvmlDeviceGetPciInfo_v3))(&pci) == NVML_SUCCESS)
      gpu.pci_bus_id = {pci.busId, strnlen(pci.busId, sizeof pci.busId)};
    nvmlUtilization_t utilization{};
    if (its(USE_GPU_NVML(nvml, nvmlDeviceGetUtilizationRates))(&utilization) == NVML_SUCCESS)
      gpu.utilization_percent = static_cast<int>(utilization.gpu);
    const auto temperature = its(USE_GPU_NVML(nvml, nvmlDeviceGetTemperature));
    gpu.temperature_celsius = number_of(temperature, NVML_TEMPERATURE_GPU);
    gpu.power_watts = watts_of(its(USE_GPU_NVML(nvml, nvmlDeviceGetPowerUsage)));
    gpu.power_limit_watts = watts_of(its(USE_GPU_NVML(nvml, nvmlDeviceGetEnforcedPowerLimit)));
    nvmlMemory_v2_t memory{};
    memory.version = nvmlMemory_v2;
    // Older drivers have the first version alone.
    add_memory(gpu, its(USE_GPU_NVML(nvml, nvmlDeviceGetMemoryInfo_v2)), memory) ||
        add_memory(gpu, its(USE_GPU_NVML(nvml, nvmlDeviceGetMemoryInfo)), nvmlMemory_t{});
    // Version 3 of the lists is not used: drivers 535.43 to 535.86 fill it with larger structures
    // than nvml.h declares. Version 2 has one layout since driver 450; version 1 is for older
    // drivers.
    const auto add = [&](const auto& list, const auto& older_list) {
      add_processes<nvmlProcessInfo_v2_t>(gpu, nvml, its(list)) ||
          add_processes<nvmlProcessInfo_v1_t>(gpu, nvml, its(older_list));
    };
    add(USE_GPU_NVML(nvml, nvmlDeviceGetComputeRunningProcesses_v2),
        USE_GPU_NVML(nvml, nvmlDeviceGetComputeRunningProcesses));
    add(USE_GPU_NVML(nvml, nvmlDeviceGetMPSComputeRunningProcesses_v2),
        USE_GPU_NVML(nvml, nvmlDeviceGetMPSComputeRunningProcesses));
    add(USE_GPU_NVML(nvml, nvmlDeviceGetGraphicsRunningProcesses_v2),
        USE_GPU_NVML(nvml, nvmlDeviceGetGraphicsRunningProcesses));
  }
  if (illness != NVML_SUCCESS && report.problem.empty()) {
    report.problem = nvml.explain("GPU " + std::to_string(index) + " cannot be used", illness);
  }
}

}  // namespace

GpuReport query_gpus_from(const std::string& library) {
  GpuReport report;
  const Nvml nvml(library);
  report.problem = nvml.problem();
  if (!report.problem.empty()) return report;

  report.driver_version = text_of(USE_GPU_NVML(nvml, nvmlSystemGetDriverVersion));
  int cuda = 0;
  if (USE_GPU_NVML(nvml, nvmlSystemGetCudaDriverVersion_v2)(&cuda) == NVML_SUCCESS) {
    report.cuda_version = std::to_string(NVML_CUDA_DRIVER_VERSION_MAJOR(cuda)) + '.' +
                          std::to_string(NVML_CUDA_DRIVER_VERSION_MINOR(cuda));
  }
  unsigned count = 0;
  nvmlReturn_t code = USE_GPU_NVML(nvml, nvmlDeviceGetCount_v2)(&count);
  if (code == NVML_SUCCESS && count == 0) code = NVML_ERROR_GPU_NOT_FOUND;
  if (code != NVML_SUCCESS) {
    report.problem = nvml.explain("No GPU can be used", code);
    return report;
  }
  for (unsigned index = 0; index < count; ++index) add_gpu(report, nvml, index);
  return report;
}

}  // namespace use_gpu::detail
