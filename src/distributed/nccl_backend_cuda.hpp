// SPDX-License-Identifier: MIT
//
// NCCL, which has no device-generic form: compiled where LibTorch has CUDA.
#pragma once

#include "distributed/group_state.hpp"

namespace use_gpu::detail {

#ifdef USE_GPU_WITH_NCCL

constexpr bool k_has_nccl = true;

/// Connects at once, so that errors appear now and the store is not needed later. A peer that is
/// lost is an exception in whoever waits for it, never the end of the process.
[[nodiscard]] Backend make_nccl(const Membership& own,
                                const c10::intrusive_ptr<c10d::Store>& store);

/// NCCL beside own.nccl, split from it by all ranks at once, for whoever does not wait: LibTorch's
/// watchdog ends the process some time after the time-out if a peer is lost.
[[nodiscard]] Backend make_watched_nccl(const Membership& own);

#else

constexpr bool k_has_nccl = false;
inline Backend make_nccl(const Membership&, const c10::intrusive_ptr<c10d::Store>&) { return {}; }
inline Backend make_watched_nccl(const Membership&) { return {}; }

#endif

}  // namespace use_gpu::detail
