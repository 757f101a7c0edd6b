// SPDX-License-Identifier: MIT
//
// The arithmetic of NCCL's reductions, on the host.
#pragma once

#include <nccl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "nccl/call.hpp"

namespace simulate_gpus::nccl {

/// What each element is multiplied by before it is given (PreMulSum), in the dtype of the elements.
struct Scalar {
  std::array<std::byte, 8> value{};
  const void* on_device = nullptr;  ///< if it is read there when the operation is done
};

/// Copies that many bytes of what a rank gives, from that byte on.
using ReadPart = std::function<void(int rank, std::uint64_t begin, void* to, std::size_t bytes)>;

/// Writes call.count elements: each the reduction of those of all parts, in the order of the ranks.
/// Integers wrap; narrow floating point numbers are added in float32 and rounded once, so all ranks
/// get the same bits. `result` may be what this rank has given.
void reduce(const Call& call, int ranks, const ReadPart& read, void* result);

/// Multiplies the elements in place.
void multiply(ncclDataType_t type, void* elements, std::uint64_t count, const void* scalar);

}  // namespace simulate_gpus::nccl
