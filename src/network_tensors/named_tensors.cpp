// SPDX-License-Identifier: MIT
#include "network_tensors/named_tensors.hpp"

#include <torch/nn/module.h>

#include <unordered_set>

namespace use_gpu::detail {

NamedTensors named_tensors_of(const torch::nn::Module& net) {
  NamedTensors all;
  for (const auto& x : net.named_parameters()) all.emplace(x.key(), x.value());
  for (const auto& x : net.named_buffers()) all.emplace(x.key(), x.value());
  std::erase_if(all, [](const auto& x) { return !x.second.defined(); });
  return all;
}

NamedTensors trainable_parameters_of(const torch::nn::Module& net) {
  NamedTensors all;
  for (const auto& x : net.named_parameters()) {
    if (x.value().requires_grad()) all.emplace(x.key(), x.value());
  }
  return all;
}

std::vector<std::string> distinct_names(const NamedTensors& all) {
  std::unordered_set<at::TensorImpl*> seen;
  std::vector<std::string> names;
  for (const auto& [name, x] : all) {
    if (x.defined() && seen.insert(x.unsafeGetTensorImpl()).second) names.push_back(name);
  }
  return names;
}

std::vector<at::Tensor> tensors_named(const std::vector<std::string>& names,
                                      const NamedTensors& all) {
  std::vector<at::Tensor> tensors;
  for (const auto& name : names) tensors.push_back(all.at(name));
  return tensors;
}

std::vector<at::Tensor> distinct_tensors(const NamedTensors& all) {
  return tensors_named(distinct_names(all), all);
}

}  // namespace use_gpu::detail
