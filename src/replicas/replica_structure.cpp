// SPDX-License-Identifier: MIT
#include "replicas/replica_structure.hpp"

#include <torch/nn/module.h>
#include <use_gpu/errors.hpp>

#include <unordered_map>

#include "messages/tensor_summary.hpp"

namespace use_gpu::detail {
NamedTensors structure_of(const torch::nn::Module& net) {
  auto all = named_tensors_of(net);
  for (const auto& x : net.named_modules("", /*include_self=*/false)) {
    all.emplace(x.key() + " (a module)", at::Tensor());
  }
  return all;
}

Differences differences_between(const std::vector<NamedTensors>& replicas,
                                std::string_view missing) {
  Differences differences;
  // For each tensor the first of its names; the others are tied to it.
  const auto first_names = [](const NamedTensors& all) {
    std::unordered_map<at::TensorImpl*, std::string> names;
    for (const auto& [name, x] : all) names.emplace(x.unsafeGetTensorImpl(), name);
    return names;
  };
  const auto& first = replicas.front();
  const auto ties = first_names(first);
  for (std::size_t i = 1; i < replicas.size(); ++i) {
    const auto& other = replicas[i];
    const auto other_ties = first_names(other);
    const auto add_missing = [&](const std::string& name, std::size_t index) {
      differences.push_back(name + std::string(missing) + replica_name(index));
    };
    for (const auto& [name, x] : first) {
      const auto found = other.find(name);
      if (found == other.end()) {
        add_missing(name, i);
        continue;
      }
      if (!x.defined()) continue;  // a module
      const auto& y = found->second;
      if (x.scalar_type() != y.scalar_type() || x.sizes() != y.sizes()) {
        differences.push_back(name + " is " + summary(x) + " in replica 0, but " + summary(y) +
                              " in " + replica_name(i));
      } else if (ties.at(x.unsafeGetTensorImpl()) != other_ties.at(y.unsafeGetTensorImpl())) {
        differences.push_back(name + " is tied to other names in replica 0 than in " +
                              replica_name(i));
      }
    }
    for (const auto& [name, y] : other) {
      if (!first.contains(name)) add_missing(name, 0);
    }
  }
  return differences;
}

std::string replica_name(std::size_t index) { return "replica " + std::to_string(index); }

void check_distinct(std::string_view function, const std::vector<torch::nn::Module*>& nets) {
  std::unordered_map<const torch::nn::Module*, std::size_t> seen;
  for (std::size_t i = 0; i < nets.size(); ++i) {
    const auto [found, is_new] = seen.emplace(nets[i], i);
    if (is_new) continue;
    throw ArgumentError(std::string(function) + ": " + replica_name(found->second) + " and " +
                        replica_name(i) + " are the same module; each needs its own.");
  }
}

}  // namespace use_gpu::detail
