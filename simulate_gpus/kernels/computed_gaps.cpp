// SPDX-License-Identifier: MIT
#include "kernels/computed_gaps.hpp"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace simulate_gpus {
namespace {

at::ScalarType dtype_of(const Values& arguments) { return arguments[0].toTensor().scalar_type(); }

// CUDA's isin does for many candidates.
bool isin_sorts(const at::Tensor& x, const at::Tensor& candidates) {
  return static_cast<double>(candidates.numel()) >=
         10 * std::pow(static_cast<double>(x.numel()), 0.145);
}

// By columns, and of integers, which the CPU's library lacks.
at::Tensor sum_of_compressed(const at::Tensor& x, const at::Tensor& y, const at::Scalar& factor) {
  if (x.layout() == at::kSparseCsc) return sum_of_compressed(x.t(), y.t(), factor).t();
  const at::ScalarType dtype = at::result_type(x, y), wide = at::toOpMathType(dtype);
  if (!at::isIntegralType(dtype, /*includeBool=*/true))
    return at::add(x.to(wide), y.to(wide), factor).to(dtype);
  return at::add(x.to_sparse(), y.to_sparse(), factor).coalesce().to_sparse_csr();
}

}  // namespace

Computed product_with_gelu(const Values& arguments) {
  if (!arguments[5].toBool()) return std::nullopt;
  const at::ScalarType dtype = dtype_of(arguments);
  const auto wide = [&](std::size_t i) {
    return arguments[i].toTensor().to(at::toOpMathType(dtype));
  };
  const at::Tensor product =
      at::addmm(wide(0), wide(1), wide(2), arguments[3].toScalar(), arguments[4].toScalar());
  return at::gelu(product, "tanh").to(dtype);
}

Computed complex_among(const Values& arguments) {
  if (!arguments[0].isTensor() || !arguments[1].isTensor()) return std::nullopt;
  const at::Tensor values = arguments[0].toTensor().unsqueeze(-1);
  const at::Tensor candidates = arguments[1].toTensor().flatten();
  const bool is_complex32 =
      values.scalar_type() == at::kComplexHalf || candidates.scalar_type() == at::kComplexHalf;
  if (!is_complex32 || isin_sorts(values, candidates)) return std::nullopt;
  const at::ScalarType dtype = at::result_type(values, candidates);
  const auto promoted = [&](const at::Tensor& x) {
    return x.to(dtype).to(at::toOpMathType(dtype));
  };
  const at::Tensor found = promoted(values).eq(promoted(candidates)).any(-1);
  return arguments[3].toBool() ? found.logical_not() : found;
}

void check_sorted(Values& arguments) {
  if (!arguments[0].isTensor() || !arguments[1].isTensor()) return;
  const at::Tensor &x = arguments[0].toTensor(), &candidates = arguments[1].toTensor();
  const at::ScalarType dtype = candidates.scalar_type();
  const bool is_unsorted_dtype =
      dtype == at::kUInt16 || dtype == at::kUInt32 || dtype == at::kUInt64;
  TORCH_CHECK_NOT_IMPLEMENTED(!isin_sorts(x, candidates) || !is_unsorted_dtype,
                              "\"sortKeyValueInplace\" not implemented for '", c10::toString(dtype),
                              "'");
}

Computed histogram_of_integers(const Values& arguments) {
  if (!at::isIntegralType(dtype_of(arguments), /*includeBool=*/false)) return std::nullopt;
  const at::Tensor& x = arguments[0].toTensor();
  const std::int64_t bins = arguments[1].toInt();
  auto least = arguments[2].toScalar().to<std::int64_t>();
  auto most = arguments[3].toScalar().to<std::int64_t>();
  TORCH_CHECK(bins > 0, "bins must be > 0");
  const at::Tensor values = x.flatten().to(at::kLong);
  if (least == most && values.numel() > 0) {
    least = values.min().item<std::int64_t>();
    most = values.max().item<std::int64_t>();
  }
  if (least == most) {
    --least;
    ++most;
  }
  TORCH_CHECK(least < most, "max must be larger than min");
  const at::Tensor inside = values.index({(values >= least) & (values <= most)});
  const at::Tensor bin = ((inside - least) * bins).div(most - least, "floor").clamp_max(bins - 1);
  return bin.bincount({}, bins).to(x.scalar_type());
}

Computed identity(const Values& arguments) {
  if (!arguments.back().isTensor()) return std::nullopt;
  const std::int64_t rows = arguments[0].toInt();
  const std::int64_t columns = arguments[1].isInt() ? arguments[1].toInt() : rows;
  at::Tensor made = at::zeros({rows, columns}, arguments.back().toTensor().options());
  made.diagonal().fill_(1);
  return made;
}

Computed integers_between(const Values& arguments) {
  if (!arguments[0].isScalar() || !arguments.back().isTensor()) return std::nullopt;
  const at::Tensor& out = arguments.back().toTensor();
  const at::ScalarType dtype = out.scalar_type();
  if (!at::isIntegralType(dtype, /*includeBool=*/false)) return std::nullopt;
  const auto first = arguments[0].toScalar().to<std::int64_t>();
  const auto last = arguments[1].toScalar().to<std::int64_t>();
  const std::int64_t steps = arguments[2].toInt();
  const auto shape = out.numel() == steps ? out.sizes() : at::IntArrayRef(steps);
  if (steps == 1) return at::full(shape, first, dtype);
  const float step =
      (static_cast<float>(last) - static_cast<float>(first)) / static_cast<float>(steps - 1);
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(steps));
  for (std::int64_t i = 0; i < steps; ++i) {
    const bool from_first = i < steps / 2;
    const auto count = static_cast<float>(from_first ? i : -(steps - 1 - i));
    numbers[static_cast<std::size_t>(i)] = static_cast<std::int64_t>(
        std::fma(step, count, static_cast<float>(from_first ? first : last)));
  }
  if (steps > 0)  // throws where the dtype cannot hold them
    for (const std::int64_t end : {first, last}) static_cast<void>(at::full({1}, end, dtype));
  return at::tensor(numbers, at::kLong).to(dtype).view(shape);
}

Computed log_of_one(const Values& arguments) {
  const at::Tensor& x = arguments[0].toTensor();
  return x.dim() == 0 ? Computed(x.clone()) : std::nullopt;
}

Computed no_places(const Values& arguments) {
  if (!arguments[3].isInt() || (arguments[0].toInt() != 0 && arguments[1].toInt() != 0))
    return std::nullopt;
  return at::empty({2, 0}, arguments[3].toScalarType());
}

Computed rounded_to_decimals(const Values& arguments) {
  if (arguments.size() < 2 || !arguments[1].isInt()) return std::nullopt;
  if (dtype_of(arguments) != at::kHalf && dtype_of(arguments) != at::kBFloat16) return std::nullopt;
  const at::Tensor& x = arguments[0].toTensor();
  const std::int64_t decimals = arguments[1].toInt();
  const at::Tensor power =
      at::scalar_tensor(std::pow(10., std::abs(static_cast<double>(decimals))), x.options());
  return decimals < 0 ? at::round(x / power) * power : at::round(x * power) / power;
}

Computed sum_of_numbers(const Values& arguments) {
  if (!at::isComplexType(dtype_of(arguments))) return std::nullopt;
  const at::Tensor& x = arguments[0].toTensor();
  std::optional<at::DimVector> dims;
  if (!arguments[1].isNone()) dims = arguments[1].toDimVector();
  return x.masked_fill(x.isnan(), 0)
      .to(at::toOpMathType(x.scalar_type()))
      .sum(dims ? at::OptionalIntArrayRef(*dims) : std::nullopt, arguments[2].toBool())
      .to(arguments[3].toOptional<at::ScalarType>().value_or(x.scalar_type()));
}

Computed sum_of_sparse(const Values& arguments) {
  if (!arguments[1].isTensor()) return std::nullopt;
  const at::Tensor &x = arguments[0].toTensor(), &y = arguments[1].toTensor();
  if (x.layout() == at::kStrided) return std::nullopt;
  const bool is_csc = x.layout() == at::kSparseCsc, is_csr = x.layout() == at::kSparseCsr;
  if (x.layout() == y.layout() && x.sizes() == y.sizes() && x.dim() == 2 &&
      (is_csc || (is_csr && at::isIntegralType(at::result_type(x, y), /*includeBool=*/true))))
    return sum_of_compressed(x, y, arguments[2].toScalar());
  const auto is_plain = [](const at::Tensor& t) { return t.is_sparse() && t._nnz() > 0; };
  if (!is_plain(x) || !is_plain(y) || x.sizes() != y.sizes() || x.sparse_dim() != y.sparse_dim())
    return std::nullopt;
  const at::ScalarType dtype = at::result_type(x, y);
  return at::_sparse_coo_tensor_unsafe(
      at::cat({x._indices(), y._indices()}, 1),
      at::cat({x._values().to(dtype), y._values().to(dtype) * arguments[2].toScalar()}), x.sizes(),
      x.options().dtype(dtype), /*is_coalesced=*/false);
}

Computed unpooled_integers(const Values& arguments) {
  if (!at::isIntegralType(dtype_of(arguments), /*includeBool=*/false)) return std::nullopt;
  const at::Tensor& x = arguments[0].toTensor();
  const bool is_narrow = x.element_size() < 4;
  const at::Tensor wide = is_narrow ? x.to(at::kInt) : x;
  const at::Tensor bits = wide.view(x.element_size() == 8 ? at::kDouble : at::kFloat);
  const auto sizes = arguments[2].toDimVector();
  const at::Tensor moved =
      arguments.size() < 5
          ? at::max_unpool2d(bits, arguments[1].toTensor(), sizes)
          : at::max_unpool3d(bits, arguments[1].toTensor(), sizes, arguments[3].toDimVector(),
                             arguments[4].toDimVector());
  return moved.view(wide.scalar_type()).to(x.scalar_type());
}

}  // namespace simulate_gpus
