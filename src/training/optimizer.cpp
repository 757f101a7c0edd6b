// SPDX-License-Identifier: MIT
#include "training/optimizer.hpp"

#include <torch/optim.h>
#include <use_gpu/device.hpp>
#include <use_gpu/training.hpp>

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "core/copies/bulk_copy.hpp"
#include "core/copies/value_scope.hpp"
#include "core/module_tensors/named_tensors.hpp"

namespace use_gpu::detail {
namespace {

namespace optim = torch::optim;

template <class T, class... Any>
concept one_of = (std::same_as<T, Any> || ...);

Fields fields(optim::AdagradParamState& s) { return {{"sum", s.sum()}, {"step", s.step()}}; }

template <one_of<optim::AdamParamState, optim::AdamWParamState> State>
Fields fields(State& s) {
  return {{"step", s.step()},
          {"exp_avg", s.exp_avg()},
          {"exp_avg_sq", s.exp_avg_sq()},
          {"max_exp_avg_sq", s.max_exp_avg_sq(), true}};
}

// Without `al`, which step() writes before it reads it.
Fields fields(optim::LBFGSParamState& s) {
  return {{"func_evals", s.func_evals()},
          {"n_iter", s.n_iter()},
          {"t", s.t()},
          {"prev_loss", s.prev_loss()},
          {"d", s.d(), true},
          {"H_diag", s.H_diag(), true},
          {"prev_flat_grad", s.prev_flat_grad(), true},
          {"old_dirs", s.old_dirs()},
          {"old_stps", s.old_stps()},
          {"ro", s.ro()}};
}

Fields fields(optim::RMSpropParamState& s) {
  return {{"step", s.step()},
          {"square_avg", s.square_avg()},
          {"momentum_buffer", s.momentum_buffer(), true},
          {"grad_avg", s.grad_avg(), true}};
}

Fields fields(optim::SGDParamState& s) { return {{"momentum_buffer", s.momentum_buffer()}}; }

Fields fields(optim::AdagradOptions& o) {
  return {{"lr", o.lr()},
          {"lr_decay", o.lr_decay()},
          {"weight_decay", o.weight_decay()},
          {"initial_accumulator_value", o.initial_accumulator_value()},
          {"eps", o.eps()}};
}

template <one_of<optim::AdamOptions, optim::AdamWOptions> Options>
Fields fields(Options& o) {
  return {{"lr", o.lr()},   {"beta1", std::get<0>(o.betas())},  {"beta2", std::get<1>(o.betas())},
          {"eps", o.eps()}, {"weight_decay", o.weight_decay()}, {"amsgrad", o.amsgrad()}};
}

Fields fields(optim::LBFGSOptions& o) {
  return {{"lr", o.lr()},
          {"max_iter", o.max_iter()},
          {"max_eval", o.max_eval()},
          {"tolerance_grad", o.tolerance_grad()},
          {"tolerance_change", o.tolerance_change()},
          {"history_size", o.history_size()},
          {"line_search_fn", o.line_search_fn()}};
}

Fields fields(optim::RMSpropOptions& o) {
  return {{"lr", o.lr()},
          {"alpha", o.alpha()},
          {"eps", o.eps()},
          {"weight_decay", o.weight_decay()},
          {"momentum", o.momentum()},
          {"centered", o.centered()}};
}

Fields fields(optim::SGDOptions& o) {
  return {{"lr", o.lr()},
          {"momentum", o.momentum()},
          {"dampening", o.dampening()},
          {"weight_decay", o.weight_decay()},
          {"nesterov", o.nesterov()}};
}

template <class Optimizer, class State, class Options>
constexpr OptimizerKind kind(const char* name) {
  return {name, typeid(Optimizer),
          []() -> std::unique_ptr<optim::OptimizerParamState> { return std::make_unique<State>(); },
          [](optim::OptimizerParamState& state) { return fields(static_cast<State&>(state)); },
          [](optim::OptimizerOptions& options) { return fields(static_cast<Options&>(options)); }};
}

constexpr std::array k_kinds{
    kind<optim::Adagrad, optim::AdagradParamState, optim::AdagradOptions>("Adagrad"),
    kind<optim::Adam, optim::AdamParamState, optim::AdamOptions>("Adam"),
    kind<optim::AdamW, optim::AdamWParamState, optim::AdamWOptions>("AdamW"),
    kind<optim::LBFGS, optim::LBFGSParamState, optim::LBFGSOptions>("LBFGS"),
    kind<optim::RMSprop, optim::RMSpropParamState, optim::RMSpropOptions>("RMSprop"),
    kind<optim::SGD, optim::SGDParamState, optim::SGDOptions>("SGD"),
};

}  // namespace

const OptimizerKind& kind_of(const optim::Optimizer& optimizer, const char* function) {
  const auto found = std::ranges::find_if(
      k_kinds, [&](const auto& kind) { return kind.type == typeid(optimizer); });
  if (found != k_kinds.end()) return *found;
  throw ArgumentError(std::string(function) +
                      ": this optimizer is not one of LibTorch's (Adagrad, Adam, AdamW, LBFGS, "
                      "RMSprop, SGD), so what it keeps is not known. Move or save its tensors "
                      "yourself.");
}

std::string start_of(std::size_t group) { return "optimizer." + std::to_string(group) + '.'; }

void each_parameter(const optim::Optimizer& optimizer,
                    const std::function<void(const at::Tensor&, const std::string&)>& visit) {
  std::set<const at::TensorImpl*> seen;
  for (std::size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    for (int i = 0; const auto& p : optimizer.param_groups()[group].params()) {
      const auto start = start_of(group) + std::to_string(i++) + '.';
      if (seen.insert(p.unsafeGetTensorImpl()).second) visit(p, start);
    }
  }
}

Fields fields_of(const optim::Optimizer& optimizer, const OptimizerKind& kind,
                 const at::Tensor& p) {
  const auto found = optimizer.state().find(p.unsafeGetTensorImpl());
  return found == optimizer.state().end() ? Fields() : kind.state(*found->second);
}

}  // namespace use_gpu::detail

namespace USE_GPU_EXPORT use_gpu {

void place(torch::optim::Optimizer& optimizer) {
  const auto& kind = detail::kind_of(optimizer, "place");
  const detail::NewTensorScope scope;
  detail::Pairs copies;
  std::vector<std::pair<detail::Field, std::vector<at::Tensor>>> moved;
  detail::each_parameter(optimizer, [&](const at::Tensor& p, const std::string&) {
    for (const auto& field : detail::fields_of(optimizer, kind, p)) {
      if (!field.is_on_device) continue;
      auto values = field.get();
      for (auto& x : values) {
        if (!same_device(x.device(), p.device()))
          x = detail::data_on(p.device(), x, x.scalar_type(), copies);
      }
      moved.emplace_back(field, std::move(values));
    }
  });
  detail::bulk_copy(copies.values, copies.targets);
  for (const auto& [field, values] : moved) (void)field.set(values);  // allocates nothing
}

}  // namespace use_gpu
