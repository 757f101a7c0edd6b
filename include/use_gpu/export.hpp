// SPDX-License-Identifier: MIT
//
// The libraries of use_gpu export only names in a namespace with this attribute. All others,
// which are most of use_gpu::detail, are hidden, so they cannot clash with a program's:
//
//   namespace USE_GPU_EXPORT use_gpu {
//
// Clang asks for it again where a function is defined.
#pragma once

/// Makes what a namespace declares visible outside of the shared library that defines it.
#define USE_GPU_EXPORT [[gnu::visibility("default")]]
