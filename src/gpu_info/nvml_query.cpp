// SPDX-License-Identifier: MIT
#include "gpu_info/nvml_query.hpp"

#include <algorithm>
#include <cstring>

#include "gpu_info/nvml_loader.hpp"

namespace use_gpu::detail {
namespace {

constexpr unsigned k_longest_text = 1024;  // more than NVML needs for any text

// The driver's text. One that fills the buffer may lack a terminator.
template <std::size_t size>
std::string text(const char (&buffer)[size]) {
  return {buffer, strnlen(buffer, size)};
}

std::string process_name(const Nvml& nvml, unsigned pid) {
  char name[k_longest_text];
  const nvmlReturn_t code = USE_GPU_NVML(nvml, nvmlSystemGetProcessName)(pid, name, k_longest_text);
  return code == NVML_SUCCESS ? text(name) : std::string();
}

// Adds the processes of one of NVML's lists. `ask` calls `list` for the GPU; false if that fails.
template <class Process, class List, class Ask>
bool add_processes(GpuInfo& gpu, const Nvml& nvml, const Ask& ask, const List& list) {
  std::vector<Process> listed(128);
  auto count = static_cast<unsigned>(listed.size());
  nvmlReturn_t code = ask(list, &count, listed.data());
  if (code == NVML_ERROR_INSUFFICIENT_SIZE) {
    listed.resize(count + std::size_t{128});  // processes may start between the two calls
    count = static_cast<unsigned>(listed.size());
    code = ask(list, &count, listed.data());
  }
  if (code != NVML_SUCCESS) return false;
  listed.resize(count);
  for (const Process& process : listed) {
    // A program that computes and draws is in two lists.
    if (std::ranges::count(gpu.processes, process.pid, &GpuProcess::pid) > 0) continue;
    gpu.processes.push_back({process.pid, process_name(nvml, process.pid), std::nullopt});
    if (process.usedGpuMemory != static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE)) {
      gpu.processes.back().memory_bytes = process.usedGpuMemory;
    }
  }
  return true;
}

void add_processes(GpuInfo& gpu, const Nvml& nvml, const auto& ask) {
  // Version 3 of the lists is not used: drivers 535.43 to 535.86 fill it with larger structures
  // than nvml.h declares. Version 2 has one layout since driver 450; version 1 is for older
  // drivers.
  const auto add = [&](const auto& list, const auto& older_list) {
    add_processes<nvmlProcessInfo_v2_t>(gpu, nvml, ask, list) ||
        add_processes<nvmlProcessInfo_v1_t>(gpu, nvml, ask, older_list);
  };
  add(USE_GPU_NVML(nvml, nvmlDeviceGetComputeRunningProcesses_v2),
      USE_GPU_NVML(nvml, nvmlDeviceGetComputeRunningProcesses));
  add(USE_GPU_NVML(nvml, nvmlDeviceGetMPSComputeRunningProcesses_v2),
      USE_GPU_NVML(nvml, nvmlDeviceGetMPSComputeRunningProcesses));
  add(USE_GPU_NVML(nvml, nvmlDeviceGetGraphicsRunningProcesses_v2),
      USE_GPU_NVML(nvml, nvmlDeviceGetGraphicsRunningProcesses));
}

void add_memory(GpuInfo& gpu, const Nvml& nvml, const auto& ask) {
  nvmlMemory_v2_t memory{};
  memory.version = nvmlMemory_v2;
  nvmlMemory_t older{};
  if (ask(USE_GPU_NVML(nvml, nvmlDeviceGetMemoryInfo_v2), &memory) == NVML_SUCCESS) {
    gpu.memory_total_bytes = memory.total;
    gpu.memory_used_bytes = memory.used;
    gpu.memory_free_bytes = memory.free;
  } else if (ask(USE_GPU_NVML(nvml, nvmlDeviceGetMemoryInfo), &older) == NVML_SUCCESS) {
    gpu.memory_total_bytes = older.total;
    gpu.memory_used_bytes = older.used;
    gpu.memory_free_bytes = older.free;
  }
}

// Adds GPU `index` with all values that it reports. A missing value is normal. A lost GPU, or one
// that needs a reset, is a problem; the report keeps the first.
void add_gpu(GpuReport& report, const Nvml& nvml, unsigned index) {
  GpuInfo& gpu = report.gpus.emplace_back();
  gpu.index = static_cast<int>(index);
  nvmlDevice_t device{};
  nvmlReturn_t illness = USE_GPU_NVML(nvml, nvmlDeviceGetHandleByIndex_v2)(index, &device);
  if (illness == NVML_SUCCESS) {
    const auto ask = [&](const auto& function, auto... arguments) {
      const nvmlReturn_t code = function(device, arguments...);
      if (code == NVML_ERROR_GPU_IS_LOST || code == NVML_ERROR_RESET_REQUIRED) illness = code;
      return code;
    };
    const auto offers = [&](auto... call) { return ask(call...) == NVML_SUCCESS; };
    char name[k_longest_text], uuid[k_longest_text];
    nvmlPciInfo_t pci{};
    nvmlUtilization_t utilization{};
    unsigned number = 0;
    if (offers(USE_GPU_NVML(nvml, nvmlDeviceGetName), name, k_longest_text)) {
      gpu.name = text(name);
    }
    if (offers(USE_GPU_NVML(nvml, nvmlDeviceGetUUID), uuid, k_longest_text)) {
      gpu.uuid = text(uuid);
    }
    if (offers(USE_GPU_NVML(nvml, nvmlDeviceGetPciInfo_v3), &pci)) {
      gpu.pci_bus_id = text(pci.busId);
    }
    if (offers(USE_GPU_NVML(nvml, nvmlDeviceGetUtilizationRates), &utilization)) {
      gpu.utilization_percent = static_cast<int>(utilization.gpu);
    }
    if (offers(USE_GPU_NVML(nvml, nvmlDeviceGetTemperature), NVML_TEMPERATURE_GPU, &number)) {
      gpu.temperature_celsius = static_cast<int>(number);
    }
    if (offers(USE_GPU_NVML(nvml, nvmlDeviceGetPowerUsage), &number)) {
      gpu.power_watts = number / 1000.0;  // from milliwatts
    }
    if (offers(USE_GPU_NVML(nvml, nvmlDeviceGetEnforcedPowerLimit), &number)) {
      gpu.power_limit_watts = number / 1000.0;
    }
    add_memory(gpu, nvml, ask);
    add_processes(gpu, nvml, ask);
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

  char version[k_longest_text];
  if (USE_GPU_NVML(nvml, nvmlSystemGetDriverVersion)(version, k_longest_text) == NVML_SUCCESS) {
    report.driver_version = text(version);
  }
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
