// SPDX-License-Identifier: MIT
//
// A fake libnvidia-ml.so.1, so that the tests can have any number of GPUs in any state. The test
// opens it too and controls it through the fake_nvml_* functions; gpu_info_test.cpp has a class for
// that. Built with FAKE_NVML_OLD_DRIVER it lacks the functions that newer drivers added.
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace {

constexpr unsigned long long k_gib = 1ULL << 30;
constexpr int k_every_gpu = -1;

struct Play {
  unsigned gpus = 0, processes = 0;
  std::string gpu_name = "NVIDIA H200", process_name = "/usr/bin/python3";
  std::map<std::pair<std::string, int>, nvmlReturn_t> failures;
  int inits = 0, shutdowns = 0;
};

std::mutex mutex;
Play play;

int index_of(nvmlDevice_t device) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(device)) - 1;
}

// What the test wants this call to return, for this GPU if it has one.
nvmlReturn_t answer(const char* call, int gpu = k_every_gpu) {
  const std::lock_guard lock(mutex);
  if (play.inits == play.shutdowns) return NVML_ERROR_UNINITIALIZED;
  for (const int of : {gpu, k_every_gpu}) {
    const auto failure = play.failures.find({call, of});
    if (failure != play.failures.end()) return failure->second;
  }
  return NVML_SUCCESS;
}

// Fills the whole buffer, without a terminator, if the text is too long: the worst case.
nvmlReturn_t write(nvmlReturn_t code, const std::string& text, char* buffer, unsigned length) {
  if (code == NVML_SUCCESS) std::strncpy(buffer, text.c_str(), length);
  return code;
}

template <class Value>
nvmlReturn_t write(nvmlReturn_t code, Value value, Value* result) {
  if (code == NVML_SUCCESS) *result = value;
  return code;
}

template <class Process>
nvmlReturn_t list(nvmlReturn_t code, unsigned first_pid, unsigned processes,
                  unsigned long long memory, unsigned* count, Process* found) {
  if (code != NVML_SUCCESS) return code;
  if (*count < processes) {
    *count = processes;
    return NVML_ERROR_INSUFFICIENT_SIZE;
  }
  *count = processes;
  for (unsigned i = 0; i < processes; ++i) {
    found[i] = {};
    found[i].pid = first_pid + i;
    found[i].usedGpuMemory = memory;
  }
  return code;
}

}  // namespace

extern "C" {

void fake_nvml_reset(unsigned gpus) {
  play = {};
  play.gpus = gpus;
}
void fake_nvml_fail(const char* call, int gpu, int code) {
  play.failures[{call, gpu}] = static_cast<nvmlReturn_t>(code);
}
void fake_nvml_set_names(const char* gpu, const char* process) {
  play.gpu_name = gpu;
  play.process_name = process;
}
void fake_nvml_set_processes(unsigned processes) { play.processes = processes; }
int fake_nvml_inits() { return play.inits; }
int fake_nvml_left_open() { return play.inits - play.shutdowns; }

nvmlReturn_t nvmlInit_v2() {
  const std::lock_guard lock(mutex);
  const auto failure = play.failures.find({__func__, k_every_gpu});
  if (failure != play.failures.end()) return failure->second;
  ++play.inits;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlShutdown() {
  const nvmlReturn_t code = answer(__func__);
  const std::lock_guard lock(mutex);
  ++play.shutdowns;
  return code;
}
const char* nvmlErrorString(nvmlReturn_t) { return "In The Driver's Words"; }

nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned length) {
  return write(answer(__func__), "580.65.06", version, length);
}
nvmlReturn_t nvmlSystemGetProcessName(unsigned, char* name, unsigned length) {
  return write(answer(__func__), play.process_name, name, length);
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  return write(answer(__func__), play.gpus, count);
}
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  return write(answer(__func__, static_cast<int>(index)),
               reinterpret_cast<nvmlDevice_t>(std::uintptr_t{index} + 1), device);
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned length) {
  return write(answer(__func__, index_of(device)), play.gpu_name, name, length);
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned length) {
  const int index = index_of(device);
  return write(answer(__func__, index), "GPU-" + std::to_string(index), uuid, length);
}
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t,
                                      unsigned* celsius) {
  return write(answer(__func__, index_of(device)), 41U, celsius);
}
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned* milliwatts) {
  return write(answer(__func__, index_of(device)), 76'500U, milliwatts);
}
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned* milliwatts) {
  return write(answer(__func__, index_of(device)), 700'000U, milliwatts);
}
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* rates) {
  return write(answer(__func__, index_of(device)), nvmlUtilization_t{93, 12}, rates);
}
// The first version counts the GiB that the driver reserves as used, the second does not.
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  return write(answer(__func__, index_of(device)),
               nvmlMemory_t{192 * k_gib, 183 * k_gib, 9 * k_gib}, memory);
}

#ifndef FAKE_NVML_OLD_DRIVER
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return write(answer(__func__), 13'000, version);
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  const int index = index_of(device);
  if (const nvmlReturn_t code = answer(__func__, index)) return code;
  std::snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0",
                static_cast<unsigned>(index) & 0xff);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  if (memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  return write(answer(__func__, index_of(device)),
               nvmlMemory_v2_t{nvmlMemory_v2, 192 * k_gib, k_gib, 183 * k_gib, 8 * k_gib}, memory);
}
// A program that draws shares its pid with the first that computes; one more only draws.
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned* count,
                                                     nvmlProcessInfo_v2_t* found) {
  return list(answer(__func__, index_of(device)), 1000, play.processes, 8 * k_gib, count, found);
}
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned* count,
                                                        nvmlProcessInfo_v2_t* found) {
  return list(answer(__func__, index_of(device)), 5000, 0, 0, count, found);
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned* count,
                                                      nvmlProcessInfo_v2_t* found) {
  return list(answer(__func__, index_of(device)), 999, std::min(play.processes, 2U),
              static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE), count, found);
}
#endif

}  // extern "C"
