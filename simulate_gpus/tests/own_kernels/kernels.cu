// SPDX-License-Identifier: MIT
//
// What tests/own_kernels_test.cpp loads, as PTX and as fat binaries, so that machines without nvcc test it too:
//   nvcc -arch=compute_75 -lineinfo -ptx kernels.cu
//   nvcc -arch=compute_75 -code=compute_75 -fatbin --compress-mode=none kernels.cu -o plain.fatbin      (speed: lz4, size: zstd)
#include <cstdio>

extern "C" {

__device__ int counter = 7;
__constant__ float factors[2] = {1, 1};

__global__ void add(const float* a, const float* b, float* sum, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) sum[i] = factors[0] * a[i] + factors[1] * b[i];
}

__global__ void count(int* seen) {
  if (seen != nullptr) *seen = counter;
  atomicAdd(&counter, 1);
}

__global__ void __launch_bounds__(64) reversed(int* values) {
  extern __shared__ int room[];
  __shared__ int shifts[2];
  if (threadIdx.x < 2) shifts[threadIdx.x] = 100;
  room[threadIdx.x] = values[threadIdx.x];
  __syncthreads();
  values[threadIdx.x] = room[blockDim.x - 1 - threadIdx.x] + shifts[threadIdx.x % 2];
}

__global__ void write_at(int* values, long long place) { values[place] = 1; }

__global__ void greet() { printf("thread %d of block %d\n", threadIdx.x, blockIdx.x); }
}
