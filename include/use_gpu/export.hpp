// SPDX-License-Identifier: MIT
//
// What the libraries of use_gpu export: the names in a namespace with this mark. All others, in
// use_gpu::detail, are hidden, so they cannot meet those of a program:
//
//   namespace USE_GPU_EXPORT use_gpu {
#pragma once

/// Makes what a namespace declares visible outside of the shared library that defines it.
#define USE_GPU_EXPORT __attribute__((visibility("default")))
