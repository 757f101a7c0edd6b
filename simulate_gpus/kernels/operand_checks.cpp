// SPDX-License-Identifier: MIT
#include "kernels/operand_checks.hpp"

#include <ATen/ATen.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <c10/util/hash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/linear_algebra.hpp"
#include "kernels/rehearsal.hpp"

namespace simulate_gpus {
namespace {

// Operands that are elsewhere, and whether all are single values on the host, which many kernels take.
// The form tells which they are; it is 0 where there are none.
struct Strays {
  std::size_t form = 0;
  bool are_values = true;
};

Strays find_strays(const Values& arguments, c10::Device device) {
  Strays strays;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      if (!tensor.defined() || tensor.device() == device) return;
      const bool is_value = tensor.is_cpu() && tensor.dim() == 0;
      // What the program wrote as a number is one, whatever takes it.
      if (is_value && tensor.unsafeGetTensorImpl()->is_wrapped_number()) return;
      strays.are_values &= is_value;
      strays.form = c10::get_hash(strays.form, i, device, tensor.device(), tensor.dim() == 0);
    });
  }
  return strays;
}

// What chooses one of an operation's kernels, and whether it has anything to do: dtypes, names, flags, small numbers,
// dimensions. With float8 also the numbers, of which few can be held, and the layout: it has not all kernels.
std::uint64_t form_of(const Values& arguments) {
  std::uint64_t form = 14695981039346656037U;  // FNV-1a
  const auto add = [&](std::uint64_t value) { form = (form ^ value) * 1099511628211U; };
  const auto add_small = [&](std::int64_t number) {
    add(static_cast<std::uint64_t>(std::clamp<std::int64_t>(number, -1, 2)));
  };
  bool has_float8 = false;
  for (const c10::IValue& argument : arguments) {
    add(static_cast<std::uint64_t>(argument.isNone()));
    if (argument.isBool()) add_small(argument.toBool() ? 1 : 0);
    if (argument.isInt()) add_small(argument.toInt());
    if (argument.isString()) add(std::hash<std::string>()(argument.toStringRef()));
    if (argument.isIntList())
      for (const std::int64_t number : argument.toIntList()) add_small(number);
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      add(static_cast<std::uint64_t>(tensor.scalar_type()));
      add(static_cast<std::uint64_t>(tensor.layout()));
      add(static_cast<std::uint64_t>(tensor.dim()));
      add_small(tensor.numel());
      if (!c10::isFloat8Type(tensor.scalar_type())) return;
      has_float8 = true;
      if (!is_strided(tensor)) return;
      const at::MemoryFormat format = tensor.suggest_memory_format();
      add(static_cast<std::uint64_t>(format));
      add(static_cast<std::uint64_t>(tensor.is_contiguous(format)));
    });
  }
  for (const c10::IValue& argument : arguments)
    if (has_float8 && argument.isScalar())
      add(std::bit_cast<std::uint64_t>(argument.toScalar().toDouble()));
  return form;
}

bool are_dense(const Values& arguments) {
  bool are_dense = true;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      are_dense &= !tensor.defined() || is_strided(tensor);
    });
  }
  return are_dense;
}

// LibTorch's masked_select reads back how much it selects, before it comes to the kernel that it shares with index.
void ask_of_selection(const at::Tensor& x) {
  static const auto index = c10::Dispatcher::singleton().findSchemaOrThrow("aten::index", "Tensor");
  const at::Tensor nowhere = at::empty({0}, x.options().dtype(at::kLong));  // takes no memory
  const c10::List<std::optional<at::Tensor>> indices{nowhere};
  rehearse_once(index, {x.unsqueeze(0), indices}, static_cast<std::uint64_t>(x.scalar_type()));
}

void ask(const Operation& operation, const Values& arguments) {
  if (operation.is_selection) ask_of_selection(arguments[0].toTensor());
  if (operation.is_bound_to_sizes) {
    rehearse(operation.handle, arguments);
  } else {
    rehearse_once(operation.handle, arguments, form_of(arguments));
  }
}

at::Tensor values_of(const at::Tensor& x) {
  if (x.is_sparse()) return x._values();
  return at::sparse_csr::is_sparse_compressed(x) ? x.values() : x;
}

// Of what LibTorch's kernel refuses only the dtype counts, and what it asserts.
void ask_for_dtypes(const Operation& operation, const Values& arguments, std::uint64_t form) {
  try {
    rehearse_once(operation.handle, arguments, form);
  } catch (const c10::Error& error) {
    const std::string_view text = error.what_without_backtrace();
    for (const std::string_view kind :
         {"\" not implemented for '", "INTERNAL ASSERT FAILED", "invalid value when calling"})
      if (text.find(kind) != text.npos) throw;
  }
}

// Of an operand that is sparse LibTorch's kernels give the values to the dense ones.
void ask_of_values(const Operation& operation, const Values& arguments) {
  if (operation.schema().arguments().back().is_out()) return;  // whose layout they look at first
  Values values;
  std::size_t operands = 0;
  for (const c10::IValue& argument : arguments) {
    values.push_back(with_tensors(argument, values_of));
    for_each_tensor(argument, [&](const at::Tensor& x) {
      const bool is_empty = x.is_sparse() && x._nnz() == 0;  // of which they do not ask
      operands += x.dim() > 0 && !is_empty ? 1 : 0;
    });
  }
  if (operands == 1) ask_for_dtypes(operation, values, form_of(values));
}

// LibTorch's products of compressed operands: what they take depends on whether blocks have one element.
void ask_of_compressed(const Operation& operation, const Values& arguments) {
  constexpr std::array<std::string_view, 7> k_products = {
      "addmm", "addmv", "baddbmm", "bmm", "mm", "mv", "sparse_sampled_addmm"};
  if (std::ranges::count(k_products, base_name(operation.schema())) == 0) return;
  bool has_compressed = false;
  std::size_t form = form_of(arguments);
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& x) {
      if (!x.defined() || !at::sparse_csr::is_sparse_compressed(x)) return;
      has_compressed = true;
      form = c10::get_hash(form, x.values().dim(), x.values().size(-1) == 1);
    });
  }
  if (has_compressed) ask_for_dtypes(operation, arguments, form);
}

// LibTorch's products of coordinates by a dense matrix, whose kernels fail before they ask for the dtype: cuSPARSE is not there.
void check_sparse_product(const c10::FunctionSchema& schema, const Values& arguments) {
  const std::string_view name = base_name(schema);
  TORCH_CHECK(name != "sspaddmm", "NYI: CUDA sspaddmm is not implemented");
  const bool has_sparse_out =  // with which nothing is rehearsed
      schema.arguments().back().is_out() && arguments.back().toTensor().layout() == at::kSparseCsr;
  if (name == "sparse_sampled_addmm" && has_sparse_out) {
    const at::Tensor &left = arguments[1].toTensor(), &right = arguments[2].toTensor();
    const at::ScalarType dtype = left.scalar_type();
    const bool is_real_or_complex = at::isFloatingType(dtype) || at::isComplexType(dtype);
    TORCH_CHECK_NOT_IMPLEMENTED(
        !is_real_or_complex || is_of_linear_algebra(dtype) || left.numel() * right.numel() == 0,
        "\"sampled_addmm_out_sparse_csr\" not implemented for '", c10::toString(dtype), "'");
  }
  const bool is_batch = name == "bmm";
  if (!is_batch && name != "mm" && name != "mv" && name != "addmm" && name != "hspmm") return;
  std::vector<at::Tensor> factors;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool is_factor =
        arguments[i].isTensor() && !schema.arguments()[i].is_out() && !(name == "addmm" && i == 0);
    if (is_factor) factors.push_back(arguments[i].toTensor());
  }
  if (factors.size() != 2) return;
  const bool is_first = factors[0].is_sparse();
  const at::Tensor &sparse = factors[is_first ? 0 : 1], &dense = factors[is_first ? 1 : 0];
  if (!sparse.is_sparse() || dense.layout() != at::kStrided || sparse._nnz() == 0) return;
  const at::ScalarType dtype = sparse.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(is_of_linear_algebra(dtype), '"', is_batch ? "bmm" : "addmm",
                              "_sparse_cuda\" not implemented for '", c10::toString(dtype), "'");
}

}  // namespace

std::optional<c10::Device> device_of_ordinary(const Values& arguments) {
  std::optional<c10::Device> device;
  bool are_ordinary = true;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      const at::ScalarType dtype = tensor.scalar_type();
      // A number of the program, which does not change the dtype of such operands.
      if (tensor.is_cpu() && tensor.unsafeGetTensorImpl()->is_wrapped_number() &&
          !tensor.is_complex())
        return;
      if (!device) device = tensor.device();
      are_ordinary &= (dtype == at::kFloat || dtype == at::kDouble) && tensor.is_cuda() &&
                      tensor.device() == *device && is_strided(tensor);
    });
  }
  return are_ordinary ? device : std::nullopt;
}

void check_operands(const c10::OperatorHandle& operation, const Values& arguments,
                    c10::Device device) {
  const Strays strays = find_strays(arguments, device);
  if (strays.form == 0) return;
  if (strays.are_values || takes_other_devices(operation.schema())) {
    rehearse_once(operation, arguments, strays.form);
  } else {
    rehearse(operation, arguments);
    check_devices(arguments, device);
  }
}

void check_dtypes(const Operation& operation, const Values& arguments) {
  if (are_dense(arguments)) {
    if (has_kept_kernel(operation.handle)) ask(operation, arguments);
  } else {
    check_sparse_product(operation.schema(), arguments);
    ask_of_compressed(operation, arguments);
    const bool is_pointwise = operation.handle.hasTag(at::Tag::pointwise) ||
                              base_name(operation.schema()) == "abs";  // abs_ lacks the tag
    if (is_pointwise) ask_of_values(operation, arguments);
  }
}

void check_library_operands(const Operation& operation, const Values& arguments) {
  if (device_of_ordinary(arguments)) return;
  check_operands(operation.handle, arguments, device_of(arguments));
  ask(operation, arguments);
}

}  // namespace simulate_gpus
