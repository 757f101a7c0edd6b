// SPDX-License-Identifier: MIT
//
// The names in a training file: "network.<name>"; "optimizer.kind"; for each group
// "optimizer.<group>.parameters", the names of its parameters, and its options; for each parameter
// "optimizer.<group>.<index>.<field>"; "generator.cpu", "generator.cuda.<place>"; "step"; "scaler.scale".
#include <use_gpu/training.hpp>

#include <torch/optim/lbfgs.h>
#include <use_gpu/device.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/tensor.hpp>

#include <mutex>

#include "core/copies/value_scope.hpp"
#include "core/messages/tensor_summary.hpp"
#include "core/module_tensors/pending_writes.hpp"
#include "files/tensor_file_io.hpp"
#include "training/optimizer.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

using detail::Fields;
using detail::NamedTensors;
using torch::optim::Optimizer;

// Which of the network's parameters a group has, in its order: a line for each. Others are differences.
std::string names_in(const torch::optim::OptimizerParamGroup& group, const NamedTensors& network,
                     detail::Differences& differences) {
  std::map<const at::TensorImpl*, std::string> names;
  for (const auto& [name, x] : network) names.emplace(x.unsafeGetTensorImpl(), name);
  std::string text;
  for (const auto& p : group.params()) {
    const auto found = names.find(p.unsafeGetTensorImpl());
    if (found == names.end())
      differences.push_back("the optimizer has a parameter, " + describe(p) +
                            ", that is not in the network: register it there");
    else
      text += found->second + '\n';
  }
  return text;
}

// The CPU's, and those of the network's devices in the order of first use, by their names.
std::map<std::string, at::Generator> generators_of(ConstModuleRef net) {
  auto& context = at::globalContext();
  std::map<std::string, at::Generator> generators{
      {"generator.cpu", context.defaultGenerator(cpu())}};
  for (int place = 0; const auto device : placement(net).devices()) {
    if (device.is_cpu() || device.is_meta()) continue;
    const auto name = "generator." + c10::DeviceTypeName(device.type(), /*lower_case=*/true) + '.';
    generators.emplace(name + std::to_string(place++), context.defaultGenerator(device));
  }
  return generators;
}

void add_fields(NamedTensors& all, const std::string& start, const Fields& fields) {
  for (const auto& field : fields) {
    for (std::size_t i = 0; const auto& value : field.get())
      all.emplace(start + field.name + (field.is_list ? '.' + std::to_string(i++) : ""), value);
  }
}

// What a program and a scaler count, as fields of the file itself.
Fields fields_of(TrainingState& state) {
  if (!state.scaler) return {{"step", state.step}};
  return {{"step", state.step},
          {"scaler.scale", state.scaler->scale},
          {"scaler.growth_tracker", state.scaler->growth_tracker}};
}

// A training file, and what is to be written of it. What is missing or does not fit is a difference.
struct Loading {
  Loading(const std::filesystem::path& file, const torch::nn::Module& net)
      : values(detail::read_tensor_file("load_training", file)),
        writes{detail::named_tensors_of(net), /*may_be_expanded=*/true} {
    for (auto& [name, x] : values) x = detail::aligned(x);
    for (const auto& [name, x] : writes.known) {
      const auto value = take("network." + name);
      value.defined() ? writes.add(name, value) : writes.refuse(name + " is missing");
    }
  }

  /// Whether there are values whose names start so.
  [[nodiscard]] bool has(const std::string& start) const {
    const auto next = values.lower_bound(start);
    return next != values.end() && next->first.starts_with(start);
  }

  /// The value of that name, which nobody else takes; undefined if there is none.
  at::Tensor take(const std::string& name) {
    const auto node = values.extract(name);
    return node.empty() ? at::Tensor() : node.mapped();
  }

  /// Fields of a group's options, or of a state that belongs to p: its tensors have p's shape, or one
  /// element or as many as `elements` says.
  void take_fields(const std::string& start, const Fields& fields, const at::Tensor& p = {},
                   std::optional<std::int64_t> elements = {}) {
    for (const auto& field : fields) {
      const auto name = start + field.name;
      std::vector<at::Tensor> taken;
      at::Tensor value;
      do {
        const auto one = field.is_list ? name + '.' + std::to_string(taken.size()) : name;
        value = take(one);
        if (value.defined())
          taken.push_back(field.is_on_device ? target_of(one, value, p, elements) : value);
      } while (field.is_list && value.defined());
      if (!field.set(taken) || (taken.empty() && !field.may_be_absent))
        writes.refuse(name + (taken.empty() ? " is missing" : " is of another type"));
    }
  }

  /// Writes all; or ParameterError, and nothing has changed.
  void run(const std::string& file) {
    for (const auto& [name, x] : values) {
      if (name.starts_with("generator.")) continue;  // of a device that the network does not use
      writes.refuse(name + " is not expected");
    }
    writes.run("load_training: " + file +
               " does not fit (build the network and the optimizer that were saved)");
  }

  NamedTensors values;
  detail::PendingWrites writes;

 private:
  // Memory where p is, into which the value will be written.
  at::Tensor target_of(const std::string& name, const at::Tensor& value, const at::Tensor& p,
                       std::optional<std::int64_t> elements) {
    const auto dtype = value.scalar_type();
    const bool may_be = dtype == p.scalar_type() || dtype == at::kFloat || dtype == at::kDouble;
    const bool fits = elements ? value.numel() == 1 || value.numel() == *elements
                               : may_be && value.sizes() == p.sizes();
    if (!fits) {
      writes.refuse(name + " is " + detail::dtype_and_shape(value) + ", its parameter " +
                    detail::dtype_and_shape(p));
      return {};
    }
    const c10::InferenceMode as_p(p.is_inference());
    const auto options = p.options().dtype(dtype);
    const auto target = elements ? at::empty(value.sizes(), options) : at::empty_like(p, options);
    writes.writes.add(value, target);
    return target;
  }
};

}  // namespace

void save_training(ConstModuleRef net, const Optimizer& optimizer, const TrainingState& state,
                   const std::filesystem::path& file) {
  const auto& kind = detail::kind_of(optimizer, "save_training");
  const auto network = detail::named_tensors_of(net.get());
  const detail::ValueScope scope;
  NamedTensors all{{"optimizer.kind", detail::to_value(std::string(kind.name))}};
  detail::Differences differences;
  auto counts = state;
  add_fields(all, "", fields_of(counts));
  for (const auto& [name, x] : network) all.emplace("network." + name, x);
  for (std::size_t i = 0; i < optimizer.param_groups().size(); ++i) {
    const auto& group = optimizer.param_groups()[i];
    all.emplace(detail::start_of(i) + "parameters",
                detail::to_value(names_in(group, network, differences)));
    add_fields(all, detail::start_of(i), kind.options(*group.options().clone()));
  }
  detail::each_parameter(optimizer, [&](const at::Tensor& p, const std::string& start) {
    add_fields(all, start, detail::fields_of(optimizer, kind, p));
  });
  detail::throw_if_any("save_training: the file would not hold all", std::move(differences));
  for (auto& [name, generator] : generators_of(net)) {
    const std::lock_guard lock(generator.mutex());
    all.emplace(name, generator.get_state());
  }
  detail::write_tensor_file("save_training", all, file);
}

TrainingState load_training(ModuleRef net, Optimizer& optimizer,
                            const std::filesystem::path& file) {
  const auto& kind = detail::kind_of(optimizer, "load_training");
  auto& groups = optimizer.param_groups();
  const detail::ValueScope scope;
  Loading loading(file, net.get());
  TrainingState state;
  if (loading.has("scaler.")) state.scaler.emplace();
  loading.take_fields("", fields_of(state));

  std::string saved_kind = "none";
  (void)detail::from_value(loading.take("optimizer.kind"), saved_kind);
  const bool is_same_kind = saved_kind == kind.name;
  if (!is_same_kind)
    loading.writes.refuse(c10::str("the optimizer is ", kind.name, ", in the file ", saved_kind));
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    std::string names;
    (void)detail::from_value(loading.take(detail::start_of(i) + "parameters"), names);
    if (names != names_in(groups[i], loading.writes.known, loading.writes.differences))
      loading.writes.refuse("group " + std::to_string(i) + " has other parameters in the file");
    options.push_back(groups[i].options().clone());
    if (is_same_kind) loading.take_fields(detail::start_of(i), kind.options(*options.back()));
  }
  ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>> states;
  detail::each_parameter(optimizer, [&](const at::Tensor& p, const std::string& start) {
    if (!is_same_kind || !loading.has(start)) return;
    auto& own = states[p.unsafeGetTensorImpl()] = kind.make_state();
    std::optional<std::int64_t> elements;
    if (kind.type == typeid(torch::optim::LBFGS)) {  // one state, of all parameters
      elements = 0;
      for (const auto& x : groups[0].params()) *elements += x.numel();
    }
    loading.take_fields(start, kind.state(*own), p, elements);
  });

  std::vector<std::pair<at::Generator, at::Tensor>> generators;  // and the states to give them
  for (auto& [name, generator] : generators_of(net.get())) {
    const auto value = loading.take(name);
    if (!value.defined() && name == "generator.cpu") loading.writes.refuse(name + " is missing");
    if (!value.defined()) continue;
    try {
      const std::lock_guard lock(generator.mutex());
      generator.clone().set_state(value);  // throws where it cannot take it
      generators.emplace_back(generator, value.clone());
    } catch (const c10::Error&) {
      loading.writes.refuse(name + " is not the state of such a generator");
    }
  }

  loading.run(file.string());
  for (auto& [generator, value] : generators) {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(value);
  }
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i].set_options(std::move(options[i]));
  optimizer.state() = std::move(states);
  return state;
}

}  // namespace use_gpu
