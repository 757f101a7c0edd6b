// SPDX-License-Identifier: MIT
//
// What each card is. Like NVML it ignores CUDA_VISIBLE_DEVICES.
#include "nvml/cards.hpp"

#include <bit>
#include <cstdio>
#include <string_view>

#include "runtime/settings.hpp"
#include "simulate_gpus.h"

using namespace simulate_gpus;
using namespace simulate_gpus::nvml;

namespace {

// A handle is an address in this array, which is never read.
char cards[k_most_gpus];

nvmlDevice_t handle_of(int card) { return reinterpret_cast<nvmlDevice_t>(cards + card); }

bool is_named(std::string_view part) {
  return std::string_view(settings().gpu.name).find(part) != std::string_view::npos;
}

unsigned architecture() {
  switch (const GpuProfile& gpu = settings().gpu; gpu.major) {
    case 7:
      return gpu.minor == 5 ? NVML_DEVICE_ARCH_TURING : NVML_DEVICE_ARCH_VOLTA;
    case 8:
      return gpu.minor == 9 ? NVML_DEVICE_ARCH_ADA : NVML_DEVICE_ARCH_AMPERE;
    case 9:
      return NVML_DEVICE_ARCH_HOPPER;
    default:
      return NVML_DEVICE_ARCH_BLACKWELL;
  }
}

// Of the CUDA programming guide: up to 8.0 a multiprocessor has 64 cores for float32, then 128.
unsigned cores_of_multiprocessor() {
  const GpuProfile& gpu = settings().gpu;
  return gpu.major * 10 + gpu.minor <= 80 ? 64 : 128;
}

unsigned pcie_generation() {
  const int major = settings().gpu.major;
  return major == 7 ? 3 : major == 8 ? 4 : 5;
}

}  // namespace

int simulate_gpus::nvml::card_of(nvmlDevice_t handle) {
  return static_cast<int>(reinterpret_cast<const char*>(handle) - cards);
}

int simulate_gpus::nvml::device_of(nvmlDevice_t handle) { return device_of_card(card_of(handle)); }

bool simulate_gpus::nvml::is_geforce() { return is_named("GeForce"); }

extern "C" {

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  return write_value(static_cast<unsigned>(settings().num_cards), count);
}

nvmlReturn_t nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* handle) {
  if (index >= static_cast<unsigned>(settings().num_cards)) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  return write_value(handle_of(static_cast<int>(index)), handle);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t* handle) {
  return nvmlDeviceGetHandleByIndex_v2(index, handle);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* handle) {
  for (int card = 0; card < settings().num_cards; ++card) {
    if (uuid_of_card(card) == uuid) return write_value(handle_of(card), handle);
  }
  return NVML_ERROR_NOT_FOUND;
}

// "0000:01:00.0"; NVML itself writes the domain with eight digits.
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice_t* handle) {
  unsigned domain = 0, bus = 0, place = 0;
  if (std::sscanf(id, "%x:%x:%x", &domain, &bus, &place) != 3) return NVML_ERROR_INVALID_ARGUMENT;
  if (domain != 0 || place != 0 || bus == 0) return NVML_ERROR_NOT_FOUND;
  return nvmlDeviceGetHandleByIndex_v2(bus - 1, handle);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* id, nvmlDevice_t* handle) {
  return nvmlDeviceGetHandleByPciBusId_v2(id, handle);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned* index) {
  return write_value(static_cast<unsigned>(card_of(handle)), index);
}

// Of /dev/nvidia0, which programs do not open.
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t handle, unsigned* number) {
  return nvmlDeviceGetIndex(handle, number);
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
  std::snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "0000:%02X:00.0", info->bus);
  return NVML_SUCCESS;
}

// As its name tells.
nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t, nvmlBrandType_t* brand) {
  return write_value(is_geforce()        ? NVML_BRAND_GEFORCE
                     : is_named("Tesla") ? NVML_BRAND_TESLA
                                         : NVML_BRAND_NVIDIA,
                     brand);
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t, nvmlDeviceArchitecture_t* found) {
  return write_value(architecture(), found);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t, int* major, int* minor) {
  *major = settings().gpu.major;
  *minor = settings().gpu.minor;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t, unsigned* cores) {
  const auto multiprocessors = static_cast<unsigned>(settings().gpu.multiprocessors);
  return write_value(multiprocessors * cores_of_multiprocessor(), cores);
}

nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t, unsigned* bits) {
  return write_value(static_cast<unsigned>(settings().gpu.memory_bits), bits);
}

// A hidden card is taken for an unused one.
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t* memory) {
  const int device = device_of(handle);
  const std::uint64_t unseen = settings().gpu.mebibytes_unseen << 20;
  memory->total = settings().memory_bytes + unseen;
  memory->reserved = settings().reserved_bytes + unseen;
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

// The window through which the host reaches the memory: that of data center cards has room for all
// of it, and its size is a power of two. That of other cards depends on the machine.
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t, nvmlBAR1Memory_t* memory) {
  if (is_geforce() || architecture() == NVML_DEVICE_ARCH_TURING) return NVML_ERROR_NOT_SUPPORTED;
  memory->bar1Total = memory->bar1Free = std::bit_ceil(settings().memory_bytes);
  memory->bar1Used = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t, unsigned* generation) {
  return write_value(pcie_generation(), generation);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t, unsigned* generation) {
  return write_value(pcie_generation(), generation);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t, unsigned* width) {
  return write_value(16U, width);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t, unsigned* width) {
  return write_value(16U, width);
}
}
