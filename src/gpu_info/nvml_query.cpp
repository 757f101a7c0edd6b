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

#include "gpu_info/message.hpp"

namespace use_gpu::detail {
namespace {

struct Explanation {
  nvmlReturn_t code;
  const char *cause, *remedy;
};

constexpr const char* k_blocked = "the operating system blocks its devices, or the driver failed";
constexpr const char* k_restart =
    "Restart the container, if any: it loses its GPUs when the host reloads systemd. Else see "
    "`sudo dmesg | grep NVRM`, and reboot.";

// The codes with a more helpful text than the driver's own.
constexpr Explanation k_explanations[] = {
    {NVML_ERROR_DRIVER_NOT_LOADED, "the driver is installed, its kernel module is not loaded",
     "Load it with `sudo modprobe nvidia`; if that fails, reinstall the driver for the running "
     "kernel (`uname -r`) and reboot. Start a container with `--gpus all`."},
    {NVML_ERROR_LIB_RM_VERSION_MISMATCH,
     "the driver's library and kernel module have different versions, as after an update",
     "Reboot the machine; restart a container that was started before the update."},
    {NVML_ERROR_NO_PERMISSION, "this user, container or job has no permission",
     "Look at `ls -l /dev/nvidia*`: join the group that owns the devices and log in again, or ask "
     "for the GPU when starting the container (`--gpus all`) or job."},
    {NVML_ERROR_OPERATING_SYSTEM, k_blocked, k_restart},
    {NVML_ERROR_UNKNOWN, k_blocked, k_restart},
    {NVML_ERROR_GPU_NOT_FOUND, "the driver finds none",
     "See whether `lspci | grep -i nvidia` lists one. A virtual machine or a container must be "
     "given its GPUs (`--gpus all`); a card listed but not found may be too old or too new for "
     "this driver: see `sudo dmesg | grep NVRM`."},
    {NVML_ERROR_GPU_IS_LOST, "the card is lost, it no longer answers",
     "Reboot; see `sudo dmesg | grep Xid`."},
    {NVML_ERROR_RESET_REQUIRED, "the card must be reset first",
     "End its programs, then `sudo nvidia-smi --gpu-reset`, or reboot."},
    {NVML_ERROR_INSUFFICIENT_POWER, "a power cable of the card is not properly attached",
     "Switch the machine off and attach it."}};

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

  explicit Nvml(const std::string& library)
      : library_(dlopen(library.c_str(), RTLD_LAZY)),
        code_(library_ ? USE_GPU_NVML(*this, nvmlInit_v2)() : NVML_ERROR_LIBRARY_NOT_FOUND) {}
  ~Nvml() {
    if (code_ == NVML_SUCCESS) USE_GPU_NVML(*this, nvmlShutdown)();
#ifndef __SANITIZE_ADDRESS__  // LeakSanitizer knows the driver's own leaks by the library's name
    if (library_) dlclose(library_);
#endif
  }

  // Why NVML is not usable, and what to do; empty if it is. To be called first.
  [[nodiscard]] std::string problem() const {
    if (!library_)
      return fitted(std::string("No NVIDIA driver was found (") + dlerror() +
                    "). If this machine has an NVIDIA GPU, install its driver; start a container "
                    "with `--gpus all`.");
    if (!symbol("nvmlInit_v2") || !symbol("nvmlErrorString"))
      return "libnvidia-ml.so.1 is not NVIDIA's management library: it lacks functions that every "
             "version has. Reinstall the NVIDIA driver, version 319 or later.";
    return code_ == NVML_SUCCESS ? "" : explain("No GPU can be used", code_);
  }

  // "GPU 1 cannot be used: the card is lost ... (NVML error 15). Reboot ...": the subject, what the
  // code means, and what to do about it.
  [[nodiscard]] std::string explain(const std::string& subject, nvmlReturn_t code) const {
    auto* const words = reinterpret_cast<decltype(nvmlErrorString)*>(symbol("nvmlErrorString"));
    Explanation found{code, words(code),
                      "See `sudo dmesg | grep NVRM` for the cause; reboot if in doubt."};
    const auto* const better = std::ranges::find(k_explanations, code, &Explanation::code);
    if (better != std::end(k_explanations)) found = *better;
    return fitted(subject + ": " + found.cause + " (NVML error " + std::to_string(code) + "). " +
                  found.remedy);
  }

 private:
  void* symbol(const char* name) const noexcept { return dlsym(library_, name); }

  void* const library_;
  const nvmlReturn_t code_;  // of its initialisation
};

constexpr unsigned k_longest_text = 1024;  // more than NVML needs for any text

// The text that `call` gives for these arguments; empty if it fails. One that fills the buffer may
// lack a terminator.
std::string text_of(const auto& call, auto... arguments) {
  char buffer[k_longest_text];
  if (call(arguments..., buffer, k_longest_text) != NVML_SUCCESS) return {};
  return {buffer, strnlen(buffer, k_longest_text)};
}

// What `call` makes of that value for these arguments; nothing if it fails.
template <class Value>
std::optional<Value> value_of(const auto& call, Value value, auto... arguments) {
  return call(arguments..., &value) == NVML_SUCCESS ? std::optional(value) : std::nullopt;
}

std::optional<double> watts_of(const auto& call) {
  const auto milliwatts = value_of(call, 0U);
  return milliwatts ? std::optional(*milliwatts / 1000.0) : std::nullopt;
}

// Adds the processes of one of NVML's lists; none if `list` fails.
void add_processes(GpuInfo& gpu, const Nvml& nvml, const auto& list) {
  std::vector<nvmlProcessInfo_v2_t> listed(4096);  // more than any GPU has memory for
  auto count = static_cast<unsigned>(listed.size());
  if (list(&count, listed.data()) != NVML_SUCCESS) return;
  listed.resize(count);
  for (const auto& process : listed) {
    // A program that computes and draws is in two lists.
    if (std::ranges::count(gpu.processes, process.pid, &GpuProcess::pid) > 0) continue;
    const auto name = text_of(USE_GPU_NVML(nvml, nvmlSystemGetProcessName), process.pid);
    gpu.processes.push_back({process.pid, name, std::nullopt});
    if (process.usedGpuMemory != static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE))
      gpu.processes.back().memory_bytes = process.usedGpuMemory;
  }
}

// Adds what one of NVML's versions of the memory has; false if there is none.
bool add_memory(GpuInfo& gpu, const auto& memory) {
  if (!memory) return false;
  gpu.memory_total_bytes = memory->total;
  gpu.memory_used_bytes = memory->used;
  gpu.memory_free_bytes = memory->free;
  return true;
}

// Adds all values that GPU `index` reports. A missing value is normal. For a lost GPU, or one that
// needs a reset, the code is returned.
nvmlReturn_t add_values(GpuInfo& gpu, const Nvml& nvml, unsigned index) {
  nvmlDevice_t device{};
  nvmlReturn_t failure = USE_GPU_NVML(nvml, nvmlDeviceGetHandleByIndex_v2)(index, &device);
  if (failure != NVML_SUCCESS) return failure;
  // The function for this GPU.
  const auto its = [&](const auto& function) {
    return [&failure, device, function](auto... arguments) {
      const nvmlReturn_t code = function(device, arguments...);
      if (code == NVML_ERROR_GPU_IS_LOST || code == NVML_ERROR_RESET_REQUIRED) failure = code;
      return code;
    };
  };
  gpu.name = text_of(its(USE_GPU_NVML(nvml, nvmlDeviceGetName)));
  gpu.uuid = text_of(its(USE_GPU_NVML(nvml, nvmlDeviceGetUUID)));
  if (const auto pci = value_of(its(USE_GPU_NVML(nvml, nvmlDeviceGetPciInfo_v3)), nvmlPciInfo_t{}))
    gpu.pci_bus_id = pci->busId;
  const auto rates = its(USE_GPU_NVML(nvml, nvmlDeviceGetUtilizationRates));
  if (const auto utilization = value_of(rates, nvmlUtilization_t{}))
    gpu.utilization_percent = static_cast<int>(utilization->gpu);
  const auto temperature = its(USE_GPU_NVML(nvml, nvmlDeviceGetTemperature));
  gpu.temperature_celsius = value_of(temperature, 0U, NVML_TEMPERATURE_GPU);
  gpu.power_watts = watts_of(its(USE_GPU_NVML(nvml, nvmlDeviceGetPowerUsage)));
  gpu.power_limit_watts = watts_of(its(USE_GPU_NVML(nvml, nvmlDeviceGetEnforcedPowerLimit)));
  // Older drivers have the first version alone.
  const nvmlMemory_v2_t memory{nvmlMemory_v2, 0, 0, 0, 0};
  add_memory(gpu, value_of(its(USE_GPU_NVML(nvml, nvmlDeviceGetMemoryInfo_v2)), memory)) ||
      add_memory(gpu, value_of(its(USE_GPU_NVML(nvml, nvmlDeviceGetMemoryInfo)), nvmlMemory_t{}));
  // Version 3 of the lists is not used: drivers 535.43 to 535.86 fill it with larger structures
  // than nvml.h declares. Version 2 has one layout since driver 450, older than LibTorch's CUDA needs.
  add_processes(gpu, nvml, its(USE_GPU_NVML(nvml, nvmlDeviceGetComputeRunningProcesses_v2)));
  add_processes(gpu, nvml, its(USE_GPU_NVML(nvml, nvmlDeviceGetMPSComputeRunningProcesses_v2)));
  add_processes(gpu, nvml, its(USE_GPU_NVML(nvml, nvmlDeviceGetGraphicsRunningProcesses_v2)));
  return failure;
}

}  // namespace

GpuReport query_gpus_from(const std::string& library) {
  GpuReport report;
  const Nvml nvml(library);
  report.problem = nvml.problem();
  if (!report.problem.empty()) return report;

  report.driver_version = text_of(USE_GPU_NVML(nvml, nvmlSystemGetDriverVersion));
  if (const auto cuda = value_of(USE_GPU_NVML(nvml, nvmlSystemGetCudaDriverVersion_v2), 0)) {
    report.cuda_version = std::to_string(NVML_CUDA_DRIVER_VERSION_MAJOR(*cuda)) + '.' +
                          std::to_string(NVML_CUDA_DRIVER_VERSION_MINOR(*cuda));
  }
  unsigned count = 0;
  nvmlReturn_t code = USE_GPU_NVML(nvml, nvmlDeviceGetCount_v2)(&count);
  if (code == NVML_SUCCESS && count == 0) code = NVML_ERROR_GPU_NOT_FOUND;
  if (code != NVML_SUCCESS) report.problem = nvml.explain("No GPU can be used", code);
  for (unsigned index = 0; code == NVML_SUCCESS && index < count; ++index) {
    GpuInfo& gpu = report.gpus.emplace_back();
    gpu.index = static_cast<int>(index);
    const nvmlReturn_t failure = add_values(gpu, nvml, index);
    if (failure != NVML_SUCCESS && report.problem.empty())
      report.problem = nvml.explain("GPU " + std::to_string(index) + " cannot be used", failure);
  }
  return report;
}

}  // namespace use_gpu::detail
