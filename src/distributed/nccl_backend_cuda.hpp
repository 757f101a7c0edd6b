// SPDX-License-Identifier: MIT
//
// NCCL, which has no device-generic form: compiled where LibTorch has CUDA.
#pragma once

#include "distributed/group_state.hpp"

namespace use_gpu::detail {

#ifdef USE_GPU_WITH_NCCL

/// The UUID of a CUDA GPU, the same in every process. Empty for any other device.
[[nodiscard]] std::string gpu_id(c10::Device device);

/// Connects at once, so that errors appear now and the store is not needed later. A peer that is
/// lost is an exception in whoever waits for it, never the end of the process.
[[nodiscard]] Backend make_nccl(const Membership& own,
                                const c10::intrusive_ptr<c10d::Store>& store);

/// NCCL beside own.nccl, split from it by all ranks at once, for whoever does not wait: LibTorch's
/// watchdog ends the process some time after the time-out if a peer is lost.
[[nodiscard]] Backend make_watched_nccl(const Membership& own);

#else  // no GPU has an ID, so NCCL is never chosen

inline std::string gpu_id(c10::Device) { return {}; }
inline Backend make_nccl(const Membership&, const c10::intrusive_ptr<c10d::Store>&) { return {}; }
inline Backend make_watched_nccl(const Membership&) { return {}; }

#endif

}  // namespace use_gpu::detail
