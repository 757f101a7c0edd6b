// SPDX-License-Identifier: MIT
#include "kernels/library_shapes.hpp"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <map>
#include <string_view>

namespace simulate_gpus {
namespace {

using at::Tensor;
using Shapes = std::vector<Tensor>;
using Arguments = torch::jit::Stack;

template <std::size_t index>
Shapes like(const Arguments& arguments) {
  return {at::empty_like(arguments[index].toTensor())};
}

Shapes scalar(const Arguments& arguments) { return {arguments[0].toTensor().new_empty({})}; }

Shapes int_product(const Arguments& arguments) {
  const Tensor a = arguments[0].toTensor(), b = arguments[1].toTensor();
  return {a.new_empty({a.size(0), b.size(1)}, at::kInt)};
}

Shapes sum_of_products(const Arguments& arguments) {
  const Tensor a = arguments[1].toTensor(), b = arguments[2].toTensor();
  return {a.new_empty({a.size(1), b.size(2)})};
}

Shapes triangular(const Arguments& arguments) {
  const Tensor a = arguments[0].toTensor(), b = arguments[1].toTensor();
  auto sizes = at::infer_size(a.sizes().slice(0, static_cast<std::size_t>(a.dim()) - 2),
                              b.sizes().slice(0, static_cast<std::size_t>(b.dim()) - 2));
  sizes.insert(sizes.end(), {b.size(-2), b.size(-1)});
  return {b.new_empty(sizes)};
}

Shapes reflectors(const Arguments& arguments) {
  const Tensor x = arguments[0].toTensor();
  auto scales = x.sizes().slice(0, static_cast<std::size_t>(x.dim()) - 1).vec();
  scales.back() = std::min(x.size(-2), x.size(-1));
  return {at::empty_like(x), x.new_empty(scales)};
}

Shapes eigenvalues(const Arguments& arguments) {
  const Tensor x = arguments[0].toTensor();
  return {x.new_empty(x.sizes().slice(0, static_cast<std::size_t>(x.dim()) - 1),
                      at::toComplexType(x.scalar_type()))};
}

Shapes eigenvectors_too(const Arguments& arguments) {
  const Tensor x = arguments[0].toTensor();
  return {eigenvalues(arguments)[0], x.new_empty(x.sizes(), at::toComplexType(x.scalar_type()))};
}

Shapes of_real(const Arguments& arguments) {
  const Tensor x = arguments[0].toTensor();
  auto sizes = x.sizes().vec();
  auto& last = sizes[static_cast<std::size_t>(arguments[1].toIntVector().back())];
  if (arguments[3].toBool()) last = last / 2 + 1;  // the other half mirrors this one
  return {x.new_empty(sizes, at::toComplexType(x.scalar_type()))};
}

Shapes to_real(const Arguments& arguments) {
  const Tensor x = arguments[0].toTensor();
  auto sizes = x.sizes().vec();
  sizes[static_cast<std::size_t>(arguments[1].toIntVector().back())] = arguments[3].toInt();
  return {x.new_empty(sizes, at::toRealValueType(x.scalar_type()))};
}

}  // namespace

std::vector<Tensor> shapes_without_meta_kernel(const std::string& name,
                                               const Arguments& arguments) {
  static const std::map<std::string_view, Shapes (*)(const Arguments&)> k_shapes = {
      {"_cholesky_solve_helper", &like<0>},
      {"_fft_c2c", &like<0>},
      {"_fft_c2r", &to_real},
      {"_fft_r2c", &of_real},
      {"_int_mm", &int_product},
      {"_linalg_eigvals", &eigenvalues},
      {"addbmm", &sum_of_products},
      {"cholesky", &like<0>},
      {"cholesky_inverse", &like<0>},
      {"dot", &scalar},
      {"geqrf", &reflectors},
      {"linalg_eig", &eigenvectors_too},
      {"linalg_eigvals", &eigenvalues},
      {"linalg_householder_product", &like<0>},
      {"linalg_solve_triangular", &triangular},
      {"ormqr", &like<2>},
      {"vdot", &scalar}};
  const auto found = k_shapes.find(name);
  return found == k_shapes.end() ? Shapes() : found->second(arguments);
}

}  // namespace simulate_gpus
