// SPDX-License-Identifier: MIT
#include <use_gpu/replicas.hpp>

#include <torch/nn/module.h>
#include <use_gpu/device.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/tensor.hpp>

#include <algorithm>

#include "core/copies/bulk_copy.hpp"
#include "core/copies/value_scope.hpp"
#include "core/device_check.hpp"
#include "core/module_tensors/parameter_differences.hpp"
#include "training/weighted_mean.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

using detail::NamedTensors;
using torch::nn::Module;
using Tensors = std::vector<at::Tensor>;

// The modules: at least one, and none twice.
std::vector<Module*> distinct_modules(const std::string& function,
                                      const std::vector<ModuleRef>& replicas) {
  if (replicas.empty()) {
    throw ArgumentError(function +
                        ": there are no replicas; give it what use_gpu::mirror() returned.");
  }
  std::vector<Module*> nets;
  for (const auto& net : replicas) {
    const auto first = std::ranges::find(nets, &net.get()) - nets.begin();
    if (first < std::ssize(nets)) {
      throw ArgumentError(c10::str(function, ": replica ", first, " and replica ", nets.size(),
                                   " are the same module; each needs its own."));
    }
    nets.push_back(&net.get());
  }
  return nets;
}

// ParameterError, which begins with `what`, unless all have the same names, and values that can be copied.
void check_alike(const std::string& what, const std::vector<NamedTensors>& replicas) {
  auto differences = detail::differences_between(replicas, "missing");
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    for (const auto& [name, x] : replicas[i]) {
      const auto trouble = x.defined() ? detail::trouble_with(x) : "";
      if (!trouble.empty())
        differences.push_back(name + " is " + trouble + " in " + detail::replica_name(i));
    }
  }
  detail::throw_if_any(what, std::move(differences));
}

// The defined parameters and buffers of what make() returned, after a check that they match; and
// submodules, as undefined tensors, since they have a training mode.
std::vector<NamedTensors> matching_structures(const std::vector<Module*>& nets) {
  std::vector<NamedTensors> structures;
  for (const auto* net : nets) {
    auto& all = structures.emplace_back(detail::named_tensors_of(*net));
    for (const auto& x : net->named_modules("", /*include_self=*/false))
      all.emplace(x.key() + " (a module)", at::Tensor());
  }
  check_alike("mirror: what make() returned cannot be made equal", structures);
  return structures;
}

// Which parameters are trained, and the training mode of each submodule.
void copy_modes(const Module& from, Module& to) {
  const auto parameters = to.named_parameters(/*recurse=*/false);
  for (const auto& x : from.named_parameters(/*recurse=*/false))
    parameters[x.key()].set_requires_grad(x.value().requires_grad());
  if (to.is_training() != from.is_training()) to.train(from.is_training());  // its children's too
  const auto children = to.named_children();
  for (const auto& child : from.named_children())
    copy_modes(*child.value(), *children[child.key()]);
}

// Copies values and modes of the first to all, and puts them all on their devices. All memory is
// allocated, and all values are written, before any tensor moves, so that running out of memory
// leaves the first one as it was.
void make_equal(const std::vector<Module*>& nets, const std::vector<NamedTensors>& structures,
                const std::vector<c10::Device>& devices) {
  const auto values = detail::distinct_tensors(structures.front());
  detail::Pairs copies;
  detail::Pairs moves;  // new data, and whose it is to be
  for (std::size_t i = 0; i < nets.size(); ++i) {
    for (std::size_t k = 0; const auto& x : detail::distinct_tensors(structures[i])) {
      const auto& value = values[k++];  // all networks have as many
      const auto& grad = x.grad();
      if (grad.defined() && !same_device(grad.device(), devices[i]))
        moves.add(detail::data_on(devices[i], grad, grad.scalar_type(), copies), grad);
      const bool stays = same_device(x.device(), devices[i]);
      if (stays && i == 0) continue;
      const bool in_place = stays && x.is_non_overlapping_and_dense();
      copies.add(value, in_place ? x : detail::empty_on(devices[i], x, x.scalar_type()));
      if (!in_place) moves.add(copies.targets.back(), x);
    }
  }
  detail::bulk_copy(copies.values, copies.targets);
  detail::swap_data(moves, [&] {
    for (std::size_t i = 0; i < nets.size(); ++i) place(*nets[i], devices[i]);
    for (auto* net : nets) copy_modes(*nets.front(), *net);
  });
}

// One replica's gradients of the parameters with these names; zeros where there is none.
Tensors checked_gradients(const NamedTensors& parameters, const std::vector<std::string>& names,
                          const std::string& replica, detail::Differences& differences) {
  Tensors gradients;
  for (const auto& name : names) {
    const auto& parameter = parameters.at(name);
    const auto& grad = parameter.grad();
    const auto& x = gradients.emplace_back(grad.defined() ? grad : at::zeros_like(parameter));
    if (!detail::trouble_with(x).empty() || x.scalar_type() != parameter.scalar_type()) {
      differences.push_back(name + "'s gradient in " + replica + " is " + describe(x) +
                            ", not dense or not of the parameter's dtype");
    }
    for (const auto device : {parameter.device(), x.device()}) {
      if (device == gradients.front().device()) continue;
      throw DeviceMismatch("average_gradients: " + replica + " is on several devices: " + name +
                           " or its gradient is on " + device.str() + ", others are on " +
                           gradients.front().device().str() +
                           ". use_gpu::place(net, device) puts all of it on one.");
    }
  }
  return gradients;
}

void check_rows(const std::vector<std::int64_t>& rows, std::size_t replicas) {
  const std::string function = "average_gradients: ";
  if (rows.size() != replicas) {
    throw ArgumentError(c10::str(function, "there are ", replicas, " replicas, but ", rows.size(),
                                 " numbers of rows; give one for each, in the same order."));
  }
  const auto negative = std::ranges::find_if(rows, [](auto x) { return x < 0; });
  if (negative != rows.end()) {
    throw ArgumentError(c10::str(function, "replica ", negative - rows.begin(), " has ", *negative,
                                 " rows; give size(0) of its part of the batch."));
  }
  if (std::ranges::none_of(rows, [](auto x) { return x > 0; }))
    throw ArgumentError(function + "all parts have 0 rows, so there is no mean; skip this step.");
}

}  // namespace

USE_GPU_EXPORT void detail::mirror_modules(const std::vector<c10::Device>& devices,
                                           const std::function<ModuleRef()>& make) {
  if (devices.empty()) {
    throw ArgumentError("mirror: there are no devices. use_gpu::try_all_gpus() is never empty.");
  }
  std::vector<c10::Device> present;
  for (const auto device : devices) present.push_back(detail::present_device(device));
  const bool grad_mode = c10::GradMode::is_enabled();
  // Data made in inference mode would refuse every later write outside of it.
  const c10::InferenceMode no_inference_mode(false);
  const at::AutoGradMode callers(grad_mode);
  std::vector<ModuleRef> made;
  while (made.size() < present.size()) made.push_back(make());
  const auto nets = distinct_modules("mirror", made);
  const auto structures = matching_structures(nets);
  const detail::NewTensorScope scope;
  make_equal(nets, structures, present);
}

USE_GPU_EXPORT void detail::average_gradients_of(const std::vector<ModuleRef>& replicas,
                                                 const std::vector<std::int64_t>& rows) {
  const auto nets = distinct_modules("average_gradients", replicas);
  check_rows(rows, nets.size());
  if (nets.size() == 1) return;
  const std::string what = "average_gradients: the replicas do not match";
  std::vector<NamedTensors> parameters;
  for (const auto* net : nets) parameters.push_back(detail::trainable_parameters_of(*net));
  detail::throw_if_any(what, detail::differences_between(parameters, "missing or frozen"));
  auto names = detail::distinct_names(parameters.front());
  std::erase_if(names, [&](const std::string& name) {
    return std::ranges::none_of(parameters,
                                [&](const auto& all) { return all.at(name).grad().defined(); });
  });

  const detail::NewTensorScope scope;  // for gradients that are not there yet
  std::vector<Tensors> gradients;
  detail::Differences differences;
  for (const auto& all : parameters) {
    gradients.push_back(
        checked_gradients(all, names, detail::replica_name(gradients.size()), differences));
  }
  detail::throw_if_any(what, std::move(differences));

  for (const auto& write : detail::weighted_mean(gradients, rows)) write();
  for (std::size_t i = 0; i < nets.size(); ++i) {
    for (std::size_t k = 0; k < names.size(); ++k)
      parameters[i].at(names[k]).mutable_grad() = gradients[i][k];
  }
}

USE_GPU_EXPORT void detail::copy_buffers_of(const std::vector<ModuleRef>& replicas, int from) {
  const auto nets = distinct_modules("copy_buffers", replicas);
  if (from < 0 || from >= std::ssize(nets)) {
    throw ArgumentError(c10::str("copy_buffers: there is no replica ", from,
                                 " to copy from: there are ", nets.size(), ", counted from 0."));
  }
  std::vector<NamedTensors> buffers;
  for (const auto* net : nets) {
    auto& all = buffers.emplace_back();
    for (const auto& x : net->named_buffers()) all.emplace(x.key(), x.value());
  }
  const std::string what = "copy_buffers: the replicas do not match";
  check_alike(what, buffers);
  const auto& values = buffers[static_cast<std::size_t>(from)];
  detail::Pairs copies;
  detail::Differences differences;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (&buffers[i] == &values) continue;
    for (const auto& name : detail::distinct_names(values)) {
      const auto& target = buffers[i].at(name);
      copies.add(values.at(name), target);
      const auto why = detail::difference(target, values.at(name));  // that it overlaps itself
      if (!why.empty()) differences.push_back(name + ' ' + why + " in " + detail::replica_name(i));
    }
  }
  detail::throw_if_any(what, std::move(differences));
  const detail::ValueScope scope;
  detail::bulk_copy(copies.values, copies.targets);
}

}  // namespace use_gpu
