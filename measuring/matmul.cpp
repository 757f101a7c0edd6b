// SPDX-License-Identifier: MIT
#include "measuring/matmul.hpp"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace {

// Set before each product, for the whole process: not from two threads at a time.
void allow_tf32(bool allow) { at::globalContext().setAllowTF32CuBLAS(allow); }

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

Matmul::Matmul(std::int64_t n, c10::Device device, Precision precision)
    : precision_(std::move(precision)),
      a_(random_matrix(n, device, precision_.dtype)),
      b_(random_matrix(n, device, precision_.dtype)) {
  if (device.is_cuda()) allow_tf32(false);  // whatever LibTorch's environment variables say
}

at::Tensor Matmul::product(int times) const {
  if (precision_.is_tf32) allow_tf32(true);
  auto product = a_.mm(b_);
  for (int i = 1; i < times; ++i) product = a_.mm(b_);
  if (precision_.is_tf32) allow_tf32(false);
  return product;
}

bool Matmul::is_right(const at::Tensor& product) const {
  const auto n = static_cast<double>(a_.size(0));
  // All positive, to detect a constant added to all elements.
  const auto x = at::rand({a_.size(0)}, a_.options().dtype(at::kDouble)).add_(0.5);
  const auto expected = a_.to(at::kDouble).mv(b_.to(at::kDouble).mv(x));
  const auto error = product.to(at::kDouble).mv(x).sub_(expected).abs_().max().item<double>();
  // Both sides are about n / 12. Rounding each sum of n numbers at the end gives a relative error
  // of at most epsilon, summing in float32 another sqrt(n) * float32's epsilon; 16 is for the
  // smallest matrices, where errors do not average out.
  return error <= (n + 16) / 6 * (precision_.epsilon + std::sqrt(n) * k_float32.epsilon);
}

double Matmul::least_seconds() const {
  return 2 * std::pow(static_cast<double>(a_.size(0)), 3) / precision_.most_flops;
}

Contender Matmul::contender() const {
  return {name_of(device(), precision_) + " " + std::to_string(a_.size(0)),
          {device()},
          [=, *this] { return std::vector{product()}; },
          check_of({*this}),
          least_seconds()};
}

std::function<bool(const std::vector<at::Tensor>&)> check_of(std::vector<Matmul> matmuls) {
  return [matmuls = std::move(matmuls)](const std::vector<at::Tensor>& results) {
    return std::ranges::equal(matmuls, results, &Matmul::is_right);
  };
}
