// SPDX-License-Identifier: MIT
//
// A program as nvcc makes it, of two objects whose device code is linked (-rdc=true): what the runtime's functions do for its kernels
// and variables. It prints nothing and returns 0, or names the line that failed.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::printf("program.cu:%d: %s (%s)\n", __LINE__, #condition,                  \
                  cudaGetErrorString(cudaPeekAtLastError()));                        \
      std::exit(1);                                                                  \
    }                                                                                \
  } while (0)
#define RUN(call) CHECK((call) == cudaSuccess)

__device__ int twice(int value);  // in other.cu
extern __device__ int num_calls;

static __device__ int offset = 3;  // other.cu has one too
__constant__ int weights[4] = {1, 10, 100, 1000};
__managed__ int managed = 5;

template <class T>
__global__ void scale(T* values, T factor) {
  values[threadIdx.x] *= factor;
}

__global__ void use_both(int* values) {
  values[threadIdx.x] = twice(values[threadIdx.x]) + offset + weights[threadIdx.x % 4];
}

__global__ void change_managed() { managed += 37; }

// Each block adds what the block before it has written.
__global__ void pass_on(int* values) {
  const auto grid = cooperative_groups::this_grid();
  for (unsigned block = 1; block < gridDim.x; ++block) {
    grid.sync();
    if (threadIdx.x == 0 && blockIdx.x == block) values[block] += values[block - 1];
  }
}

std::vector<int> read(const int* values, std::size_t count) {
  std::vector<int> read(count);
  RUN(cudaMemcpy(read.data(), values, count * sizeof(int), cudaMemcpyDefault));
  return read;
}

void check_symbols(int* values) {
  RUN(cudaMemset(values, 0, 16));
  use_both<<<1, 4>>>(values);
  RUN(cudaGetLastError());
  CHECK(read(values, 4) == (std::vector<int>{104, 113, 203, 1103}));  // twice(0) is 100
  const int two[2] = {7, 8};
  RUN(cudaMemcpyToSymbol(weights, two, sizeof two, 2 * sizeof(int)));
  int all[4] = {}, calls = 0;
  RUN(cudaMemcpyFromSymbol(all, weights, sizeof all));
  CHECK(all[1] == 10 && all[2] == 7 && all[3] == 8);
  RUN(cudaMemcpyFromSymbol(&calls, num_calls, sizeof calls));
  CHECK(calls == 4);
  CHECK(cudaMemcpyToSymbol(weights, two, sizeof two, 12) == cudaErrorInvalidValue);
  CHECK(cudaMemcpyFromSymbol(&calls, two, 4) == cudaErrorInvalidSymbol);
  cudaGetLastError();
  std::size_t bytes = 0;
  void* place = nullptr;
  RUN(cudaGetSymbolSize(&bytes, weights));
  RUN(cudaGetSymbolAddress(&place, weights));
  CHECK(bytes == 16);
  RUN(cudaMemset(place, 0, 16));
  RUN(cudaMemcpyFromSymbol(all, weights, sizeof all));
  CHECK(all[1] == 0);
}

void check_managed() {
  CHECK(managed == 5);
  managed = 6;
  change_managed<<<1, 1>>>();
  RUN(cudaDeviceSynchronize());
  CHECK(managed == 43);
}

void check_attributes() {
  cudaFuncAttributes attributes;
  RUN(cudaFuncGetAttributes(&attributes, scale<double>));
  CHECK(attributes.maxThreadsPerBlock == 1024 && attributes.ptxVersion == 90);
  int least = 0, threads = 0;
  RUN(cudaOccupancyMaxPotentialBlockSize(&least, &threads, scale<double>));
  CHECK(threads == 1024 && least == 264);
}

void check_launches(int* values) {
  float* floats = reinterpret_cast<float*>(values);
  const float four[4] = {1, 2, 3, 4};
  RUN(cudaMemcpy(floats, four, sizeof four, cudaMemcpyHostToDevice));
  scale<<<1, 4>>>(floats, 2.5f);
  float result[4] = {};
  RUN(cudaMemcpy(result, floats, sizeof result, cudaMemcpyDeviceToHost));
  CHECK(result[0] == 2.5f && result[3] == 10);
  scale<<<1, 4096>>>(floats, 2.5f);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);

  RUN(cudaMemset(values, 0, 64));
  const int one = 1;
  RUN(cudaMemcpy(values, &one, 4, cudaMemcpyHostToDevice));
  void* arguments[] = {&values};
  RUN(cudaLaunchCooperativeKernel(pass_on, 8, 32, arguments));
  CHECK(read(values, 8) == std::vector<int>(8, 1));
  CHECK(cudaLaunchCooperativeKernel(pass_on, 100000, 32, arguments) ==
        cudaErrorCooperativeLaunchTooLarge);
  cudaGetLastError();
  RUN(cudaDeviceSynchronize());
}

int main() {
  int* values = nullptr;
  RUN(cudaMalloc(&values, 64));
  check_symbols(values);
  check_managed();
  check_attributes();
  check_launches(values);
  return 0;
}
