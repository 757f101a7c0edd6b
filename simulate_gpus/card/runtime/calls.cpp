// What the CUDA runtime answers to calls at the edge of what it takes: one line a call, the same program on a card and
// on simulated GPUs. Links the shared runtime.
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
static const char* n(cudaError_t e) { return cudaGetErrorName(e); }
static sigjmp_buf back;
static void fault(int) { siglongjmp(back, 1); }
#define P(...)                                                       \
  do {                                                               \
    if (sigsetjmp(back, 1)) {                                        \
      std::printf("%-100s SIGSEGV\n", #__VA_ARGS__);                 \
      std::fflush(stdout);                                           \
      break;                                                         \
    }                                                                \
    cudaError_t e_ = (__VA_ARGS__);                                  \
    cudaError_t l_ = cudaGetLastError();                             \
    std::printf("%-100s %s, last %s\n", #__VA_ARGS__, n(e_), n(l_)); \
    std::fflush(stdout);                                             \
  } while (0)
#define V(fmt, ...)                            \
  do {                                         \
    std::printf("    " fmt "\n", __VA_ARGS__); \
    std::fflush(stdout);                       \
  } while (0)
static const char* kind(const void* p) {
  cudaPointerAttributes a;
  std::memset(&a, 0, sizeof a);
  cudaError_t e = cudaPointerGetAttributes(&a, p);
  static char t[200];
  std::snprintf(t, sizeof t, "%s type %d device %d devptr %s hostptr %s", n(e), (int)a.type,
                a.device, a.devicePointer ? (a.devicePointer == p ? "same" : "other") : "null",
                a.hostPointer ? (a.hostPointer == p ? "same" : "other") : "null");
  cudaGetLastError();
  return t;
}
static void body(int which) {
  int v = -1;
  size_t s = 0, s2 = 0;
  void *d = nullptr, *d2 = nullptr, *h = nullptr;
  float ms = -1;
  cudaStream_t st{}, st2{};
  cudaEvent_t ev{}, ev2{};
  cudaGraph_t g{};
  cudaGraphExec_t ge{};
  static char host[1 << 16], host2[1 << 16];
  cudaDeviceProp prop;
  if (which == 0) {  // before anything else
    P(cudaGetLastError());
    P(cudaPeekAtLastError());
    P(cudaGetDevice(&v));
    V("device %d", v);
    P(cudaSetDevice(-1));
    P(cudaSetDevice(99));
    P(cudaGetDevice(nullptr));
    P(cudaGetDeviceCount(nullptr));
    P(cudaGetDeviceCount(&v));
    V("count %d", v);
    P(cudaGetDeviceProperties(&prop, 99));
    P(cudaGetDeviceProperties(&prop, -1));
    P(cudaDeviceGetAttribute(&v, (cudaDeviceAttr)9999, 0));
    P(cudaDeviceGetAttribute(&v, cudaDevAttrWarpSize, 77));
    P(cudaDeviceGetAttribute(nullptr, cudaDevAttrWarpSize, 0));
    P(cudaDeviceGetAttribute(&v, (cudaDeviceAttr)0, 0));
    P(cudaDeviceCanAccessPeer(&v, 0, 0));
    V("%d", v);
    P(cudaDeviceCanAccessPeer(&v, 0, 99));
    P(cudaDeviceEnablePeerAccess(0, 0));
    P(cudaDeviceEnablePeerAccess(99, 0));
    P(cudaDeviceDisablePeerAccess(0));
    P(cudaDeviceDisablePeerAccess(99));
    P(cudaDeviceGetStreamPriorityRange(&v, nullptr));
    P(cudaDeviceGetStreamPriorityRange(nullptr, nullptr));
    for (int l = 0; l < 10; ++l) {
      cudaError_t e = cudaDeviceGetLimit(&s, (cudaLimit)l);
      V("limit %d: %s %zu, last %s", l, n(e), e ? 0 : s, n(cudaGetLastError()));
    }
    P(cudaDeviceSetLimit((cudaLimit)99, 1));
    P(cudaDeviceSetLimit(cudaLimitStackSize, 2048));
    P(cudaDeviceGetLimit(&s, cudaLimitStackSize));
    V("%zu", s);
    unsigned f = 0;
    P(cudaGetDeviceFlags(&f));
    V("flags %u", f);
    P(cudaSetDeviceFlags(cudaDeviceScheduleYield));
    P(cudaGetDeviceFlags(&f));
    V("flags %u", f);
    P(cudaSetDeviceFlags(0x1000));
    P(cudaDriverGetVersion(nullptr));
    P(cudaRuntimeGetVersion(nullptr));
    P(cudaDeviceGetPCIBusId(host, 5, 0));
    P(cudaDeviceGetPCIBusId(host, 64, 0));
    V("%zu chars", std::strlen(host));
    P(cudaDeviceGetByPCIBusId(&v, "garbage"));
    P(cudaDeviceGetByPCIBusId(&v, host));
    V("%d", v);
    P(cudaDeviceGetByPCIBusId(&v, "0000:ff:1f.0"));
    P(cudaChooseDevice(&v, nullptr));
    P(cudaSetValidDevices(nullptr, 0));
    int list[2] = {99, 0};
    P(cudaSetValidDevices(list, 1));
    P(cudaDeviceSynchronize());
    P(cudaInitDevice(0, 0, 0));
    P(cudaInitDevice(99, 0, 0));
    P(cudaDeviceGetDefaultMemPool(nullptr, 0));
    P(cudaDeviceSetCacheConfig(cudaFuncCachePreferL1));
    cudaFuncCache cc;
    P(cudaDeviceGetCacheConfig(&cc));
    V("%d", (int)cc);
    P(cudaDeviceGetP2PAttribute(&v, cudaDevP2PAttrAccessSupported, 0, 0));
    P(cudaDeviceGetP2PAttribute(&v, cudaDevP2PAttrAccessSupported, 0, 9));
    V("%s | %s | %s", cudaGetErrorName((cudaError_t)12345), cudaGetErrorString((cudaError_t)12345),
      cudaGetErrorString(cudaErrorInvalidValue));
  } else if (which == 1) {  // memory
    P(cudaMalloc(nullptr, 4));
    d = (void*)1;
    P(cudaMalloc(&d, 0));
    V("null %d", d == nullptr);
    P(cudaFree(nullptr));
    P(cudaFree(d));
    P(cudaMalloc(&d, (size_t)1 << 50));
    P(cudaMalloc(&d, ~(size_t)0));
    P(cudaMalloc(&d, 1000));
    V("aligned to 256: %d, 512: %d", (int)((uintptr_t)d % 256 == 0),
      (int)((uintptr_t)d % 512 == 0));
    P(cudaFree((char*)d + 16));
    P(cudaFree(host));
    P(cudaFree((void*)12345));
    P(cudaFreeHost(d));
    P(cudaFreeHost(nullptr));
    P(cudaFreeHost(host));
    V("device %s", kind(d));
    V("inside %s", kind((char*)d + 999));
    V("past %s", kind((char*)d + 4096 * 1024));
    V("host %s", kind(host));
    V("null %s", kind(nullptr));
    V("small number %s", kind((void*)64));
    P(cudaMallocHost(&h, 1000));
    V("pinned %s", kind(h));
    V("pinned inside %s", kind((char*)h + 10));
    P(cudaHostGetDevicePointer(&d2, h, 0));
    V("same %d", d2 == h);
    P(cudaHostGetDevicePointer(&d2, host, 0));
    P(cudaHostGetDevicePointer(&d2, h, 1));
    unsigned f = 99;
    P(cudaHostGetFlags(&f, h));
    V("flags %u", f);
    P(cudaHostGetFlags(&f, host));
    P(cudaHostGetFlags(&f, d));
    P(cudaHostAlloc(&d2, 0, 0));
    V("null %d", d2 == nullptr);
    P(cudaHostAlloc(&d2, 64, 0x100));
    P(cudaHostAlloc(&d2, 64,
                    cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined));
    P(cudaHostGetFlags(&f, d2));
    V("flags %u", f);
    P(cudaFreeHost((char*)d2 + 1));
    P(cudaFreeHost(d2));
    P(cudaFreeHost(d2));
    P(cudaHostAlloc(&d2, (size_t)1 << 50, 0));
    P(cudaHostRegister(host, sizeof host, 0));
    P(cudaHostRegister(host, 100, 0));
    P(cudaHostRegister(host + 100, 100, 0));
    V("registered %s", kind(host));
    P(cudaHostUnregister(host + 100));
    P(cudaHostUnregister(host));
    P(cudaHostUnregister(host));
    P(cudaHostUnregister(h));
    P(cudaHostUnregister(nullptr));
    P(cudaHostRegister(nullptr, 100, 0));
    P(cudaHostRegister(host, 0, 0));
    P(cudaHostRegister(d, 100, 0));
    P(cudaHostRegister(h, 100, 0));
    P(cudaHostRegister(host, 100, 0x100));
    P(cudaMemcpy(d, host, 1000, cudaMemcpyHostToDevice));
    P(cudaMemcpy(d, host, 0, cudaMemcpyHostToDevice));
    P(cudaMemcpy(nullptr, host, 0, cudaMemcpyHostToDevice));
    P(cudaMemcpy(nullptr, host, 4, cudaMemcpyHostToDevice));
    P(cudaMemcpy(d, nullptr, 4, cudaMemcpyHostToDevice));
    P(cudaMemcpy(d, host, 4, (cudaMemcpyKind)9));
    P(cudaMemcpy(d, host, 4, cudaMemcpyDeviceToHost));
    P(cudaMemcpy(host, d, 4, cudaMemcpyHostToDevice));
    P(cudaMemcpy(host, host2, 4, cudaMemcpyDeviceToDevice));
    P(cudaMemcpy(d, d, 4, cudaMemcpyHostToHost));
    P(cudaMemcpy(host, host2, 4, cudaMemcpyHostToHost));
    P(cudaMemcpy(d, host, 4, cudaMemcpyDefault));
    P(cudaMemcpy(d, host, 4, cudaMemcpyDeviceToDevice));
    P(cudaMemcpy(d, host, 60000, cudaMemcpyHostToDevice));
    P(cudaMemcpy(host, d, 60000, cudaMemcpyDeviceToHost));
    P(cudaMemcpy((char*)d + 100, d, 500, cudaMemcpyDeviceToDevice));
    P(cudaMemset(d, 1, 1000));
    P(cudaMemset(d, 1, 0));
    P(cudaMemset(nullptr, 1, 4));
    P(cudaMemset(nullptr, 1, 0));
    P(cudaMemset(host, 1, 4));
    P(cudaMemset(h, 1, 4));
    P(cudaMemset(d, 1, (size_t)1 << 40));
    P(cudaMemset(d, 300, 4));
    P(cudaMemcpy(host, d, 4, cudaMemcpyDefault));
    V("%d", host[0]);
    P(cudaMemcpy2D(d, 10, host, 20, 10, 5, cudaMemcpyHostToDevice));
    P(cudaMemcpy2D(d, 10, host, 20, 11, 5, cudaMemcpyHostToDevice));
    P(cudaMemcpy2D(d, 10, host, 20, 10, 0, cudaMemcpyHostToDevice));
    P(cudaMemset2D(d, 10, 1, 11, 2));
    P(cudaMemset2D(d, 10, 1, 4, 2));
    size_t pitch = 0;
    P(cudaMallocPitch(&d2, &pitch, 100, 10));
    V("pitch %zu", pitch);
    P(cudaFree(d2));
    P(cudaMallocPitch(&d2, &pitch, 0, 10));
    P(cudaMemGetInfo(&s, &s2));
    V("free less than total %d", s < s2);
    P(cudaMemGetInfo(nullptr, nullptr));
    P(cudaMemPrefetchAsync(d, 100, cudaMemLocation{cudaMemLocationTypeDevice, 0}, 0, 0));
    P(cudaFreeHost(h));
    V("freed pinned %s", kind(h));
    P(cudaFree(d));
    V("freed %s", kind(d));
    P(cudaFree(d));
    P(cudaMemcpy(host, d, 4, cudaMemcpyDeviceToHost));
    P(cudaMemset(d, 0, 4));
    P(cudaMallocManaged(&d, 4096, cudaMemAttachGlobal));
    V("managed %s", kind(d));
    P(cudaFree(d));
    P(cudaMallocManaged(&d, 0, cudaMemAttachGlobal));
    P(cudaMallocManaged(&d, 64, 77));
    P(cudaMallocAsync(&d, 4096, 0));
    V("async %s", kind(d));
    P(cudaFreeAsync(d, 0));
    P(cudaFreeAsync(nullptr, 0));
    P(cudaMallocAsync(&d, 0, 0));
    cudaMemPool_t pool;
    P(cudaDeviceGetDefaultMemPool(&pool, 0));
    cudaIpcMemHandle_t ih;
    P(cudaMalloc(&d, 1 << 21));
    P(cudaIpcGetMemHandle(&ih, d));
    P(cudaIpcGetMemHandle(&ih, host));
    P(cudaIpcOpenMemHandle(&d2, ih, cudaIpcMemLazyEnablePeerAccess));
    P(cudaIpcCloseMemHandle(d));
    void* sym = nullptr;
    P(cudaGetSymbolAddress(&sym, host));
    P(cudaGetSymbolSize(&s, host));
    P(cudaMemcpyPeer(d, 0, (char*)d + 100, 0, 10));
    P(cudaMemcpyPeer(d, 0, d, 99, 10));
    P(cudaMemcpyPeerAsync(d, 0, (char*)d + 100, 0, 10, 0));
  } else if (which == 2) {  // streams and events
    P(cudaStreamCreate(nullptr));
    P(cudaStreamCreateWithFlags(&st, 77));
    P(cudaStreamCreateWithFlags(&st, cudaStreamNonBlocking));
    P(cudaStreamCreateWithPriority(&st2, cudaStreamNonBlocking, -100));
    P(cudaStreamGetPriority(st2, &v));
    V("%d", v);
    P(cudaStreamCreateWithPriority(&st2, cudaStreamNonBlocking, 100));
    P(cudaStreamGetPriority(st2, &v));
    V("%d", v);
    unsigned f = 9;
    P(cudaStreamGetFlags(st2, &f));
    V("%u", f);
    P(cudaStreamGetFlags(0, &f));
    V("%u", f);
    P(cudaStreamGetPriority(0, &v));
    V("%d", v);
    P(cudaStreamGetDevice(st, &v));
    V("%d", v);
    unsigned long long id = 99;
    P(cudaStreamGetId(0, &id));
    V("%llu", id);
    P(cudaStreamGetId(cudaStreamLegacy, &id));
    V("%llu", id);
    P(cudaStreamGetId(cudaStreamPerThread, &id));
    V("%llu", id);
    P(cudaStreamQuery(st));
    P(cudaStreamQuery(0));
    P(cudaStreamQuery((cudaStream_t)1));
    P(cudaStreamQuery((cudaStream_t)2));
    P(cudaStreamSynchronize(0));
    P(cudaStreamSynchronize(cudaStreamPerThread));
    P(cudaStreamDestroy(0));
    P(cudaStreamDestroy(cudaStreamLegacy));
    P(cudaStreamWaitEvent(st, nullptr, 0));
    P(cudaEventCreate(nullptr));
    P(cudaEventCreateWithFlags(&ev, 0x100));
    P(cudaEventCreateWithFlags(&ev, cudaEventInterprocess));
    P(cudaEventCreateWithFlags(&ev, cudaEventInterprocess | cudaEventDisableTiming));
    P(cudaEventDestroy(ev));
    P(cudaEventCreateWithFlags(&ev, cudaEventDisableTiming));
    P(cudaEventCreate(&ev2));
    P(cudaEventQuery(ev));
    P(cudaEventSynchronize(ev));
    P(cudaStreamWaitEvent(st, ev, 0));
    P(cudaStreamWaitEvent(st, ev, 7));
    P(cudaEventElapsedTime(&ms, ev2, ev2));
    P(cudaEventRecord(ev, st));
    P(cudaEventElapsedTime(&ms, ev, ev));
    P(cudaEventRecord(ev2, 0));
    P(cudaEventElapsedTime(&ms, ev2, ev));
    P(cudaEventElapsedTime(&ms, ev2, ev2));
    V("%g", ms);
    cudaEvent_t ev3;
    P(cudaEventCreate(&ev3));
    P(cudaEventElapsedTime(&ms, ev2, ev3));
    P(cudaEventElapsedTime(nullptr, ev2, ev2));
    P(cudaEventQuery(nullptr));
    P(cudaEventRecord(nullptr, 0));
    P(cudaEventDestroy(nullptr));
    P(cudaEventSynchronize(ev2));
    P(cudaEventElapsedTime(&ms, ev2, ev2));
    V("%g", ms);
    P(cudaEventRecordWithFlags(ev2, st, 5));
    P(cudaEventDestroy(ev2));
    cudaIpcEventHandle_t ieh;
    P(cudaIpcGetEventHandle(&ieh, ev));
    P(cudaLaunchHostFunc(st, nullptr, nullptr));
    P(cudaStreamAddCallback(st, nullptr, nullptr, 0));
    P(cudaStreamSynchronize(st));
    P(cudaStreamDestroy(st));
    P(cudaStreamAttachMemAsync(st2, host, 0, cudaMemAttachSingle));
    P(cudaCtxResetPersistingL2Cache());
  } else if (which == 3) {  // capture and graphs
    cudaStreamCreateWithFlags(&st, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&st2, cudaStreamNonBlocking);
    cudaMalloc(&d, 4096);
    cudaEventCreate(&ev);
    cudaStreamCaptureStatus cs;
    unsigned long long id = 0;
    P(cudaStreamBeginCapture(0, cudaStreamCaptureModeGlobal));
    P(cudaStreamEndCapture(st, &g));
    P(cudaStreamBeginCapture(st, (cudaStreamCaptureMode)9));
    P(cudaStreamIsCapturing(st, &cs));
    V("%d", (int)cs);
    P(cudaStreamIsCapturing(0, &cs));
    V("%d", (int)cs);
    P(cudaStreamBeginCapture(st, cudaStreamCaptureModeGlobal));
    P(cudaStreamBeginCapture(st, cudaStreamCaptureModeGlobal));
    P(cudaStreamIsCapturing(st, &cs));
    V("%d", (int)cs);
    P(cudaStreamEndCapture(st, &g));
    V("null %d", g == nullptr);
    P(cudaGraphGetNodes(g, nullptr, &s));
    V("nodes %zu", s);
    P(cudaGraphInstantiate(&ge, g, 0));
    P(cudaGraphLaunch(ge, st));
    P(cudaGraphLaunch(nullptr, st));
    P(cudaStreamSynchronize(st));
    P(cudaGraphExecDestroy(ge));
    P(cudaGraphDestroy(g));
    P(cudaGraphDestroy(nullptr));
    P(cudaGraphExecDestroy(nullptr));
    P(cudaGraphInstantiate(&ge, nullptr, 0));
    struct Illegal {
      const char* name;
      int which;
    } illegal[] = {{"stream query", 0},
                   {"stream synchronize", 1},
                   {"device synchronize", 2},
                   {"malloc", 3},
                   {"free", 4},
                   {"event query", 5},
                   {"legacy work", 6},
                   {"memcpy sync", 7},
                   {"other stream query", 8},
                   {"memset", 9},
                   {"event record then sync", 10},
                   {"host alloc", 11},
                   {"stream destroy", 12},
                   {"elapsed", 13},
                   {"memgetinfo", 14},
                   {"stream create", 15},
                   {"event destroy", 16},
                   {"end on other", 17}};
    for (int mode = 0; mode < 3; ++mode)
      for (auto& i : illegal) {
        cudaStream_t c{}, o{};
        cudaEvent_t e1{}, e2{};
        void* m = nullptr;
        cudaStreamCreateWithFlags(&c, cudaStreamNonBlocking);
        cudaStreamCreateWithFlags(&o, cudaStreamNonBlocking);
        cudaEventCreate(&e1);
        cudaEventCreate(&e2);
        cudaEventRecord(e1, o);
        cudaEventRecord(e2, o);
        cudaStreamSynchronize(o);
        if (i.which == 4) cudaMalloc(&m, 64);
        cudaGetLastError();
        cudaStreamBeginCapture(c, (cudaStreamCaptureMode)mode);
        cudaMemsetAsync(d, 0, 4, c);
        cudaError_t e = cudaSuccess;
        cudaGraph_t g2{};
        switch (i.which) {
          case 0:
            e = cudaStreamQuery(c);
            break;
          case 1:
            e = cudaStreamSynchronize(c);
            break;
          case 2:
            e = cudaDeviceSynchronize();
            break;
          case 3:
            e = cudaMalloc(&m, 64);
            break;
          case 4:
            e = cudaFree(m);
            break;
          case 5:
            e = cudaEventQuery(e1);
            break;
          case 6:
            e = cudaMemsetAsync(d, 0, 4, 0);
            break;
          case 7:
            e = cudaMemcpy(host, d, 4, cudaMemcpyDeviceToHost);
            break;
          case 8:
            e = cudaStreamQuery(o);
            break;
          case 9:
            e = cudaMemset(d, 0, 4);
            break;
          case 10:
            cudaEventRecord(e1, c);
            e = cudaEventSynchronize(e1);
            break;
          case 11:
            e = cudaMallocHost(&m, 64);
            break;
          case 12:
            e = cudaStreamDestroy(o);
            break;
          case 13: {
            float x;
            e = cudaEventElapsedTime(&x, e1, e2);
            break;
          }
          case 14: {
            size_t a, b;
            e = cudaMemGetInfo(&a, &b);
            break;
          }
          case 15: {
            cudaStream_t q;
            e = cudaStreamCreate(&q);
            break;
          }
          case 16:
            e = cudaEventDestroy(e2);
            break;
          case 17:
            e = cudaStreamEndCapture(o, &g2);
            break;
        }
        cudaError_t l = cudaGetLastError();
        cudaStreamIsCapturing(c, &cs);
        cudaError_t end = cudaStreamEndCapture(c, &g2);
        V("capture mode %d, %-24s %s, last %s, status %d, end %s, graph %s", mode, i.name, n(e),
          n(l), (int)cs, n(end), g2 ? "yes" : "no");
        cudaGetLastError();
        if (g2) cudaGraphDestroy(g2);
      }
    // joins
    P(cudaStreamBeginCapture(st, cudaStreamCaptureModeThreadLocal));
    P(cudaEventRecord(ev, st));
    P(cudaStreamWaitEvent(st2, ev, 0));
    P(cudaStreamIsCapturing(st2, &cs));
    V("%d", (int)cs);
    P(cudaMemsetAsync(d, 1, 4, st2));
    P(cudaStreamEndCapture(st2, &g));
    P(cudaStreamEndCapture(st, &g));
    V("graph %d", g != nullptr);
    P(cudaStreamIsCapturing(st2, &cs));
    V("%d", (int)cs);
    P(cudaStreamBeginCapture(st, cudaStreamCaptureModeThreadLocal));
    P(cudaEventRecord(ev, st));
    P(cudaEventQuery(ev));
    P(cudaStreamWaitEvent(0, ev, 0));
    P(cudaStreamEndCapture(st, &g));
    P(cudaEventQuery(ev));
    P(cudaEventSynchronize(ev));
    P(cudaStreamWaitEvent(st2, ev, 0));
    P(cudaEventRecord(ev, st2));
    P(cudaEventQuery(ev));
    P(cudaStreamBeginCapture(st, cudaStreamCaptureModeThreadLocal));
    P(cudaStreamGetCaptureInfo(st, &cs, &id, nullptr, nullptr, nullptr, nullptr));
    V("%d", (int)cs);
    cudaEvent_t outside;
    P(cudaEventCreate(&outside));
    P(cudaEventRecord(outside, st2));
    P(cudaStreamWaitEvent(st, outside, 0));
    P(cudaStreamEndCapture(st, &g));
    P(cudaStreamBeginCapture(st, cudaStreamCaptureModeThreadLocal));
    P(cudaMemsetAsync(d, 1, 4, st));
    P(cudaMemcpyAsync(host, d, 4, cudaMemcpyDeviceToHost, st));
    P(cudaMemcpyAsync(d, (char*)d + 8, 4, cudaMemcpyDeviceToDevice, st));
    P(cudaLaunchHostFunc(
        st, [](void*) {}, nullptr));
    P(cudaStreamEndCapture(st, &g));
    P(cudaGraphGetNodes(g, nullptr, &s));
    V("nodes %zu", s);
    cudaGraphNode_t nodes[8];
    s = 8;
    P(cudaGraphGetNodes(g, nodes, &s));
    for (size_t i = 0; i < s; ++i) {
      cudaGraphNodeType t;
      cudaGraphNodeGetType(nodes[i], &t);
      V("type %d", (int)t);
    }
    P(cudaGraphInstantiate(&ge, g, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    P(cudaGraphUpload(ge, st));
    P(cudaGraphLaunch(ge, st));
    P(cudaGraphLaunch(ge, st));
    P(cudaGraphDestroy(g));
    P(cudaGraphLaunch(ge, st));
    P(cudaStreamSynchronize(st));
    P(cudaThreadExchangeStreamCaptureMode(nullptr));
    cudaStreamCaptureMode cm = (cudaStreamCaptureMode)7;
    P(cudaThreadExchangeStreamCaptureMode(&cm));
    cm = cudaStreamCaptureModeRelaxed;
    P(cudaThreadExchangeStreamCaptureMode(&cm));
    V("%d", (int)cm);
  } else if (which == 4) {  // last errors, launches, functions
    P(cudaSetDevice(99));
    cudaSetDevice(99);
    V("peek %s", n(cudaPeekAtLastError()));
    V("peek %s", n(cudaPeekAtLastError()));
    cudaMalloc(&d, 16);
    V("after a good call %s", n(cudaPeekAtLastError()));
    cudaMalloc(&d2, (size_t)1 << 50);
    V("after out of memory %s", n(cudaPeekAtLastError()));
    V("get %s then %s", n(cudaGetLastError()), n(cudaGetLastError()));
    cudaStreamQuery(0);
    cudaEventQuery(nullptr);
    V("%s", n(cudaGetLastError()));
    cudaPointerAttributes a;
    cudaPointerGetAttributes(&a, host);
    V("pointer attributes leave %s", n(cudaGetLastError()));
    cudaDeviceGetLimit(&s, (cudaLimit)99);
    V("limit leaves %s", n(cudaGetLastError()));
    cudaDeviceCanAccessPeer(&v, 0, 99);
    V("peer leaves %s", n(cudaGetLastError()));
    cudaFuncAttributes fa;
    P(cudaFuncGetAttributes(&fa, nullptr));
    P(cudaFuncGetAttributes(&fa, (const void*)host));
    P(cudaLaunchKernel((const void*)host, dim3(1), dim3(1), nullptr, 0, 0));
    P(cudaLaunchKernel(nullptr, dim3(1), dim3(1), nullptr, 0, 0));
    P(cudaFuncSetAttribute((const void*)host, cudaFuncAttributeMaxDynamicSharedMemorySize, 100));
    P(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&v, (const void*)host, 128, 0));
    P(cudaFuncSetCacheConfig((const void*)host, cudaFuncCachePreferL1));
    cudaMalloc(&d, 4096);
    P(cudaDeviceReset());
    V("after reset %s", kind(d));
    P(cudaFree(d));
    P(cudaMalloc(&d, 64));
    P(cudaDeviceReset());
    P(cudaGetLastError());
    P(cudaProfilerStart());
    P(cudaProfilerStop());
  }
}
#include <cuda_profiler_api.h>
int main() {
  for (int which = 0; which < 5; ++which) {
    std::printf("== part %d\n", which);
    std::fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
      alarm(20);
      std::signal(SIGSEGV, fault);
      body(which);
      std::_Exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) std::printf("== ended by signal %d\n", WTERMSIG(status));
  }
}
