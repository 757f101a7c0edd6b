// SPDX-License-Identifier: MIT
//
// Replaces NVML (libnvidia-ml.so.1), which nvidia-smi uses: shows the simulated GPUs as cards. Like
// NVML it ignores CUDA_VISIBLE_DEVICES. It lists only this process, since simulated GPUs are not
// shared; the memory of others is what SIMULATE_GPUS_MEMORY_OF_OTHERS says. Memory and processes are
// true; load, temperature, power and clocks are those of an idle card at all times, so that programs
// that log them run.
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <cuda_runtime_api.h>
#include <nvml.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "runtime/settings.hpp"
#include "simulate_gpus.h"

using namespace simulate_gpus;

namespace {

// A handle is an address in this array, which is never read.
char cards[16];

nvmlDevice_t handle_of(int card) { return reinterpret_cast<nvmlDevice_t>(cards + card); }

int card_of(nvmlDevice_t handle) {
  return static_cast<int>(reinterpret_cast<const char*>(handle) - cards);
}

nvmlReturn_t write_text(const std::string& text, char* buffer, unsigned size) {
  if (text.size() >= size) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::strcpy(buffer, text.c_str());
  return NVML_SUCCESS;
}

nvmlReturn_t write_value(unsigned value, unsigned* place) {
  *place = value;
  return NVML_SUCCESS;
}

// What this process uses.
std::uint64_t own_bytes(nvmlDevice_t handle) {
  const int device = device_of_card(card_of(handle));
  return device < 0 ? 0 : simulated_cuda_allocated_bytes(device);
}

template <class Process>
nvmlReturn_t list_processes(nvmlDevice_t handle, unsigned* count, Process* processes) {
  const int device = device_of_card(card_of(handle));
  const unsigned found = device >= 0 && simulated_cuda_has_context(device) ? 1 : 0;
  const unsigned room = *count;
  *count = found;
  if (found > room) return NVML_ERROR_INSUFFICIENT_SIZE;
  if (found == 0) return NVML_SUCCESS;
  processes[0] = {};
  processes[0].pid = static_cast<unsigned>(getpid());
  processes[0].usedGpuMemory = own_bytes(handle);
  return NVML_SUCCESS;
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlInit_v2() { return NVML_SUCCESS; }
nvmlReturn_t nvmlInitWithFlags(unsigned) { return NVML_SUCCESS; }
nvmlReturn_t nvmlInit() { return NVML_SUCCESS; }
nvmlReturn_t nvmlShutdown() { return NVML_SUCCESS; }

const char* nvmlErrorString(nvmlReturn_t code) {
  return code == NVML_SUCCESS ? "Success" : "Not offered by simulated GPUs";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned size) {
  return write_text("simulated", version, size);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = settings().driver_version;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char* name, unsigned size) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
  std::string program;
  if (!std::getline(file, program, '\0')) return NVML_ERROR_NOT_FOUND;
  return write_text(program, name, size);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(settings().num_cards);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* handle) {
  if (index >= static_cast<unsigned>(settings().num_cards)) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  *handle = handle_of(static_cast<int>(index));
  return NVML_SUCCESS;
}

// "0000:01:00.0"; NVML itself writes the domain with eight digits.
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice_t* handle) {
  unsigned domain = 0, bus = 0, place = 0;
  if (std::sscanf(id, "%x:%x:%x", &domain, &bus, &place) != 3) return NVML_ERROR_INVALID_ARGUMENT;
  if (domain != 0 || place != 0 || bus == 0) return NVML_ERROR_NOT_FOUND;
  return nvmlDeviceGetHandleByIndex_v2(bus - 1, handle);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t, char* name, unsigned size) {
  return write_text(settings().gpu.name, name, size);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t handle, char* uuid, unsigned size) {
  return write_text(uuid_of_card(card_of(handle)), uuid, size);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t* info) {
  *info = {};
  info->bus = static_cast<unsigned>(card_of(handle)) + 1;
  std::snprintf(info->busId, sizeof info->busId, "00000000:%02X:00.0", info->bus);
  return NVML_SUCCESS;
}

// A hidden card is taken for an unused one.
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t* memory) {
  const int device = device_of_card(card_of(handle));
  memory->total = settings().memory_bytes;
  memory->reserved = settings().reserved_bytes;
  memory->free = device < 0 ? memory->total - memory->reserved : simulated_cuda_free_bytes(device);
  memory->used = memory->total - memory->reserved - memory->free;
  return NVML_SUCCESS;
}

// As NVML's own: what the driver keeps for itself counts as used.
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t* memory) {
  nvmlMemory_v2_t all{};
  nvmlDeviceGetMemoryInfo_v2(handle, &all);
  memory->total = all.total;
  memory->free = all.free;
  memory->used = all.used + all.reserved;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t, nvmlUtilization_t* percent) {
  *percent = {};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t, nvmlTemperatureSensors_t, unsigned* celsius) {
  return write_value(30, celsius);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t, unsigned* milliwatts) {
  return write_value(70'000, milliwatts);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t, unsigned* milliwatts) {
  return write_value(700'000, milliwatts);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t, nvmlClockType_t, unsigned* megahertz) {
  return write_value(1980, megahertz);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t, nvmlClockType_t, unsigned* megahertz) {
  return write_value(1980, megahertz);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t handle, unsigned* count,
                                                  nvmlProcessInfo_v1_t* processes) {
  return list_processes(handle, count, processes);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t handle, unsigned* count,
                                                     nvmlProcessInfo_v2_t* processes) {
  return list_processes(handle, count, processes);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned* count,
                                                     nvmlProcessInfo_t* processes) {
  return list_processes(handle, count, processes);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t, unsigned,
                                                 nvmlIntNvLinkDeviceType_t*) {
  return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t, unsigned, nvmlPciInfo_t*) {
  return NVML_ERROR_NOT_SUPPORTED;
}
}
