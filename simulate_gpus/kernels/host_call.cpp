// SPDX-License-Identifier: MIT
#include "kernels/host_call.hpp"

#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "kernels/cpu_gaps.hpp"
#include "kernels/host_tensors.hpp"
#include "kernels/wider_dtypes.hpp"

namespace simulate_gpus {
namespace {

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

// A call that failed may have changed a part of them.
void clear_sparse_outputs(const c10::FunctionSchema& schema, const Values& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!schema.arguments()[i].is_out() || !arguments[i].isTensor()) continue;
    const at::Tensor& x = arguments[i].toTensor();
    if (x.is_sparse()) x.sparse_resize_and_clear_(x.sizes(), x.sparse_dim(), x.dense_dim());
  }
}

// The results in the dtypes that are wanted, or else in the narrower ones.
Values call_widened(const Operation& operation, const Values& arguments, const Widening& widening,
                    const Dtypes& wanted = {}) {
  clear_sparse_outputs(operation.schema(), arguments);
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

// In a wider dtype where it is no less exact or faster, where the caller wants it, or where the CPU has no other.
Values call_in_some_dtype(const Operation& operation, const Values& arguments,
                          const Dtypes& wanted) {
  if (operation.is_in_float32) {
    if (const auto widening = Widening::to_float32(operation.schema(), arguments))
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
