// SPDX-License-Identifier: MIT
//
// NCCL, which has no device-generic form: compiled where LibTorch has CUDA.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>

namespace c10d {
class Backend;
class Store;
class Work;
}  // namespace c10d

namespace use_gpu::detail {

#ifdef USE_GPU_WITH_NCCL

/// The UUID of a CUDA GPU, the same in every process; empty for any other device, and for a
/// simulated one, which NCCL does not know.
[[nodiscard]] std::string cuda_uuid(c10::Device device);

/// Connects at once, so that errors appear now and the store is not needed later.
[[nodiscard]] c10::intrusive_ptr<c10d::Backend> make_nccl(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::Device device,
    std::chrono::milliseconds timeout);

/// Returns when the result is there, or throws; after the time-out at the latest.
void wait_for_nccl(c10d::Work& work, std::chrono::milliseconds timeout);

#else  // no GPU has a UUID, so NCCL is never chosen

inline std::string cuda_uuid(c10::Device) { return {}; }
inline c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>&, int, int,
                                                   c10::Device, std::chrono::milliseconds) {
  return {};
}
inline void wait_for_nccl(c10d::Work&, std::chrono::milliseconds) {}

#endif

}  // namespace use_gpu::detail
