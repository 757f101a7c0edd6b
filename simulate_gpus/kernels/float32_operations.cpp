// SPDX-License-Identifier: MIT
#include "kernels/float32_operations.hpp"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace simulate_gpus {
namespace {

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

}  // namespace

bool is_computed_in_float32(const c10::FunctionSchema& schema) {
  const std::string_view name = base_name(schema);
  return k_rounded_once.contains(name) || k_products.contains(name) ||
         k_with_numbers.contains(name);
}

std::optional<at::ScalarType> dtype_to_widen(const c10::FunctionSchema& schema,
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
  return dtype;
}

}  // namespace simulate_gpus
