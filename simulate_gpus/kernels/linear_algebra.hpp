// SPDX-License-Identifier: MIT
//
// The rows of cpu_gaps.cpp that are linear algebra: what cuSOLVER and cuSPARSE take, and the CPU's LAPACK does not.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "kernels/operation.hpp"

namespace simulate_gpus {

/// Whether NVIDIA's libraries take the dtype: float32, float64, and complex numbers of these.
bool is_of_linear_algebra(at::ScalarType dtype);

/// The results of linalg_lu_factor_ex or linalg_lu without pivoting, which the CPU lacks; none with pivoting.
std::optional<Values> lu_without_pivoting(const Operation& operation, const Values& arguments);

/// Of linalg_svd: cuSOLVER has three ways to the same values. Throws for a driver that it has not.
void svd_by_any_driver(Values& arguments);

/// Of linalg_lstsq: the CPU's default finds the rank too. Throws for other drivers than gels.
void least_squares_by_gels(Values& arguments);

/// The results of triangular_solve for sparse blocks, whose kernel on the CPU corrupts memory; none for others.
std::optional<Values> solve_by_dense_triangle(const Operation&, const Values& arguments);

/// Of cholesky_inverse: not finite, where the CPU refuses; none for a matrix that is not singular.
std::optional<at::Tensor> inverse_of_singular(const Values& arguments);

}  // namespace simulate_gpus
