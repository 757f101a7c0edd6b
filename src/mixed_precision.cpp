// SPDX-License-Identifier: MIT
#include <use_gpu/mixed_precision.hpp>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/optim/lbfgs.h>
#include <use_gpu/transfers.hpp>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

namespace USE_GPU_EXPORT use_gpu {
namespace {

// A number of no dimensions, also where new tensors are made on a GPU.
at::Tensor on_host(float x) { return at::scalar_tensor(x, at::device(at::kCPU).dtype(at::kFloat)); }

}  // namespace

AutocastGuard::AutocastGuard(c10::Device device, std::optional<at::ScalarType> dtype, bool enabled)
    : type_(device.type()) {
  if (!device.is_cpu() && !device.is_cuda())
    throw ArgumentError("AutocastGuard: " + device.str() +
                        " was given; use the CPU or a CUDA GPU.");
  if (dtype && *dtype != at::kHalf && *dtype != at::kBFloat16) {
    throw ArgumentError("AutocastGuard: " + std::string(c10::toString(*dtype)) +
                        " was given; autocast computes in float16 or bfloat16.");
  }
  was_enabled_ = at::autocast::is_autocast_enabled(type_);
  former_dtype_ = at::autocast::get_autocast_dtype(type_);
  at::autocast::set_autocast_dtype(type_, dtype.value_or(former_dtype_));
  at::autocast::set_autocast_enabled(type_, enabled);
  at::autocast::increment_nesting();
}

AutocastGuard::~AutocastGuard() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(type_, was_enabled_);
  at::autocast::set_autocast_dtype(type_, former_dtype_);
}

GradScaler::GradScaler(GradScalerOptions options) : options_(options) {
  if (!(options.growth_factor > 1 && options.backoff_factor > 0 && options.backoff_factor < 1 &&
        options.growth_interval > 0)) {
    throw ArgumentError(
        "GradScaler: growth_factor has to be over 1, backoff_factor between 0 and 1, and "
        "growth_interval positive.");
  }
  set_state({options.scale, 0});
}

at::Tensor GradScaler::scale(const at::Tensor& loss) {
  // A CPU tensor of no dimensions goes to the kernel as a number: no copy.
  return options_.enabled ? loss * on_host(scale_) : loss;
}

void GradScaler::unscale(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  if (optimizers_.contains(&optimizer)) {
    throw ArgumentError(
        "GradScaler::unscale: this optimizer's gradients were unscaled already; call it once a "
        "step, before step(), and update() after that.");
  }
  std::map<std::pair<c10::DeviceIndex, at::ScalarType>, std::vector<at::Tensor>> gradients;
  std::set<const at::TensorImpl*> seen;  // parameters() has a tied one twice
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& p : group.params()) {
      if (!p.grad().defined() || !seen.insert(p.unsafeGetTensorImpl()).second) continue;
      if (p.grad().scalar_type() == at::kHalf) {
        throw ArgumentError(
            "GradScaler::unscale: a gradient is float16. Keep the parameters in float32, and let "
            "AutocastGuard choose where to compute in float16.");
      }
      const auto values = p.grad().is_sparse() ? p.grad()._values() : p.grad();
      gradients[{values.device().index(), values.scalar_type()}].push_back(values);
    }
  }
  const at::NoGradGuard no_grad;
  Progress progress;
  const auto inverse = static_cast<float>(1 / static_cast<double>(scale_));
  for (std::optional<c10::DeviceIndex> last; auto& [where, values] : gradients) {
    const auto device = values.front().options().dtype(at::kFloat);
    if (last != where.first) progress.found_inf.push_back(at::zeros({}, device));
    last = where.first;
    at::_amp_foreach_non_finite_check_and_unscale_(values, progress.found_inf.back(),
                                                   at::full({}, inverse, device));
  }
  if (!gradients.empty()) optimizers_.emplace(&optimizer, std::move(progress));
}

bool GradScaler::read(Progress& progress) {
  if (!progress.is_finite) {
    const AllowTransfers certain;
    progress.is_finite = std::ranges::all_of(
        progress.found_inf, [](const at::Tensor& x) { return x.item<float>() == 0; });
  }
  return *progress.is_finite;
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (dynamic_cast<torch::optim::LBFGS*>(&optimizer) != nullptr) {
    throw ArgumentError(
        "GradScaler::step: LBFGS needs a closure, and computes several losses in a step. Train "
        "without a scaler, in bfloat16 or float32.");
  }
  if (!options_.enabled) {
    optimizer.step();
    return true;
  }
  if (!optimizers_.contains(&optimizer)) unscale(optimizer);
  const auto found = optimizers_.find(&optimizer);
  if (found == optimizers_.end()) {
    throw ArgumentError(
        "GradScaler::step: no parameter of this optimizer has a gradient; call "
        "scale(loss).backward() first.");
  }
  auto& progress = found->second;
  if (progress.has_stepped)
    throw ArgumentError("GradScaler::step: was called twice; call update() after each step.");
  const bool is_finite = read(progress);
  if (is_finite) optimizer.step();
  progress.has_stepped = true;
  return is_finite;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  if (optimizers_.empty()) {
    throw ArgumentError(
        "GradScaler::update: no gradients were looked at since the last time; call step() first.");
  }
  bool is_finite = true;
  for (auto& [optimizer, progress] : optimizers_) is_finite &= read(progress);
  auto scale = on_host(scale_);
  auto tracker = at::scalar_tensor(growth_tracker_, at::device(at::kCPU).dtype(at::kInt));
  at::_amp_update_scale_(scale, tracker, on_host(is_finite ? 0 : 1), options_.growth_factor,
                         options_.backoff_factor, options_.growth_interval);
  scale_ = scale.item<float>();
  growth_tracker_ = tracker.item<int>();
  optimizers_.clear();
}

double GradScaler::scale_factor() const { return options_.enabled ? scale_ : 1; }

GradScalerState GradScaler::state() const { return {scale_, growth_tracker_}; }

void GradScaler::set_state(const GradScalerState& state) {
  const auto scale = static_cast<float>(state.scale);
  if (!(scale > 0 && std::isfinite(scale) && state.growth_tracker >= 0 &&
        std::in_range<int>(state.growth_tracker))) {
    throw ArgumentError("GradScaler: a scale of " + std::to_string(state.scale) +
                        " and a growth tracker of " + std::to_string(state.growth_tracker) +
                        " were given; the scale has to be positive, and the tracker not negative.");
  }
  scale_ = scale;
  growth_tracker_ = std::min(state.growth_tracker, options_.growth_interval - 1);
  optimizers_.clear();
}

}  // namespace use_gpu
