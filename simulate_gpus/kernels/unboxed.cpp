// SPDX-License-Identifier: MIT
//
// The commonest operations on the commonest operands: dense, of float32 or float64, on one GPU, with values. The CPU's kernel
// writes straight into the result's memory. All others take the way of compute().
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/clamp_min_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/sum_cpu_dispatch.h>

#include <array>
#include <optional>
#include <utility>

#include "kernels/compute.hpp"
#include "kernels/direct_result.hpp"
#include "kernels/own_kernels.hpp"
#include "kernels/reused_views.hpp"

namespace simulate_gpus {
namespace {

using at::Tensor;

// Values in memory, and no flag, name or subclass that says anything else of them.
bool is_common(const Tensor& x) {
  constexpr auto k_of_any =
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;
  constexpr c10::DispatchKeySet k_plain(c10::DispatchKey::CUDA);
  return x.defined() && x.key_set() - k_of_any == k_plain &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble) && x.numel() > 0 &&
         !has_names(x);
}

bool are_common(const Tensor& x, const Tensor& y) {
  return is_common(x) && is_common(y) && x.device() == y.device() && x.dtype() == y.dtype();
}

// A tensor of these sizes and x's dtype; write(on_host, views) gives it its values.
Tensor written(const Tensor& x, at::IntArrayRef sizes, const auto& write) {
  const Tensor made = empty_on_gpu(sizes, x.scalar_type());
  ReusedViews views;
  Tensor on_host = views.next(made);
  write(on_host, views);
  return made;
}

template <class... Arguments>
Tensor boxed(const Operation& operation, const Arguments&... arguments) {
  torch::jit::Stack stack{arguments...};
  compute(operation, &stack);
  return std::move(stack[0]).toTensor();
}

// A result of operands of the same sizes, value by value.
std::optional<Tensor> pointwise(const Operation& operation, const auto& write, const Tensor& x,
                                const auto&... others) {
  [[maybe_unused]] const auto is_like_x = [&](const Tensor& y) {
    return are_common(x, y) && y.is_contiguous() && are_equal(x.sizes(), y.sizes());
  };
  if (!is_common(x) || !x.is_contiguous() || !(is_like_x(others) && ...)) return std::nullopt;
  return direct_result(operation, x.device(), [&] {
    return written(x, x.sizes(), [&](Tensor& on_host, ReusedViews& views) {
      write(on_host, views.next(x), views.next(others)...);
    });
  });
}

Tensor relu(const Tensor& x) {
  static const Operation& operation = Operation::of("aten::relu");
  const auto write = [](Tensor& to, const Tensor& a) { at::cpu::clamp_min_out(to, a, 0); };
  auto result = pointwise(operation, write, x);
  return result ? *std::move(result) : boxed(operation, x);
}

Tensor add(const Tensor& x, const Tensor& y, const at::Scalar& alpha) {
  static const Operation& operation = Operation::of("aten::add", "Tensor");
  const auto write = [&](Tensor& to, const Tensor& a, const Tensor& b) {
    at::cpu::add_out(to, a, b, alpha);
  };
  auto result = pointwise(operation, write, x, y);
  return result ? *std::move(result) : boxed(operation, x, y, alpha);
}

Tensor mul(const Tensor& x, const Tensor& y) {
  static const Operation& operation = Operation::of("aten::mul", "Tensor");
  const auto write = [](Tensor& to, const Tensor& a, const Tensor& b) {
    at::cpu::mul_out(to, a, b);
  };
  auto result = pointwise(operation, write, x, y);
  return result ? *std::move(result) : boxed(operation, x, y);
}

// The product of matrices whose sizes fit, which write(on_host, views) computes.
std::optional<Tensor> product(const Operation& operation, const Tensor& x, const Tensor& y,
                              const auto& write) {
  if (!are_common(x, y) || x.dim() != 2 || y.dim() != 2 || x.sizes()[1] != y.sizes()[0])
    return std::nullopt;
  return direct_result(operation, x.device(), [&] {
    return written(x, std::array{x.sizes()[0], y.sizes()[1]}, write);
  });
}

Tensor mm(const Tensor& x, const Tensor& y) {
  static const Operation& operation = Operation::of("aten::mm");
  auto result = product(operation, x, y, [&](Tensor& on_host, ReusedViews& views) {
    at::cpu::mm_out(on_host, views.next(x), views.next(y));
  });
  return result ? *std::move(result) : boxed(operation, x, y);
}

// With the bias of a linear layer.
Tensor addmm(const Tensor& bias, const Tensor& x, const Tensor& y, const at::Scalar& beta,
             const at::Scalar& alpha) {
  static const Operation& operation = Operation::of("aten::addmm");
  std::optional<Tensor> result;
  if (are_common(bias, x) && bias.dim() == 1 && y.dim() == 2 && bias.numel() == y.sizes()[1]) {
    result = product(operation, x, y, [&](Tensor& on_host, ReusedViews& views) {
      at::cpu::addmm_out(on_host, views.next(bias), views.next(x), views.next(y), beta, alpha);
    });
  }
  return result ? *std::move(result) : boxed(operation, bias, x, y, beta, alpha);
}

// Of all values.
Tensor sum(const Tensor& x, at::OptionalIntArrayRef dims, bool keepdim,
           std::optional<at::ScalarType> dtype) {
  static const Operation& operation = Operation::of("aten::sum", "dim_IntList");
  std::optional<Tensor> result;
  if (is_common(x) && (!dims || dims->empty()) && !keepdim && !dtype) {
    result = direct_result(operation, x.device(), [&] {
      return written(x, {}, [&](Tensor& on_host, ReusedViews& views) {
        at::cpu::sum_out(on_host, views.next(x), dims);
      });
    });
  }
  return result ? *std::move(result) : boxed(operation, x, dims, keepdim, dtype);
}

}  // namespace

void add_unboxed(torch::Library& library) {
  library.impl("add.Tensor", TORCH_FN(add));
  library.impl("addmm", TORCH_FN(addmm));
  library.impl("mm", TORCH_FN(mm));
  library.impl("mul.Tensor", TORCH_FN(mul));
  library.impl("relu", TORCH_FN(relu));
  library.impl("sum.dim_IntList", TORCH_FN(sum));
}

}  // namespace simulate_gpus
