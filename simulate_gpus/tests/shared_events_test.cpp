// SPDX-License-Identifier: MIT
//
// Events that processes share: what one has recorded, the others can wait for.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "actors.hpp"

using namespace actors;

namespace {

TEST(SharedEvent, OrdersTheWorkOfTwoProcesses) {
  Here here;
  Other other;
  share(here, other);
  share_event(here, other);
  EXPECT_EQ(other.act(Task::query_event).error, cudaSuccess);  // not recorded yet
  here.act(Task::write_and_record, k_new);
  EXPECT_EQ(other.act(Task::read).value, k_old);  // who does not wait sees the old value
  EXPECT_EQ(other.act(Task::read_after_event).value, k_new);
  EXPECT_EQ(here.act(Task::query_event).error, cudaSuccess);
  here.act(Task::write_and_record, 3);
  EXPECT_EQ(other.act(Task::synchronize_event).error, cudaSuccess);
  EXPECT_EQ(other.act(Task::read).value, 3);
}

TEST(SharedEvent, IsRecordedByTheProcessThatOpenedItToo) {
  Here here;
  Other other;
  share(here, other);
  share_event(here, other);
  for (int round = k_new; round < 20; ++round) {
    other.act(Task::write_and_record, round);
    EXPECT_EQ(here.act(Task::read).value, round - 1);
    EXPECT_EQ(here.act(Task::query_event).error, cudaErrorNotReady);
    EXPECT_EQ(here.act(Task::read_after_event).value, round);
    here.act(Task::write_and_record, ++round);
    EXPECT_EQ(other.act(Task::read_after_event).value, round);
  }
}

// As in NVIDIA's sample simpleIPC: each process writes into the memory of each, in turn, after whoever did so before.
TEST(SharedEvent, OrdersTheWorkOfManyProcesses) {
  constexpr std::size_t k_processes = 3;
  Here here;
  std::array<Other, k_processes> others;
  for (std::size_t which = 0; which < k_processes; ++which) {
    here.act(Request{.task = Task::allocate, .which = which});
    const Handle memory = here.act(Request{.task = Task::share, .which = which}).handle,
                 event = here.act(Request{.task = Task::make_event, .which = which}).handle;
    for (Other& other : others) {
      other.act(Request{.task = Task::open, .handle = memory, .which = which});
      other.act(Request{.task = Task::open_event, .handle = event, .which = which});
    }
  }
  for (std::size_t round = 0; round < k_processes; ++round) {
    for (std::size_t self = 0; self < k_processes; ++self) {
      const std::size_t which = (round + self) % k_processes;
      others.at(self).act(Request{.task = Task::wait_for_event, .which = which});
      others.at(self).act(
          Request{.task = Task::write_and_record, .value = static_cast<int>(self), .which = which});
    }
  }
  for (std::size_t self = 0; self < k_processes; ++self) {
    const Reply last = others.at(self).act(Request{.task = Task::read_after_event, .which = self});
    EXPECT_EQ(last.value, static_cast<std::int64_t>((self + 1) % k_processes));
  }
}

TEST(SharedEvent, IsOverForAllWhenItsProcessHasWaited) {
  Here here;
  Other other;
  share(here, other);
  share_event(here, other);
  here.act(Task::write_and_record, k_new);
  here.act(Task::synchronize);
  EXPECT_EQ(other.act(Task::query_event).error, cudaSuccess);
}

TEST(SharedEvent, OfADeadProcessEndsTheWaitInAnError) {
  Here here;
  Other other;
  share(other, here);
  share_event(other, here);
  other.act(Task::write_and_record, k_new);
  other.kill();
  const Reply waited = here.act(Task::synchronize_event);
  EXPECT_EQ(waited.error, cudaErrorLaunchFailure);
  EXPECT_NE(std::string(waited.text.data()).find("has ended"), std::string::npos);
  cudaGetLastError();
}

TEST(SharedEvent, RefusesWhatIsNotOfAnotherProcess) {
  cudaEvent_t plain{}, shared{}, opened{};
  cudaIpcEventHandle_t handle{};
  cudaEventCreateWithFlags(&plain, cudaEventDisableTiming);
  cudaEventCreateWithFlags(&shared, cudaEventDisableTiming | cudaEventInterprocess);
  EXPECT_EQ(cudaIpcGetEventHandle(&handle, plain), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaIpcOpenEventHandle(&opened, handle), cudaErrorInvalidValue);
  ASSERT_EQ(cudaIpcGetEventHandle(&handle, shared), cudaSuccess);
  EXPECT_EQ(cudaIpcOpenEventHandle(&opened, handle), cudaErrorDeviceUninitialized);
  cudaEventDestroy(plain);
  cudaEventDestroy(shared);
  Other other;
  EXPECT_EQ(other.act(Task::open_event, as_handle(handle)).error, cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

}  // namespace
