// SPDX-License-Identifier: MIT
//
// The profiler of LibTorch in C++, and CUPTI as a program calls it.
#include <cuda_runtime_api.h>
#include <cupti.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/torch.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {

using torch::profiler::impl::ActivityType;

TEST(Profiler, ShowsKernelsAndCopiesInCpp) {
  namespace profiler = torch::autograd::profiler;
  torch::nn::Linear net(64, 8);
  net->to(torch::kCUDA);
  const torch::Tensor batch = torch::ones({4, 64}).pin_memory();
  const std::set<ActivityType> activities{ActivityType::CPU, ActivityType::CUDA};
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities, {at::RecordScope::FUNCTION});
  net->forward(batch.to(torch::kCUDA, /*non_blocking=*/true)).relu();
  torch::cuda::synchronize();
  const auto result = profiler::disableProfiler();
  std::vector<std::string> names;
  for (const auto& event : result->events()) {
    if (event.deviceType() != c10::DeviceType::CUDA) continue;
    names.push_back(event.name());
    EXPECT_EQ(event.deviceIndex(), 0);
    EXPECT_EQ(event.deviceResourceId(), 7U);
    EXPECT_GT(event.durationNs(), 0U);
  }
  ASSERT_EQ(names.size(), 3U);
  EXPECT_EQ(names[0], "Memcpy HtoD (Pinned -> Device)");
  EXPECT_EQ(names[1], "aten::addmm gemm (simulated)");
  EXPECT_TRUE(names[2].starts_with("void at::native::vectorized_elementwise_kernel<")) << names[2];
}

// What CUPTI gives to this program.
struct Received {
  std::size_t buffer_bytes = std::size_t{1} << 16;
  std::vector<std::uint8_t> buffer;
  std::vector<CUpti_ActivityKind> kinds;
  std::vector<CUpti_ActivityMemset4> sets;
  std::vector<std::string> calls;
} received;

void CUPTIAPI request(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  received.buffer.resize(received.buffer_bytes);
  *buffer = received.buffer.data();
  *bytes = received.buffer.size();
  *most_records = 0;
}

void CUPTIAPI complete(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                       std::size_t valid) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    received.kinds.push_back(record->kind);
    if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET)
      received.sets.push_back(*reinterpret_cast<const CUpti_ActivityMemset4*>(record));
  }
}

void CUPTIAPI call_back(void*, CUpti_CallbackDomain, CUpti_CallbackId id, const void* data) {
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  const char* name = nullptr;
  EXPECT_EQ(cuptiGetCallbackName(CUPTI_CB_DOMAIN_RUNTIME_API, id, &name), CUPTI_SUCCESS);
  if (call.callbackSite == CUPTI_API_ENTER) {
    received.calls.push_back(std::string("begin ") + name);
  } else {
    received.calls.push_back(std::string("end ") + name + ' ' +
                             std::to_string(*static_cast<int*>(call.functionReturnValue)));
  }
}

class Cupti : public testing::Test {
 protected:
  void SetUp() override {
    received = {};
    ASSERT_EQ(cuptiFinalize(), CUPTI_SUCCESS);  // LibTorch's profiler stays subscribed
    ASSERT_EQ(cudaMalloc(&memory_, 64), cudaSuccess);
    ASSERT_EQ(cuptiActivityRegisterCallbacks(request, complete), CUPTI_SUCCESS);
  }
  void TearDown() override {
    EXPECT_EQ(cuptiFinalize(), CUPTI_SUCCESS);
    EXPECT_EQ(cudaFree(memory_), cudaSuccess);
  }

  void* memory_ = nullptr;
};

TEST_F(Cupti, RecordsMemorySetsThatAreDoneAfterTheCall) {
  ASSERT_EQ(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  ASSERT_EQ(cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, 5),
            CUPTI_SUCCESS);
  ASSERT_EQ(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION), CUPTI_SUCCESS);
  EXPECT_EQ(cudaMemsetAsync(memory_, 3, 16, nullptr), cudaSuccess);
  std::uint64_t after_the_call = 0, id = 0;
  EXPECT_EQ(cuptiGetTimestamp(&after_the_call), CUPTI_SUCCESS);
  EXPECT_EQ(cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &id),
            CUPTI_SUCCESS);
  EXPECT_EQ(id, 5U);
  EXPECT_EQ(cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &id),
            CUPTI_ERROR_QUEUE_EMPTY);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  EXPECT_EQ(cudaMemset(memory_, 0, 64), cudaSuccess);
  EXPECT_EQ(cuptiActivityFlushAll(0), CUPTI_SUCCESS);
  const std::vector<CUpti_ActivityKind> kinds{CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                                              CUPTI_ACTIVITY_KIND_MEMSET};
  EXPECT_EQ(std::vector(received.kinds.begin(), received.kinds.begin() + 2), kinds);
  ASSERT_EQ(received.sets.size(), 1U);
  const auto& set = received.sets[0];
  EXPECT_EQ(set.bytes, 16U);
  EXPECT_EQ(set.value, 3U);
  EXPECT_EQ(set.memoryKind, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
  EXPECT_EQ(set.flags, CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC);
  EXPECT_GE(set.start, after_the_call);
  EXPECT_GT(set.end, set.start);
}

TEST_F(Cupti, CountsRecordsForWhichThereIsNoRoom) {
  received.buffer_bytes = 8;
  ASSERT_EQ(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
  EXPECT_EQ(cudaMemset(memory_, 3, 16), cudaSuccess);
  std::size_t dropped = 0;
  EXPECT_EQ(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped), CUPTI_SUCCESS);
  EXPECT_EQ(dropped, 1U);
  EXPECT_EQ(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped), CUPTI_SUCCESS);
  EXPECT_EQ(dropped, 0U);
}

TEST_F(Cupti, CallsBackAtTheBeginningAndTheEndOfOutermostCalls) {
  CUpti_SubscriberHandle subscriber = nullptr, second = nullptr;
  const auto function = reinterpret_cast<CUpti_CallbackFunc>(call_back);
  ASSERT_EQ(cuptiSubscribe(&subscriber, function, nullptr), CUPTI_SUCCESS);
  EXPECT_EQ(cuptiSubscribe(&second, function, nullptr),
            CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  EXPECT_EQ(cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API), CUPTI_SUCCESS);
  cudaEvent_t event = nullptr;
  EXPECT_EQ(cudaEventCreate(&event), cudaSuccess);  // which calls cudaEventCreateWithFlags
  EXPECT_EQ(cudaMemset(nullptr, 0, 8), cudaErrorInvalidValue);
  EXPECT_EQ(cuptiEnableDomain(0, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API), CUPTI_SUCCESS);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API,
                                CUPTI_RUNTIME_TRACE_CBID_cudaMemGetInfo_v3020),
            CUPTI_SUCCESS);
  std::size_t free = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cuptiUnsubscribe(subscriber), CUPTI_SUCCESS);
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  const std::vector<std::string> expected{
      "begin cudaEventCreate_v3020", "end cudaEventCreate_v3020 0", "begin cudaMemset_v3020",
      "end cudaMemset_v3020 1",      "begin cudaMemGetInfo_v3020",  "end cudaMemGetInfo_v3020 0"};
  EXPECT_EQ(received.calls, expected);
}

// Kineto waits for a call in which it can finalize CUPTI: a program that makes none must end all the same.
TEST_F(Cupti, CallsBackAtTheEndOfAProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto subscribe_and_end = [] {
    const auto say = [](void*, CUpti_CallbackDomain, CUpti_CallbackId,
                        const CUpti_CallbackData* call) {
      if (call->callbackSite == CUPTI_API_EXIT) std::cerr << "called back";
    };
    CUpti_SubscriberHandle subscriber = nullptr;
    (void)cuptiSubscribe(&subscriber, reinterpret_cast<CUpti_CallbackFunc>(+say), nullptr);
    (void)cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API);
    std::exit(0);
  };
  EXPECT_EXIT(subscribe_and_end(), testing::ExitedWithCode(0), "called back");
}

TEST_F(Cupti, RefusesByNameWhatItDoesNotRecord) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_PC_SAMPLING), CUPTI_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuptiActivityFlushPeriod(1), CUPTI_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "simulate_gpus: cuptiActivityEnable of kind 30 is not offered by simulated GPUs\n"
            "simulate_gpus: cuptiActivityFlushPeriod is not offered by simulated GPUs\n");
  const char* text = nullptr;
  EXPECT_EQ(cuptiGetResultString(CUPTI_ERROR_NOT_SUPPORTED, &text), CUPTI_SUCCESS);
  EXPECT_STREQ(text, "CUPTI_ERROR_NOT_SUPPORTED");
}

}  // namespace
