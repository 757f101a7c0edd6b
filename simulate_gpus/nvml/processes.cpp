// SPDX-License-Identifier: MIT
//
// Who uses a card: this process alone, since simulated GPUs are not shared. The memory of others is
// what SIMULATE_GPUS_MEMORY_OF_OTHERS says.
#include <unistd.h>

#include "nvml/cards.hpp"
#include "simulate_gpus.h"

using namespace simulate_gpus::nvml;

namespace {

template <class Process>
nvmlReturn_t list_processes(nvmlDevice_t handle, unsigned* count, Process* processes) {
  const int device = device_of(handle);
  const unsigned found = device >= 0 && simulated_cuda_has_context(device) ? 1 : 0;
  const unsigned room = *count;
  *count = found;
  if (found > room) return NVML_ERROR_INSUFFICIENT_SIZE;
  if (found == 0) return NVML_SUCCESS;
  processes[0] = {};
  processes[0].pid = static_cast<unsigned>(getpid());
  processes[0].usedGpuMemory = simulated_cuda_allocated_bytes(device);
  return NVML_SUCCESS;
}

}  // namespace

extern "C" {

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

// No process draws, and none shares a card by MPS.
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t, unsigned* count,
                                                   nvmlProcessInfo_v1_t*) {
  return write_value(0U, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t, unsigned* count,
                                                      nvmlProcessInfo_v2_t*) {
  return write_value(0U, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t, unsigned* count,
                                                      nvmlProcessInfo_t*) {
  return write_value(0U, count);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t, unsigned* count,
                                                     nvmlProcessInfo_v1_t*) {
  return write_value(0U, count);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t, unsigned* count,
                                                        nvmlProcessInfo_v2_t*) {
  return write_value(0U, count);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t, unsigned* count,
                                                        nvmlProcessInfo_t*) {
  return write_value(0U, count);
}

// NVML's answer where no process has loaded the card.
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t, nvmlProcessUtilizationSample_t*,
                                             unsigned* count, unsigned long long) {
  *count = 0;
  return NVML_ERROR_NOT_FOUND;
}
}
