// SPDX-License-Identifier: MIT
//
// What real cards lack too, each some of it: a fan, a serial number, MIG, NVLink. Programs ask all cards
// for it and expect NVML_ERROR_NOT_SUPPORTED, so it is no news. Without nvml.h, as a name is enough.
#define SIMULATE_GPUS_LACKS(function) \
  extern "C" int function() { return 3 /* NVML_ERROR_NOT_SUPPORTED */; }

SIMULATE_GPUS_LACKS(nvmlDeviceGetBoardPartNumber)
SIMULATE_GPUS_LACKS(nvmlDeviceGetComputeInstanceId)
SIMULATE_GPUS_LACKS(nvmlDeviceGetConfComputeMemSizeInfo)
SIMULATE_GPUS_LACKS(nvmlDeviceGetDeviceHandleFromMigDeviceHandle)
SIMULATE_GPUS_LACKS(nvmlDeviceGetDriverModel)
SIMULATE_GPUS_LACKS(nvmlDeviceGetDriverModel_v2)
SIMULATE_GPUS_LACKS(nvmlDeviceGetFanSpeed)
SIMULATE_GPUS_LACKS(nvmlDeviceGetFanSpeed_v2)
SIMULATE_GPUS_LACKS(nvmlDeviceGetGpuInstanceId)
SIMULATE_GPUS_LACKS(nvmlDeviceGetMigDeviceHandleByIndex)
SIMULATE_GPUS_LACKS(nvmlDeviceGetMigMode)
SIMULATE_GPUS_LACKS(nvmlDeviceGetNvLinkCapability)
SIMULATE_GPUS_LACKS(nvmlDeviceGetNvLinkRemoteDeviceType)
SIMULATE_GPUS_LACKS(nvmlDeviceGetNvLinkRemotePciInfo)
SIMULATE_GPUS_LACKS(nvmlDeviceGetNvLinkRemotePciInfo_v2)
SIMULATE_GPUS_LACKS(nvmlDeviceGetNvLinkState)
SIMULATE_GPUS_LACKS(nvmlDeviceGetNvLinkVersion)
SIMULATE_GPUS_LACKS(nvmlDeviceGetSerial)
