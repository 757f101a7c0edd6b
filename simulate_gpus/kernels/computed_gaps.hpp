// SPDX-License-Identifier: MIT
//
// Rows of cpu_gaps.cpp whose results are computed in place of the CPU's kernel, which refuses these arguments or gives other values.
// Those of linear algebra are in linear_algebra.hpp.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "kernels/arguments.hpp"

namespace simulate_gpus {

/// An operation's result; none where the CPU's kernel gives the same.
using Computed = std::optional<at::Tensor>;

/// _addmm_activation: CUDA's GELU behind a product is the one by tanh, before the only rounding.
Computed product_with_gelu(const Values& arguments);

/// isin(values, candidates, are they unique, invert): CUDA compares each pair with the operation eq, which takes complex numbers; the
/// CPU's kernel does not.
Computed complex_among(const Values& arguments);

/// isin, before the CPU's kernel: throws for dtypes that CUDA does not sort.
void check_sorted(Values& arguments);

/// histc: how many values lie in each of the bins between least and most.
Computed histogram_of_integers(const Values& arguments);

/// eye(rows, columns if they are given, what they are written to), also in dtypes that the CPU's kernel lacks.
Computed identity(const Values& arguments);

/// linspace: by float32, as CUDA's kernel counts its steps, in one rounding. An output of as many elements keeps its shape.
Computed integers_between(const Values& arguments);

/// logcumsumexp: CUDA's kernel asks for the dtype only where there is something to sum.
Computed log_of_one(const Values& arguments);

/// tril_indices, triu_indices: CUDA's kernel refuses other dtypes than the CPU's, and has none for no places.
Computed no_places(const Values& arguments);

/// round: in 16 bits CUDA's kernel rounds the power of ten and each step, which may overflow.
Computed rounded_to_decimals(const Values& arguments);

/// nansum of complex numbers.
Computed sum_of_numbers(const Values& arguments);

/// add: CUDA appends what is added to a sparse tensor; the CPU's kernel merges, which gives other indices.
Computed sum_of_sparse(const Values& arguments);

/// max_unpool2d and 3d of integers, moved by the kernel for floating-point numbers of the same size.
Computed unpooled_integers(const Values& arguments);

}  // namespace simulate_gpus
