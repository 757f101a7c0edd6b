// SPDX-License-Identifier: MIT
#include "network_tensors/named_tensors.hpp"

#include <ATen/ops/empty_like.h>
#include <torch/nn/module.h>

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "copies/bulk_copy.hpp"
#include "copies/each_copy.hpp"
#include "network_tensors/parameter_differences.hpp"

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

NamedTensors on_host(const NamedTensors& all, const std::string& function) {
  Differences differences;
  for (const auto& [name, x] : all) {
    const auto trouble = trouble_with(x);
    if (!trouble.empty()) differences.push_back(name + " is " + trouble);
  }
  throw_if_any(function + ": there are tensors whose values cannot be read",
               std::move(differences));
  std::unordered_map<at::TensorImpl*, at::Tensor> host_of;
  Pairs copies;
  for (const auto& x : distinct_tensors(all)) {
    auto& host = host_of[x.unsafeGetTensorImpl()];
    host = x.is_cpu() ? x.resolve_conj().resolve_neg()
                      : at::empty_like(x, x.options().device(at::kCPU));
    if (!x.is_cpu()) copies.add(x, host);
  }
  bulk_copy(copies.values, copies.targets);
  for (auto& [x, host] : host_of) host = host.contiguous();
  NamedTensors values;
  for (const auto& [name, x] : all) values.emplace(name, host_of.at(x.unsafeGetTensorImpl()));
  return values;
}

}  // namespace use_gpu::detail
