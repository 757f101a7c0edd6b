// SPDX-License-Identifier: MIT
//
// What a GPU refuses, and what it is given to do, asked of LibTorch's own CUDA kernels. They are replaced, but they can be
// rehearsed: each runs up to where it reads a value back or calls one of NVIDIA's libraries, and
// throws before that what it refuses, with its own text. Its launches do nothing. It allocates for a moment.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKey.h>

#include <cstdint>
#include <vector>

#include "kernels/arguments.hpp"
#include "runtime/given.hpp"

namespace simulate_gpus {

/// Keeps LibTorch's own kernel, which another one is about to replace. Its key on the host is its name
/// here.
void keep_kernel(const c10::OperatorHandle& operation, c10::DispatchKey key,
                 c10::DispatchKey host_key);

/// Some operations stand for others, and have no kernel for GPUs.
bool has_kept_kernel(const c10::OperatorHandle& operation);

/// In a thread that rehearses (interface.hpp) each replacement calls the kernel that it replaced.
void call_kept_kernel(const c10::OperatorHandle& operation, c10::DispatchKey host_key,
                      torch::jit::Stack* stack);

/// `none` where nothing was asked, since a rehearsal would leave a trace; `cut_short` where the kernel came to its work, or to
/// one of NVIDIA's libraries, and could not go on.
enum class Rehearsal { none, cut_short, complete };

struct Rehearsed {
  Rehearsal how = Rehearsal::none;
  Values results = {};  // of a complete one, without values
};

/// Throws what LibTorch's own kernel refuses. It takes longer than a small operation: to be called where something is out of the
/// ordinary, or somebody asks for its parts.
Rehearsed rehearse(const c10::OperatorHandle& operation, const Values& arguments,
                   std::vector<Given>* parts = nullptr);

/// The same, unless the kernel is known to take arguments of this form, a number of the caller's.
void rehearse_once(const c10::OperatorHandle& operation, const Values& arguments,
                   std::uint64_t form);

/// What LibTorch's own kernel gives to its stream (tell_parts); where it is cut short, something unknown at the end. That alone where
/// nothing is known: of random operations too, as another thread may draw meanwhile.
std::vector<Given> parts_of(const c10::OperatorHandle& operation, const Values& arguments);

}  // namespace simulate_gpus
