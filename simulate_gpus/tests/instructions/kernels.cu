// What ptx_instructions.py counts, as nvcc makes it:
//   nvcc -O2 -arch=compute_75 -ptx kernels.cu
extern "C" {
__global__ void vector_add(const float* x, const float* y, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = x[i] + y[i];
}
__global__ void product(const float* a, const float* b, float* c, int n) {
  __shared__ float A[16][16], B[16][16];
  int r = blockIdx.y * 16 + threadIdx.y, q = blockIdx.x * 16 + threadIdx.x;
  float s = 0;
  for (int k = 0; k < n; k += 16) {
    A[threadIdx.y][threadIdx.x] = a[r * n + k + threadIdx.x];
    B[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + q];
    __syncthreads();
    for (int j = 0; j < 16; ++j) s += A[threadIdx.y][j] * B[j][threadIdx.x];
    __syncthreads();
  }
  c[r * n + q] = s;
}
__global__ void reduction(const float* x, float* o, int n) {
  float s = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += x[i];
  for (int d = 16; d; d /= 2) s += __shfl_down_sync(~0u, s, d);
  __shared__ float w[32];
  if (threadIdx.x % 32 == 0) w[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x < 32) {
    s = threadIdx.x < blockDim.x / 32 ? w[threadIdx.x] : 0;
    for (int d = 16; d; d /= 2) s += __shfl_xor_sync(~0u, s, d);
    if (threadIdx.x == 0) atomicAdd(o, s);
  }
}
__global__ void softmax(const float* x, float* y, int cols) {
  constexpr int N = 128;
  __shared__ float m[N], s[N];
  const float* row = x + blockIdx.x * cols;
  float best = -INFINITY, sum = 0;
  for (int i = threadIdx.x; i < cols; i += N) best = max(best, row[i]);
  m[threadIdx.x] = best;
  __syncthreads();
  for (int d = N / 2; d; d /= 2) {
    if (threadIdx.x < d) m[threadIdx.x] = max(m[threadIdx.x], m[threadIdx.x + d]);
    __syncthreads();
  }
  for (int i = threadIdx.x; i < cols; i += N) sum += exp(row[i] - m[0]);
  s[threadIdx.x] = sum;
  __syncthreads();
  for (int d = N / 2; d; d /= 2) {
    if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];
    __syncthreads();
  }
  for (int i = threadIdx.x; i < cols; i += N) y[blockIdx.x * cols + i] = exp(row[i] - m[0]) / s[0];
}
}
