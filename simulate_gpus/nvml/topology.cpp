// SPDX-License-Identifier: MIT
//
// How the cards are connected: by the machine's memory, to which every CPU is as near as any other.
#include <unistd.h>

#include <climits>
#include <cstring>

#include "nvml/cards.hpp"
#include "runtime/settings.hpp"

using namespace simulate_gpus::nvml;

extern "C" {

// A bit for each CPU.
nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t, unsigned words, unsigned long* cpus) {
  constexpr unsigned k_bits = sizeof(long) * CHAR_BIT;
  const auto count = static_cast<unsigned>(sysconf(_SC_NPROCESSORS_CONF));
  for (unsigned word = 0; word < words; ++word) cpus[word] = 0;
  for (unsigned cpu = 0; cpu < count && cpu / k_bits < words; ++cpu)
    cpus[cpu / k_bits] |= 1UL << cpu % k_bits;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t handle, unsigned words,
                                                 unsigned long* cpus, nvmlAffinityScope_t) {
  return nvmlDeviceGetCpuAffinity(handle, words, cpus);
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t, nvmlDevice_t,
                                                 nvmlGpuTopologyLevel_t* level) {
  return write_value(NVML_TOPOLOGY_SYSTEM, level);
}

// Each reads and writes the other's memory, as cudaDeviceCanAccessPeer says; not atomically, as no
// kernel does so here.
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t, nvmlDevice_t, nvmlGpuP2PCapsIndex_t index,
                                    nvmlGpuP2PStatus_t* status) {
  const bool is_ok = index == NVML_P2P_CAPS_INDEX_READ || index == NVML_P2P_CAPS_INDEX_WRITE ||
                     index == NVML_P2P_CAPS_INDEX_PCI;
  return write_value(is_ok ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED, status);
}

// No fabric connects the cards: all fields are zero but the version, whose low 24 bits are the size of
// the structure. Cards before Hopper refuse the question.
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t, nvmlGpuFabricInfoV_t* info) {
  static_assert(NVML_GPU_FABRIC_STATE_NOT_SUPPORTED == 0);
  if (simulate_gpus::settings().gpu.major < 9) return NVML_ERROR_NOT_SUPPORTED;
  const unsigned version = info->version;
  if (version != nvmlGpuFabricInfo_v2 && version != nvmlGpuFabricInfo_v3)
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  std::memset(info, 0, version & 0xffffffU);
  return write_value(version, &info->version);
}
}
