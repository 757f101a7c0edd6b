// SPDX-License-Identifier: MIT
#include "kernels/linear_algebra.hpp"

#include <ATen/ATen.h>
#include <ATen/native/Resize.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace simulate_gpus {
namespace {

using at::Tensor;

// As LibTorch lays out what it gives to cuSOLVER and gets from it: columns are contiguous.
Tensor by_columns(const Tensor& x) { return x.mT().clone(at::MemoryFormat::Contiguous).mT(); }

// L, whose diagonal of ones is left out, and U, in one matrix (or batch of them) as large as x.
Tensor factors_of(const Tensor& x) {
  Tensor lu = by_columns(x);
  const std::int64_t steps = std::min(x.size(-2), x.size(-1));
  for (std::int64_t i = 0; i < steps; ++i) {
    const Tensor row = lu.select(-2, i);
    const Tensor below = lu.slice(-2, i + 1);
    const Tensor column = below.select(-1, i);
    const Tensor quotients = column / row.select(-1, i).unsqueeze(-1);
    column.copy_(at::where(column == 0, 0, quotients));  // 0 by 0 is 0, as in LAPACK
    below.slice(-1, i + 1).sub_(column.unsqueeze(-1) * row.slice(-1, i + 1).unsqueeze(-2));
  }
  return lu;
}

// For each matrix where on U's diagonal the first zero is, counted from 1, or 0.
Tensor first_zeros(const Tensor& lu) {
  const Tensor is_zero = lu.diagonal(0, -2, -1).eq(0);
  const Tensor places = is_zero.to(at::kInt).argmax(-1) + 1;
  return at::where(is_zero.any(-1), places, 0).to(at::kInt);
}

std::vector<Tensor> factored(const Tensor& x, bool checks_errors) {
  const Tensor lu = factors_of(x), info = first_zeros(lu);
  if (checks_errors) at::_linalg_check_errors(info, "torch.linalg.lu_factor_ex", x.dim() == 2);
  const std::int64_t steps = std::min(x.size(-2), x.size(-1));
  auto sizes = x.sizes().vec();
  sizes.pop_back();
  sizes.back() = steps;
  const Tensor rows = at::arange(1, steps + 1, at::kInt);  // each stays where it is
  return {lu, rows.expand(sizes).clone(at::MemoryFormat::Contiguous), info};
}

std::vector<Tensor> separate_factors(const Tensor& x) {
  const Tensor lu = factors_of(x);
  const std::int64_t steps = std::min(x.size(-2), x.size(-1));
  Tensor lower = lu.slice(-1, 0, steps).tril(-1).contiguous();
  lower.diagonal(0, -2, -1).fill_(1);
  return {at::empty({0}, x.options()), lower, lu.slice(-2, 0, steps).triu().contiguous()};
}

}  // namespace

bool is_of_linear_algebra(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kComplexFloat ||
         dtype == at::kComplexDouble;
}

std::optional<Values> lu_without_pivoting(const Operation& operation, const Values& arguments) {
  const Tensor& x = arguments[0].toTensor();
  if (arguments[1].toBool() || x.dim() < 2 || x.numel() == 0 ||
      !is_of_linear_algebra(x.scalar_type()))
    return std::nullopt;
  const bool is_joined = base_name(operation.schema()) == "linalg_lu_factor_ex";
  Values results;
  for (Tensor& result : is_joined ? factored(x, arguments[2].toBool()) : separate_factors(x)) {
    if (const auto out = operation.returned[results.size()]) {
      const Tensor target = arguments[*out].toTensor();
      at::native::resize_output(target, result.sizes());
      result = target.copy_(result);
    }
    results.emplace_back(result);
  }
  return results;
}

void svd_by_any_driver(Values& arguments) {
  if (arguments[3].isNone()) return;
  const std::string& driver = arguments[3].toStringRef();
  TORCH_CHECK(driver == "gesvd" || driver == "gesvdj" || driver == "gesvda",
              "torch.linalg.svd: unknown svd driver ", driver, " in svd_cusolver computation.");
  arguments[3] = c10::IValue();
}

void least_squares_by_gels(Values& arguments) {
  TORCH_CHECK(arguments[3].isNone() || arguments[3].toStringRef() == "gels",
              "torch.linalg.lstsq: `driver` other than `gels` is not supported on CUDA");
  arguments[3] = "gels";
}

// self, A, upper, transpose, unitriangular, X, M
std::optional<Values> solve_by_dense_triangle(const Operation&, const Values& arguments) {
  if (arguments[1].toTensor().layout() != at::kSparseBsr) return std::nullopt;
  const Tensor x = arguments[5].toTensor();
  const Tensor& triangle = arguments[1].toTensor();
  if (triangle._nnz() == 0) {
    x.fill_(std::numeric_limits<double>::quiet_NaN());
  } else {
    x.copy_(std::get<0>(at::triangular_solve(arguments[0].toTensor(), triangle.to_dense(),
                                             arguments[2].toBool(), arguments[3].toBool(),
                                             arguments[4].toBool())));
  }
  return Values{x, arguments[6]};
}

std::optional<Tensor> inverse_of_singular(const Values& arguments) {
  const Tensor& x = arguments[0].toTensor();
  if (!x.diagonal(0, -2, -1).eq(0).any().item<bool>()) return std::nullopt;
  return at::cholesky_solve(at::eye(x.size(-1), x.options()).expand_as(x), x,
                            arguments[1].toBool());
}

}  // namespace simulate_gpus
