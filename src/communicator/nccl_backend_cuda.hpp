// SPDX-License-Identifier: MIT
//
// NCCL, which has no device-generic form: compiled where LibTorch has CUDA.
#pragma once

#include <string>
#include <string_view>

#include "communicator/group_state.hpp"

namespace use_gpu::detail {

/// How gpu_id starts for a simulated GPU, which NCCL does not know.
constexpr std::string_view k_simulated = "simulated-";

#ifdef USE_GPU_WITH_NCCL

/// The UUID of a CUDA GPU, the same in every process; of a simulated one with a prefix, which
/// the log then mentions. Empty for any other device.
[[nodiscard]] std::string gpu_id(c10::Device device);

/// Connects at once, so that errors appear now and the store is not needed later.
[[nodiscard]] Backend make_nccl(const Membership& own,
                                const c10::intrusive_ptr<c10d::Store>& store);

#else  // no GPU has an ID, so NCCL is never chosen

inline std::string gpu_id(c10::Device) { return {}; }
inline Backend make_nccl(const Membership&, const c10::intrusive_ptr<c10d::Store>&) { return {}; }

#endif

}  // namespace use_gpu::detail
