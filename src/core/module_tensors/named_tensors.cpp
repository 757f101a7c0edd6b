// SPDX-License-Identifier: MIT
#include "core/module_tensors/named_tensors.hpp"

#include <torch/nn/module.h>

#include <unordered_map>
#include <unordered_set>

#include "core/copies/bulk_copy.hpp"
#include "core/messages/log_message.hpp"
#include "core/module_tensors/parameter_differences.hpp"

namespace use_gpu::detail {

NamedTensors named_tensors_of(const torch::nn::Module& net) {
  NamedTensors all;
  Differences differences;
  for (const auto& tensors : {net.named_parameters(), net.named_buffers()}) {
    for (const auto& x : tensors) {
      if (x.value().defined() && !all.emplace(x.key(), x.value()).second)
        differences.push_back(x.key() + " is a parameter and a buffer");
    }
  }
  throw_if_any(
      "The network has one name for two tensors, of which a file or a set of values can hold "
      "one; register them under different names",
      std::move(differences));
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

std::vector<at::Tensor> distinct_tensors(const NamedTensors& all) {
  std::vector<at::Tensor> tensors;
  for (const auto& name : distinct_names(all)) tensors.push_back(all.at(name));
  return tensors;
}

void check_readable(const NamedTensors& all, const std::string& function) {
  Differences differences;
  for (const auto& [name, x] : all) {
    const auto trouble = trouble_with(x);
    if (!trouble.empty()) differences.push_back(name + " is " + trouble);
  }
  throw_if_any(function + ": there are tensors whose values cannot be read",
               std::move(differences));
}

NamedTensors on_host(const NamedTensors& all, bool may_share) {
  std::unordered_map<at::TensorImpl*, at::Tensor> host_of;
  Pairs copies;
  for (const auto& x : distinct_tensors(all)) {
    auto& host = host_of[x.unsafeGetTensorImpl()];
    if (x.is_cpu() && may_share) {
      host = x.resolve_conj().resolve_neg();
    } else {
      host = at::empty_like(x, x.options().device(at::kCPU));
      copies.add(x, host);
    }
  }
  bulk_copy(copies.values, copies.targets);
  for (auto& [x, host] : host_of) host = host.contiguous();
  NamedTensors values;
  for (const auto& [name, x] : all) values.emplace(name, host_of.at(x.unsafeGetTensorImpl()));
  return values;
}

at::Tensor empty_on(c10::Device device, const at::Tensor& x, at::ScalarType dtype) {
  const c10::InferenceMode as_x(x.is_inference());
  return at::empty_like(x, x.options().device(device).dtype(dtype));
}

at::Tensor data_on(c10::Device device, const at::Tensor& x, at::ScalarType dtype, Pairs& copies) {
  if (!trouble_with(x).empty()) {  // a sparse one, as LibTorch moves it
    const c10::InferenceMode as_x(x.is_inference());
    return x.detach().to(device, dtype);
  }
  copies.add(x, empty_on(device, x, dtype));
  return copies.targets.back();
}

void swap_data(const Pairs& moves, const std::function<void()>& rest) {
  const auto& [data, tensors] = moves;
  std::vector<at::Tensor> before;
  for (const auto& x : tensors) before.push_back(x.detach());
  try {
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].set_data(data[i]);
    rest();
  } catch (...) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      try {
        tensors[i].set_data(before[i]);
      } catch (const std::exception& error) {  // possibly out of memory: build no text
        log_message(LogLevel::error,
                    "a failed move to another device could not be undone, because:");
        log_message(LogLevel::error, error.what());
      }
    }
    throw;
  }
}

}  // namespace use_gpu::detail
