// SPDX-License-Identifier: MIT
#include "kernels/host_call.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "kernels/cpu_gaps.hpp"
#include "kernels/host_tensors.hpp"

namespace simulate_gpus {
namespace {

// Operations that CUDA has for a dtype that the CPU lacks, where no rehearsal tells: of sparse tensors, of NVIDIA's libraries, and
// random ones in a capture.
const std::set<std::string_view> k_of_float16 = {"_fft_c2c",
                                                 "_fft_c2r",
                                                 "_fft_r2c",
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
const std::set<std::string_view> k_of_complex32 = {"_fft_c2c",
                                                   "_fft_c2r",
                                                   "acos",
                                                   "acosh",
                                                   "angle",
                                                   "asin",
                                                   "asinh",
                                                   "atan",
                                                   "atanh",
                                                   "cos",
                                                   "cosh",
                                                   "div",
                                                   "equal",
                                                   "exp",
                                                   "lerp",
                                                   "log",
                                                   "logaddexp",
                                                   "nansum",
                                                   "pow",
                                                   "prod",
                                                   "rsqrt",
                                                   "sigmoid",
                                                   "sigmoid_backward",
                                                   "sin",
                                                   "sinh",
                                                   "sqrt",
                                                   "sum",
                                                   "tan",
                                                   "tanh",
                                                   "tanh_backward",
                                                   "trace"};
const std::set<std::string_view> k_of_bool = {"abs", "trace"};

// Operations that only move values: of any dtype of the same size.
const std::set<std::string_view> k_moving = {"flip", "gather", "index_select", "scatter"};

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
                                                   "upsample_trilinear3d",
                                                   "upsample_trilinear3d_backward",
                                                   "xlogy"};

// Their results after the first, which CUDA keeps in float32.
bool has_statistics(std::string_view name) {
  return name == "native_layer_norm" || name == "_batch_norm_with_update" ||
         name.starts_with("_native_batch_norm") || name == "native_batch_norm";
}

bool is_statistic(const c10::Argument& argument) {
  const std::string& name = argument.name();
  return name == "mean" || name == "rstd" || name.starts_with("save_") ||
         name.starts_with("running_");
}

// Operations that do not ask how large a number is: those of 64 bits may as well have a sign.
const std::set<std::string_view> k_of_bits = {"count_nonzero",
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

struct Wider {
  at::ScalarType narrow, wide;
  const std::set<std::string_view>* operations;  // null: where no operation is known
  bool is_view = false;
};
constexpr std::array k_wider = {Wider{at::kHalf, at::kFloat, &k_of_float16},
                                Wider{at::kBFloat16, at::kFloat, &k_of_float16},
                                Wider{at::kComplexHalf, at::kComplexFloat, &k_of_complex32},
                                Wider{at::kBool, at::kByte, &k_of_bool},
                                Wider{at::kUInt16, at::kInt, nullptr},
                                Wider{at::kUInt32, at::kLong, nullptr},
                                Wider{at::kUInt64, at::kLong, nullptr},
                                Wider{at::kFloat8_e4m3fn, at::kFloat, nullptr},
                                Wider{at::kFloat8_e5m2, at::kFloat, nullptr},
                                Wider{at::kFloat8_e4m3fnuz, at::kFloat, nullptr},
                                Wider{at::kFloat8_e5m2fnuz, at::kFloat, nullptr},
                                Wider{at::kFloat8_e8m0fnu, at::kFloat, nullptr},
                                Wider{at::kComplexHalf, at::kInt, &k_moving, true},
                                Wider{at::kUInt16, at::kShort, &k_moving, true},
                                Wider{at::kUInt32, at::kInt, &k_moving, true},
                                Wider{at::kUInt64, at::kLong, &k_moving, true},
                                Wider{at::kFloat8_e4m3fn, at::kChar, &k_moving, true},
                                Wider{at::kFloat8_e5m2, at::kChar, &k_moving, true},
                                Wider{at::kFloat8_e4m3fnuz, at::kChar, &k_moving, true},
                                Wider{at::kFloat8_e5m2fnuz, at::kChar, &k_moving, true},
                                Wider{at::kFloat8_e8m0fnu, at::kChar, &k_moving, true}};

// From and to the dtypes that a call's tensors have.
class Widening {
 public:
  // Of the operations in the sets; or of any, whose results' dtypes are known.
  Widening(const c10::FunctionSchema& schema, const Values& arguments, bool is_any) {
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
    for (const Wider& each : k_wider) {
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

  // One that is computed in float32 even though the CPU has it in 16 bits.
  static std::optional<Widening> of_rounded_once(const c10::FunctionSchema& schema,
                                                 const Values& arguments) {
    std::set<at::ScalarType> dtypes;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (is_statistic(schema.arguments()[i])) continue;
      if (schema.arguments()[i].name() == "dtype" && !arguments[i].isNone()) return std::nullopt;
      for_each_tensor(arguments[i], [&](const at::Tensor& x) {
        if (x.defined() && x.is_floating_point()) dtypes.insert(x.scalar_type());
      });
    }
    if (dtypes.size() != 1) return std::nullopt;
    Widening widening;
    for (const Wider& each : {k_wider[0], k_wider[1]})
      if (dtypes.contains(each.narrow)) widening.used_.push_back(each);
    return widening.used_.empty() ? std::nullopt : std::optional(widening);
  }

  [[nodiscard]] bool is_possible() const { return !used_.empty() && is_certain_; }

  [[nodiscard]] at::Tensor widened(const at::Tensor& x) const {
    const auto* const found = find(x, &Wider::narrow);
    return found ? as(x, found->wide, *found) : x;
  }

  // Of the dtype that the results are to have.
  [[nodiscard]] c10::IValue widened_dtype(const c10::IValue& dtype) const {
    if (!dtype.isInt()) return dtype;
    const auto found = std::ranges::find(used_, dtype.toScalarType(), &Wider::narrow);
    return found == used_.end() ? dtype : c10::IValue(found->wide);
  }

  [[nodiscard]] at::Tensor narrowed(const at::Tensor& x) const {
    const auto* const found = find(x, &Wider::wide);
    return found ? as(x, found->narrow, *found) : x;
  }

 private:
  Widening() = default;

  static at::Tensor as(const at::Tensor& x, at::ScalarType dtype, const Wider& way) {
    return way.is_view ? x.view(dtype) : x.to(dtype);
  }

  [[nodiscard]] const Wider* find(const at::Tensor& x, at::ScalarType Wider::*dtype) const {
    if (!x.defined()) return nullptr;
    const auto found = std::ranges::find(used_, x.scalar_type(), dtype);
    return found == used_.end() ? nullptr : &*found;
  }

  std::vector<Wider> used_;
  bool is_certain_ = true;
};

Values call_kernel(const Operation& operation, Values stack) {
  operation.host.redispatchBoxed(c10::DispatchKeySet(operation.host_key), &stack);
  return stack;
}

// The arguments in the wider dtypes.
Values widened(const c10::FunctionSchema& schema, const Values& arguments,
               const Widening& widening) {
  Values wide;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto widen = [&](const at::Tensor& x) { return widening.widened(x); };
    wide.push_back(schema.arguments()[i].name() == "dtype" ? widening.widened_dtype(arguments[i])
                                                           : with_tensors(arguments[i], widen));
  }
  return wide;
}

// The results in the dtypes that are wanted, or else in the narrower ones.
Values call_widened(const Operation& operation, const Values& arguments, const Widening& widening,
                    const Dtypes& wanted = {}) {
  const Values wide = widened(operation.schema(), arguments, widening);
  Values results = call_kernel(operation, wide);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!operation.writes[i]) continue;
    for_each_pair(arguments[i], wide[i],
                  [&](const at::Tensor& original, const at::Tensor& written) {
                    if (original.is_same(written)) return;
                    resize_like(original, written);
                    original.copy_(wanted.empty() ? widening.narrowed(written) : written);
                  });
  }
  const bool has_others = has_statistics(base_name(operation.schema()));
  std::size_t next = 0;
  const auto narrowed = [&](const at::Tensor& x) {
    if (wanted.empty()) return widening.narrowed(x);
    const at::ScalarType dtype = wanted[next++];
    return x.defined() ? x.to(dtype) : x;
  };
  for (std::size_t r = 0; r < results.size(); ++r) {
    if (const auto argument = operation.returned[r]) {
      results[r] = arguments[*argument];
      for_each_tensor(results[r], [&](const at::Tensor&) { ++next; });
    } else if (r == 0 || !has_others || !wanted.empty()) {
      results[r] = with_tensors(results[r], narrowed);
    }
  }
  return results;
}

// In a wider dtype where CUDA's kernel rounds once, where the caller wants it, or where the CPU has no other.
Values call_in_some_dtype(const Operation& operation, const Values& arguments,
                          const Dtypes& wanted) {
  if (operation.is_rounded_once) {
    if (const auto widening = Widening::of_rounded_once(operation.schema(), arguments))
      return call_widened(operation, arguments, *widening);
  }
  if (!wanted.empty()) {
    const Widening widening(operation.schema(), arguments, /*is_any=*/true);
    if (widening.is_possible()) return call_widened(operation, arguments, widening, wanted);
  }
  try {
    return call_kernel(operation, arguments);
  } catch (const c10::Error&) {
    const Widening widening(operation.schema(), arguments, /*is_any=*/false);
    if (!widening.is_possible()) throw;
    return call_widened(operation, arguments, widening);
  }
}

}  // namespace

bool rounds_once(const c10::FunctionSchema& schema) {
  return k_rounded_once.contains(base_name(schema));
}

Values call_on_host(const Operation& operation, const Values& arguments, const Dtypes& wanted) {
  const CpuGap* const gap = operation.gap;
  if (gap != nullptr && gap->compute != nullptr) {
    if (auto results = gap->compute(operation, arguments)) return *std::move(results);
  }
  if (gap == nullptr || (gap->adapt_arguments == nullptr && gap->adapt_results == nullptr))
    return call_in_some_dtype(operation, arguments, wanted);
  Values adapted = arguments;
  if (gap->adapt_arguments != nullptr) gap->adapt_arguments(adapted);
  Values results = call_in_some_dtype(operation, adapted, wanted);
  if (gap->adapt_results != nullptr) gap->adapt_results(operation, arguments, results);
  return results;
}

}  // namespace simulate_gpus
