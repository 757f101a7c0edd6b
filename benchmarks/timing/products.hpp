// SPDX-License-Identifier: MIT
//
// What a product of two square matrices is measured with: its factors, and a check that costs far
// less than the product (Freivalds): A(Bx) in float64 against Cx.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <string>
#include <vector>

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

/// While it lives GPUs multiply float32 in tf32, if so asked; afterwards in float32. For the whole
/// process: not from two threads at a time.
class Tf32Guard {
 public:
  explicit Tf32Guard(bool is_tf32);
  ~Tf32Guard();
  Tf32Guard(const Tf32Guard&) = delete;
  Tf32Guard& operator=(const Tf32Guard&) = delete;

 private:
  bool is_tf32_;
};

/// Two n by n matrices on a device.
struct Factors {
  Precision precision;
  at::Tensor a, b;
};

/// From then on float32 is float32 on GPUs, whatever LibTorch's environment variables say.
[[nodiscard]] Factors random_factors(std::int64_t n, c10::Device device,
                                     const Precision& precision);

[[nodiscard]] bool is_product(const Factors& factors, const at::Tensor& product);

/// Whether each result is the product of the factors at its place.
[[nodiscard]] std::function<bool(const std::vector<at::Tensor>&)> check_of(
    std::vector<Factors> factors);

/// A lower bound of the product's time on any hardware.
[[nodiscard]] double least_seconds(const Factors& factors);
