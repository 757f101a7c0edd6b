// SPDX-License-Identifier: MIT
//
// Memory of GPUs that two processes share by CUDA IPC.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "actors.hpp"

using namespace actors;

namespace {

constexpr char k_name[] = "memfd:simulated GPU (deleted)";

TEST(SharedMemory, IsReadAndWrittenByBothProcesses) {
  Here here;
  Other other;
  share(here, other);
  EXPECT_EQ(other.act(Task::read).value, k_old);
  other.act(Task::write, k_new);
  EXPECT_EQ(here.act(Task::read).value, k_new);
  here.act(Task::write, 3, k_bytes - sizeof(int));
  EXPECT_EQ(other.act(Task::read, 0, k_bytes - sizeof(int)).value, 3);
  EXPECT_EQ(other.act(Task::read, 0, k_bytes).error, cudaErrorInvalidValue);
}

// TensorPipe counts on it: "cudaIpcGetMemHandle" of an address inside of an allocation, and its distance.
TEST(SharedMemory, BeginsWhereTheAllocationDoes) {
  Here here;
  Other other;
  here.act(Task::allocate);
  here.act(Task::write, k_old);
  here.act(Task::write, k_new, 512);
  const Reply of_middle = here.act(Task::share, 0, 512), of_begin = here.act(Task::share);
  EXPECT_EQ(std::memcmp(&of_middle.handle, &of_begin.handle, sizeof(Handle)), 0);
  ASSERT_EQ(other.act(Task::open, of_middle.handle).error, cudaSuccess);
  EXPECT_EQ(other.act(Task::read).value, k_old);
}

TEST(SharedMemory, IsClosedAsOftenAsItWasOpened) {
  Here here;
  Other other;
  share(here, other);
  other.act(Task::open, here.act(Task::share).handle);
  EXPECT_EQ(other.act(Task::close).error, cudaSuccess);
  EXPECT_EQ(other.act(Task::read).value, k_old);
  EXPECT_EQ(other.act(Task::close).error, cudaSuccess);
  EXPECT_EQ(other.act(Task::close).error, cudaErrorInvalidValue);
  EXPECT_EQ(other.act(Task::read).error, cudaErrorInvalidValue);
  ASSERT_EQ(other.act(Task::open, here.act(Task::share).handle).error, cudaSuccess);
  EXPECT_EQ(other.act(Task::read).value, k_old);
}

TEST(SharedMemory, IsCountedWhereItWasAllocated) {
  Here here;
  Other other;
  const auto own = here.act(Task::free_bytes).value, others = other.act(Task::free_bytes).value;
  share(here, other);
  EXPECT_EQ(own - here.act(Task::free_bytes).value, static_cast<std::int64_t>(k_bytes));
  EXPECT_EQ(others, other.act(Task::free_bytes).value);
}

// On an H100 (card/h100/calls.txt), but for freed memory.
TEST(SharedMemory, RefusesWhatIsNotOfAnotherProcess) {
  void *memory = nullptr, *opened = nullptr;
  cudaMalloc(&memory, k_bytes);
  Handle handle{};
  constexpr unsigned k_lazy = cudaIpcMemLazyEnablePeerAccess;
  EXPECT_EQ(cudaIpcGetMemHandle(nullptr, memory), cudaErrorInvalidValue);
  EXPECT_EQ(cudaIpcGetMemHandle(&handle, &handle), cudaErrorInvalidValue);
  EXPECT_EQ(cudaIpcOpenMemHandle(&opened, handle, k_lazy), cudaErrorInvalidValue);
  ASSERT_EQ(cudaIpcGetMemHandle(&handle, memory), cudaSuccess);
  EXPECT_EQ(cudaIpcOpenMemHandle(&opened, handle, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaIpcOpenMemHandle(&opened, handle, k_lazy), cudaErrorDeviceUninitialized);
  EXPECT_EQ(cudaIpcCloseMemHandle(memory), cudaErrorInvalidValue);
  cudaFree(memory);
  EXPECT_EQ(cudaIpcGetMemHandle(&handle, memory), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST(SharedMemory, OfAHandleIsNotThatOfALaterAllocation) {
  Other other;
  void* memory = nullptr;
  Handle freed{}, later{};
  cudaMalloc(&memory, k_bytes);
  ASSERT_EQ(cudaIpcGetMemHandle(&freed, memory), cudaSuccess);
  cudaFree(memory);
  void* again = nullptr;
  cudaMalloc(&again, k_bytes);
  ASSERT_EQ(again, memory);
  ASSERT_EQ(cudaIpcGetMemHandle(&later, again), cudaSuccess);
  const Reply refused = other.act(Task::open, freed);
  EXPECT_EQ(refused.error, cudaErrorInvalidResourceHandle);
  EXPECT_NE(std::string(refused.text.data()).find("has freed that memory"), std::string::npos);
  EXPECT_EQ(other.act(Task::open, later).error, cudaSuccess);
  EXPECT_EQ(cudaFree(again), cudaSuccess);  // before the other has closed it
  EXPECT_EQ(other.act(Task::read).error, cudaSuccess);
  EXPECT_EQ(other.act(Task::close).error, cudaSuccess);
}

// How often this process has memory of GPUs mapped or open, its own and others'.
std::ptrdiff_t count_of_memory() {
  std::size_t count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) count += line.find(k_name) != line.npos;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;
    count += std::filesystem::read_symlink(file, closed).string().find(k_name) != std::string::npos;
  }
  return static_cast<std::ptrdiff_t>(count);
}

TEST(SharedMemory, OutlivesItsProcessWhereItIsOpen) {
  Here here;
  Other other;
  const auto before = count_of_memory();
  share(other, here);
  EXPECT_GT(count_of_memory(), before);
  const Handle handle = other.act(Task::share).handle;
  other.kill();
  EXPECT_EQ(here.act(Task::read).value, k_old);
  EXPECT_EQ(here.act(Task::close).error, cudaSuccess);
  EXPECT_EQ(count_of_memory(), before);  // so it is gone
  EXPECT_EQ(here.act(Task::open, handle).error, cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

TEST(SharedMemory, OfAHiddenCardBelongsToTheCurrentDevice) {
  Here here;
  Other hides_it("1"), turns_it("1,0");
  share(here, hides_it);
  EXPECT_EQ(hides_it.act(Task::device).value, 0);
  EXPECT_EQ(hides_it.act(Task::read).value, k_old);
  ASSERT_EQ(turns_it.act(Task::open, here.act(Task::share).handle).error, cudaSuccess);
  EXPECT_EQ(turns_it.act(Task::device).value, 1);
  EXPECT_EQ(turns_it.act(Task::read).value, k_old);
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 3 && std::string(arguments[1]) == "--act") act_for(std::atoi(arguments[2]));
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
