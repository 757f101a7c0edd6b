// SPDX-License-Identifier: MIT
#include "network_tensors/host_values.hpp"

#include <ATen/ops/empty_like.h>

#include <unordered_map>
#include <utility>

#include "copies/bulk_copy.hpp"
#include "network_tensors/parameter_differences.hpp"

namespace use_gpu::detail {

NamedTensors on_host(const NamedTensors& all, const std::string& function) {
  Differences differences;
  for (const auto& [name, x] : all) {
    const auto trouble = trouble_with(x);
    if (!trouble.empty()) differences.push_back(name + " is " + trouble);
  }
  throw_if_any(function + ": there are tensors whose values cannot be read",
               std::move(differences));
  std::unordered_map<at::TensorImpl*, at::Tensor> host_of;
  std::vector<at::Tensor> remote;
  std::vector<at::Tensor> copies;
  for (const auto& x : distinct_tensors(all)) {
    auto& host = host_of[x.unsafeGetTensorImpl()];
    host = x.is_cpu() ? x.resolve_conj().resolve_neg()
                      : at::empty_like(x, x.options().device(at::kCPU));
    if (x.is_cpu()) continue;
    remote.push_back(x);
    copies.push_back(host);
  }
  bulk_copy(remote, copies);
  for (auto& [x, host] : host_of) host = host.contiguous();
  NamedTensors values;
  for (const auto& [name, x] : all) values.emplace(name, host_of.at(x.unsafeGetTensorImpl()));
  return values;
}

}  // namespace use_gpu::detail
