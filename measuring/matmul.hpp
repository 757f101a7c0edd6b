// SPDX-License-Identifier: MIT
//
// Products of two square matrices, for the exercises and the benchmarks that time them. Each comes
// with a check that costs far less than the product (Freivalds): A(Bx) in float64 against Cx.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <string>
#include <vector>

#include "measuring/contender.hpp"

/// The precision of a product.
struct Precision {
  std::string name;
  c10::ScalarType dtype;
  bool is_tf32;
  double epsilon;     // of the coarsest rounding on the way
  double most_flops;  // operations per second, beyond any current device
};
inline const Precision k_float32 = {"float32", c10::kFloat, false, 0x1p-23, 3e14};
// float32, but the factors are truncated, not rounded, to 10 mantissa bits.
inline const Precision k_tf32 = {"tf32", c10::kFloat, true, 0x1p-8, 3e15};
inline const Precision k_bf16 = {"bf16", c10::kBFloat16, false, 0x1p-7, 1e16};

/// float32; and tf32 and bf16 on a CUDA GPU, which has special units for them.
[[nodiscard]] std::vector<Precision> precisions(c10::Device device);

/// "cuda:0 tf32" or "cuda:0 SIMULATED float32".
[[nodiscard]] std::string name_of(c10::Device device, const Precision& precision);

/// Two random n by n matrices on a device, and their product.
class Matmul {
 public:
  Matmul(std::int64_t n, c10::Device device, Precision precision);

  [[nodiscard]] c10::Device device() const { return a_.device(); }
  [[nodiscard]] const at::Tensor& a() const { return a_; }
  [[nodiscard]] const at::Tensor& b() const { return b_; }

  /// Computed `times` times, in sequence.
  [[nodiscard]] at::Tensor product(int times = 1) const;
  [[nodiscard]] bool is_right(const at::Tensor& product) const;

  /// A lower bound of its time on any hardware.
  [[nodiscard]] double least_seconds() const;

  /// The product, as something to be measured: "cuda:0 tf32 1024".
  [[nodiscard]] Contender contender() const;

 private:
  Precision precision_;
  at::Tensor a_, b_;
};

/// Whether each result is the product of the matrices at its place.
[[nodiscard]] std::function<bool(const std::vector<at::Tensor>&)> check_of(
    std::vector<Matmul> matmuls);
