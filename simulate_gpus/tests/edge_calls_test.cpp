// SPDX-License-Identifier: MIT
//
// Calls at the edge of what the runtime takes, and its answers: as an H100 answered on 26 November 2026 (driver
// 580.159.04, CUDA 13.0). Runs on two devices, where that H100 was alone.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstddef>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

namespace {

struct EdgeCall {
  const char* text;
  cudaError_t answer, expected, left;  // what is left for cudaGetLastError
};

// A line of a table: the call, and its error without "cudaError".
#define EDGE(call, error) \
  EdgeCall { #call, call, cudaError##error, cudaGetLastError() }
#define FINE(call) \
  EdgeCall { #call, call, cudaSuccess, cudaGetLastError() }

// A number that is none of the enumeration's.
template <class Enumeration>
Enumeration none_of(std::underlying_type_t<Enumeration> number) {
  return std::bit_cast<Enumeration>(number);
}

// In the order in which they are written, as braces promise.
void expect(const std::vector<EdgeCall>& calls) {
  for (const EdgeCall& call : calls) {
    EXPECT_STREQ(cudaGetErrorName(call.answer), cudaGetErrorName(call.expected)) << call.text;
    EXPECT_STREQ(cudaGetErrorName(call.left), cudaGetErrorName(call.expected)) << call.text;
  }
}

TEST(EdgeCalls, OfDevices) {
  int value = 0, absent[] = {99};
  std::size_t limit = 0;
  cudaFuncCache cache{};
  std::array<char, 64> id{};
  expect(
      {EDGE(cudaGetDevice(nullptr), InvalidValue),
       EDGE(cudaGetDeviceCount(nullptr), InvalidValue),
       EDGE(cudaDriverGetVersion(nullptr), InvalidValue),
       EDGE(cudaDeviceGetAttribute(nullptr, cudaDevAttrWarpSize, 0), InvalidValue),
       EDGE(cudaDeviceGetAttribute(&value, none_of<cudaDeviceAttr>(0), 0), InvalidValue),
       EDGE(cudaDeviceGetAttribute(&value, none_of<cudaDeviceAttr>(9999), 0), InvalidValue),
       EDGE(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 77), InvalidDevice),
       FINE(cudaDeviceGetStreamPriorityRange(&value, nullptr)),
       EDGE(cudaDeviceEnablePeerAccess(0, 0), PeerAccessUnsupported),
       EDGE(cudaDeviceDisablePeerAccess(0), PeerAccessNotEnabled),
       EDGE(cudaDeviceDisablePeerAccess(99), InvalidDevice),
       EDGE(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrAccessSupported, 0, 0), InvalidDevice),
       EDGE(cudaDeviceGetPCIBusId(id.data(), 5, 0), InvalidValue),
       FINE(cudaDeviceGetPCIBusId(id.data(), 64, 1)),
       FINE(cudaDeviceGetByPCIBusId(&value, id.data())),
       EDGE(cudaDeviceGetByPCIBusId(&value, "garbage"), InvalidValue),
       EDGE(cudaDeviceGetByPCIBusId(&value, "0000:ff:1f.0"), InvalidDevice),
       EDGE(cudaChooseDevice(&value, nullptr), InvalidValue),
       FINE(cudaSetValidDevices(nullptr, 0)),
       EDGE(cudaSetValidDevices(absent, 1), InvalidDevice),
       EDGE(cudaInitDevice(99, 0, 0), InvalidDevice),
       EDGE(cudaDeviceGetLimit(&limit, cudaLimitDevRuntimeSyncDepth), UnsupportedLimit),
       EDGE(cudaDeviceSetLimit(none_of<cudaLimit>(99), 1), InvalidValue),
       FINE(cudaDeviceSetLimit(cudaLimitStackSize, 2048)),
       FINE(cudaDeviceGetLimit(&limit, cudaLimitStackSize)),
       FINE(cudaDeviceSetCacheConfig(cudaFuncCachePreferL1)),
       FINE(cudaDeviceGetCacheConfig(&cache))});
  EXPECT_EQ(value, 1);
  EXPECT_EQ(limit, 2048U);
  EXPECT_EQ(cache, cudaFuncCachePreferL1);
}

// What cudaPointerGetAttributes says.
cudaMemoryType kind_of(const void* address) {
  cudaPointerAttributes attributes{};
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, address), cudaSuccess);
  return attributes.type;
}

TEST(EdgeCalls, OfMemory) {
  void *device = nullptr, *pinned = nullptr, *other = nullptr;
  std::array<char, 1 << 16> host{};
  std::size_t pitch = 0;
  unsigned flags = 0;
  expect({EDGE(cudaMalloc(nullptr, 4), InvalidValue),
          FINE(cudaMalloc(&device, 1000)),
          FINE(cudaMallocHost(&pinned, 1000)),
          EDGE(cudaFree(host.data()), InvalidValue),
          FINE(cudaMallocPitch(&other, &pitch, 100, 10)),
          FINE(cudaFree(other)),
          FINE(cudaMemGetInfo(nullptr, nullptr)),
          EDGE(cudaHostAlloc(&other, 64, 0x100), InvalidValue),
          FINE(cudaHostGetFlags(&flags, pinned)),
          EDGE(cudaHostGetFlags(&flags, host.data()), InvalidValue),
          EDGE(cudaHostRegister(nullptr, 100, 0), InvalidValue),
          EDGE(cudaHostRegister(host.data(), 0, 0), InvalidValue),
          EDGE(cudaHostRegister(device, 100, 0), InvalidValue),
          EDGE(cudaHostRegister(pinned, 100, 0), InvalidValue),
          FINE(cudaHostRegister(host.data(), 200, 0)),
          EDGE(cudaHostRegister(host.data(), 200, 0), HostMemoryAlreadyRegistered),
          EDGE(cudaHostUnregister(host.data() + 100), InvalidValue),
          FINE(cudaHostUnregister(host.data())),
          EDGE(cudaHostUnregister(host.data()), HostMemoryNotRegistered),
          EDGE(cudaHostUnregister(pinned), InvalidValue)});
  EXPECT_EQ(pitch, 512U);
  EXPECT_EQ(flags, unsigned{cudaHostAllocMapped});
  EXPECT_EQ(kind_of(static_cast<char*>(device) + 999), cudaMemoryTypeDevice);
  EXPECT_EQ(kind_of(static_cast<char*>(device) + (4096 << 10)), cudaMemoryTypeUnregistered);
  expect(
      {EDGE(cudaMemcpy(nullptr, host.data(), 4, cudaMemcpyHostToDevice), InvalidValue),
       FINE(cudaMemcpy(nullptr, host.data(), 0, cudaMemcpyHostToDevice)),
       EDGE(cudaMemcpy(device, nullptr, 4, cudaMemcpyHostToDevice), InvalidValue),
       EDGE(cudaMemcpy(device, host.data(), 4, none_of<cudaMemcpyKind>(9)), InvalidMemcpyDirection),
       EDGE(cudaMemcpy(device, host.data(), 4, cudaMemcpyDeviceToHost), InvalidValue),
       EDGE(cudaMemcpy(host.data(), device, 4, cudaMemcpyHostToDevice), InvalidValue),
       FINE(cudaMemcpy(device, device, 4, cudaMemcpyHostToHost)),
       EDGE(cudaMemcpy(device, host.data(), 60000, cudaMemcpyHostToDevice), InvalidValue),
       EDGE(cudaMemcpyPeer(device, 0, device, 99, 10), InvalidDevice),
       EDGE(cudaMemset(nullptr, 1, 4), InvalidValue),
       EDGE(cudaMemset(host.data(), 1, 4), InvalidValue), FINE(cudaMemset(pinned, 1, 4)),
       FINE(cudaFree(device)), EDGE(cudaFree(device), InvalidValue), FINE(cudaFreeHost(pinned))});
  EXPECT_EQ(kind_of(device), cudaMemoryTypeUnregistered);
  EXPECT_EQ(kind_of(pinned), cudaMemoryTypeUnregistered);
}

TEST(EdgeCalls, OfStreamsAndEvents) {
  cudaStream_t stream{}, urgent{};
  cudaEvent_t event{}, untimed{};
  int priority = 0;
  unsigned flags = 0;
  expect({EDGE(cudaStreamCreate(nullptr), InvalidValue),
          EDGE(cudaStreamCreateWithFlags(&stream, 77), InvalidValue),
          FINE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)),
          FINE(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, -100)),
          FINE(cudaStreamGetPriority(urgent, &priority)),
          FINE(cudaStreamGetFlags(urgent, &flags)),
          EDGE(cudaEventCreate(nullptr), InvalidValue),
          EDGE(cudaEventCreateWithFlags(&event, 0x100), InvalidValue),
          EDGE(cudaEventCreateWithFlags(&event, cudaEventInterprocess), InvalidValue),
          FINE(cudaEventCreate(&event)),
          FINE(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming)),
          EDGE(cudaEventRecord(nullptr, stream), InvalidResourceHandle),
          EDGE(cudaEventRecordWithFlags(event, stream, 5), InvalidValue),
          EDGE(cudaEventQuery(nullptr), InvalidResourceHandle),
          EDGE(cudaEventDestroy(nullptr), InvalidResourceHandle),
          EDGE(cudaEventElapsedTime(nullptr, event, event), InvalidValue),
          EDGE(cudaStreamWaitEvent(stream, nullptr, 0), InvalidResourceHandle),
          EDGE(cudaStreamWaitEvent(stream, event, 7), InvalidValue),
          EDGE(cudaLaunchHostFunc(stream, nullptr, nullptr), InvalidValue),
          FINE(cudaEventDestroy(event)),
          FINE(cudaEventDestroy(untimed)),
          FINE(cudaStreamDestroy(stream)),
          FINE(cudaStreamDestroy(urgent))});
  EXPECT_EQ(priority, -5);
  EXPECT_EQ(flags, unsigned{cudaStreamNonBlocking});
}

// The calls that a capture forbids, and in which modes: that of the capture's own thread, whose mode is global.
TEST(EdgeCalls, DuringACapture) {
  cudaStream_t stream{}, other{};
  cudaEvent_t event{};
  cudaGraph_t graph{};
  void *memory = nullptr, *allocated = nullptr, *pinned = nullptr;
  expect({FINE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)),
          FINE(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking)),
          FINE(cudaEventCreate(&event)), FINE(cudaEventRecord(event, other)),
          FINE(cudaMalloc(&memory, 64)),
          EDGE(cudaStreamBeginCapture(stream, none_of<cudaStreamCaptureMode>(9)), InvalidValue),
          EDGE(cudaStreamEndCapture(stream, &graph), IllegalState),
          EDGE(cudaGraphInstantiate(nullptr, nullptr, 0), InvalidValue),
          EDGE(cudaGraphLaunch(nullptr, stream), InvalidValue)});
  struct Forbidden {
    std::function<cudaError_t()> call;
    cudaError_t error;
    bool is_allowed_when_relaxed;
  };
  const Forbidden calls[] = {
      {[&] { return cudaStreamQuery(stream); }, cudaErrorStreamCaptureUnsupported, false},
      {[] { return cudaDeviceSynchronize(); }, cudaErrorStreamCaptureUnsupported, false},
      {[&] { return cudaStreamWaitEvent(stream, event, 0); }, cudaErrorStreamCaptureIsolation,
       false},
      {[&] { return cudaStreamQuery(other); }, cudaErrorStreamCaptureUnsupported, true},
      {[&] { return cudaEventQuery(event); }, cudaErrorStreamCaptureUnsupported, true},
      {[&] { return cudaMalloc(&allocated, 64); }, cudaErrorStreamCaptureUnsupported, true},
      {[&] { return cudaMallocHost(&pinned, 64); }, cudaErrorStreamCaptureUnsupported, true},
      {[&] { return cudaFree(memory); }, cudaErrorStreamCaptureUnsupported, true}};
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                          cudaStreamCaptureModeRelaxed}) {
    for (const Forbidden& forbidden : calls) {
      const bool is_allowed =
          forbidden.is_allowed_when_relaxed && mode == cudaStreamCaptureModeRelaxed;
      ASSERT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
      EXPECT_EQ(forbidden.call(), is_allowed ? cudaSuccess : forbidden.error) << mode;
      EXPECT_EQ(cudaStreamEndCapture(stream, &graph),
                is_allowed ? cudaSuccess : cudaErrorStreamCaptureInvalidated);
      EXPECT_EQ(graph != nullptr, is_allowed);
      if (graph) {
        EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
      }
    }
  }
  cudaGetLastError();
  expect({FINE(cudaFree(allocated)), FINE(cudaFreeHost(pinned)), FINE(cudaEventDestroy(event)),
          FINE(cudaStreamDestroy(other)), FINE(cudaStreamDestroy(stream))});
}

}  // namespace
