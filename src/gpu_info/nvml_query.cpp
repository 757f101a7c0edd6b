// SPDX-License-Identifier: MIT
#include "gpu_info/nvml_query.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "gpu_info/nvml_loader.hpp"

namespace use_gpu::detail {
namespace {

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
