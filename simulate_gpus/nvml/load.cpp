// SPDX-License-Identifier: MIT
//
// What a card does and how it is set: always an idle card, as its driver starts it. Programs that log
// it run.
#include <ctime>

#include "nvml/cards.hpp"
#include "runtime/settings.hpp"

using namespace simulate_gpus;
using namespace simulate_gpus::nvml;

namespace {

constexpr unsigned k_milliwatts = 70'000;
constexpr unsigned k_celsius = 30;

// At which an idle card of a data center stays. That of video is not known.
nvmlReturn_t write_clock(nvmlClockType_t type, unsigned* megahertz) {
  switch (type) {
    case NVML_CLOCK_GRAPHICS:
    case NVML_CLOCK_SM:
      return write_value(static_cast<unsigned>(settings().gpu.megahertz), megahertz);
    case NVML_CLOCK_MEM:
      return write_value(static_cast<unsigned>(settings().gpu.memory_megahertz), megahertz);
    case NVML_CLOCK_VIDEO:
      return NVML_ERROR_NOT_SUPPORTED;
    default:
      return NVML_ERROR_INVALID_ARGUMENT;
  }
}

// NVML measures it in samples of a sixth of a second.
nvmlReturn_t write_no_load(unsigned* percent, unsigned* microseconds) {
  *percent = 0;
  *microseconds = 167'000;
  return NVML_SUCCESS;
}

nvmlReturn_t write_limit(unsigned* milliwatts) {
  return write_value(static_cast<unsigned>(settings().gpu.watts) * 1000, milliwatts);
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t, nvmlUtilization_t* percent) {
  return write_value({}, percent);
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t, unsigned* percent, unsigned* period) {
  return write_no_load(percent, period);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t, unsigned* percent, unsigned* period) {
  return write_no_load(percent, period);
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t, nvmlPcieUtilCounter_t, unsigned* kilobytes) {
  return write_value(0U, kilobytes);
}

nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t, unsigned* replays) {
  return write_value(0U, replays);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t, nvmlTemperatureSensors_t, unsigned* celsius) {
  return write_value(k_celsius, celsius);
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t, nvmlTemperature_t* temperature) {
  temperature->temperature = k_celsius;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t, unsigned* milliwatts) {
  return write_value(k_milliwatts, milliwatts);
}

// Since the machine has started: all processes see the same.
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t, unsigned long long* millijoules) {
  timespec since_start{};
  clock_gettime(CLOCK_BOOTTIME, &since_start);
  const auto milliseconds = static_cast<unsigned long long>(since_start.tv_sec) * 1000 +
                            static_cast<unsigned long long>(since_start.tv_nsec) / 1'000'000;
  return write_value(milliseconds * (k_milliwatts / 1000), millijoules);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t, unsigned* milliwatts) {
  return write_limit(milliwatts);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t, unsigned* milliwatts) {
  return write_limit(milliwatts);
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t, unsigned* milliwatts) {
  return write_limit(milliwatts);
}

nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t, nvmlEnableState_t* mode) {
  return write_value(NVML_FEATURE_ENABLED, mode);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t, nvmlClockType_t type, unsigned* megahertz) {
  return write_clock(type, megahertz);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t, nvmlClockType_t type, unsigned* megahertz) {
  return write_clock(type, megahertz);
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t, nvmlPstates_t* state) {
  return write_value(NVML_PSTATE_0, state);
}

nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t, nvmlPstates_t* state) {
  return write_value(NVML_PSTATE_0, state);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t, nvmlEnableState_t* mode) {
  return write_value(NVML_FEATURE_DISABLED, mode);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t, nvmlComputeMode_t* mode) {
  return write_value(NVML_COMPUTEMODE_DEFAULT, mode);
}

nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t, nvmlEnableState_t* active) {
  return write_value(NVML_FEATURE_DISABLED, active);
}

nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t, nvmlEnableState_t* connected) {
  return write_value(NVML_FEATURE_DISABLED, connected);
}

// Memory of the host shows none.
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t, nvmlMemoryErrorType_t, nvmlEccCounterType_t,
                                         unsigned long long* errors) {
  return is_geforce() ? NVML_ERROR_NOT_SUPPORTED : write_value(0ULL, errors);
}

// MIG, which simulated cards lack, would divide them.
nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t, unsigned* is_part) {
  return write_value(0U, is_part);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t, unsigned* count) {
  return write_value(0U, count);
}

// None is known: each value says so.
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t, int count, nvmlFieldValue_t* values) {
  for (int i = 0; i < count; ++i) values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
  return NVML_SUCCESS;
}
}
