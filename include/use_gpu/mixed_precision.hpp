// SPDX-License-Identifier: MIT
//
// Mixed precision, as Python's torch.autocast and torch.amp.GradScaler, which C++ lacks: products in
// float16 or bfloat16, parameters and sums in float32.
//
//   use_gpu::GradScaler scaler;                       // float16 needs it, bfloat16 does not
//   for (const auto& [x, y] : batches) {
//     sgd.zero_grad();
//     torch::Tensor loss;
//     {
//       const use_gpu::AutocastGuard half(device);    // the forward pass alone
//       loss = criterion(net->forward(x), y);
//     }
//     scaler.scale(loss).backward();
//     scaler.step(sgd);                               // not where a gradient is inf or nan
//     scaler.update();
//   }
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <use_gpu/errors.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace torch {
namespace USE_GPU_EXPORT optim {
class Optimizer;  // visible, as in LibTorch
}
}  // namespace torch

namespace use_gpu::detail {
struct OpenAutocast;
}

namespace USE_GPU_EXPORT use_gpu {

/// While it lives, this thread's operations on devices of that kind choose their dtype as LibTorch's
/// autocast lists say. Scopes nest, and each restores what was before. The weights that were cast are
/// kept until the thread's outermost scope ends; LibTorch keeps those of all threads together, and
/// other threads cast theirs anew then.
///
/// Weights that are written inside may be used with their old values until then: leave the scope before
/// the optimizer's step.
///
/// Threads: inherited by parallel_on's workers, and by backward passes that are started inside. Scopes may
/// end in any order. One that ends in another thread logs a warning, changes nothing there, and stays open
/// in its own. In destructors at the end of its thread or of the program a scope does nothing.
class AutocastGuard {
 public:
  /// dtype: float16 or bfloat16; unset: LibTorch's for that device, float16 on CUDA and bfloat16 on
  /// the CPU unless an outer scope says otherwise. enabled = false: a scope without autocast in
  /// another's.
  ///
  /// Throws: ArgumentError for another dtype, and for a device other than the CPU and CUDA.
  [[nodiscard]] explicit AutocastGuard(c10::Device device, std::optional<at::ScalarType> dtype = {},
                                       bool enabled = true);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  std::shared_ptr<detail::OpenAutocast> own_;
};

/// As in Python.
struct GradScalerOptions {
  double scale = 65536;         ///< by which the first losses are multiplied
  double growth_factor = 2;     ///< of the scale, after growth_interval steps without inf or nan
  double backoff_factor = 0.5;  ///< of the scale, after a step with one
  std::int64_t growth_interval = 2000;  ///< in steps
  bool enabled = true;  ///< false: step() is the optimizer's own, all else does nothing
};

/// What a scaler has learned; TrainingState saves it.
struct GradScalerState {
  double scale;                 ///< by which the next losses are multiplied
  std::int64_t growth_tracker;  ///< steps without inf or nan since the scale last changed
};

/// Multiplies the loss, so that small gradients do not vanish in float16, and the gradients by the
/// inverse before the optimizer's step, which is left out where one is inf or nan. The scale is the
/// same in every step as Python's, for the same gradients.
///
/// Threads: one at a time.
class GradScaler {
 public:
  /// Throws: ArgumentError unless scale and growth_interval are positive, growth_factor is over 1 and
  /// backoff_factor is between 0 and 1.
  explicit GradScaler(GradScalerOptions options = {});

  /// The loss times the scale, recorded by autograd; on any device.
  [[nodiscard]] at::Tensor scale(const at::Tensor& loss);

  /// Divides the gradients by the scale, in place, and looks for inf and nan. step() does so by
  /// itself; call it before, once a step, to clip gradients. The parameters are to be float32, and of
  /// one optimizer only.
  ///
  /// Throws: ArgumentError, and nothing has changed, the second time in a step, and for gradients in
  /// float16. Where LibTorch's own error passes, the next call divides only what is not divided yet.
  void unscale(torch::optim::Optimizer& optimizer);

  /// The optimizer's step; or false, and no parameter changes, where a gradient is inf or nan.
  ///
  /// Waits: once for each device.
  ///
  /// Throws: ArgumentError the second time in a step, where no parameter has a gradient, and for an
  /// optimizer that needs a closure (LBFGS); otherwise as unscale().
  bool step(torch::optim::Optimizer& optimizer);

  /// Chooses the next scale; once a step, after all optimizers.
  ///
  /// Waits: only for an optimizer whose gradients were unscaled, but whose step() was not called.
  ///
  /// Throws: ArgumentError if nothing was unscaled since the last time.
  void update();

  /// The scale; 1 if this is not enabled.
  [[nodiscard]] double scale_factor() const;

  /// To be saved.
  [[nodiscard]] GradScalerState state() const;
  /// Goes on from a saved one; what a step has begun is forgotten.
  ///
  /// Throws: ArgumentError unless the scale is positive and finite, and the tracker 0 to 2^31 - 1.
  void set_state(const GradScalerState& state);

 private:
  // What this step did for one optimizer.
  struct Progress {
    std::map<c10::DeviceIndex, at::Tensor> found_inf = {};  // 0, or 1 where one was found
    std::map<std::pair<c10::DeviceIndex, at::ScalarType>, bool> done = {};
    std::optional<bool> is_finite = {};  // known once it was read
    bool is_unscaled = false, has_stepped = false;
  };
  static bool read(Progress& progress);

  GradScalerOptions options_;
  float scale_ = 0;
  std::int64_t growth_tracker_ = 0;
  std::map<const torch::optim::Optimizer*, Progress> optimizers_ = {};
};

}  // namespace use_gpu
