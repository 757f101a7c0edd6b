// SPDX-License-Identifier: MIT
//
// simulate_gpus --check: finds two uses of the same memory that nothing orders. On a GPU they give
// wrong values now and then; here the order of the program's calls decides, so all are found in one
// run, even if its values are right.
//
// The host is one: what any of its threads has waited for, all know. What the threads of a program do
// to each other is not looked at.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "clock.hpp"
#include "interface.hpp"
#include "streams.hpp"

namespace simulated_cuda {

/// If not, none of the functions below does anything.
bool is_checked();

/// The stream is given an operation with these uses of memory; or its capture, whose launches are
/// then checked.
void check_operation(CUstream_st& stream, const char* name,
                     std::span<const simulated_cuda_range> ranges);

/// What is known when the stream has done all that it was given.
Clock clock_of(CUstream_st& stream);

/// What the stream is given from now on begins after this.
void check_stream_waits(CUstream_st& stream, const Clock& clock);

/// The host has waited for this, or for all that the device was given.
void check_host_waits(const Clock& clock);
void check_host_waits_for_device(int device);

/// The stream is destroyed; its work is not yet known to be done.
void check_stream_ends(CUstream_st& stream);

/// The host has looked, and seen that the work is done. Nobody has waited for it, but host memory may
/// be used again, if LibTorch looks by itself: its allocators within an operation, c10d's thread that
/// looks for hung work and gives none.
void check_host_looks(const Clock& clock);

/// The program gives device or pinned memory back.
void check_freed(const void* address, std::size_t bytes);

/// What LibTorch has done with a block of its cache.
void check_block(const void* address, std::size_t bytes, simulated_cuda_block what);

/// The host's access to this byte has faulted: reports it if it disturbs a copy. False if it is not
/// pinned memory.
bool check_host_access(const void* address, bool writes);

}  // namespace simulated_cuda
