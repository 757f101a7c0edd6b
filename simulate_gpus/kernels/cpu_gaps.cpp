// SPDX-License-Identifier: MIT
#include "kernels/cpu_gaps.hpp"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/version.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "kernels/computed_gaps.hpp"
#include "kernels/convolutions.hpp"
#include "kernels/linear_algebra.hpp"
#include "kernels/operation.hpp"
#include "kernels/transforms.hpp"

namespace simulate_gpus {
namespace {

// CUDA's softmax reads float16 and writes float32 in one kernel, and its backward pass the reverse.
void softmax_to_float(Values& arguments) {
  if (!arguments[2].toBool()) return;
  TORCH_CHECK(arguments[0].toTensor().scalar_type() == at::kHalf,
              "conversion is supported for Half type only");
  arguments[0] = arguments[0].toTensor().to(at::kFloat);
  arguments[2] = false;
}

template <auto of_float>
Computed softmax_backward_to_half(const Values& arguments) {
  const at::Tensor& grad = arguments[0].toTensor();
  if (grad.scalar_type() != at::kFloat || arguments[3].toScalarType() != at::kHalf)
    return std::nullopt;
  return of_float(grad, arguments[1].toTensor(), arguments[2].toInt(), at::kFloat).to(at::kHalf);
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

template <Computed (*result_of)(const Values& arguments)>
std::optional<Values> computed(const Operation& operation, const Values& arguments) {
  Computed result = result_of(arguments);
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
    {.name = "add", .compute = computed<sum_of_sparse>, .is_of_sparse = true},
    {.name = "add_", .compute = computed<sum_of_sparse>, .is_of_sparse = true},
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
