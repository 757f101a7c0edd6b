// SPDX-License-Identifier: MIT
//
// Replaces NVML (libnvidia-ml.so.1), which nvidia-smi uses: shows the simulated GPUs as cards. Here:
// the library itself, its errors and versions.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "nvml/cards.hpp"
#include "runtime/settings.hpp"

using namespace simulate_gpus;
using namespace simulate_gpus::nvml;

namespace {

struct ErrorText {
  nvmlReturn_t code;
  const char* text;
};

// NVML's own.
constexpr ErrorText k_errors[] = {
    {NVML_SUCCESS, "Success"},
    {NVML_ERROR_UNINITIALIZED, "Uninitialized"},
    {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
    {NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
    {NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
    {NVML_ERROR_ALREADY_INITIALIZED, "Already Initialized"},
    {NVML_ERROR_NOT_FOUND, "Not Found"},
    {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
    {NVML_ERROR_INSUFFICIENT_POWER, "Insufficient External Power"},
    {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
    {NVML_ERROR_TIMEOUT, "Timeout"},
    {NVML_ERROR_IRQ_ISSUE, "Interrupt Request Issue"},
    {NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"},
    {NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"},
    {NVML_ERROR_CORRUPTED_INFOROM, "Corrupted infoROM"},
    {NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
    {NVML_ERROR_RESET_REQUIRED, "GPU requires restart"},
    {NVML_ERROR_OPERATING_SYSTEM, "The operating system has blocked the request."},
    {NVML_ERROR_LIB_RM_VERSION_MISMATCH, "RM has detected an NVML/RM version mismatch."},
    {NVML_ERROR_MEMORY, "Insufficient Memory"},
};

struct Driver {
  int cuda;
  const char* version;
};

// The driver that came with each CUDA, newest first. Programs compare it with what they need.
constexpr Driver k_drivers[] = {{13020, "595.45.04"}, {13010, "590.44.01"}, {13000, "580.65.06"},
                                {12090, "575.51.03"}, {12080, "570.26"},    {12060, "560.28.03"},
                                {12050, "555.42.02"}, {12040, "550.54.14"}, {12030, "545.23.06"},
                                {12020, "535.54.03"}, {12010, "530.30.02"}, {12000, "525.60.13"}};

const char* driver_version() {
  const auto* const found = std::ranges::find_if(
      k_drivers, [](const Driver& driver) { return driver.cuda <= settings().driver_version; });
  return found == std::end(k_drivers) ? std::prev(found)->version : found->version;
}

}  // namespace

nvmlReturn_t simulate_gpus::nvml::write_text(const std::string& text, char* buffer, unsigned size) {
  if (text.size() >= size) return NVML_ERROR_INSUFFICIENT_SIZE;
  text.copy(buffer, text.size());
  buffer[text.size()] = '\0';
  return NVML_SUCCESS;
}

extern "C" {

nvmlReturn_t nvmlInit() { return NVML_SUCCESS; }
nvmlReturn_t nvmlInit_v2() { return NVML_SUCCESS; }
nvmlReturn_t nvmlInitWithFlags(unsigned) { return NVML_SUCCESS; }
nvmlReturn_t nvmlShutdown() { return NVML_SUCCESS; }

const char* nvmlErrorString(nvmlReturn_t code) {
  const auto* const found = std::ranges::find(k_errors, code, &ErrorText::code);
  return found == std::end(k_errors) ? "Unknown Error" : found->text;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned size) {
  return write_text(driver_version(), version, size);
}

// As of the library of that driver: its CUDA's major version, then the driver's.
nvmlReturn_t nvmlSystemGetNVMLVersion(char* version, unsigned size) {
  const int major = settings().driver_version / 1000;
  return write_text(std::to_string(major) + "." + driver_version(), version, size);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* version) {
  return write_value(settings().driver_version, version);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return nvmlSystemGetCudaDriverVersion(version);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char* name, unsigned size) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
  std::string program;
  if (!std::getline(file, program, '\0')) return NVML_ERROR_NOT_FOUND;
  return write_text(program, name, size);
}
}
