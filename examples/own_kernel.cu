// A CUDA kernel of one's own on the memory of tensors: the vector sum, on the tensors' device and in LibTorch's current
// stream. A simulated GPU runs it too, since nvcc embeds PTX unless it is told otherwise:
//   build/release/simulate_gpus/bin/simulate_gpus 1 build/release/examples/own_kernel
// Look at: the guard, the stream and the check of the launch. All three are easily forgotten, and seldom missed with one GPU.

#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <use_gpu/device.hpp>

#include <cstdint>
#include <cstdio>

__global__ void add(const float* a, const float* b, float* sum, std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) sum[i] = a[i] + b[i];
}

at::Tensor own_add(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.is_cuda() && a.device() == b.device(), "own_add: two tensors of one GPU, please");
  TORCH_CHECK(a.sizes() == b.sizes() && a.dtype() == at::kFloat && b.dtype() == at::kFloat,
              "own_add: float32 tensors of one shape, please");
  const c10::cuda::CUDAGuard guard(a.device());
  const at::Tensor x = a.contiguous(), y = b.contiguous(), sum = at::empty_like(x);
  constexpr int k_threads = 256;
  const auto blocks = static_cast<unsigned>((x.numel() + k_threads - 1) / k_threads);
  if (blocks == 0) return sum;
  add<<<blocks, k_threads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.const_data_ptr<float>(), y.const_data_ptr<float>(), sum.data_ptr<float>(), x.numel());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return sum;
}

int main() {
  if (use_gpu::num_gpus() == 0) return std::puts("There is no GPU to run the kernel on."), 0;
  for (const c10::Device device : use_gpu::try_all_gpus()) {
    const at::Tensor a = at::rand({1000, 1000}, device), b = at::rand({1000, 1000}, device);
    TORCH_CHECK(own_add(a, b).equal(a.add(b)), "a wrong sum");
    std::printf("%s: the sum of 1,000,000 pairs is LibTorch's\n", device.str().c_str());
  }
}
