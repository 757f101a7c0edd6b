// SPDX-License-Identifier: MIT
//
// The driver's virtual memory, as LibTorch's expandable segments use it.
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

namespace {

constexpr std::size_t k_piece = std::size_t{2} << 20;

// cuda.h's functions, which are in a library that the program is started with.
template <class Function>
Function* driver(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}
#define DRIVER(function) driver<decltype(function)>(#function)

using Handle = CUmemGenericAllocationHandle;

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return free;
}

Handle create(std::size_t bytes) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  Handle handle = 0;
  EXPECT_EQ(DRIVER(cuMemCreate)(&handle, bytes, &wanted, 0), CUDA_SUCCESS);
  return handle;
}

CUdeviceptr reserve(std::size_t bytes) {
  CUdeviceptr address = 0;
  EXPECT_EQ(DRIVER(cuMemAddressReserve)(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
  return address;
}

CUresult map(CUdeviceptr address, Handle handle) {
  return DRIVER(cuMemMap)(address, k_piece, 0, handle, 0);
}

CUresult allow(CUdeviceptr address, std::size_t bytes) {
  const CUmemAccessDesc access{.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                               .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return DRIVER(cuMemSetAccess)(address, bytes, &access, 1);
}

void* place(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

TEST(VirtualMemory, IsOneRangeOfSeveralPieces) {
  const std::size_t before = free_bytes();
  const CUdeviceptr address = reserve(4 * k_piece);
  EXPECT_EQ(free_bytes(), before);  // addresses alone
  const std::array handles{create(k_piece), create(k_piece)};
  EXPECT_EQ(free_bytes(), before - 2 * k_piece);
  for (std::size_t i = 0; i < 2; ++i)
    ASSERT_EQ(map(address + i * k_piece, handles[i]), CUDA_SUCCESS);
  std::vector<int> values(2 * k_piece / sizeof(int)), read(values.size());
  std::iota(values.begin(), values.end(), 0);
  const auto copy = [&](std::size_t bytes) {
    return cudaMemcpy(place(address), values.data(), bytes, cudaMemcpyDefault);
  };
  EXPECT_EQ(copy(8), cudaErrorInvalidValue);  // no access yet
  ASSERT_EQ(allow(address, 2 * k_piece), CUDA_SUCCESS);
  EXPECT_EQ(copy(2 * k_piece + 8), cudaErrorInvalidValue);  // into what is not mapped
  EXPECT_EQ(cudaMemcpy(place(address), place(address), SIZE_MAX - 3, cudaMemcpyDefault),
            cudaErrorInvalidValue);
  ASSERT_EQ(copy(2 * k_piece), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(read.data(), place(address), 2 * k_piece, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(read, values);

  // Kernels compute in it, and another place has the same bytes.
  const auto options = torch::dtype(torch::kInt).device(torch::kCUDA, 0);
  torch::from_blob(place(address), {static_cast<std::int64_t>(values.size())}, options).add_(1);
  ASSERT_EQ(map(address + 3 * k_piece, handles[1]), CUDA_SUCCESS);
  ASSERT_EQ(allow(address + 3 * k_piece, k_piece), CUDA_SUCCESS);
  const auto second = torch::from_blob(place(address + 3 * k_piece),
                                       {static_cast<std::int64_t>(values.size() / 2)}, options);
  EXPECT_EQ(second[0].item<int>(), values[values.size() / 2] + 1);

  // What is released lives as long as it is mapped.
  for (const Handle handle : handles) EXPECT_EQ(DRIVER(cuMemRelease)(handle), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes(), before - 2 * k_piece);
  EXPECT_EQ(DRIVER(cuMemUnmap)(address + 3 * k_piece, k_piece), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemAddressFree)(address, 4 * k_piece), CUDA_ERROR_INVALID_VALUE);  // in use
  EXPECT_EQ(DRIVER(cuMemUnmap)(address, 2 * k_piece), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(DRIVER(cuMemAddressFree)(address, 4 * k_piece), CUDA_SUCCESS);
}

TEST(VirtualMemory, RefusesWhatDoesNotFit) {
  const CUdeviceptr address = reserve(2 * k_piece);
  const Handle handle = create(k_piece);
  EXPECT_EQ(map(address + 2 * k_piece, handle), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(map(address, handle), CUDA_SUCCESS);
  EXPECT_EQ(map(address, handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(DRIVER(cuMemUnmap)(address, k_piece / 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(allow(address, 2 * k_piece), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cudaFree(place(address)), cudaErrorInvalidValue);
  cudaGetLastError();
  EXPECT_EQ(DRIVER(cuMemUnmap)(address, k_piece), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemRelease)(handle), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemRelease)(handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(map(address, handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(DRIVER(cuMemAddressFree)(address, 2 * k_piece), CUDA_SUCCESS);
  Handle too_large = 0;
  CUmemAllocationProp wanted{};
  wanted.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  EXPECT_EQ(DRIVER(cuMemCreate)(&too_large, std::size_t{1} << 50, &wanted, 0),
            CUDA_ERROR_OUT_OF_MEMORY);
}

TEST(VirtualMemory, IsSharedByAFile) {
  const CUdeviceptr address = reserve(2 * k_piece);
  const Handle handle = create(k_piece);
  int file = -1;
  Handle same = 0;
  ASSERT_EQ(DRIVER(cuMemExportToShareableHandle)(&file, handle,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemImportFromShareableHandle)(&same, place(static_cast<CUdeviceptr>(file)),
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_SUCCESS);
  ASSERT_EQ(map(address, handle), CUDA_SUCCESS);
  ASSERT_EQ(map(address + k_piece, same), CUDA_SUCCESS);
  ASSERT_EQ(allow(address, 2 * k_piece), CUDA_SUCCESS);
  ASSERT_EQ(cudaMemset(place(address), 5, 1), cudaSuccess);
  char read = 0;
  ASSERT_EQ(cudaMemcpy(&read, place(address + k_piece), 1, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(read, 5);
  EXPECT_EQ(DRIVER(cuMemUnmap)(address, 2 * k_piece), CUDA_SUCCESS);
  for (const Handle each : {handle, same}) EXPECT_EQ(DRIVER(cuMemRelease)(each), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemAddressFree)(address, 2 * k_piece), CUDA_SUCCESS);
  close(file);
}

// On the second GPU, since LibTorch frees nothing of one on which a capture has failed, as other tests let them.
TEST(VirtualMemory, ServesExpandableSegments) {
  const c10::Device second(torch::kCUDA, 1);
  const c10::cuda::CUDAGuard guard(second);
  c10::cuda::CUDACachingAllocator::setAllocatorSettings("expandable_segments:True");
  c10::cuda::CUDACachingAllocator::emptyCache();
  const std::size_t before = free_bytes();
  {
    std::vector<torch::Tensor> tensors;
    for (int i = 0; i < 20; ++i) tensors.push_back(torch::full({1 << 20}, i, second));
    EXPECT_EQ(torch::cat(tensors).sum().item<std::int64_t>(), std::int64_t{190} << 20);
    EXPECT_LT(free_bytes(), before);
  }
  c10::cuda::CUDACachingAllocator::emptyCache();
  EXPECT_EQ(free_bytes(), before);
  c10::cuda::CUDACachingAllocator::setAllocatorSettings("expandable_segments:False");
}

}  // namespace
