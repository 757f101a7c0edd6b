// SPDX-License-Identifier: MIT
#include "kernels/host_call.hpp"

#include <ATen/ATen.h>

#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include "kernels/cpu_gaps.hpp"
#include "kernels/float32_operations.hpp"
#include "kernels/host_tensors.hpp"
#include "kernels/random.hpp"
#include "kernels/rehearsal.hpp"
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
    if (const auto dtype = dtype_to_widen(operation.schema(), arguments))
      return call_widened(operation, arguments, Widening(*dtype, at::kFloat));
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

// Whether nothing is drawn: the operation fills an empty tensor, or makes one.
bool draws_nothing(const Values& arguments) {
  const c10::IValue& first = arguments[0];
  return first.isTensor() ? first.toTensor().numel() == 0 : first.isInt() && first.toInt() == 0;
}

// The call's results for numbers that every operation takes: 0 as an index, 1 as a probability. None
// where it refuses these too.
std::optional<Values> results_of_plain_numbers(HostCall call) {
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    if (call.operation->writes[i]) continue;
    call.arguments[i] = with_tensors(call.arguments[i], [](const at::Tensor& x) {
      if (!x.defined() || x.scalar_type() == at::kBool) return x;
      return at::isIntegralType(x.scalar_type(), false) ? at::zeros_like(x) : at::ones_like(x);
    });
  }
  try {
    return call();
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

// The rehearsed results where they have no elements, nor has what is written: then there is nothing to compute.
std::optional<Values> empty_results(const HostCall& call, const Values& rehearsed) {
  bool are_empty = !rehearsed.empty();
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    if (!call.operation->writes[i]) continue;
    for_each_tensor(call.arguments[i], [&](const at::Tensor& x) { are_empty &= x.numel() == 0; });
  }
  Values results;
  for (std::size_t r = 0; r < rehearsed.size(); ++r) {
    const auto argument = call.operation->returned[r];
    const auto made = [&](const at::Tensor& x) {
      are_empty &= x.defined() && x.layout() == at::kStrided && x.numel() == 0;
      if (!are_empty) return x;
      if (argument) are_empty &= call.arguments[*argument].toTensor().sizes() == x.sizes();
      return at::empty_strided(x.sizes(), x.strides(), x.options().device(at::kCPU));
    };
    results.push_back(with_tensors(rehearsed[r], made));
  }
  return are_empty ? std::optional(std::move(results)) : std::nullopt;
}

// In the handler of what the CPU has refused. A capture needs results for their shapes alone: the values of an index may be
// there only once the graph is launched. What the CPU refuses else a GPU may refuse too, with another text.
// What it computes in a wider dtype is what a GPU's kernel takes for certain, and what the failed call has not begun.
Values results_of_refused(HostCall& call, const Values& arguments, bool captured,
                          const c10::Error& error) {
  if (captured) {
    if (auto results = results_of_plain_numbers(call)) return *std::move(results);
  }
  if (call.operation->schema().name().starts_with(k_own_namespace)) throw;  // nothing is like it
  const Rehearsed rehearsed = rehearse(call.operation->handle, arguments);
  const std::string_view text = error.what_without_backtrace();
  const bool is_list_in_place =
      call.operation->is_of_lists && call.operation->schema().name().ends_with('_');
  if (rehearsed.how != Rehearsal::complete || is_list_in_place ||
      text.find("not implemented for '") == text.npos)
    throw;
  call.known = empty_results(call, rehearsed.results);
  if (call.known) return *call.known;
  for (const c10::IValue& result : rehearsed.results)
    for_each_tensor(result, [&](const at::Tensor& x) { call.wanted.push_back(x.scalar_type()); });
  const std::exception_ptr refusal = std::current_exception();
  try {
    return call();
  } catch (const c10::Error&) {  // of a dtype that the program does not know
    std::rethrow_exception(refusal);
  }
}

}  // namespace

Values HostCall::operator()() const {
  if (known) return *known;
  if (generators.empty()) return call_on_host(*operation, arguments, wanted);
  Values with_generators = arguments;
  for (const auto& [index, make] : generators) with_generators[index] = make();
  return call_on_host(*operation, with_generators, wanted);
}

void add_generators(HostCall& call, const Values& arguments, c10::Device device) {
  for (const std::size_t i : call.operation->generators) {
    if (draws_nothing(arguments)) {  // then any generator will do
      call.arguments[i] = c10::IValue();
      continue;
    }
    call.generators.emplace_back(
        i, take_turn(arguments[i].isGenerator() ? std::optional(arguments[i].toGenerator())
                                                : std::nullopt,
                     device));
  }
}

Values results_of(HostCall& call, const Values& arguments, bool captured) {
  try {
    return call();
  } catch (const c10::Error& error) {
    return results_of_refused(call, arguments, captured, error);
  }
}

}  // namespace simulate_gpus
