// SPDX-License-Identifier: MIT
#include "kernels/wider_dtypes.hpp"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <array>

namespace simulate_gpus {
namespace {

// Operations that CUDA has for a dtype that the CPU lacks, where no rehearsal tells: of sparse tensors, of NVIDIA's libraries, and
// random ones in a capture.
const std::set<std::string_view> k_of_float16 = {"_fft_c2c",
                                                 "_fft_c2r",
                                                 "_fft_r2c",
                                                 "_sparse_sparse_matmul",
                                                 "add",
                                                 "addmm",
                                                 "addmv",
                                                 "mm",
                                                 "sparse_sampled_addmm",
                                                 "_standard_gamma",
                                                 "_standard_gamma_grad",
                                                 "binomial",
                                                 "rrelu_with_noise",
                                                 "rrelu_with_noise_backward"};
const std::set<std::string_view> k_of_complex32 = {
    "_fft_c2c", "_fft_c2r",      "acos",
    "acosh",    "angle",         "asin",
    "asinh",    "atan",          "atanh",
    "cos",      "cosh",          "div",
    "equal",    "exp",           "ldexp",
    "lerp",     "log",           "logaddexp",
    "nansum",   "pow",           "prod",
    "rsqrt",    "sigmoid",       "sigmoid_backward",
    "sin",      "sinh",          "sparse_sampled_addmm",
    "sqrt",     "sum",           "tan",
    "tanh",     "tanh_backward", "trace"};
const std::set<std::string_view> k_of_bool = {"_foreach_abs", "abs", "trace"};

// Operations that only move values: of any dtype of the same size.
const std::set<std::string_view> k_moving = {"channel_shuffle", "flip", "gather", "index_select",
                                             "scatter"};

// Operations whose CUDA kernels compute in float32 and round once, and the CPU's in 16 bits.
const std::set<std::string_view> k_rounded_once = {"_adaptive_avg_pool3d",
                                                   "_adaptive_avg_pool3d_backward",
                                                   "_batch_norm_with_update",
                                                   "_embedding_bag_dense_backward",
                                                   "_log_softmax",
                                                   "_native_batch_norm_legit",
                                                   "_native_batch_norm_legit_no_training",
                                                   "batch_norm_backward",
                                                   "digamma",
                                                   "embedding_dense_backward",
                                                   "grid_sampler_2d",
                                                   "grid_sampler_2d_backward",
                                                   "grid_sampler_3d",
                                                   "grid_sampler_3d_backward",
                                                   "logit",
                                                   "logit_backward",
                                                   "native_batch_norm",
                                                   "native_batch_norm_backward",
                                                   "native_layer_norm",
                                                   "native_layer_norm_backward",
                                                   "nll_loss_forward",
                                                   "polygamma",
                                                   "prod",
                                                   "rsqrt",
                                                   "special_i0e",
                                                   "special_xlog1py",
                                                   "upsample_bicubic2d",
                                                   "upsample_linear1d",
                                                   "upsample_trilinear3d",
                                                   "upsample_trilinear3d_backward",
                                                   "xlogy"};

// Products, which the CPU computes slowly in 16 bits where it has no instructions for them.
const std::set<std::string_view> k_products = {"_addmm_activation",
                                               "_convolution",
                                               "addbmm",
                                               "addmm",
                                               "baddbmm",
                                               "bmm",
                                               "convolution",
                                               "convolution_backward",
                                               "convolution_overrideable",
                                               "mm"};

// Operations with numbers, which the CPU rounds before it computes, and CUDA takes in float32.
const std::set<std::string_view> k_with_numbers = {"_foreach_add", "_foreach_div", "_foreach_mul",
                                                   "_foreach_pow", "_foreach_sub", "add",
                                                   "addmv",        "rsub",         "sub"};

bool has_products_of(at::ScalarType dtype) {
  const auto ask = [](const char* name) {
    return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<bool()>().call();
  };
  static const bool has_float16 = ask("mkldnn::_is_mkldnn_fp16_supported");
  static const bool has_bfloat16 = ask("mkldnn::_is_mkldnn_bf16_supported");
  return dtype == at::kHalf ? has_float16 : has_bfloat16;
}

// A vector by the columns of a matrix, each in a row of memory: the CPU is fast at it, and conversion would take longer.
bool is_by_columns(const c10::FunctionSchema& schema, const Values& arguments) {
  std::vector<at::Tensor> matrices;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].isTensor() || schema.arguments()[i].is_out()) continue;
    const at::Tensor& x = arguments[i].toTensor();
    if (!x.defined()) continue;
    if (x.layout() == at::kStrided && x.dim() == 2) matrices.push_back(x);
  }
  if (matrices.size() < 2) return false;
  const at::Tensor &right = matrices.back(), &left = matrices[matrices.size() - 2];
  return (left.size(0) == 1 && right.stride(0) == 1) || (right.size(1) == 1 && left.stride(1) == 1);
}

bool holds(at::ScalarType dtype, double number) {
  const auto x = static_cast<float>(number);
  return x == (dtype == at::kHalf ? float{c10::Half(x)} : float{c10::BFloat16(x)});
}

// Numbers that the dtype cannot hold: alone, in a list, or as a tensor without dimensions.
bool has_finer_number(const c10::IValue& argument, at::ScalarType dtype) {
  if (argument.isDouble()) return !holds(dtype, argument.toDouble());
  if (argument.isInt()) return !holds(dtype, static_cast<double>(argument.toInt()));
  if (argument.isTensor()) {
    const at::Tensor& x = argument.toTensor();
    return x.defined() && x.dim() == 0 && x.is_floating_point() && x.scalar_type() != dtype &&
           !holds(dtype, x.item<double>());
  }
  return argument.isList() && !argument.isTensorList() &&
         std::ranges::any_of(argument.toListRef(), [&](const c10::IValue& element) {
           return has_finer_number(element, dtype);
         });
}

bool is_statistic(const c10::Argument& argument) {
  const std::string& name = argument.name();
  return name == "mean" || name == "rstd" || name.starts_with("save_") ||
         name.starts_with("running_");
}

// Operations that do not ask how large a number is: those of 64 bits may as well have a sign.
const std::set<std::string_view> k_of_bits = {"_index_put_impl",
                                              "count_nonzero",
                                              "isin",
                                              "reflection_pad1d",
                                              "reflection_pad2d",
                                              "reflection_pad3d",
                                              "replication_pad1d",
                                              "replication_pad2d",
                                              "replication_pad3d",
                                              "trace"};

// What writes a number, or adds, needs values; those of an integer are its bits, with a sign or without.
bool is_more_than_move(const c10::FunctionSchema& schema) {
  return schema.argumentIndexWithName("value") || schema.argumentIndexWithName("reduce");
}

constexpr std::array k_wider = {WiderDtype{at::kHalf, at::kFloat, &k_of_float16},
                                WiderDtype{at::kBFloat16, at::kFloat, &k_of_float16},
                                WiderDtype{at::kComplexHalf, at::kComplexFloat, &k_of_complex32},
                                WiderDtype{at::kBool, at::kByte, &k_of_bool},
                                WiderDtype{at::kUInt16, at::kInt, nullptr},
                                WiderDtype{at::kUInt32, at::kLong, nullptr},
                                WiderDtype{at::kUInt64, at::kLong, nullptr},
                                WiderDtype{at::kFloat8_e4m3fn, at::kFloat, nullptr},
                                WiderDtype{at::kFloat8_e5m2, at::kFloat, nullptr},
                                WiderDtype{at::kFloat8_e4m3fnuz, at::kFloat, nullptr},
                                WiderDtype{at::kFloat8_e5m2fnuz, at::kFloat, nullptr},
                                WiderDtype{at::kFloat8_e8m0fnu, at::kFloat, nullptr},
                                WiderDtype{at::kComplexHalf, at::kInt, &k_moving, true},
                                WiderDtype{at::kUInt16, at::kShort, &k_moving, true},
                                WiderDtype{at::kUInt32, at::kInt, &k_moving, true},
                                WiderDtype{at::kUInt64, at::kLong, &k_moving, true},
                                WiderDtype{at::kFloat8_e4m3fn, at::kChar, &k_moving, true},
                                WiderDtype{at::kFloat8_e5m2, at::kChar, &k_moving, true},
                                WiderDtype{at::kFloat8_e4m3fnuz, at::kChar, &k_moving, true},
                                WiderDtype{at::kFloat8_e5m2fnuz, at::kChar, &k_moving, true},
                                WiderDtype{at::kFloat8_e8m0fnu, at::kChar, &k_moving, true}};

at::Tensor as(const at::Tensor& x, at::ScalarType dtype, bool is_view) {
  return is_view ? x.view(dtype) : x.to(dtype);
}

// Null if there is none of the tensor's dtype.
const WiderDtype* find(const std::vector<WiderDtype>& used, const at::Tensor& x,
                       at::ScalarType WiderDtype::*dtype) {
  if (!x.defined()) return nullptr;
  const auto found = std::ranges::find(used, x.scalar_type(), dtype);
  return found == used.end() ? nullptr : &*found;
}

}  // namespace

Widening::Widening(const c10::FunctionSchema& schema, const Values& arguments, bool is_any) {
  std::set<at::ScalarType> dtypes;
  bool has_complex_number = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& argument = arguments[i];
    if (is_any && schema.arguments()[i].is_out()) continue;  // written in its own dtype
    if (schema.arguments()[i].name() == "dtype" && argument.isInt())
      dtypes.insert(argument.toScalarType());
    has_complex_number |= argument.isComplexDouble();
    for_each_tensor(argument, [&](const at::Tensor& x) {
      if (!x.defined()) return;
      dtypes.insert(x.scalar_type());
      has_complex_number |= x.dim() == 0 && x.is_complex();
    });
  }
  // Of float16 and a complex number the result is complex32.
  if (has_complex_number && dtypes.contains(at::kHalf)) dtypes.insert(at::kComplexHalf);
  for (const WiderDtype& each : k_wider) {
    if (!dtypes.contains(each.narrow)) continue;
    const std::string_view name = base_name(schema);
    const bool is_known = each.operations != nullptr && each.operations->contains(name);
    if (!is_known && (!is_any || each.is_view)) continue;
    if (each.narrow == at::kUInt64 && !each.is_view && !k_of_bits.contains(name)) continue;
    const bool is_integer = at::isIntegralType(each.narrow, /*includeBool=*/false);
    if (each.is_view && !is_integer && is_more_than_move(schema)) continue;
    // A float32 result of float16 and float32 could be meant to be either; so could one of both 16-bit dtypes.
    is_certain_ &= is_any || each.is_view || !dtypes.contains(each.wide);
    is_certain_ &= is_any || !dtypes.contains(at::kHalf) || !dtypes.contains(at::kBFloat16);
    used_.push_back(each);
    if (each.is_view) continue;
    // Complex numbers have real parts, and transforms of real numbers are complex.
    if (each.narrow == at::kHalf) used_.push_back(k_wider[2]);
    if (each.narrow == at::kComplexHalf) used_.push_back(k_wider[0]);
  }
}

std::optional<Widening> Widening::to_float32(const c10::FunctionSchema& schema,
                                             const Values& arguments) {
  // The common case, told by the first operand alone: this is on the path of every such operation.
  if (arguments[0].isTensor() && arguments[0].toTensor().defined()) {
    const at::Tensor& x = arguments[0].toTensor();
    if (x.dim() > 0 && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble))
      return std::nullopt;
  }
  const auto is_number = [](const at::Tensor& x) {
    return x.unsafeGetTensorImpl()->is_wrapped_number();
  };
  at::Tensor first;  // in 16 bits
  for (std::size_t i = 0; i < arguments.size() && !first.defined(); ++i) {
    for_each_tensor(arguments[i], [&](const at::Tensor& x) {
      if (!x.defined() || first.defined() || is_number(x)) return;
      if (x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16) first = x;
    });
  }
  if (!first.defined()) return std::nullopt;
  const at::ScalarType dtype = first.scalar_type();
  bool is_mixed = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (is_statistic(argument)) continue;
    if (argument.name() == "dtype" && !arguments[i].isNone()) return std::nullopt;
    for_each_tensor(arguments[i], [&](const at::Tensor& x) {
      if (!x.defined() || x.scalar_type() == dtype) return;
      const bool promotes = x.dim() > 0 || (first.dim() == 0 && !is_number(x));
      // Each element of a list has a result of its own dtype.
      is_mixed |=
          x.is_complex() || arguments[i].isTensorList() || (x.is_floating_point() && promotes);
    });
  }
  if (is_mixed) return std::nullopt;
  const std::string_view name = base_name(schema);
  if (k_products.contains(name) && (has_products_of(dtype) || is_by_columns(schema, arguments)))
    return std::nullopt;
  const auto is_finer = [&](const c10::IValue& x) { return has_finer_number(x, dtype); };
  if (k_with_numbers.contains(name) && std::ranges::none_of(arguments, is_finer))
    return std::nullopt;
  Widening widening;
  widening.used_ = {{dtype, at::kFloat, nullptr}};
  return widening;
}

at::Tensor Widening::widened(const at::Tensor& x) const {
  const WiderDtype* const found = find(used_, x, &WiderDtype::narrow);
  return found != nullptr ? as(x, found->wide, found->is_view) : x;
}

c10::IValue Widening::widened_dtype(const c10::IValue& dtype) const {
  if (!dtype.isInt()) return dtype;
  const auto found = std::ranges::find(used_, dtype.toScalarType(), &WiderDtype::narrow);
  return found == used_.end() ? dtype : c10::IValue(found->wide);
}

at::Tensor Widening::narrowed(const at::Tensor& x) const {
  const WiderDtype* const found = find(used_, x, &WiderDtype::wide);
  return found != nullptr ? as(x, found->narrow, found->is_view) : x;
}

bool is_computed_in_float32(const c10::FunctionSchema& schema) {
  const std::string_view name = base_name(schema);
  return k_rounded_once.contains(name) || k_products.contains(name) ||
         k_with_numbers.contains(name);
}

bool has_statistics(std::string_view name) {
  return name == "native_layer_norm" || name == "_batch_norm_with_update" ||
         name.starts_with("_native_batch_norm") || name == "native_batch_norm";
}

}  // namespace simulate_gpus
