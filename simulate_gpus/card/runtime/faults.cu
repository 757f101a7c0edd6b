// What a kernel's mistake becomes: each in a process of its own. nvcc -cudart shared faults.cu
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
static const char* n(cudaError_t e) { return cudaGetErrorName(e); }
__device__ int sink[64];
__constant__ int table[16] = {1, 2, 3};
__global__ void fine(int* p) { p[threadIdx.x] = threadIdx.x + table[0]; }
__global__ void wild(int* p) { p[1ull << 40] = 1; }
__global__ void null_write(int* p) { *(volatile int*)nullptr = 1; }
__global__ void just_past(int* p, size_t at) { p[at] = 1; }
__global__ void misaligned(char* p) { *(int*)(p + 1) = 1; }
__global__ void asserts(int x) { assert(threadIdx.x < 3 && "three at most"); }
__global__ void traps() {
  if (threadIdx.x == 5) __trap();
}
__global__ void divergent_barrier(int* p) {
  if (threadIdx.x < 16) __syncthreads();
  p[threadIdx.x] = threadIdx.x;
}
__global__ void exited_before_barrier(int* p) {
  if (threadIdx.x >= 16) return;
  __syncthreads();
  p[threadIdx.x] = threadIdx.x;
}
__global__ void shared_past(int* p) {
  __shared__ int s[4];
  s[threadIdx.x * 100000] = 1;
  __syncthreads();
  p[0] = s[0];
}
__global__ void const_write(int* p) { *(int*)&table[0] = 5; }
__global__ void divides(int* p, int zero) {
  p[0] = 7 / zero;
  p[1] = 7 % zero;
  p[2] = (int)(7.0f / zero);
}
__global__ void prints() {
  printf("block %d thread %d %s %5.2f %llx %c %%\n", blockIdx.x, threadIdx.x, "text", 1.5f, 255ull,
         'x');
}
__global__ void host_pointer(int* p) { *p = 1; }
__global__ void mallocs(int** p) {
  p[threadIdx.x] = (int*)malloc(64);
  if (p[threadIdx.x]) *p[threadIdx.x] = 1;
  __syncthreads();
  free(p[threadIdx.x]);
}
__global__ void double_free() {
  int* p = (int*)malloc(16);
  free(p);
  free(p);
}
__global__ void breaks() { asm volatile("brkpt;"); }
__global__ void exits() { asm volatile("exit;"); }
__global__ void __launch_bounds__(64) bounded(int* p) { p[threadIdx.x] = 1; }
__global__ void dynamic(int* p) {
  extern __shared__ int s[];
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  p[threadIdx.x] = s[threadIdx.x];
}
__global__ void local_big(int* p, int k) {
  int a[500];
  for (int i = 0; i < 500; ++i) a[i] = i * k;
  p[threadIdx.x] = a[k % 500];
}
__global__ void recursive_sum(int* p, int k);
__device__ int rec(int k) { return k <= 0 ? 0 : k + rec(k - 1); }
__global__ void recursion(int* p, int k) { p[0] = rec(k); }
__global__ void gridsync(int* p) {
  cooperative_groups::this_grid().sync();
  p[0] = 1;
}
static void after(const char* what) {
  cudaError_t l = cudaGetLastError(), s = cudaDeviceSynchronize(), l2 = cudaGetLastError();
  int* q = nullptr;
  cudaError_t m = cudaMalloc(&q, 4);
  std::printf("%-28s launch %s, sync %s, last %s, malloc after %s, last %s | %s\n", what, n(l),
              n(s), n(l2), n(m), n(cudaGetLastError()), cudaGetErrorString(s));
  std::fflush(stdout);
}
#define T(name, ...)      \
  if (which == k++) {     \
    int* p;               \
    cudaMalloc(&p, 4096); \
    (void)p;              \
    __VA_ARGS__;          \
    after(name);          \
    return true;          \
  }
static bool body(int which) {
  int k = 0, host[64] = {};
  T("fine", fine<<<1, 32>>>(p))
  T("wild", wild<<<1, 1>>>(p))
  T("null", null_write<<<1, 1>>>(p))
  T("just past", just_past<<<1, 1>>>(p, 1024))
  T("past 2 MiB", just_past<<<1, 1>>>(p, 1 << 20))
  T("freed", cudaFree(p); fine<<<1, 32>>>(p))
  T("misaligned", misaligned<<<1, 1>>>((char*)p))
  T("assert", asserts<<<2, 4>>>(1))
  T("trap", traps<<<1, 32>>>())
  T("divergent barrier", divergent_barrier<<<1, 32>>>(p))
  T("exited before barrier", exited_before_barrier<<<1, 32>>>(p))
  T("shared past", shared_past<<<1, 32>>>(p))
  T("constant write", const_write<<<1, 1>>>(p))
  T("integer division by zero", divides<<<1, 1>>>(p, 0);
    cudaMemcpy(host, p, 12, cudaMemcpyDeviceToHost);
    std::printf("  %d %d %d\n", host[0], host[1], host[2]))
  T("printf", prints<<<2, 3>>>())
  T("host pointer (stack)", host_pointer<<<1, 1>>>(host))
  T("host pointer (malloc)", host_pointer<<<1, 1>>>((int*)std::malloc(64)))
  T("malloc", mallocs<<<1, 32>>>((int**)p))
  T("double free", double_free<<<1, 1>>>())
  T("brkpt", breaks<<<1, 1>>>())
  T("exit", exits<<<1, 1>>>())
  T("4096 threads", fine<<<1, 4096>>>(p))
  T("block 1024x2", fine<<<1, dim3(1024, 2)>>>(p))
  T("block z 65", fine<<<1, dim3(1, 1, 65)>>>(p))
  T("grid 0", fine<<<0, 32>>>(p))
  T("block 0", fine<<<1, 0>>>(p))
  T("grid y 65536", fine<<<dim3(1, 65536), 1>>>(p))
  T("grid x 2^31", fine<<<dim3(1u << 31), 1>>>(p))
  T("launch bounds 64 by 128", bounded<<<1, 128>>>(p))
  T("dynamic 48 KiB", dynamic<<<1, 32, 49152>>>(p))
  T("dynamic 48 KiB + 1", dynamic<<<1, 32, 49153>>>(p))
  T("dynamic 100 KiB opted in",
    std::printf("  %s\n", n(cudaFuncSetAttribute(
                              dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10)));
    dynamic<<<1, 32, 100 << 10>>>(p))
  T("dynamic 228 KiB opted in",
    std::printf("  %s\n", n(cudaFuncSetAttribute(
                              dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10)));
    dynamic<<<1, 32, 227 << 10>>>(p))
  T("local array", local_big<<<1, 32>>>(p, 7); cudaMemcpy(host, p, 4, cudaMemcpyDeviceToHost);
    std::printf("  %d\n", host[0]))
  T("recursion 100", recursion<<<1, 1>>>(p, 100); cudaMemcpy(host, p, 4, cudaMemcpyDeviceToHost);
    std::printf("  %d\n", host[0]))
  T("recursion 1000000", recursion<<<1, 1>>>(p, 1000000);
    cudaMemcpy(host, p, 4, cudaMemcpyDeviceToHost); std::printf("  %d\n", host[0]))
  T("cooperative", void* a[] = {&p};
    std::printf("  %s\n", n(cudaLaunchCooperativeKernel((void*)gridsync, 4, 32, a, 0, 0))))
  T("cooperative too large", void* a[] = {&p};
    std::printf("  %s\n", n(cudaLaunchCooperativeKernel((void*)gridsync, 1000000, 32, a, 0, 0))))
  T("grid sync without", gridsync<<<1, 32>>>(p))
  T("wrong stream", fine<<<1, 32, 0, (cudaStream_t)0x1234567>>>(p))
  T(
      "attributes", for (auto f
                         : {(const void*)fine, (const void*)bounded, (const void*)dynamic,
                            (const void*)local_big, (const void*)shared_past}) {
        cudaFuncAttributes a;
        cudaError_t e = cudaFuncGetAttributes(&a, f);
        std::printf(
            "  %s shared %zu const %zu local %zu max threads %d regs %d ptx %d binary %d dynamic "
            "max %d\n",
            n(e), a.sharedSizeBytes, a.constSizeBytes, a.localSizeBytes, a.maxThreadsPerBlock,
            a.numRegs, a.ptxVersion, a.binaryVersion, a.maxDynamicSharedSizeBytes);
      })
  T(
      "occupancy",
      for (int t
           : {32, 128, 256, 1024}) {
        int b = -1;
        cudaError_t e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&b, fine, t, 0);
        std::printf("  %s %d threads: %d", n(e), t, b);
        int c = -1;
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&c, dynamic, t, 20000);
        std::printf(", dynamic 20000: %d\n", c);
      } int gmin = 0,
      bs = 0;
      cudaOccupancyMaxPotentialBlockSize(&gmin, &bs, fine); std::printf("  %d %d\n", gmin, bs))
  T("symbols", int v[3];
    std::printf("  %s %s %s", n(cudaMemcpyToSymbol(sink, host, 12)),
                n(cudaMemcpyFromSymbol(v, table, 12)), n(cudaMemcpyFromSymbol(v, table, 1000)));
    size_t s; void* q; std::printf(" %d %s %zu %s", v[2], n(cudaGetSymbolSize(&s, sink)), s,
                                   n(cudaGetSymbolAddress(&q, table)));
    std::printf(" %s %s\n", n(cudaMemset(q, 0, 4)), n(cudaMemcpyToSymbol(table, host, 4, 64))))
  T("print then fault", prints<<<1, 1>>>(); wild<<<1, 1>>>(p))
  T("fault, then a good one", wild<<<1, 1>>>(p); cudaDeviceSynchronize(); fine<<<1, 32>>>(p))
  return false;
}
int main() {
  for (int which = 0;; ++which) {
    std::fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
      alarm(15);
      std::_Exit(body(which) ? (std::fflush(stdout), 0) : 9);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
      std::printf("== %d ended by signal %d\n", which, WTERMSIG(status));
    else if (WEXITSTATUS(status) == 9)
      break;
  }
}
