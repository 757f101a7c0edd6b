// SPDX-License-Identifier: MIT
#include "timing/products.hpp"

#include <ATen/Context.h>
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "timing/timing.hpp"

namespace {

// Of mean 0, so that rounding errors add up as random ones do.
at::Tensor random_matrix(std::int64_t n, c10::Device device, c10::ScalarType dtype) {
  return at::rand({n, n}, at::device(device)).sub_(0.5).to(dtype);
}

}  // namespace

std::vector<Precision> precisions(c10::Device device) {
  if (!device.is_cuda() || is_simulated(device)) return {k_float32};
  return {k_float32, k_tf32, k_bf16};
}

std::string name_of(c10::Device device, const Precision& precision) {
  return label(device) + " " + precision.name;
}

Tf32Guard::Tf32Guard(bool is_tf32) : is_tf32_(is_tf32) {
  if (is_tf32_) at::globalContext().setAllowTF32CuBLAS(true);
}

Tf32Guard::~Tf32Guard() {
  if (is_tf32_) at::globalContext().setAllowTF32CuBLAS(false);
}

Factors random_factors(std::int64_t n, c10::Device device, const Precision& precision) {
  if (device.is_cuda()) at::globalContext().setAllowTF32CuBLAS(false);
  return {precision, random_matrix(n, device, precision.dtype),
          random_matrix(n, device, precision.dtype)};
}

bool is_product(const Factors& factors, const at::Tensor& product) {
  const auto& [precision, a, b] = factors;
  const auto n = static_cast<double>(a.size(0));
  // All positive, to detect a constant added to all elements.
  const auto x = at::rand({a.size(0)}, a.options().dtype(at::kDouble)).add_(0.5);
  const auto expected = a.to(at::kDouble).mv(b.to(at::kDouble).mv(x));
  const auto error = product.to(at::kDouble).mv(x).sub_(expected).abs_().max().item<double>();
  // Both sides are about n / 12. Rounding each sum of n numbers at the end gives a relative error
  // of at most epsilon, summing in float32 another sqrt(n) * float32's epsilon; 16 is for the
  // smallest matrices, where errors do not average out.
  return error <= (n + 16) / 6 * (precision.epsilon + std::sqrt(n) * k_float32.epsilon);
}

std::function<bool(const std::vector<at::Tensor>&)> check_of(std::vector<Factors> factors) {
  return [factors = std::move(factors)](const std::vector<at::Tensor>& results) {
    return std::ranges::equal(factors, results, is_product);
  };
}

double least_seconds(const Factors& factors) {
  return 2 * std::pow(static_cast<double>(factors.a.size(0)), 3) / factors.precision.most_flops;
}
