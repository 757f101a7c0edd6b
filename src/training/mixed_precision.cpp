// SPDX-License-Identifier: MIT
#include <use_gpu/mixed_precision.hpp>

#include <ATen/autocast_mode.h>
#include <torch/optim/lbfgs.h>
#include <use_gpu/allow_transfers.hpp>

#include <algorithm>
#include <cmath>

#include "core/device_check.hpp"
#include "core/messages/log_message.hpp"
#include "training/optimizer.hpp"

// A scope, with what was there before it.
struct use_gpu::detail::OpenAutocast {
  c10::DeviceType type;
  bool was_enabled = at::autocast::is_autocast_enabled(type);
  at::ScalarType former_dtype = at::autocast::get_autocast_dtype(type);
};

namespace USE_GPU_EXPORT use_gpu {
namespace {

// This thread's scopes, the innermost last, also those that another thread has ended; and whether the
// thread is past them, in destructors of what is older.
thread_local bool has_ended = false;
thread_local struct OpenScopes : std::vector<std::shared_ptr<detail::OpenAutocast>> {
  ~OpenScopes() { has_ended = true; }
} open_scopes;

// A number of no dimensions, also where new tensors are made on a GPU.
at::Tensor on_host(float x) { return at::scalar_tensor(x, at::device(at::kCPU).dtype(at::kFloat)); }

}  // namespace

AutocastGuard::AutocastGuard(c10::Device device, std::optional<at::ScalarType> dtype,
                             bool enabled) {
  if (!device.is_cpu() && !device.is_cuda())
    throw ArgumentError("AutocastGuard: " + device.str() +
                        " was given; use the CPU or a CUDA GPU.");
  if (dtype && *dtype != at::kHalf && *dtype != at::kBFloat16) {
    throw ArgumentError("AutocastGuard: " + std::string(c10::toString(*dtype)) +
                        " was given; autocast computes in float16 or bfloat16.");
  }
  if (has_ended) return;
  own_ = open_scopes.emplace_back(std::make_shared<detail::OpenAutocast>(device.type()));
  at::autocast::set_autocast_dtype(own_->type, dtype.value_or(own_->former_dtype));
  at::autocast::set_autocast_enabled(own_->type, enabled);
  at::autocast::increment_nesting();
}

AutocastGuard::~AutocastGuard() {
  if (has_ended) return;
  const auto own = std::ranges::find(open_scopes, own_);
  if (own == open_scopes.end()) {
    detail::log_message(
        LogLevel::warning,
        "AutocastGuard: a scope ends in another thread than it began in: it changes nothing "
        "here, and stays open there.");
    return;
  }
  if (at::autocast::decrement_nesting() == 0 && !detail::is_exiting()) at::autocast::clear_cache();
  const auto inner = std::find_if(own + 1, open_scopes.end(),
                                  [&](const auto& scope) { return scope->type == own_->type; });
  if (inner != open_scopes.end()) {  // restores in its turn what was before this one
    **inner = *own_;
  } else {
    at::autocast::set_autocast_enabled(own_->type, own_->was_enabled);
    at::autocast::set_autocast_dtype(own_->type, own_->former_dtype);
  }
  open_scopes.erase(own);
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
  auto& progress = optimizers_[&optimizer];
  if (progress.is_unscaled) {
    throw ArgumentError(
        "GradScaler::unscale: this optimizer's gradients were unscaled already; call it once a "
        "step, before step(), and update() after that.");
  }
  std::map<std::pair<c10::DeviceIndex, at::ScalarType>, std::vector<at::Tensor>> gradients;
  detail::each_parameter(optimizer, [&](const at::Tensor& p, const std::string&) {
    if (!p.grad().defined()) return;
    if (p.grad().scalar_type() == at::kHalf) {
      throw ArgumentError(
          "GradScaler::unscale: a gradient is float16. Keep the parameters in float32, and let "
          "AutocastGuard choose where to compute in float16.");
    }
    const auto values = p.grad().is_sparse() ? p.grad()._values() : p.grad();
    gradients[{values.device().index(), values.scalar_type()}].push_back(values);
  });
  if (gradients.empty()) return;
  const at::NoGradGuard no_grad;
  const auto inverse = static_cast<float>(1 / static_cast<double>(scale_));
  for (auto& [where, values] : gradients) {
    auto& is_done = progress.done[where];  // before another one failed
    if (is_done) continue;
    const auto device = values.front().options().dtype(at::kFloat);
    auto& found_inf = progress.found_inf[where.first];
    if (!found_inf.defined()) found_inf = at::zeros({}, device);
    at::_amp_foreach_non_finite_check_and_unscale_(values, found_inf,
                                                   at::full({}, inverse, device));
    is_done = true;
  }
  progress.is_unscaled = true;
}

bool GradScaler::read(Progress& progress) {
  if (!progress.is_finite) {
    const AllowTransfers certain;
    progress.is_finite = std::ranges::all_of(
        progress.found_inf, [](const auto& x) { return x.second.template item<float>() == 0; });
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
  auto& progress = optimizers_[&optimizer];
  if (!progress.is_unscaled) unscale(optimizer);
  if (progress.found_inf.empty()) {
    throw ArgumentError(
        "GradScaler::step: no parameter of this optimizer has a gradient; call "
        "scale(loss).backward() first.");
  }
  if (progress.has_stepped)
    throw ArgumentError("GradScaler::step: was called twice; call update() after each step.");
  const bool is_finite = read(progress);
  if (is_finite) optimizer.step();
  progress.has_stepped = true;
  return is_finite;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  // One without gradients was not looked at.
  std::erase_if(optimizers_, [](const auto& item) { return item.second.found_inf.empty(); });
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
    throw ArgumentError(c10::str("GradScaler: a scale of ", state.scale,
                                 " and a growth tracker of ", state.growth_tracker,
                                 " were given; the scale has to be positive, and the tracker not "
                                 "negative."));
  }
  scale_ = scale;
  growth_tracker_ = std::min(state.growth_tracker, options_.growth_interval - 1);
  optimizers_.clear();
}

}  // namespace use_gpu
