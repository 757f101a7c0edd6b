// SPDX-License-Identifier: MIT
#include <use_gpu/parameters.hpp>

#include <ATen/ops/empty_like.h>
#include <torch/nn/module.h>
#include <use_gpu/transfers.hpp>

#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "messages/message.hpp"
#include "network_tensors/bulk_copy.hpp"
#include "network_tensors/flat_buffers.hpp"
#include "network_tensors/named_tensors.hpp"
#include "network_tensors/parameter_differences.hpp"
#include "tensor_files/atomic_file.hpp"
#include "tensor_files/mapped_file.hpp"
#include "tensor_files/tensor_conversion.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void throw_file_error(const char* function, const fs::path& file,
                                   const std::string& cause) {
  const auto name = file.empty() ? "an empty file name" : detail::clipped(file.string(), 120);
  detail::throw_parameter_error(std::string(function) + ": " + name + ": " + cause);
}

// These tensors in host memory, contiguous. CPU ones that are so already are not copied.
detail::NamedTensors on_host(const detail::NamedTensors& all, const std::string& function) {
  detail::Differences differences;
  for (const auto& [name, x] : all) {
    const auto trouble = detail::trouble_with(x);
    if (!trouble.empty()) differences.push_back(name + " is " + trouble);
  }
  detail::throw_if_any(function + ": there are tensors whose values cannot be read",
                       std::move(differences));
  std::unordered_map<at::TensorImpl*, at::Tensor> host_of;
  std::vector<at::Tensor> remote;
  std::vector<at::Tensor> copies;
  for (const auto& x : detail::distinct_tensors(all)) {
    auto& host = host_of[x.unsafeGetTensorImpl()];
    host = x.is_cpu() ? x.resolve_conj().resolve_neg()
                      : at::empty_like(x, x.options().device(at::kCPU));
    if (x.is_cpu()) continue;
    remote.push_back(x);
    copies.push_back(host);
  }
  detail::bulk_copy(remote, copies);
  for (auto& [x, host] : host_of) host = host.contiguous();
  detail::NamedTensors values;
  for (const auto& [name, x] : all) values.emplace(name, host_of.at(x.unsafeGetTensorImpl()));
  return values;
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  const auto bytes = [](const at::Tensor& x) { return detail::flatten({x}).view(at::kByte); };
  return a.is_same(b) || (a.device() == b.device() && bytes(a).equal(bytes(b)));
}

// Checks everything, then writes in place.
void write_values(const torch::nn::Module& net, const detail::NamedTensors& values, bool all_names,
                  const std::string& what) {
  const auto known = detail::named_tensors_of(net);
  detail::Differences differences;
  std::vector<at::Tensor> targets;
  std::vector<at::Tensor> sources;
  std::unordered_map<at::TensorImpl*, detail::NamedTensors::const_iterator> written;
  for (auto value = values.begin(); value != values.end(); ++value) {
    const auto& [name, source] = *value;
    const auto found = known.find(name);
    if (found == known.end()) {
      differences.push_back(name + " is not in the network");
      continue;
    }
    const auto text = detail::difference(found->second, source);
    if (!text.empty()) {
      differences.push_back(name + ' ' + text);
      continue;
    }
    const auto [first, is_first] = written.emplace(found->second.unsafeGetTensorImpl(), value);
    if (is_first) {
      targets.push_back(found->second);
      sources.push_back(source);
    } else if (!same_bytes(first->second->second, source)) {
      differences.push_back(name + " is tied to " + first->second->first +
                            "; give both one tensor");
    }
  }
  for (const auto& [name, target] : known) {
    if (all_names && !values.contains(name)) differences.push_back(name + " is missing");
  }
  detail::throw_if_any(what, std::move(differences));

  // A value may be another parameter of this network, overwritten before it is read.
  std::unordered_set<const void*> storages;
  for (const auto& target : targets) storages.insert(target.storage().unsafeGetStorageImpl());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const bool shared = storages.contains(sources[i].storage().unsafeGetStorageImpl());
    if (shared && !sources[i].is_same(targets[i])) sources[i] = sources[i].clone();
  }
  detail::bulk_copy(sources, targets);
}

}  // namespace

std::map<std::string, at::Tensor> read_parameters(ConstModuleRef net) {
  const AllowTransfers certain;
  // The caller may change the copies, in inference mode or not.
  const c10::InferenceMode no_inference_mode(false);
  const at::NoGradGuard no_grad;
  const auto all = detail::named_tensors_of(net.get());
  auto values = on_host(all, "read_parameters");
  std::unordered_map<at::TensorImpl*, at::Tensor> copies;
  for (auto& [name, value] : values) {
    // A contiguous CPU tensor still shares the network's memory.
    if (!value.is_alias_of(all.at(name))) continue;
    auto& copy = copies[value.unsafeGetTensorImpl()];
    if (!copy.defined()) copy = value.clone();
    value = copy;
  }
  return values;
}

void write_parameters(ModuleRef net, const std::map<std::string, at::Tensor>& values) {
  const AllowTransfers certain;
  // In inference mode tensors that were made in it can be written too.
  const c10::InferenceMode inference;
  write_values(net.get(), values, /*all_names=*/false,
               "write_parameters: the values do not fit the network");
}

void save_parameters(ConstModuleRef net, const fs::path& file) {
  const AllowTransfers certain;
  const c10::InferenceMode inference;
  const auto values = on_host(detail::named_tensors_of(net.get()), "save_parameters");
  try {
    std::vector<detail::StoredTensor> stored;
    for (const auto& [name, value] : values) stored.push_back(detail::to_stored(name, value));
    auto parts = detail::make_safetensors(std::move(stored));
    parts.data.insert(parts.data.begin(), std::as_bytes(std::span(parts.header)));
    detail::write_atomically(file, parts.data);
  } catch (const std::runtime_error& error) {
    throw_file_error("save_parameters", file, error.what());
  }
}

void load_parameters(ModuleRef net, const fs::path& file) {
  const AllowTransfers certain;
  const c10::InferenceMode inference;
  const torch::nn::Module& module = net.get();
  try {
    const detail::MappedFile mapped(file);
    detail::NamedTensors values;
    for (const auto& stored : detail::parse_safetensors(mapped.bytes()))
      values.emplace(stored.name, detail::to_tensor(stored));
    write_values(module, values, /*all_names=*/true,
                 "load_parameters: " + detail::clipped(file.string(), 110) +
                     " does not fit the network (build the one that was saved)");
  } catch (const std::runtime_error& error) {
    throw_file_error("load_parameters", file, error.what());
  }
}

}  // namespace use_gpu
