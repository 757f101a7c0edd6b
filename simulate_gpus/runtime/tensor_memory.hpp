// SPDX-License-Identifier: MIT
#pragma once

#include "device_memory.hpp"

namespace simulate_gpus {

/// The part of an allocation that one tensor of LibTorch has, around the address; or that lies between two. All of the
/// allocation where LibTorch is not followed.
Extent tensor_around(const Extent& allocation, const void* address);

}  // namespace simulate_gpus
