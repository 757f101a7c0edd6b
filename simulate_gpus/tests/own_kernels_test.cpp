// SPDX-License-Identifier: MIT
//
// Kernels that a program brings, by the driver's functions: from PTX and fat binaries that nvcc has made (own_kernels/), so that machines
// without nvcc test them too.
#include <cuda.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

// Of nvcc's programs. NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes,
                                                cudaStream_t stream);
extern "C" cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block,
                                                  std::size_t* shared_bytes, void* stream);
// NOLINTEND(bugprone-reserved-identifier)

namespace {

std::string read_file(const std::string& name) {
  std::ifstream file(std::string(OWN_KERNELS) + '/' + name, std::ios::binary);
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Module {
  explicit Module(const std::string& image) {
    EXPECT_EQ(cuModuleLoadData(&handle, image.c_str()), CUDA_SUCCESS);
  }
  Module() : Module(read_file("kernels.ptx")) {}
  Module(const Module&) = delete;
  ~Module() { cuModuleUnload(handle); }
  [[nodiscard]] CUfunction function(const char* name) const {
    CUfunction found = nullptr;
    EXPECT_EQ(cuModuleGetFunction(&found, handle, name), CUDA_SUCCESS);
    return found;
  }
  CUmodule handle = nullptr;
};

CUresult launch(CUfunction function, unsigned blocks, unsigned threads,
                std::vector<void*> arguments, unsigned shared_bytes = 0,
                CUstream stream = nullptr) {
  return cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared_bytes, stream,
                        arguments.data(), nullptr);
}

template <class Value>
struct OnDevice {
  explicit OnDevice(const std::vector<Value>& values) : count(values.size()) {
    EXPECT_EQ(cudaMalloc(&address, bytes()), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(address, values.data(), bytes(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  OnDevice(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(address); }
  [[nodiscard]] std::size_t bytes() const { return count * sizeof(Value); }
  [[nodiscard]] std::vector<Value> values() const {
    std::vector<Value> read(count);
    EXPECT_EQ(cudaMemcpy(read.data(), address, bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    return read;
  }
  Value* address = nullptr;
  std::size_t count;
};

void* pointer_to(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

const std::vector<float> k_a{1, 2, 3, 4, 5}, k_b{10, 20, 30, 40, 50}, k_sum{11, 22, 33, 44, 55};

TEST(OwnKernels, TakeTheirParametersOneByOneOrAsOneBuffer) {
  const Module module;
  OnDevice<float> a(k_a), b(k_b), sum(k_b), other(k_b);
  int n = 5;
  ASSERT_EQ(launch(module.function("add"), 2, 32, {&a.address, &b.address, &sum.address, &n}),
            CUDA_SUCCESS);
  EXPECT_EQ(sum.values(), k_sum);

  const struct {
    float *a, *b, *sum;
    int n;
  } all{a.address, b.address, other.address, 3};
  std::size_t bytes = sizeof all;
  std::array<void*, 5> extra{CU_LAUNCH_PARAM_BUFFER_POINTER,
                             const_cast<void*>(static_cast<const void*>(&all)),
                             CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  ASSERT_EQ(
      cuLaunchKernel(module.function("add"), 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra.data()),
      CUDA_SUCCESS);
  EXPECT_EQ(other.values(), (std::vector<float>{11, 22, 33, 40, 50}));
  bytes = 8;
  EXPECT_EQ(
      cuLaunchKernel(module.function("add"), 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra.data()),
      CUDA_ERROR_INVALID_VALUE);
}

TEST(OwnKernels, AreFoundInFatBinaries) {
  for (const char* const name : {"plain.fatbin", "speed.fatbin", "size.fatbin"}) {
    const Module module(read_file(name));
    OnDevice<float> a(k_a), b(k_b), sum(k_a);
    int n = 5;
    ASSERT_EQ(launch(module.function("add"), 1, 32, {&a.address, &b.address, &sum.address, &n}),
              CUDA_SUCCESS);
    EXPECT_EQ(sum.values(), k_sum) << name;
  }
}

TEST(OwnKernels, WaitInTheirStream) {
  const Module module;
  cudaStream_t busy = nullptr, other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&busy, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  OnDevice<float> a(k_a), b(k_b), sum(k_a);
  int n = 5;
  float* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, sizeof *pinned), cudaSuccess);
  ASSERT_EQ(
      launch(module.function("add"), 1, 32, {&a.address, &b.address, &sum.address, &n}, 0, busy),
      CUDA_SUCCESS);
  EXPECT_EQ(cudaStreamQuery(busy), cudaErrorNotReady);
  ASSERT_EQ(
      launch(module.function("add"), 1, 32, {&a.address, &sum.address, &sum.address, &n}, 0, busy),
      CUDA_SUCCESS);
  const auto first = [&](cudaStream_t stream) {
    EXPECT_EQ(cudaMemcpyAsync(pinned, sum.address, sizeof *pinned, cudaMemcpyDeviceToHost, stream),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    return *pinned;
  };
  EXPECT_EQ(first(busy), 12);
  ASSERT_EQ(
      launch(module.function("add"), 1, 32, {&a.address, &sum.address, &sum.address, &n}, 0, busy),
      CUDA_SUCCESS);
  EXPECT_EQ(first(other), 12);  // it has not waited
  EXPECT_EQ(first(busy), 13);
  cudaFreeHost(pinned);
  cudaStreamDestroy(busy);
  cudaStreamDestroy(other);
}

TEST(OwnKernels, RunAtEachLaunchOfAGraph) {
  const Module module;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  OnDevice<int> seen({-1});
  CUdeviceptr counter = 0;
  std::size_t bytes = 0;
  ASSERT_EQ(cuModuleGetGlobal(&counter, &bytes, module.handle, "counter"), CUDA_SUCCESS);
  EXPECT_EQ(bytes, sizeof(int));
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(launch(module.function("count"), 1, 1, {&seen.address}, 0, stream), CUDA_SUCCESS);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  EXPECT_EQ(seen.values(), std::vector{-1});  // the capture runs nothing
  for (int expected = 7; expected < 10; ++expected) {
    ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(seen.values(), std::vector{expected});
  }
  const int again = 40;
  ASSERT_EQ(cudaMemcpy(pointer_to(counter), &again, sizeof again, cudaMemcpyHostToDevice),
            cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(seen.values(), std::vector{40});
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST(OwnKernels, ReadConstantsThatTheHostHasSet) {
  const Module module;
  CUdeviceptr factors = 0;
  ASSERT_EQ(cuModuleGetGlobal(&factors, nullptr, module.handle, "factors"), CUDA_SUCCESS);
  const std::array<float, 2> values{2, 10};
  ASSERT_EQ(cudaMemcpy(pointer_to(factors), values.data(), sizeof values, cudaMemcpyHostToDevice),
            cudaSuccess);
  OnDevice<float> a(k_a), b(k_b), sum(k_a);
  int n = 5;
  ASSERT_EQ(launch(module.function("add"), 1, 32, {&a.address, &b.address, &sum.address, &n}),
            CUDA_SUCCESS);
  EXPECT_EQ(sum.values(), (std::vector<float>{102, 204, 306, 408, 510}));
  EXPECT_EQ(cuModuleGetGlobal(&factors, nullptr, module.handle, "missing"), CUDA_ERROR_NOT_FOUND);
}

// The variables that queued work still reads, and those of a device whose context has ended.
TEST(OwnKernels, HaveVariablesUntilTheWorkIsDone) {
  std::uint32_t* counted = nullptr;
  ASSERT_EQ(cudaMallocHost(&counted, sizeof *counted), cudaSuccess);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  {
    const Module module;
    OnDevice<std::uint32_t> before({0});
    CUdeviceptr counter = 0;
    ASSERT_EQ(cuModuleGetGlobal(&counter, nullptr, module.handle, "counter"), CUDA_SUCCESS);
    ASSERT_EQ(launch(module.function("count"), 1, 1, {&before.address}, 0, stream), CUDA_SUCCESS);
    ASSERT_EQ(
        cudaMemcpyAsync(counted, pointer_to(counter), sizeof *counted, cudaMemcpyDefault, stream),
        cudaSuccess);
  }
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(*counted, 8U);

  const Module module;
  const CUfunction count = module.function("count");
  for (int round = 0; round < 2; ++round) {
    OnDevice<std::uint32_t> before({0});
    ASSERT_EQ(launch(count, 1, 1, {&before.address}), CUDA_SUCCESS);
    EXPECT_EQ(before.values(), (std::vector<std::uint32_t>{7}));
    ASSERT_EQ(cudaDeviceReset(), cudaSuccess);
  }
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(counted), cudaSuccess);
}

TEST(OwnKernels, BelongToTheGpuOnWhichTheirModuleWasLoaded) {
  const Module module;
  const CUfunction count = module.function("count");
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  OnDevice<std::uint32_t> before({0});
  EXPECT_EQ(launch(count, 1, 1, {&before.address}), CUDA_ERROR_INVALID_HANDLE);
  int value = 0;
  EXPECT_EQ(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS,
                                 reinterpret_cast<CUkernel>(count), 99),
            CUDA_ERROR_INVALID_DEVICE);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST(OwnKernels, AreRefusedWithAttributesThatSomeoneWaitsFor) {
  const Module module;
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
  CUlaunchConfig config{1, 1, 1, 1, 1, 1, 0, nullptr, &attribute, 1};
  OnDevice<std::uint32_t> before({0});
  void* arguments[] = {&before.address};
  const CUfunction count = module.function("count");
  EXPECT_EQ(cuLaunchKernelEx(&config, count, arguments, nullptr), CUDA_ERROR_NOT_SUPPORTED);
  attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  EXPECT_EQ(cuLaunchKernelEx(&config, count, arguments, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// A call between a launch's size and its arguments may launch too.
TEST(Launches, HaveAStackOfConfigurations) {
  ASSERT_EQ(__cudaPushCallConfiguration({4, 1, 1}, {64, 1, 1}, 0, nullptr), 0U);
  ASSERT_EQ(__cudaPushCallConfiguration({1, 1, 1}, {2, 1, 1}, 8, nullptr), 0U);
  dim3 grid, block;
  std::size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
  const auto pop = [&] {
    return __cudaPopCallConfiguration(&grid, &block, &shared_bytes, &stream);
  };
  ASSERT_EQ(pop(), cudaSuccess);
  EXPECT_EQ(block.x, 2U);
  ASSERT_EQ(pop(), cudaSuccess);
  EXPECT_EQ(grid.x * block.x + shared_bytes, 256U);
  EXPECT_EQ(pop(), cudaErrorMissingConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMissingConfiguration);
}

TEST(MemorySets, OfSeveralBytesAreCaptured) {
  OnDevice<std::uint32_t> values({1, 2, 3, 4});
  const auto address = reinterpret_cast<CUdeviceptr>(values.address);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(cuMemsetD32Async(address, 0x01020304, 3, stream), CUDA_SUCCESS);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(values.values(), (std::vector<std::uint32_t>{0x01020304, 0x01020304, 0x01020304, 4}));
  EXPECT_EQ(cuMemsetD16(address, 7, 2), CUDA_SUCCESS);
  EXPECT_EQ(values.values()[0], 0x00070007U);
  EXPECT_EQ(cuMemsetD32(address + 2, 7, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD32(address, 7, std::size_t{1} << 62), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST(OwnKernels, RefuseLaunchesThatAGpuRefuses) {
  const Module module;
  OnDevice<float> a(k_a);
  int n = 0;
  const CUfunction add = module.function("add");
  const std::vector<void*> arguments{&a.address, &a.address, &a.address, &n};
  const auto shaped = [&](std::array<unsigned, 3> grid, std::array<unsigned, 3> block,
                          unsigned shared_bytes) {
    return cuLaunchKernel(add, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                          shared_bytes, nullptr, const_cast<void**>(arguments.data()), nullptr);
  };
  EXPECT_EQ(shaped({1, 1, 1}, {1024, 1, 1}, 48 << 10), CUDA_SUCCESS);
  EXPECT_EQ(shaped({1, 1, 1}, {4096, 1, 1}, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(shaped({1, 1, 1}, {1024, 2, 1}, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(shaped({1, 1, 1}, {1, 1, 65}, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(shaped({0, 1, 1}, {1, 1, 1}, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(shaped({1, 65536, 1}, {1, 1, 1}, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(shaped({1u << 31, 1, 1}, {1, 1, 1}, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(shaped({1, 1, 1}, {1, 1, 1}, (48 << 10) + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 228 << 10),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10),
            CUDA_SUCCESS);
  EXPECT_EQ(shaped({1, 1, 1}, {1, 1, 1}, 100 << 10), CUDA_SUCCESS);
  OnDevice<int> values(std::vector<int>(128));
  EXPECT_EQ(launch(module.function("reversed"), 1, 128, {&values.address}, 512),
            CUDA_ERROR_INVALID_VALUE);  // its launch bounds are 64
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST(OwnKernels, HaveSharedMemoryBothStaticAndDynamic) {
  const Module module;
  std::vector<int> numbers(64), expected(64);
  std::iota(numbers.begin(), numbers.end(), 0);
  for (int i = 0; i < 64; ++i) expected[static_cast<std::size_t>(i)] = 163 - i;
  OnDevice<int> values(numbers);
  ASSERT_EQ(launch(module.function("reversed"), 1, 64, {&values.address}, 256), CUDA_SUCCESS);
  EXPECT_EQ(values.values(), expected);
}

TEST(OwnKernels, TellTheirAttributes) {
  const Module module;
  const auto attribute = [&](const char* name, CUfunction_attribute which) {
    int value = -1;
    EXPECT_EQ(cuFuncGetAttribute(&value, which, module.function(name)), CUDA_SUCCESS);
    return value;
  };
  EXPECT_EQ(attribute("reversed", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 64);
  EXPECT_EQ(attribute("add", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 1024);
  EXPECT_EQ(attribute("reversed", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 16);
  EXPECT_EQ(attribute("reversed", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES),
            (48 << 10) - 16);
  EXPECT_EQ(attribute("add", CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES), 8);
  EXPECT_EQ(attribute("add", CU_FUNC_ATTRIBUTE_PTX_VERSION), 75);
  std::size_t offset = 0, bytes = 0;
  EXPECT_EQ(cuFuncGetParamInfo(module.function("add"), 3, &offset, &bytes), CUDA_SUCCESS);
  EXPECT_EQ(offset, 24U);
  EXPECT_EQ(bytes, 4U);
  EXPECT_EQ(cuFuncGetParamInfo(module.function("add"), 4, &offset, &bytes),
            CUDA_ERROR_INVALID_VALUE);
  int blocks = 0;
  EXPECT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, module.function("add"), 256, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(blocks, 8);
  EXPECT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, module.function("add"), 32, 20000),
            CUDA_SUCCESS);
  EXPECT_EQ(blocks, 11);
}

TEST(OwnKernels, SayWhatIsWrongWithThePtx) {
  CUmodule module = nullptr;
  std::array<char, 300> log{};
  std::array options{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size())};
  const std::string wrong =
      ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry f( { ret; }\n";
  EXPECT_EQ(cuModuleLoadDataEx(&module, wrong.c_str(), 2, options.data(), values.data()),
            CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(std::string(log.data()), "");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(values[1]), std::string(log.data()).size());
  EXPECT_EQ(cuModuleLoadData(&module, "\x01\x02"), CUDA_ERROR_INVALID_IMAGE);
  const Module good;
  CUfunction function = nullptr;
  EXPECT_EQ(cuModuleGetFunction(&function, good.handle, "missing"), CUDA_ERROR_NOT_FOUND);
}

TEST(OwnKernels, AreLinkedFromSeveralTexts) {
  const std::string head = ".version 8.0\n.target sm_75\n.address_size 64\n";
  const std::string caller = head +
                             ".extern .func (.param .b32 r) other (.param .b32 p);\n"
                             ".global .align 4 .u32 own = 1;\n"
                             ".visible .entry call(.param .u64 to) {\n"
                             ".reg .b64 %a; .reg .b32 %v, %w;\n"
                             "ld.param.u64 %a, [to];\n"
                             "ld.global.u32 %w, [own];\n"
                             "{ .param .b32 x; .param .b32 y; st.param.b32 [x], %w;\n"
                             "call (y), other, (x); ld.param.b32 %v, [y]; }\n"
                             "st.global.u32 [%a], %v; ret; }\n";
  const std::string called = head +
                             ".global .align 4 .u32 own = 40;\n"
                             ".visible .func (.param .b32 r) other (.param .b32 p) {\n"
                             ".reg .b32 %v, %w; ld.param.b32 %v, [p]; ld.global.u32 %w, [own];\n"
                             "add.u32 %v, %v, %w; st.param.b32 [r], %v; ret; }\n";
  CUlinkState state = nullptr;
  ASSERT_EQ(cuLinkCreate(0, nullptr, nullptr, &state), CUDA_SUCCESS);
  for (const std::string& text : {caller, called}) {
    ASSERT_EQ(cuLinkAddData(state, CU_JIT_INPUT_PTX, const_cast<char*>(text.c_str()),
                            text.size() + 1, "text", 0, nullptr, nullptr),
              CUDA_SUCCESS);
  }
  void* image = nullptr;
  std::size_t bytes = 0;
  ASSERT_EQ(cuLinkComplete(state, &image, &bytes), CUDA_SUCCESS);
  const Module module(static_cast<const char*>(image));
  ASSERT_EQ(cuLinkDestroy(state), CUDA_SUCCESS);
  OnDevice<int> value({0});
  ASSERT_EQ(launch(module.function("call"), 1, 1, {&value.address}), CUDA_SUCCESS);
  EXPECT_EQ(value.values(), std::vector{41});
}

TEST(OwnKernels, UseManagedMemoryAtItsAddress) {
  const Module module;
  float* all = nullptr;
  ASSERT_EQ(cudaMallocManaged(&all, 15 * sizeof(float), cudaMemAttachGlobal), cudaSuccess);
  for (int i = 0; i < 15; ++i) all[i] = static_cast<float>(i);
  cudaPointerAttributes attributes{};
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, all), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeManaged);
  float *b = all + 5, *sum = all + 10;
  int n = 5;
  ASSERT_EQ(launch(module.function("add"), 1, 32, {&all, &b, &sum, &n}), CUDA_SUCCESS);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(std::vector<float>(sum, sum + 5), (std::vector<float>{5, 7, 9, 11, 13}));
  EXPECT_EQ(cudaFree(all), cudaSuccess);
  EXPECT_EQ(cudaFree(all), cudaErrorInvalidValue);
}

TEST(OwnKernels, PrintToTheProgramsOutput) {
  const Module module;
  testing::internal::CaptureStdout();
  ASSERT_EQ(launch(module.function("greet"), 2, 2, {}), CUDA_SUCCESS);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const std::string printed = testing::internal::GetCapturedStdout();
  for (const char* const line : {"thread 0 of block 0\n", "thread 1 of block 1\n"})
    EXPECT_NE(printed.find(line), std::string::npos) << printed;
}

// Each in a process of its own, whose device is lost.
int write_elsewhere(void* to, long long place) {
  const Module module;
  const CUresult launched = launch(module.function("write_at"), 1, 1, {&to, &place});
  const cudaError_t waited = cudaDeviceSynchronize();
  const std::string text = cudaGetErrorString(waited);
  void* more = nullptr;
  const bool is_lost = launched == CUDA_SUCCESS && waited == cudaErrorIllegalAddress &&
                       text.find("write_at") != std::string::npos &&
                       cudaMalloc(&more, 4) == waited && cudaGetLastError() == waited &&
                       cudaGetLastError() == waited;
  return is_lost ? 0 : 1;
}

TEST(OwnKernelsDeathTest, LoseTheDeviceByAWildPointer) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const OnDevice<int> values({1});
        std::exit(write_elsewhere(values.address, 1LL << 40));
      },
      testing::ExitedWithCode(0), "simulate_gpus: .*write_at.*kernels.cu");
}

TEST(OwnKernelsDeathTest, ReachAPeerOnlyOnceThatIsEnabled) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  const OnDevice<int> peers({5});
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess);
  {
    const Module module;
    long long place = 0;
    ASSERT_EQ(
        launch(module.function("write_at"), 1, 1, {const_cast<int**>(&peers.address), &place}),
        CUDA_SUCCESS);
    EXPECT_EQ(peers.values(), std::vector{1});
  }
  ASSERT_EQ(cudaDeviceDisablePeerAccess(1), cudaSuccess);
  EXPECT_EXIT(
      {
        cudaSetDevice(1);
        const OnDevice<int> values({1});
        cudaSetDevice(0);
        std::exit(write_elsewhere(values.address, 0));
      },
      testing::ExitedWithCode(0), "write_at");
}

TEST(Volumes, AreCopiedAndSetLayerByLayer) {
  const cudaExtent extent{3, 2, 2};
  cudaPitchedPtr device{};
  ASSERT_EQ(cudaMalloc3D(&device, {8, 4, 2}), cudaSuccess);
  ASSERT_EQ(cudaMemset3D(device, 9, {8, 4, 2}), cudaSuccess);
  std::array<char, 12> values{}, read{};
  std::iota(values.begin(), values.end(), '\0');
  cudaMemcpy3DParms copy{};
  copy.srcPtr = {values.data(), 3, 3, 2};
  copy.dstPtr = device;
  copy.dstPos = {1, 1, 0};
  copy.extent = extent;
  copy.kind = cudaMemcpyHostToDevice;
  ASSERT_EQ(cudaMemcpy3D(&copy), cudaSuccess);
  std::array<char, 64> whole{};
  ASSERT_EQ(cudaMemcpy2D(whole.data(), 8, device.ptr, device.pitch, 8, 8, cudaMemcpyDeviceToHost),
            cudaSuccess);
  EXPECT_EQ(whole[0], 9);
  EXPECT_EQ(whole[8 + 1], 0);
  EXPECT_EQ(whole[40 + 8 - 4], 9);
  EXPECT_EQ(whole[(4 + 1) * 8 + 1], 6);  // the second layer
  copy.srcPtr = device;
  copy.srcPos = copy.dstPos;
  copy.dstPtr = {read.data(), 3, 3, 2};
  copy.dstPos = {};
  copy.kind = cudaMemcpyDeviceToHost;
  ASSERT_EQ(cudaMemcpy3D(&copy), cudaSuccess);
  EXPECT_EQ(read, values);
  EXPECT_EQ(cudaFree(device.ptr), cudaSuccess);
}

}  // namespace
