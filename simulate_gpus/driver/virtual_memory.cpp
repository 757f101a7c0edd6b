// SPDX-License-Identifier: MIT
//
// The driver's virtual memory: LibTorch's expandable segments, also shared between processes.
#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "driver/refusal.hpp"
#include "runtime/interface.hpp"

using namespace simulate_gpus;

namespace {

constexpr std::size_t k_granularity = std::size_t{2} << 20;

using Memory = std::shared_ptr<PhysicalMemory>;

struct Handles {
  std::mutex mutex;
  std::map<CUmemGenericAllocationHandle, Memory> live;
  CUmemGenericAllocationHandle next = 1;
};

Handles& handles() {
  static auto* const handles =
      new Handles;  // never destroyed: used until the very end of a process
  return *handles;
}

CUresult give(Memory memory, CUresult otherwise, CUmemGenericAllocationHandle* handle) {
  if (!memory) return otherwise;
  const std::scoped_lock lock(handles().mutex);
  *handle = handles().next++;
  handles().live.emplace(*handle, std::move(memory));
  return CUDA_SUCCESS;
}

// Null for what is no handle.
Memory memory_of(CUmemGenericAllocationHandle handle) {
  const std::scoped_lock lock(handles().mutex);
  const auto found = handles().live.find(handle);
  return found == handles().live.end() ? nullptr : found->second;
}

void* place(CUdeviceptr address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are integers
  return reinterpret_cast<void*>(address);
}

bool is_rounded(std::size_t bytes) { return bytes > 0 && bytes % k_granularity == 0; }

CUresult valid(bool is_valid) { return is_valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

CUresult refuse(const char* what) {
  return static_cast<CUresult>(refuse_in_driver(
      CUDA_ERROR_NOT_SUPPORTED, std::string(what) + " is not offered by simulated GPUs"));
}

bool is_shareable(CUmemAllocationHandleType type) {
  return type == CU_MEM_HANDLE_TYPE_NONE || type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

}  // namespace

extern "C" {

CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *bytes = k_granularity;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t, CUdeviceptr,
                             unsigned long long) {
  if (!is_rounded(bytes)) return CUDA_ERROR_INVALID_VALUE;
  *address = reinterpret_cast<CUdeviceptr>(reserve_addresses(bytes));
  return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  return valid(free_addresses(place(address), bytes));
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                     const CUmemAllocationProp* wanted, unsigned long long) {
  if (!is_rounded(bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (wanted->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return refuse("cuMemCreate of memory that is not a device's");
  }
  if (!is_shareable(wanted->requestedHandleTypes)) return refuse("memory shared by such a handle");
  int count = 0;
  if (const CUresult failed = cuDeviceGetCount(&count)) return failed;
  if (wanted->location.id < 0 || wanted->location.id >= count) return CUDA_ERROR_INVALID_DEVICE;
  return give(create_memory(wanted->location.id, bytes), CUDA_ERROR_OUT_OF_MEMORY, handle);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const std::scoped_lock lock(handles().mutex);
  return valid(handles().live.erase(handle) == 1);
}

CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  const Memory memory = memory_of(handle);
  return valid(memory && is_rounded(bytes) && map_memory(place(address), bytes, offset, memory));
}

CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  return valid(unmap_memory(place(address), bytes));
}

// All devices reach the memory that one may reach, as with peer access.
CUresult cuMemSetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access,
                        std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_accessible = access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (!set_access(place(address), bytes, is_accessible)) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  return give(memory_at(address), CUDA_ERROR_INVALID_VALUE, handle);
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* found,
                                                CUmemGenericAllocationHandle handle) {
  const Memory memory = memory_of(handle);
  if (!memory) return CUDA_ERROR_INVALID_VALUE;
  *found = {};
  found->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  found->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  found->location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_of_memory(*memory)};
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* file, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long) {
  const Memory memory = memory_of(handle);
  if (!memory) return CUDA_ERROR_INVALID_VALUE;
  if (!is_shareable(type)) return refuse("memory shared by such a handle");
  const int exported = export_memory(*memory);
  if (exported < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(file) = exported;
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* file,
                                        CUmemAllocationHandleType type) {
  if (!is_shareable(type)) return refuse("memory shared by such a handle");
  const auto number = static_cast<int>(reinterpret_cast<std::intptr_t>(file));
  return give(import_memory(number), CUDA_ERROR_INVALID_VALUE, handle);
}
}
