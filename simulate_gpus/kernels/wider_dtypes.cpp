// SPDX-License-Identifier: MIT
#include "kernels/wider_dtypes.hpp"

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

bool has_statistics(std::string_view name) {
  return name == "native_layer_norm" || name == "_batch_norm_with_update" ||
         name.starts_with("_native_batch_norm") || name == "native_batch_norm";
}

}  // namespace simulate_gpus
