// SPDX-License-Identifier: MIT
//
// NCCL, which has no device-generic form: compiled where LibTorch has CUDA.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>
#include <string_view>

namespace c10d {
class Backend;
class Store;
class Work;
}  // namespace c10d

namespace use_gpu::detail {

/// How gpu_id starts for a simulated GPU, which NCCL does not know.
constexpr std::string_view k_simulated = "simulated-";

#ifdef USE_GPU_WITH_NCCL

/// The UUID of a CUDA GPU, the same in every process; of a simulated one with a prefix, which
/// the log then mentions. Empty for any other device.
[[nodiscard]] std::string gpu_id(c10::Device device);

/// Connects at once, so that errors appear now and the store is not needed later.
[[nodiscard]] c10::intrusive_ptr<c10d::Backend> make_nccl(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::Device device,
    std::chrono::milliseconds timeout);

/// Returns when the result is there, or throws; after the time-out at the latest.
void wait_for_nccl(c10d::Work& work, std::chrono::milliseconds timeout);

#else  // no GPU has an ID, so NCCL is never chosen

inline std::string gpu_id(c10::Device) { return {}; }
inline c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>&, int, int,
                                                   c10::Device, std::chrono::milliseconds) {
  return {};
}
inline void wait_for_nccl(c10d::Work&, std::chrono::milliseconds) {}

#endif

}  // namespace use_gpu::detail
