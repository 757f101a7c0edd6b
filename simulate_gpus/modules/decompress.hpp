// SPDX-License-Identifier: MIT
//
// nvcc compresses what it embeds: by LZ4, or by zstd since CUDA 12.8. In the library of ptx/, which is opened when a
// program brings its first kernel, so that other programs load neither.
#pragma once

#include <cstddef>

/// The bytes that were written to `to`, which has room for `most`. 0 for damaged data, -1 where the library was built without what
/// decompresses it, -2 the same for zstd.
extern "C" [[gnu::visibility("default")]] long simulate_gpus_decompress(const char* from,
                                                                        std::size_t bytes, char* to,
                                                                        std::size_t most);
