// SPDX-License-Identifier: MIT
#include "kernels/cpu_gaps.hpp"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/version.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "kernels/convolutions.hpp"
#include "kernels/linear_algebra.hpp"
#include "kernels/operation.hpp"
#include "kernels/transforms.hpp"

namespace simulate_gpus {
namespace {

using Result = std::optional<at::Tensor>;  // none where the CPU's kernel takes the arguments

at::ScalarType dtype_of(const Values& arguments) { return arguments[0].toTensor().scalar_type(); }

// CUDA's softmax reads float16 and writes float32 in one kernel, and its backward pass the reverse.
void softmax_to_float(Values& arguments) {
  if (!arguments[2].toBool()) return;
  TORCH_CHECK(arguments[0].toTensor().scalar_type() == at::kHalf,
              "conversion is supported for Half type only");
  arguments[0] = arguments[0].toTensor().to(at::kFloat);
  arguments[2] = false;
}

template <auto of_float>
Result softmax_backward_to_half(const Values& arguments) {
  if (dtype_of(arguments) != at::kFloat || arguments[3].toScalarType() != at::kHalf)
    return std::nullopt;
  return of_float(arguments[0].toTensor(), arguments[1].toTensor(), arguments[2].toInt(),
                  at::kFloat)
      .to(at::kHalf);
}

// LibTorch's mul_ of a number puts it first, where the CPU's kernel rounds it to the tensor's dtype.
void put_number_last(Values& arguments) {
  if (!arguments[0].isTensor() || !arguments[1].isTensor()) return;
  if (arguments[0].toTensor().unsafeGetTensorImpl()->is_wrapped_number())
    std::swap(arguments[0], arguments[1]);
}

// With one bound CUDA compares in the dtype of the tensor that it writes, the CPU in the wider one of the two.
void clamp_in_own_dtype(Values& arguments) {
  if (arguments[1].isTensor() == arguments[2].isTensor()) return;
  for (const std::size_t i : {1U, 2U})
    if (arguments[i].isTensor())
      arguments[i] = arguments[i].toTensor().to(arguments[0].toTensor().scalar_type());
}

// 2.11's code on a card did not, 2.14's database says that it does.
constexpr bool k_cufft_takes_bfloat16 = TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14;

void check_fft_operand(Values& arguments) {
  const at::Tensor& x = arguments[0].toTensor();
  TORCH_CHECK(k_cufft_takes_bfloat16 || x.scalar_type() != at::kBFloat16,
              "cuFFT doesn't support tensor of type: BFloat16");
  if (x.scalar_type() != at::kHalf && x.scalar_type() != at::kComplexHalf) return;
  std::vector<std::int64_t> sizes;
  for (const std::int64_t dim : arguments[1].toDimVector()) sizes.push_back(x.size(dim));
  if (arguments[3].isInt()) sizes.back() = arguments[3].toInt();  // of a real result
  for (const std::int64_t size : sizes) {
    TORCH_CHECK(std::has_single_bit(static_cast<std::uint64_t>(size)),
                "cuFFT only supports dimensions whose sizes are powers of two when computing in "
                "half precision, but got a signal size of",
                at::IntArrayRef(sizes));
  }
}

// For many candidates it does.
bool isin_sorts(const at::Tensor& x, const at::Tensor& candidates) {
  return static_cast<double>(candidates.numel()) >=
         10 * std::pow(static_cast<double>(x.numel()), 0.145);
}

// CUDA does not sort these dtypes.
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

// CUDA compares each pair with the operation eq, which takes complex numbers; the CPU's kernel does not.
// values, candidates, are they unique, invert
Result complex_among(const Values& arguments) {
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

// -> how many values lie in each of the bins between least and most
Result histogram_of_integers(const Values& arguments) {
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

// By float32, as CUDA's kernel counts its steps, in one rounding. An output of as many elements keeps its shape.
Result integers_between(const Values& arguments) {
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

Result sum_of_numbers(const Values& arguments) {
  if (!at::isComplexType(dtype_of(arguments))) return std::nullopt;
  const at::Tensor& x = arguments[0].toTensor();
  std::optional<at::DimVector> dims;
  if (!arguments[1].isNone()) dims = arguments[1].toDimVector();
  return x.masked_fill(x.isnan(), 0)
      .to(at::toOpMathType(x.scalar_type()))
      .sum(dims ? at::OptionalIntArrayRef(*dims) : std::nullopt, arguments[2].toBool())
      .to(arguments[3].toOptional<at::ScalarType>().value_or(x.scalar_type()));
}

// In narrow numbers the CPU's kernel rounds often, and is slower; CUDA's rounds the results.
void attend_in_float(Values& arguments) {
  for (c10::IValue& argument : arguments) {
    if (!argument.isTensor()) continue;
    const at::ScalarType dtype = argument.toTensor().scalar_type();
    if (dtype == at::kHalf || dtype == at::kBFloat16) argument = argument.toTensor().to(at::kFloat);
  }
}

at::Tensor with_strides_of(const at::Tensor& like, const at::Tensor& x) {
  at::Tensor made = at::empty_like(like);
  return made.strides() == x.strides() && made.dtype() == x.dtype() ? x : made.copy_(x);
}

// Where running statistics are used, CUDA returns these. input, weight, bias, mean, variance, is_training, momentum, epsilon
void add_running_statistics(const Operation&, const Values& arguments, Values& results) {
  if (!arguments[3].isTensor() || !arguments[3].toTensor().defined() || arguments[5].toBool())
    return;
  const auto set = [&](std::size_t r, const at::Tensor& value) {
    at::Tensor statistic = results[r].toTensor();
    results[r] = statistic.resize_(value.sizes()).copy_(value);
  };
  const at::Tensor &mean = arguments[3].toTensor(), &variance = arguments[4].toTensor();
  set(1, mean);
  set(2, (variance.to(at::toOpMathType(variance.scalar_type())) + arguments[7].toDouble()).rsqrt());
}

// As efficient attention gives it: a position's values of all heads are together.
at::Tensor by_position(const at::Tensor& like, const at::Tensor& x) {
  return x.transpose(1, 2).to(like.scalar_type()).contiguous().transpose(1, 2);
}

// By columns, and of integers, which the CPU's library lacks.
at::Tensor sum_of_compressed(const at::Tensor& x, const at::Tensor& y, const at::Scalar& factor) {
  if (x.layout() == at::kSparseCsc) return sum_of_compressed(x.t(), y.t(), factor).t();
  const at::ScalarType dtype = at::result_type(x, y), wide = at::toOpMathType(dtype);
  if (!at::isIntegralType(dtype, /*includeBool=*/true))
    return at::add(x.to(wide), y.to(wide), factor).to(dtype);
  return at::add(x.to_sparse(), y.to_sparse(), factor).coalesce().to_sparse_csr();
}

// CUDA appends what is added; the CPU's kernel merges, which gives other indices.
Result sum_of_sparse(const Values& arguments) {
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

// Integers, moved by the kernel for floating-point numbers of the same size.
Result unpooled_integers(const Values& arguments) {
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

// CUDA's kernel asks for the dtype only where there is something to sum.
Result log_of_one(const Values& arguments) {
  const at::Tensor& x = arguments[0].toTensor();
  return x.dim() == 0 ? Result(x.clone()) : std::nullopt;
}

// rows, columns if they are given, and what they are written to
Result identity(const Values& arguments) {
  if (!arguments.back().isTensor()) return std::nullopt;
  const std::int64_t rows = arguments[0].toInt();
  const std::int64_t columns = arguments[1].isInt() ? arguments[1].toInt() : rows;
  at::Tensor made = at::zeros({rows, columns}, arguments.back().toTensor().options());
  made.diagonal().fill_(1);
  return made;
}

// In 16 bits CUDA's kernel rounds the power of ten and each step, which may overflow.
Result rounded_to_decimals(const Values& arguments) {
  if (arguments.size() < 2 || !arguments[1].isInt()) return std::nullopt;
  if (dtype_of(arguments) != at::kHalf && dtype_of(arguments) != at::kBFloat16) return std::nullopt;
  const at::Tensor& x = arguments[0].toTensor();
  const std::int64_t decimals = arguments[1].toInt();
  const at::Tensor power =
      at::scalar_tensor(std::pow(10., std::abs(static_cast<double>(decimals))), x.options());
  return decimals < 0 ? at::round(x / power) * power : at::round(x * power) / power;
}

// CUDA's kernel refuses other dtypes than the CPU's, and has none for no places.
Result no_places(const Values& arguments) {
  if (!arguments[3].isInt() || (arguments[0].toInt() != 0 && arguments[1].toInt() != 0))
    return std::nullopt;
  return at::empty({2, 0}, arguments[3].toScalarType());
}

// CUDA's GELU behind a product is the one by tanh, before the only rounding.
Result product_with_gelu(const Values& arguments) {
  if (!arguments[5].toBool()) return std::nullopt;
  const at::ScalarType dtype = dtype_of(arguments);
  const auto wide = [&](std::size_t i) {
    return arguments[i].toTensor().to(at::toOpMathType(dtype));
  };
  const at::Tensor product =
      at::addmm(wide(0), wide(1), wide(2), arguments[3].toScalar(), arguments[4].toScalar());
  return at::gelu(product, "tanh").to(dtype);
}

// The gradients of input and weight, or the output.
void lay_out_convolution(const Operation&, const Values& arguments, Values& results) {
  const bool is_backward = results.size() == 3;
  const at::MemoryFormat layout = layout_of_convolution(arguments, is_backward);
  for (std::size_t r = 0; r < (is_backward ? 2 : 1); ++r) {
    const at::Tensor& x = results[r].toTensor();
    if (!x.defined()) continue;
    const at::TensorOptions options = x.options().memory_format(layout);
    const bool is_laid_out =
        at::empty(x.sizes(), options.device(at::kMeta)).strides() == x.strides();
    if (!is_laid_out) results[r] = at::empty(x.sizes(), options).copy_(x);
  }
}

void make_contiguous(const Operation& operation, const Values&, Values& results) {
  if (operation.schema().overload_name().empty()) results[2] = results[2].toTensor().contiguous();
}

void make_first_contiguous(const Operation&, const Values&, Values& results) {
  results[0] = results[0].toTensor().clone(at::MemoryFormat::Contiguous);
}

void lay_out(const Operation& operation, const Values& arguments, Values& results) {
  lay_out_transform(operation.schema(), arguments, results);
}

// Flash attention's results have the strides of the queries, and for the gradients those of queries,
// keys and values.
void lay_out_like(c10::IValue& result, const c10::IValue& argument) {
  const at::Tensor& x = result.toTensor();
  result = is_flash_attention ? with_strides_of(argument.toTensor(), x)
                              : by_position(argument.toTensor(), x);
}

void lay_out_attention(const Operation&, const Values& arguments, Values& results) {
  lay_out_like(results[0], arguments[0]);
  results[1] = results[1].toTensor().contiguous();
}

void lay_out_attention_backward(const Operation&, const Values& arguments, Values& results) {
  for (std::size_t i = 0; i < 3; ++i) lay_out_like(results[i], arguments[i + 1]);
}

template <Result (*result_of)(const Values& arguments)>
std::optional<Values> computed(const Operation& operation, const Values& arguments) {
  Result result = result_of(arguments);
  if (!result) return std::nullopt;
  if (const auto out = operation.returned[0]) {
    const at::Tensor target = arguments[*out].toTensor();
    if (target.sizes() != result->sizes()) target.resize_(result->sizes());
    result = target.copy_(*result);
  }
  return Values{*result};
}

constexpr CpuGap k_gaps[] = {
    {.name = "_addmm_activation", .compute = computed<product_with_gelu>},
    {.name = "_convolution", .adapt_results = lay_out_convolution},
    {.name = "_fft_*", .adapt_arguments = check_fft_operand, .adapt_results = lay_out},
    {.name = "_linalg_svd", .adapt_arguments = svd_by_any_driver, .adapt_results = make_contiguous},
    {.name = "_log_softmax", .adapt_arguments = softmax_to_float},
    {.name = "_log_softmax_backward_data",
     .compute = computed<softmax_backward_to_half<at::_log_softmax_backward_data>>},
    {.name = "_native_batch_norm_legit", .adapt_results = add_running_statistics},
    {.name = "_scaled_dot_product_flash_attention_for_cpu",
     .adapt_arguments = attend_in_float,
     .adapt_results = lay_out_attention},
    {.name = "_scaled_dot_product_flash_attention_for_cpu_backward",
     .adapt_arguments = attend_in_float,
     .adapt_results = lay_out_attention_backward},
    {.name = "_softmax", .adapt_arguments = softmax_to_float},
    {.name = "_softmax_backward_data",
     .compute = computed<softmax_backward_to_half<at::_softmax_backward_data>>},
    {.name = "add", .compute = computed<sum_of_sparse>},
    {.name = "add_", .compute = computed<sum_of_sparse>},
    {.name = "cholesky_inverse", .compute = computed<inverse_of_singular>},
    {.name = "clamp_", .adapt_arguments = clamp_in_own_dtype},
    {.name = "convolution_backward", .adapt_results = lay_out_convolution},
    {.name = "eye", .compute = computed<identity>},
    {.name = "histc", .compute = computed<histogram_of_integers>},
    {.name = "isin", .compute = computed<complex_among>, .adapt_arguments = check_sorted},
    {.name = "linalg_lstsq", .adapt_arguments = least_squares_by_gels},
    {.name = "linalg_lu", .compute = lu_without_pivoting},
    {.name = "linalg_lu_factor_ex", .compute = lu_without_pivoting},
    {.name = "linspace", .compute = computed<integers_between>},
    {.name = "_logcumsumexp", .compute = computed<log_of_one>},
    {.name = "max_unpool*", .compute = computed<unpooled_integers>},
    {.name = "mul", .adapt_arguments = put_number_last},
    {.name = "nansum", .compute = computed<sum_of_numbers>},
    {.name = "native_batch_norm", .adapt_results = add_running_statistics},
    {.name = "round", .compute = computed<rounded_to_decimals>},
    {.name = "triangular_solve", .compute = solve_by_dense_triangle},
    {.name = "tril_indices", .compute = computed<no_places>},
    {.name = "triu_indices", .compute = computed<no_places>},
    {.name = "unique_consecutive", .adapt_results = make_first_contiguous},
    {.name = "unique_dim_consecutive", .adapt_results = make_first_contiguous},
};

}  // namespace

const CpuGap* find_gap(const c10::FunctionSchema& schema) {
  std::string_view name = schema.name();
  constexpr std::string_view k_start = "aten::";
  if (!name.starts_with(k_start)) return nullptr;
  name.remove_prefix(k_start.size());
  const auto* const found = std::ranges::find_if(k_gaps, [&](const CpuGap& gap) {
    return gap.name.ends_with('*') ? name.starts_with(gap.name.substr(0, gap.name.size() - 1))
                                   : name == gap.name;
  });
  return found == std::end(k_gaps) ? nullptr : found;
}

}  // namespace simulate_gpus
