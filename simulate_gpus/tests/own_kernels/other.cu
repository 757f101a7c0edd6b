// SPDX-License-Identifier: MIT
__device__ int num_calls;

static __device__ int offset = 100;  // program.cu has one too

__device__ __noinline__ int twice(int value) {
  atomicAdd(&num_calls, 1);
  return 2 * value + offset;
}
