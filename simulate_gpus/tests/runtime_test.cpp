// SPDX-License-Identifier: MIT
//
// What a program that knows LibTorch alone sees of simulated GPUs. Runs on two.
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/cuda.h>
#include <torch/nn/modules.h>
#include <torch/nn/utils.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support.hpp"

namespace {

using c10::cuda::CUDAStream;
using c10::cuda::CUDAStreamGuard;
using torch::Tensor;

torch::TensorOptions pinned() { return torch::TensorOptions().pinned_memory(true); }

void synchronize() { ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess); }

// What the runtime has counted; see simulate_gpus.h.
std::uint64_t count(const char* row) {
  using Count = std::uint64_t(const char*);
  static auto* const function =
      reinterpret_cast<Count*>(dlsym(RTLD_DEFAULT, "simulated_cuda_count"));
  return function(row);
}

void set_faults(const char* faults) {
  using Set = void(const char*);
  reinterpret_cast<Set*>(dlsym(RTLD_DEFAULT, "simulated_cuda_set_faults"))(faults);
}

TEST(Devices, AreNamedAndCounted) {
  EXPECT_TRUE(torch::cuda::is_available());
  EXPECT_EQ(torch::cuda::device_count(), 2U);
  cudaDeviceProp properties;
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 1), cudaSuccess);
  EXPECT_TRUE(std::string(properties.name).starts_with("Simulated GPU"));
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

TEST(Devices, RefuseOperandsOfTwo) {
  const Tensor x = torch::ones({2, 3}, k_gpu), y = torch::ones({2, 3}, k_second_gpu);
  EXPECT_TRUE(has(error_of([&] { (void)(x + y); }),
                  "Expected all tensors to be on the same device, but found at least two devices, "
                  "cuda:0 and cuda:1!"));
  EXPECT_TRUE(has(error_of([&] {
                    (void)x.mm(torch::ones({3, 2}));
                  }),
                  "Expected all tensors to be on the same device"));
  EXPECT_TRUE((x + torch::tensor(1.0)).equal(torch::full({2, 3}, 2.0, k_gpu)));  // a CPU scalar may
}

TEST(Devices, CopyToEachOther) {
  const Tensor x = torch::rand({3, 5}, k_gpu);
  EXPECT_TRUE(x.to(k_second_gpu).cpu().equal(x.cpu()));
  EXPECT_TRUE(x.t().to(k_second_gpu).cpu().equal(x.t().cpu()));
  EXPECT_TRUE(x.to(k_second_gpu, torch::kHalf).cpu().equal(x.cpu().to(torch::kHalf)));
  Tensor y = torch::zeros({5, 3}, k_second_gpu);
  y.t().copy_(x);
  EXPECT_TRUE(y.t().cpu().equal(x.cpu()));
}

// A program that forgets to wait sees what was there before.
TEST(Streams, ACopyToPinnedMemoryIsDoneWhenItIsWaitedFor) {
  const Tensor x = torch::full({4}, 7.0, k_gpu);
  Tensor host = torch::zeros({4}, pinned());
  host.copy_(x, /*non_blocking=*/true);
  EXPECT_TRUE(host.equal(torch::zeros({4})));
  synchronize();
  EXPECT_TRUE(host.equal(torch::full({4}, 7.0)));
}

TEST(Streams, ACopyFromPinnedMemoryReadsItWhenItIsDone) {
  Tensor host = torch::full({4}, 1.0, pinned());
  Tensor x = torch::empty({4}, k_gpu);
  x.copy_(host, /*non_blocking=*/true);
  host.fill_(2.0);  // too early
  EXPECT_TRUE(x.cpu().equal(torch::full({4}, 2.0)));
}

// The side stream writes x, and the default stream reads it, with an event between them or without.
void write_on_a_side_stream(const std::function<void(Tensor&)>& write, bool waits, double seen) {
  Tensor x = torch::zeros({4}, k_gpu);
  const CUDAStream side = c10::cuda::getStreamFromPool(false, 0);
  synchronize();
  {
    const CUDAStreamGuard guard(side);
    write(x);
  }
  at::cuda::CUDAEvent written;
  written.record(side);
  if (waits) written.block(c10::cuda::getDefaultCUDAStream(0));
  EXPECT_TRUE((x * 1).cpu().equal(torch::full({4}, seen)));
  synchronize();
}

TEST(Streams, AMissingWaitShowsTheOldValue) {
  const Tensor host = torch::full({4}, 3.0, pinned());
  const auto copy = [&](Tensor& x) { x.copy_(host, true); };
  const auto fill = [&](Tensor& x) { x.fill_(3.0); };
  const auto add = [&](Tensor& x) { at::add_out(x, x, torch::full({4}, 3.0, k_gpu)); };
  for (const std::function<void(Tensor&)>& write :
       {std::function<void(Tensor&)>(copy), std::function<void(Tensor&)>(fill),
        std::function<void(Tensor&)>(add)}) {
    write_on_a_side_stream(write, true, 3.0);
    write_on_a_side_stream(write, false, 0.0);
  }
}

TEST(Streams, ANewTensorOfAnotherStreamIsNotThereYet) {
  const CUDAStream side = c10::cuda::getStreamFromPool(false, 0);
  const Tensor x = torch::full({4}, 3.0, k_gpu);
  synchronize();
  Tensor y;
  {
    const CUDAStreamGuard guard(side);
    y = x * 2;
  }
  EXPECT_FALSE(y.cpu().equal(torch::full({4}, 6.0)));
  side.synchronize();
  EXPECT_TRUE(y.cpu().equal(torch::full({4}, 6.0)));
}

TEST(Streams, AreBusyUntilTheyAreWaitedFor) {
  const CUDAStream stream = c10::cuda::getDefaultCUDAStream(0);
  synchronize();
  EXPECT_TRUE(stream.query());
  const Tensor x = torch::ones({4}, k_gpu);
  EXPECT_FALSE(stream.query());
  synchronize();
  at::cuda::sleep(1000);
  EXPECT_FALSE(stream.query());
}

TEST(Streams, APollingProgramEnds) {
  at::cuda::CUDAEvent event;
  Tensor host = torch::zeros({4}, pinned());
  host.copy_(torch::ones({4}, k_gpu), true);
  event.record();
  EXPECT_FALSE(event.query());
  while (!event.query()) {
  }
  EXPECT_TRUE(host.equal(torch::ones({4})));
}

// LibTorch's allocator of pinned memory asks once, and gives back only what is ready.
TEST(Streams, AnEventOfAnIdleStreamIsReady) {
  synchronize();
  at::cuda::CUDAEvent event;
  event.record();
  EXPECT_TRUE(event.query());
  const Tensor x = torch::ones({4}, k_gpu);
  event.record();
  EXPECT_FALSE(event.query());
}

TEST(Streams, OfOneDeviceTakeNoEventsOfAnother) {
  cudaEvent_t first = nullptr, untimed = nullptr, other = nullptr;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaEventCreate(&first), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming), cudaSuccess);
  {
    const c10::cuda::CUDAGuard guard(k_second_gpu);
    ASSERT_EQ(cudaEventCreate(&other), cudaSuccess);
    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(other, stream), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(first, nullptr), cudaErrorInvalidResourceHandle);
  }
  EXPECT_EQ(cudaEventRecord(first, stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(first, nullptr), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(untimed, nullptr), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream, first, 0), cudaSuccess);  // which may be another device's
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, first, other), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, first, untimed), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  EXPECT_STREQ(cudaGetErrorString(cudaErrorInvalidResourceHandle), "invalid resource handle");
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  for (const cudaEvent_t event : {first, untimed, other})
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST(Streams, TheDefaultOneCannotBeDestroyed) {
  for (const cudaStream_t stream : {cudaStream_t{nullptr}, cudaStreamLegacy, cudaStreamPerThread})
    EXPECT_EQ(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  EXPECT_TRUE(torch::ones({4}, k_gpu).cpu().equal(torch::ones({4})));
}

// A program that has a function called waits for the call alone; so nothing else may be needed.
TEST(Streams, CallTheProgramsFunctions) {
  const CUDAStream side = c10::cuda::getStreamFromPool(false, 0);
  Tensor host = torch::zeros({4}, pinned());
  const Tensor x = torch::full({4}, 7.0, k_gpu);
  synchronize();
  for (const bool by_callback : {true, false}) {
    host.zero_();
    std::promise<bool> called;
    {
      const CUDAStreamGuard guard(side);
      host.copy_(x, /*non_blocking=*/true);
    }
    const auto call = +[](void* data) { static_cast<std::promise<bool>*>(data)->set_value(true); };
    const auto callback = +[](cudaStream_t, cudaError_t status, void* data) {
      static_cast<std::promise<bool>*>(data)->set_value(status == cudaSuccess);
    };
    ASSERT_EQ(by_callback ? cudaStreamAddCallback(side.stream(), callback, &called, 0)
                          : cudaLaunchHostFunc(side.stream(), call, &called),
              cudaSuccess);
    auto is_called = called.get_future();
    ASSERT_EQ(is_called.wait_for(std::chrono::minutes(1)), std::future_status::ready);
    EXPECT_TRUE(is_called.get());
    EXPECT_TRUE(host.equal(torch::full({4}, 7.0)));  // what the stream had before is done
    side.synchronize();
  }
}

TEST(Streams, TheDefaultStreamWaitsForBlockingStreams) {
  cudaStream_t blocking, independent;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithPriority(&independent, cudaStreamNonBlocking, 0), cudaSuccess);
  for (const auto& [stream, seen] : {std::pair(blocking, 5.0), std::pair(independent, 0.0)}) {
    const Tensor host = torch::full({4}, 5.0, pinned());
    Tensor x = torch::zeros({4}, k_gpu);
    synchronize();
    ASSERT_EQ(cudaMemcpyAsync(x.data_ptr(), host.data_ptr(), x.nbytes(), cudaMemcpyDefault, stream),
              cudaSuccess);
    EXPECT_TRUE((x * 1).cpu().equal(torch::full({4}, seen)));
    synchronize();
    ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }
}

TEST(Graphs, ReplayOnNewInputs) {
  const CUDAStream side = c10::cuda::getStreamFromPool(false, 0);
  const Tensor weight = torch::rand({4, 4}, k_gpu);
  Tensor input = torch::zeros({2, 4}, k_gpu), sum = torch::zeros({}, k_gpu), output, grown;
  const Tensor host = torch::ones({2, 4}, pinned());
  synchronize();
  at::cuda::CUDAGraph graph;
  {
    const CUDAStreamGuard guard(side);
    graph.capture_begin();
    output = input.mm(weight).relu();
    sum += output.sum();
    grown = torch::empty({0}, k_gpu);
    at::add_out(grown, output, output);
    graph.capture_end();
  }
  EXPECT_EQ(sum.item<float>(), 0);  // captured, not done
  float expected = 0;
  for (const double value : {1.0, 2.0, -3.0}) {
    input.fill_(value);
    graph.replay();
    const Tensor right = input.cpu().mm(weight.cpu()).relu();
    expected += right.sum().item<float>();
    EXPECT_TRUE(output.cpu().allclose(right));
    EXPECT_TRUE(grown.cpu().allclose(right * 2));
  }
  EXPECT_FLOAT_EQ(sum.item<float>(), expected);
}

TEST(Graphs, RefuseASynchronization) {
  const CUDAStream side = c10::cuda::getStreamFromPool(false, 0);
  const Tensor x = torch::ones({}, k_gpu);
  const CUDAStreamGuard guard(side);
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  EXPECT_TRUE(has(error_of([&] { (void)x.item<float>(); }), "when stream is capturing"));
  EXPECT_TRUE(has(error_of([&] { graph.capture_end(); }), "previous error during capture"));
}

TEST(Graphs, KeepWhatTheyRetainUntilTheLastOfThemIsDestroyed) {
  int destroyed = 0;
  const cudaHostFn_t destroy = [](void* count) { ++*static_cast<int*>(count); };
  const CUDAStream side = c10::cuda::getStreamFromPool(false, 0);
  cudaUserObject_t object = nullptr, other = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t launchable = nullptr;
  cudaStreamCaptureStatus status{};
  ASSERT_EQ(cudaUserObjectCreate(&object, &destroyed, destroy, 1, cudaUserObjectNoDestructorSync),
            cudaSuccess);
  ASSERT_EQ(cudaUserObjectCreate(&other, &destroyed, destroy, 1, cudaUserObjectNoDestructorSync),
            cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(side, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cudaStreamGetCaptureInfo(side, &status, nullptr, &graph, nullptr, nullptr, nullptr),
            cudaSuccess);
  EXPECT_EQ(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove), cudaSuccess);
  EXPECT_EQ(cudaGraphRetainUserObject(graph, other, 1, 0), cudaSuccess);
  EXPECT_EQ(cudaUserObjectRelease(other, 1), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(side, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiateWithFlags(&launchable, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(destroyed, 0);
  EXPECT_EQ(cudaGraphExecDestroy(launchable), cudaSuccess);
  EXPECT_EQ(destroyed, 2);
}

// A capture must compute real values, here an index; memory is restored at its end.
TEST(Graphs, CaptureATrainingStep) {
  torch::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Conv2d(1, 2, 3), torch::nn::BatchNorm2d(2),
                            torch::nn::ReLU(), torch::nn::MaxPool2d(2), torch::nn::Flatten(),
                            torch::nn::Linear(18, 4));
  const Tensor x = torch::rand({4, 1, 8, 8});
  auto copy = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone());
  net->to(k_gpu);
  const Tensor input = x.to(k_gpu);
  const auto step = [](torch::nn::SequentialImpl& trained, const Tensor& images) {
    const Tensor scores = trained.forward(images);
    const Tensor loss = torch::cross_entropy_loss(scores, scores.argmin(1));
    const auto trainable = trained.parameters();
    const auto gradients = torch::autograd::grad({loss}, trainable);
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < trainable.size(); ++i)
      trainable[i].detach().sub_(gradients[i] * 0.1);
    return loss.detach();
  };
  const auto parameters = [](torch::nn::Module& of) {
    return torch::nn::utils::parameters_to_vector(of.parameters()).detach().cpu();
  };
  const Tensor before = parameters(*net);
  const CUDAStream side = c10::cuda::getStreamFromPool(false, 0);
  synchronize();
  Tensor loss;
  at::cuda::CUDAGraph graph;
  {
    const CUDAStreamGuard guard(side);
    graph.capture_begin();
    loss = step(*net, input);
    graph.capture_end();
  }
  EXPECT_TRUE(parameters(*net).equal(before));
  EXPECT_EQ(net->buffers()[2].item<std::int64_t>(), 0);  // num_batches_tracked
  for (int i = 0; i < 3; ++i) {
    graph.replay();
    EXPECT_NEAR(loss.item<double>(), step(*copy, x).item<double>(), 1e-4);
  }
  EXPECT_TRUE(parameters(*net).allclose(parameters(*copy), 1e-3, 1e-4));
  EXPECT_EQ(net->buffers()[2].item<std::int64_t>(), 3);
}

// As PyTorch's make_graphed_callables captures a backward pass: between captures the index is not there.
TEST(Graphs, CaptureWithAnIndexOfAnEarlierGraph) {
  const Tensor index = torch::full({4}, -77, torch::kLong).to(k_gpu), x = torch::rand({4}, k_gpu);
  Tensor sum;
  std::array<at::cuda::CUDAGraph, 2> graphs;
  {
    const CUDAStreamGuard guard(c10::cuda::getStreamFromPool(false, 0));
    graphs[0].capture_begin();
    index.fill_(3);
    graphs[0].capture_end();
    graphs[1].capture_begin();
    sum = torch::zeros({5}, k_gpu).scatter_add(0, index, x);
    graphs[1].capture_end();
  }
  for (at::cuda::CUDAGraph& graph : graphs) graph.replay();
  EXPECT_FLOAT_EQ(sum[3].item<float>(), x.sum().item<float>());
}

TEST(Graphs, RefuseSizesThatAreReadBack) {
  const CUDAStream side = c10::cuda::getStreamFromPool(false, 0);
  const Tensor x = torch::ones({4}, k_gpu);
  for (const auto& read : std::vector<std::function<void()>>{
           [&] { (void)x.nonzero(); }, [&] { (void)x.index({x > 0}); }, [&] { (void)x.equal(x); },
           [&] { (void)x.to_sparse(); }}) {
    const CUDAStreamGuard guard(side);
    at::cuda::CUDAGraph graph;
    graph.capture_begin();
    EXPECT_TRUE(has(error_of(read), "when stream is capturing"));
    EXPECT_TRUE(has(error_of([&] { graph.capture_end(); }), "previous error during capture"));
  }
}

TEST(Graphs, RefuseWorkThatIsNotJoined) {
  const CUDAStream side = c10::cuda::getStreamFromPool(false, 0),
                   other = c10::cuda::getStreamFromPool(false, 0);
  const Tensor x = torch::ones({4}, k_gpu);
  synchronize();
  for (const bool joins : {true, false}) {
    Tensor doubled;
    at::cuda::CUDAGraph graph;
    const CUDAStreamGuard guard(side);
    graph.capture_begin();
    at::cuda::CUDAEvent begun, ended;
    begun.record(side);
    begun.block(other);
    {
      const CUDAStreamGuard second(other);
      doubled = x * 2;
    }
    ended.record(other);
    if (joins) ended.block(side);
    if (joins) {
      graph.capture_end();
      graph.replay();
      EXPECT_TRUE(doubled.cpu().equal(torch::full({4}, 2.0)));
    } else {
      EXPECT_TRUE(has(error_of([&] { graph.capture_end(); }), "unjoined work"));
    }
  }
  EXPECT_TRUE((x + 1).cpu().equal(torch::full({4}, 2.0)));  // all works again
}

// On a real GPU too such an event stands for nothing that was executed.
TEST(Graphs, AnEventOfACaptureCannotBeWaitedForAfterIt) {
  const CUDAStream side = c10::cuda::getStreamFromPool(false, 0),
                   other = c10::cuda::getStreamFromPool(false, 0);
  Tensor x = torch::ones({4}, k_gpu);
  synchronize();
  cudaEvent_t event;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  const auto capture = [&](const std::function<void()>& during) {
    const CUDAStreamGuard guard(side);
    at::cuda::CUDAGraph graph;
    graph.capture_begin();
    x.add_(1);
    during();
    graph.capture_end();
  };
  capture([&] { ASSERT_EQ(cudaEventRecord(event, side.stream()), cudaSuccess); });
  EXPECT_EQ(cudaEventQuery(event), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventSynchronize(event), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamWaitEvent(other.stream(), event, 0), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaGetLastError(), cudaErrorCapturedEvent);
  cudaStreamCaptureStatus status;
  ASSERT_EQ(cudaStreamIsCapturing(other.stream(), &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  {
    const CUDAStreamGuard guard(other);
    x.add_(1);
    EXPECT_EQ(x[0].item<float>(), 2);  // done, not captured
  }
  ASSERT_EQ(cudaEventRecord(event, other.stream()), cudaSuccess);  // it can be used again
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST(Graphs, TwoCapturesCannotBecomeOne) {
  cudaStream_t streams[2];
  cudaEvent_t event;
  cudaGraph_t graph;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  for (cudaStream_t& stream : streams) {
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
  }
  ASSERT_EQ(cudaEventRecord(event, streams[0]), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(streams[1], event, 0), cudaErrorStreamCaptureMerge);
  for (cudaStream_t stream : streams) {
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }
  ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
  (void)cudaGetLastError();
}

TEST(Graphs, AreCountedAtEachLaunch) {
  const CUDAStream side = c10::cuda::getStreamFromPool(false, 0);
  Tensor x = torch::ones({4}, k_gpu);
  at::cuda::CUDAGraph graph;
  {
    const CUDAStreamGuard guard(side);
    graph.capture_begin();
    x.add_(1);
    x.mul_(2);
    graph.capture_end();
  }
  const std::uint64_t operations = count("operations"), launches = count("graph launches");
  for (int i = 0; i < 10; ++i) cudaGraphLaunch(graph.raw_cuda_graph_exec(), side.stream());
  EXPECT_EQ(count("operations") - operations, 20U);
  EXPECT_EQ(count("graph launches") - launches, 10U);
}

TEST(Graphs, DrawNewNumbersAtEachReplay) {
  const CUDAStream side = c10::cuda::getStreamFromPool(false, 0);
  torch::manual_seed(3);
  Tensor drawn;
  at::cuda::CUDAGraph graph;
  {
    const CUDAStreamGuard guard(side);
    graph.capture_begin();
    drawn = torch::rand({16}, k_gpu);
    graph.capture_end();
  }
  const auto replay = [&] {
    graph.replay();
    return drawn.cpu();
  };
  const Tensor first = replay(), second = replay();
  EXPECT_FALSE(first.equal(second));
  torch::manual_seed(3);
  EXPECT_TRUE(replay().equal(first));
  EXPECT_TRUE(replay().equal(second));
}

TEST(Random, EqualSeedsGiveEqualNumbersAndLeaveTheCpuAlone) {
  const auto draw = [] {
    std::vector<Tensor> drawn{torch::rand({8}, k_gpu), torch::randn({8}, k_gpu),
                              torch::randperm(8, k_gpu)};
    drawn.push_back(torch::dropout(torch::ones({64}, k_gpu), 0.5, true));
    drawn.push_back(torch::rand({8}, k_gpu).multinomial(3));
    drawn.push_back(torch::full({8}, 0.5, k_gpu).bernoulli());
    return drawn;
  };
  torch::manual_seed(5);
  const Tensor of_cpu = torch::rand({8});
  torch::manual_seed(5);
  const auto first = draw();
  EXPECT_TRUE(torch::rand({8}).equal(of_cpu));
  torch::manual_seed(5);
  const auto second = draw();
  const auto third = draw();
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(first[i].equal(second[i])) << i;
  EXPECT_FALSE(first[0].equal(third[0]));
  torch::Generator generator = at::cuda::detail::createCUDAGenerator(0);
  generator.set_current_seed(9);
  const Tensor own = torch::rand({8}, generator, k_gpu);
  generator.set_current_seed(9);
  EXPECT_TRUE(torch::rand({8}, generator, k_gpu).equal(own));
  EXPECT_TRUE((own >= 0).all().item<bool>() && (own < 1).all().item<bool>());
}

TEST(Memory, RunsOutAndIsThereAgain) {
  const auto too_much = std::int64_t{2} << 30;
  EXPECT_THROW((void)torch::empty({too_much}, torch::TensorOptions(k_gpu).dtype(torch::kByte)),
               c10::OutOfMemoryError);
  const Tensor x = torch::ones({1000}, k_gpu);
  EXPECT_EQ(x.sum().item<float>(), 1000);
}

TEST(Memory, IsCountedAsLibTorchCountsIt) {
  c10::cuda::CUDACachingAllocator::emptyCache();
  std::size_t before = 0, total = 0, after = 0;
  ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
  const Tensor x = torch::empty({32 << 20}, torch::TensorOptions(k_gpu).dtype(torch::kByte));
  ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
  EXPECT_EQ(before - after, std::size_t{32} << 20);
  EXPECT_EQ(total, std::size_t{1} << 30);
}

// Device memory as bytes, of `height` rows that are `pitch` bytes apart.
struct Bytes {
  static constexpr std::size_t pitch = 16, width = 10, height = 4, all = pitch * height;
  using Host = std::array<unsigned char, all>;

  Bytes() {
    EXPECT_EQ(cudaMalloc(&address, all), cudaSuccess);
    EXPECT_EQ(cudaMemset(address, 1, all), cudaSuccess);
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes() { cudaFree(address); }

  [[nodiscard]] Host read() const {
    Host bytes;
    EXPECT_EQ(cudaMemcpy(bytes.data(), address, all, cudaMemcpyDeviceToHost), cudaSuccess);
    return bytes;
  }

  void* address = nullptr;
};

// What `read` gives: rows of `value`, with what was there before between them.
Bytes::Host rows_of(unsigned char value, unsigned char before = 1) {
  Bytes::Host bytes;
  for (std::size_t i = 0; i < Bytes::all; ++i)
    bytes[i] = i % Bytes::pitch < Bytes::width ? value : before;
  return bytes;
}

TEST(Rows, AreSetAndCopiedWithoutWhatIsBetweenThem) {
  const Bytes x, y;
  const std::uint64_t sets = count("memory sets"), copies = count("device to host copies"),
                      bytes = count("device to host bytes");
  ASSERT_EQ(cudaMemset2D(x.address, Bytes::pitch, 7, Bytes::width, Bytes::height), cudaSuccess);
  EXPECT_EQ(count("memory sets") - sets, 1U);
  EXPECT_EQ(x.read(), rows_of(7));
  Bytes::Host host;
  host.fill(2);
  ASSERT_EQ(cudaMemcpy2D(host.data(), Bytes::pitch, x.address, Bytes::pitch, Bytes::width,
                         Bytes::height, cudaMemcpyDeviceToHost),
            cudaSuccess);
  EXPECT_EQ(host, rows_of(7, 2));
  EXPECT_EQ(count("device to host copies") - copies, 2U);  // the first was all that x has
  EXPECT_EQ(count("device to host bytes") - bytes, Bytes::all + Bytes::width * Bytes::height);

  std::array<unsigned char, Bytes::width * Bytes::height> dense;
  dense.fill(9);
  ASSERT_EQ(cudaMemcpy2D(y.address, Bytes::pitch, dense.data(), Bytes::width, Bytes::width,
                         Bytes::height, cudaMemcpyHostToDevice),
            cudaSuccess);
  EXPECT_EQ(y.read(), rows_of(9));
  ASSERT_EQ(cudaMemcpy2D(x.address, Bytes::pitch, y.address, Bytes::pitch, Bytes::width,
                         Bytes::height, cudaMemcpyDefault),
            cudaSuccess);
  EXPECT_EQ(x.read(), rows_of(9));
  EXPECT_EQ(cudaMemset2D(nullptr, 0, 7, 0, 4), cudaSuccess);  // nothing
}

TEST(Rows, AreSetByEachLaunchOfAGraph) {
  const Bytes x, y;
  const CUDAStream stream = c10::cuda::getStreamFromPool(false, 0);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cudaMemset2DAsync(x.address, Bytes::pitch, 7, Bytes::width, Bytes::height, stream),
            cudaSuccess);
  ASSERT_EQ(cudaMemcpy2DAsync(y.address, Bytes::pitch, x.address, Bytes::pitch, Bytes::width,
                              Bytes::height, cudaMemcpyDefault, stream),
            cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(x.read(), rows_of(1));
  ASSERT_EQ(cudaGraphInstantiateWithFlags(&exec, graph, 0), cudaSuccess);
  for (int launch = 0; launch < 2; ++launch) {
    ASSERT_EQ(cudaMemset(y.address, 3, Bytes::all), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    synchronize();
    EXPECT_EQ(x.read(), rows_of(7));
    EXPECT_EQ(y.read(), rows_of(7, 3));
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
}

TEST(Rows, MustNotOverlapNorLeaveTheirMemory) {
  const Bytes x;
  Bytes::Host host{};
  const auto copy = [&](std::size_t to_pitch, std::size_t from_pitch, std::size_t height) {
    return cudaMemcpy2D(host.data(), to_pitch, x.address, from_pitch, 10, height,
                        cudaMemcpyDeviceToHost);
  };
  EXPECT_EQ(copy(9, 16, 4), cudaErrorInvalidPitchValue);
  EXPECT_EQ(copy(16, 9, 4), cudaErrorInvalidPitchValue);
  EXPECT_STREQ(cudaGetErrorString(cudaGetLastError()), "invalid pitch argument");
  EXPECT_EQ(copy(0, 4096, 2), cudaErrorInvalidPitchValue);
  EXPECT_EQ(copy(16, 4096, 2), cudaErrorInvalidValue);
  EXPECT_EQ(copy(16, std::size_t{1} << 63, 3),
            cudaErrorInvalidValue);  // more than there are addresses
  EXPECT_EQ(cudaMemset2D(x.address, 9, 7, 10, 4), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset2D(x.address, 4096, 7, 10, 2), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(x.read(), rows_of(1));
}

TEST(Memory, ThatIsPinnedHasOneAddress) {
  void *host = nullptr, *on_device = nullptr;
  ASSERT_EQ(cudaMallocHost(&host, 64), cudaSuccess);
  EXPECT_EQ(cudaHostGetDevicePointer(&on_device, static_cast<char*>(host) + 8, 0), cudaSuccess);
  EXPECT_EQ(on_device, static_cast<char*>(host) + 8);
  EXPECT_EQ(cudaHostGetDevicePointer(&on_device, host, 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
  int pageable = 0;
  EXPECT_EQ(cudaHostGetDevicePointer(&on_device, &pageable, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST(Devices, KeepTheirFlags) {
  unsigned flags = 0;
  ASSERT_EQ(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync), cudaSuccess);
  ASSERT_EQ(cudaGetDeviceFlags(&flags), cudaSuccess);
  EXPECT_EQ(flags, unsigned{cudaDeviceScheduleBlockingSync} | cudaDeviceMapHost);
  EXPECT_EQ(cudaSetDeviceFlags(3), cudaErrorInvalidValue);  // to spin and to yield
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  ASSERT_EQ(cudaSetDeviceFlags(cudaDeviceScheduleAuto), cudaSuccess);
}

TEST(MemoryDeathTest, IsNotTheHosts) {
  const Tensor x = torch::ones({4}, k_gpu);
  EXPECT_DEATH(static_cast<volatile float*>(x.data_ptr())[0],
               "simulate_gpus: the host read memory of cuda:0");
  EXPECT_DEATH(static_cast<volatile float*>(x.data_ptr())[0] = 1,
               "simulate_gpus: the host wrote memory of cuda:0");
}

TEST(Fork, TheChildCannotUseTheGpusOfItsParent) {
  Tensor x = torch::ones({4}, k_gpu);
  const pid_t child = fork();
  if (child == 0) {
    int status = 0;
    try {
      x.add_(1);
      status = 1;
    } catch (const c10::Error& error) {
      if (!has(error.what(), "initialization error")) status = 2;
    }
    _exit(status);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(x.cpu().equal(torch::ones({4})));
}

TEST(Faults, FailTheCallThatWasAskedFor) {
  set_faults("cudaMemcpyAsync:2:700");
  const Tensor x = torch::ones({4});
  (void)x.to(k_gpu);
  EXPECT_TRUE(
      has(error_of([&] { (void)x.to(k_gpu); }), "an illegal memory access was encountered"));
  EXPECT_TRUE(x.to(k_gpu).cpu().equal(x));
  set_faults("cudaLaunchKernel:1:719");
  const Tensor y = x.to(k_gpu);
  EXPECT_TRUE(has(error_of([&] { (void)(y + y); }), "unspecified launch failure"));
  EXPECT_TRUE((y + y).cpu().equal(x + x));
  set_faults("");
}

TEST(Threads, ComputeOnTheirDevices) {
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([number] {
      const torch::Device device(torch::kCUDA, static_cast<c10::DeviceIndex>(number % 2));
      Tensor x = torch::zeros({16}, device);
      const CUDAStream side = c10::cuda::getStreamFromPool(false, device.index());
      Tensor host = torch::empty({16}, pinned());
      for (int step = 1; step <= 50; ++step) {
        x.add_(1);
        at::cuda::CUDAEvent event;
        event.record(c10::cuda::getDefaultCUDAStream(device.index()));
        event.block(side);
        {
          const CUDAStreamGuard guard(side);
          host.copy_(x, true);
        }
        side.synchronize();
        EXPECT_TRUE((host >= step).all().item<bool>());
        EXPECT_TRUE(host.cpu().equal(x.cpu()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A stream's capture begins and ends while other threads ask for it.
TEST(Threads, AskWhetherAStreamIsCaptured) {
  cudaStream_t stream;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  std::atomic<bool> is_done = false;
  std::vector<std::thread> threads;
  for (int number = 0; number < 2; ++number) {
    threads.emplace_back([&] {
      while (!is_done) {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusInvalidated;
        unsigned long long id = 0;
        EXPECT_EQ(
            cudaStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr, nullptr),
            cudaSuccess);
        EXPECT_NE(status, cudaStreamCaptureStatusInvalidated);
        EXPECT_EQ(id != 0, status == cudaStreamCaptureStatusActive);
      }
    });
  }
  for (int capture = 0; capture < 20000; ++capture) {
    cudaGraph_t graph;
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  is_done = true;
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

// As the threads of autograd do, one for each GPU.
TEST(Threads, FillOneCaptureTogether) {
  constexpr int k_steps = 5000;
  std::array<cudaStream_t, 2> streams{};
  std::array<cudaEvent_t, 2> events{};
  std::array<void*, 2> memory{};
  const auto on_each = [&](const std::function<void(std::size_t)>& action) {
    for (std::size_t gpu = 0; gpu < 2; ++gpu) {
      const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(gpu));
      action(gpu);
    }
  };
  on_each([&](std::size_t gpu) {
    EXPECT_EQ(cudaStreamCreateWithFlags(&streams[gpu], cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaEventCreate(&events[gpu]), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&memory[gpu], 16), cudaSuccess);
  });
  ASSERT_EQ(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(events[0], streams[0]), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(streams[1], events[0], 0), cudaSuccess);
  std::vector<std::thread> threads;
  for (std::size_t gpu = 0; gpu < 2; ++gpu) {
    threads.emplace_back([&, gpu] {
      const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(gpu));
      for (int step = 0; step < k_steps; ++step) {
        EXPECT_EQ(cudaMemsetAsync(memory[gpu], 0, 16, streams[gpu]), cudaSuccess);
        EXPECT_EQ(cudaEventRecord(events[gpu], streams[gpu]), cudaSuccess);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cudaStreamWaitEvent(streams[0], events[1], 0), cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(streams[0], &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiateWithFlags(&executable, graph, 0), cudaSuccess);
  const std::uint64_t before = count("memory sets");
  EXPECT_EQ(cudaGraphLaunch(executable, streams[0]), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(streams[0]), cudaSuccess);
  EXPECT_EQ(count("memory sets") - before, 2 * k_steps);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  on_each([&](std::size_t gpu) {
    EXPECT_EQ(cudaStreamDestroy(streams[gpu]), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(events[gpu]), cudaSuccess);
    EXPECT_EQ(cudaFree(memory[gpu]), cudaSuccess);
  });
}

// Each row of the summary, by a program written for it.
TEST(Summary, CountsWhatIsDone) {
  const Tensor host = torch::ones({256}), locked = torch::ones({256}, pinned());
  Tensor x = torch::empty({256}, k_gpu), y = torch::empty({256}, k_second_gpu);
  at::cuda::CUDAEvent event;
  event.record();
  synchronize();
  const auto counted = [](const std::function<void()>& action, const char* row) {
    const std::uint64_t before = count(row);
    action();
    return count(row) - before;
  };
  EXPECT_EQ(counted([&] { x.copy_(host); }, "host to device copies"), 1U);
  EXPECT_EQ(counted([&] { x.copy_(host); }, "host to device bytes"), 1024U);
  EXPECT_EQ(counted([&] { x.copy_(host); }, "host to device pinned copies"), 0U);
  EXPECT_EQ(counted([&] { x.copy_(locked, true); }, "host to device pinned bytes"), 1024U);
  EXPECT_EQ(counted([&] { (void)x.cpu(); }, "device to host copies"), 1U);
  EXPECT_EQ(counted([&] { (void)x.cpu(); }, "device to host bytes"), 1024U);
  EXPECT_EQ(counted([&] { y.copy_(x); }, "device to device copies"), 1U);
  EXPECT_EQ(counted([&] { y.copy_(x); }, "device to device bytes"), 1024U);
  EXPECT_EQ(counted([&] { (void)x.clone(); }, "within a device copies"), 1U);
  EXPECT_EQ(counted([&] { x.add_(1); }, "operations"), 1U);
  EXPECT_EQ(counted([&] { (void)(x * 2 + x); }, "operations"), 2U);
  EXPECT_EQ(
      counted([&] { c10::cuda::getDefaultCUDAStream(0).synchronize(); }, "stream synchronizations"),
      1U);
  EXPECT_EQ(counted([&] { event.synchronize(); }, "event synchronizations"), 1U);
  EXPECT_EQ(counted([&] { synchronize(); }, "device synchronizations"), 1U);
  void* memory = nullptr;
  EXPECT_EQ(counted([&] { cudaMalloc(&memory, 4096); }, "allocations"), 1U);
  EXPECT_EQ(counted([&] { cudaMemset(memory, 0, 4096); }, "memory sets"), 1U);
  cudaFree(memory);
  EXPECT_EQ(counted([&] { cudaMallocHost(&memory, 4096); }, "pinned allocations"), 1U);
  cudaFreeHost(memory);
}

}  // namespace
