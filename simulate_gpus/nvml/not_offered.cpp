// SPDX-License-Identifier: MIT
//
// Every function of NVML, with NVML's own error for what a card does not have. They are weak, so those
// that the other sources define are these. Without nvml.h, as here a name is enough.
#include <algorithm>
#include <iterator>
#include <string_view>

#include "runtime/interface.hpp"

namespace {

// Real cards lack these too, each card some of them. Programs ask every card, and expect this error:
// it is no news.
constexpr std::string_view k_silent[] = {
    "nvmlDeviceGetBoardPartNumber",
    "nvmlDeviceGetComputeInstanceId",
    "nvmlDeviceGetConfComputeMemSizeInfo",
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle",
    "nvmlDeviceGetDriverModel",
    "nvmlDeviceGetDriverModel_v2",
    "nvmlDeviceGetFanSpeed",
    "nvmlDeviceGetFanSpeed_v2",
    "nvmlDeviceGetGpuFabricInfo",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetNvLinkCapability",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetNvLinkRemotePciInfo",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkVersion",
    "nvmlDeviceGetSerial",
};

int refuse(const char* function) {
  if (std::ranges::find(k_silent, function) == std::end(k_silent))
    static_cast<void>(simulate_gpus::not_offered(function));
  return 3;  // NVML_ERROR_NOT_SUPPORTED
}

}  // namespace

#define SIMULATE_GPUS_NOT_OFFERED(function) \
  extern "C" [[gnu::weak]] int function() { return refuse(#function); }

#include "nvml_functions.inc"  // made by CMake: the functions that nvml.h declares
