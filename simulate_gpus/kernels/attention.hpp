// SPDX-License-Identifier: MIT
//
// Fused attention. LibTorch chooses between its kernels as on a GPU, and prepares their arguments,
// also those of nested tensors; only the kernels are replaced, each kind in a source of its own. The
// CPU's fused kernel computes what it can, attention_blocks.cpp the rest. None of these needs memory
// of the GPU for all pairs of query and key.
#pragma once

#include <ATen/core/stack.h>
#include <torch/library.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include "kernels/attention_blocks.hpp"

namespace simulate_gpus {

using OptionalInt = std::optional<std::int64_t>;
using OptionalDouble = std::optional<double>;

/// Throws what LibTorch's own kernel refuses. True while that one is asked: then nothing is computed.
/// The arguments are to be without dropout, for which it would take numbers from the generator.
bool is_asked(const char* name, torch::jit::Stack arguments);

/// Whether LibTorch warns of a backward pass that adds in any order. It does so after its first launch.
bool is_order_to_be_warned_of();

double scale_of(const at::Tensor& query, OptionalDouble scale);

/// The tensor, if there is one that is defined.
OptionalTensor given(const OptionalTensor& x);

/// As single numbers, of the two that attention gives.
std::pair<at::Tensor, at::Tensor> seed_and_offset(const at::Tensor& state);

/// -> output; logsumexp; of what attend() returns besides nothing, where the CPU's kernel computes
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> compute_attention(const Attention& a,
                                                                             bool wants_mask);

/// -> gradients of query, key, value, and of the bias if it is wanted
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> compute_attention_backward(
    const Attention& a, const at::Tensor& grad, const at::Tensor& output,
    const at::Tensor& logsumexp, bool wants_bias);

void add_flash_attention(torch::Library& library);
void add_efficient_attention(torch::Library& library);
void add_cudnn_attention(torch::Library& library);

}  // namespace simulate_gpus
