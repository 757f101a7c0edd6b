// SPDX-License-Identifier: MIT
//
// The names in a training file: "network.<name>"; "optimizer.kind"; for each group
// "optimizer.<group>.parameters", the names of its parameters, and its options; for each parameter
// "optimizer.<group>.<index>.<field>"; "generator.cpu", "generator.cuda.<place>"; "step"; "scaler.scale".
// Numbers are tensors of no dimensions, texts are bytes.
#include <use_gpu/training.hpp>

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/InferenceMode.h>
#include <use_gpu/device.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/transfers.hpp>

#include <map>
#include <mutex>
#include <set>

#include "messages/tensor_summary.hpp"
#include "network_tensors/named_tensors.hpp"
#include "network_tensors/pending_writes.hpp"
#include "tensor_files/tensor_file_io.hpp"
#include "training/optimizer_kind.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

using detail::Field;
using detail::Fields;
using detail::NamedTensors;
using torch::optim::Optimizer;

template <class... T>
struct Overloaded : T... {
  using T::operator()...;
};

at::Tensor number(std::int64_t x) {
  return at::scalar_tensor(x, at::device(at::kCPU).dtype(at::kLong));
}
at::Tensor number(double x) {
  return at::scalar_tensor(x, at::device(at::kCPU).dtype(at::kDouble));
}
at::Tensor number(bool x) { return at::scalar_tensor(x, at::device(at::kCPU).dtype(at::kBool)); }
at::Tensor bytes(const std::string& text) {
  // from_blob takes a non-const pointer.
  return at::from_blob(const_cast<char*>(text.data()), {std::ssize(text)}, at::kByte).clone();
}

// Its tensors that are defined.
std::vector<at::Tensor*> tensors_of(const Fields& fields) {
  std::vector<at::Tensor*> tensors;
  for (const auto& [name, field] : fields) {
    if (const auto* x = std::get_if<at::Tensor*>(&field); x && (*x)->defined())
      tensors.push_back(*x);
    if (const auto* all = std::get_if<std::deque<at::Tensor>*>(&field)) {
      for (auto& x : **all) tensors.push_back(&x);
    }
  }
  return tensors;
}

// Calls visit(p, start of its fields' names) for each parameter, once.
template <class Visit>
void each_parameter(const Optimizer& optimizer, const Visit& visit) {
  std::set<const at::TensorImpl*> seen;
  for (std::size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    const auto& parameters = optimizer.param_groups()[group].params();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (seen.insert(parameters[i].unsafeGetTensorImpl()).second) {
        visit(parameters[i], "optimizer." + std::to_string(group) + '.' + std::to_string(i) + '.');
      }
    }
  }
}

// Which of the network's parameters a group has, in its order: a line for each.
std::string names_in(const torch::optim::OptimizerParamGroup& group, const NamedTensors& network) {
  std::map<const at::TensorImpl*, std::string> names;
  for (const auto& [name, x] : network) names.emplace(x.unsafeGetTensorImpl(), name);
  std::string text;
  for (const auto& p : group.params()) {
    const auto found = names.find(p.unsafeGetTensorImpl());
    text += (found == names.end() ? "(not in the network)" : found->second) + '\n';
  }
  return text;
}

// The CPU's, and those of the network's devices in the order of first use, by their names.
std::map<std::string, at::Generator> generators_of(ConstModuleRef net) {
  std::map<std::string, at::Generator> generators{
      {"generator.cpu", at::globalContext().defaultGenerator(cpu())}};
  int place = 0;
  for (const auto device : placement(net).devices()) {
    if (device.is_cpu() || device.is_meta()) continue;
    generators.emplace("generator." + c10::DeviceTypeName(device.type(), /*lower_case=*/true) +
                           '.' + std::to_string(place++),
                       at::globalContext().defaultGenerator(device));
  }
  return generators;
}

at::Tensor state_of(const at::Generator& generator) {
  auto own = generator;
  const std::lock_guard lock(own.mutex());
  return own.get_state();
}

void add_fields(NamedTensors& all, const std::string& start, const Fields& fields) {
  for (const auto& [field_name, field] : fields) {
    const auto name = start + field_name;
    std::visit(Overloaded{[&](const at::Tensor* x) {
                            if (x->defined()) all.emplace(name, *x);
                          },
                          [&](const std::deque<at::Tensor>* x) {
                            for (std::size_t i = 0; i < x->size(); ++i)
                              all.emplace(name + '.' + std::to_string(i), (*x)[i]);
                          },
                          [&](const std::optional<std::int64_t>* x) {
                            if (*x) all.emplace(name, number(**x));
                          },
                          [&](const std::optional<std::string>* x) {
                            if (*x) all.emplace(name, bytes(**x));
                          },
                          [&](const auto* x) { all.emplace(name, number(*x)); }},
               field);
  }
}

// A training file, and what is to be written of it. What is missing or does not fit is a difference.
class Loading {
 public:
  Loading(const std::filesystem::path& file, const torch::nn::Module& net)
      : reader_("load_training", file), writes_{detail::named_tensors_of(net)} {
    for (const auto& x : reader_.tensors())
      values_.emplace(x.name, detail::aligned(reader_.value_of(x)));
  }

  [[nodiscard]] const NamedTensors& network() const { return writes_.known; }
  void refuse(std::string why) { writes_.refuse(std::move(why)); }

  /// The value of that name, which nobody else takes; undefined if there is none.
  at::Tensor take(const std::string& name) {
    const auto node = values_.extract(name);
    return node.empty() ? at::Tensor() : node.mapped();
  }
  template <class T>
  std::optional<T> take_number(const std::string& name, bool may_miss = false) {
    const auto x = take(name);
    if (x.defined() && x.dim() == 0 && x.scalar_type() == c10::CppTypeToScalarType<T>::value)
      return x.item<T>();
    if (x.defined() || !may_miss)
      refuse(name + (x.defined() ? " is no such number" : " is missing"));
    return {};
  }
  std::optional<std::string> take_text(const std::string& name) {
    const auto x = take(name);
    if (!x.defined()) return {};
    if (x.dim() == 1 && x.scalar_type() == at::kByte)
      return std::string(static_cast<const char*>(x.const_data_ptr()), x.nbytes());
    refuse(name + " is no text");
    return {};
  }

  void take_network() {
    for (const auto& [name, x] : network()) {
      const auto value = take("network." + name);
      value.defined() ? writes_.add(name, value) : refuse(name + " is missing");
    }
  }

  /// Fields of a state that belongs to p, or of a group's options.
  void take_fields(const std::string& start, const Fields& fields, const at::Tensor& p = {},
                   bool is_elementwise = false) {
    for (const auto& [field_name, field] : fields) {
      const auto name = start + field_name;
      std::visit(Overloaded{[&](at::Tensor* x) { *x = take_tensor(name, p, is_elementwise); },
                            [&](std::deque<at::Tensor>* all) {
                              while (values_.contains(name + '.' + std::to_string(all->size())))
                                all->push_back(take_tensor(name + '.' + std::to_string(all->size()),
                                                           p, is_elementwise));
                            },
                            [&](std::optional<std::int64_t>* x) {
                              *x = take_number<std::int64_t>(name, /*may_miss=*/true);
                            },
                            [&](std::optional<std::string>* x) { *x = take_text(name); },
                            [&]<class T>(T* x) { *x = take_number<T>(name).value_or(*x); }},
                 field);
    }
  }

  /// Whether there are values whose names start so.
  [[nodiscard]] bool has(const std::string& start) const {
    const auto next = values_.lower_bound(start);
    return next != values_.end() && next->first.starts_with(start);
  }

  /// Writes all; or ParameterError, and nothing has changed.
  void run(const std::string& file) {
    std::erase_if(values_, [](const auto& x) { return x.first.starts_with("generator."); });
    for (const auto& [name, x] : values_) {
      const bool of_network = name.starts_with("network.");
      refuse((of_network ? name.substr(8) + " is not in the network" : name + " is not expected"));
    }
    writes_.run("load_training: " + file + " does not fit (build the network and the optimizer " +
                "that were saved)");
  }

 private:
  // Memory on p's device, into which the value will be written.
  at::Tensor take_tensor(const std::string& name, const at::Tensor& p, bool is_elementwise) {
    const auto value = take(name);
    if (!value.defined()) return {};
    const auto dtype = value.scalar_type();
    const bool fits =
        is_elementwise ? value.sizes() == p.sizes() && (dtype == p.scalar_type() ||
                                                        dtype == at::kFloat || dtype == at::kDouble)
                       : value.dim() <= 1;
    if (!fits) {
      refuse(name + " is " + detail::dtype_and_shape(value) + ", its parameter " +
             detail::dtype_and_shape(p));
      return {};
    }
    const c10::InferenceMode as_p(p.is_inference());
    const auto options = p.options().dtype(dtype);
    const auto target =
        is_elementwise ? at::empty_like(p, options) : at::empty(value.sizes(), options);
    writes_.writes.add(value, target);
    return target;
  }

  detail::TensorFileReader reader_;
  detail::PendingWrites writes_;
  NamedTensors values_ = {};
};

}  // namespace

void place(Optimizer& optimizer) {
  const auto& kind = detail::kind_of(optimizer, "place");
  std::map<std::string, std::vector<at::Tensor*>> moving;  // by where they go
  each_parameter(optimizer, [&](const at::Tensor& p, const std::string&) {
    const auto found = optimizer.state().find(p.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) return;
    for (auto* x : tensors_of(kind.state(*found->second)))
      if (!same_device(x->device(), p.device())) moving[p.device().str()].push_back(x);
  });
  const AllowTransfers certain;
  const at::NoGradGuard no_grad;
  std::vector<std::pair<at::Tensor*, at::Tensor>> moved;
  for (const auto& [device, tensors] : moving) {
    std::vector<at::Tensor> values;
    for (const auto* x : tensors) values.push_back(*x);
    const auto data = detail::data_on(c10::Device(device), values);
    for (std::size_t i = 0; i < data.size(); ++i) moved.emplace_back(tensors[i], data[i]);
  }
  for (auto& [x, data] : moved) *x = std::move(data);
}

void save_training(ConstModuleRef net, const Optimizer& optimizer, const TrainingState& state,
                   const std::filesystem::path& file) {
  const auto& kind = detail::kind_of(optimizer, "save_training");
  const auto network = detail::named_tensors_of(net.get());
  const AllowTransfers certain;
  const c10::InferenceMode inference;
  NamedTensors all{{"optimizer.kind", bytes(kind.name)}, {"step", number(state.step)}};
  for (const auto& [name, x] : network) all.emplace("network." + name, x);
  for (std::size_t i = 0; i < optimizer.param_groups().size(); ++i) {
    const auto& group = optimizer.param_groups()[i];
    const auto start = "optimizer." + std::to_string(i) + '.';
    all.emplace(start + "parameters", bytes(names_in(group, network)));
    add_fields(all, start, kind.options(*group.options().clone()));
  }
  each_parameter(optimizer, [&](const at::Tensor& p, const std::string& start) {
    const auto found = optimizer.state().find(p.unsafeGetTensorImpl());
    if (found != optimizer.state().end()) add_fields(all, start, kind.state(*found->second));
  });
  for (const auto& [name, generator] : generators_of(net)) all.emplace(name, state_of(generator));
  if (state.scaler) {
    all.emplace("scaler.scale", number(state.scaler->scale));
    all.emplace("scaler.growth_tracker", number(state.scaler->growth_tracker));
  }
  detail::write_tensor_file("save_training", detail::on_host(all, "save_training"), file);
}

TrainingState load_training(ModuleRef net, Optimizer& optimizer,
                            const std::filesystem::path& file) {
  const auto& kind = detail::kind_of(optimizer, "load_training");
  auto& groups = optimizer.param_groups();
  const AllowTransfers certain;
  const c10::InferenceMode inference;
  Loading loading(file, net.get());
  loading.take_network();

  TrainingState state;
  state.step = loading.take_number<std::int64_t>("step").value_or(0);
  const auto scale = loading.take_number<double>("scaler.scale", /*may_miss=*/true);
  const auto tracker = loading.take_number<std::int64_t>("scaler.growth_tracker", !scale);
  if (scale && tracker) state.scaler = {*scale, *tracker};

  const auto saved_kind = loading.take_text("optimizer.kind").value_or("none");
  if (saved_kind != kind.name)
    loading.refuse("the optimizer is " + std::string(kind.name) + ", in the file " + saved_kind);
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto start = "optimizer." + std::to_string(i) + '.';
    if (loading.take_text(start + "parameters") != names_in(groups[i], loading.network()))
      loading.refuse("group " + std::to_string(i) + " has other parameters in the file");
    options.push_back(groups[i].options().clone());
    if (saved_kind == kind.name) loading.take_fields(start, kind.options(*options.back()));
  }
  ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>> states;
  each_parameter(optimizer, [&](const at::Tensor& p, const std::string& start) {
    if (saved_kind != kind.name || !loading.has(start)) return;
    auto& own = states[p.unsafeGetTensorImpl()] = kind.make_state();
    loading.take_fields(start, kind.state(*own), p, kind.is_elementwise);
  });

  std::vector<std::pair<at::Generator, at::Tensor>> generators;
  for (const auto& [name, generator] : generators_of(net.get())) {
    const auto value = loading.take(name);
    if (!value.defined()) continue;
    try {
      auto copy = generator.clone();  // looks at the value
      copy.set_state(value);
      generators.emplace_back(generator, value.clone());
    } catch (const c10::Error&) {
      loading.refuse(name + " is not the state of such a generator");
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
