// SPDX-License-Identifier: MIT
#include <use_gpu/parameters.hpp>

#include "core/copies/value_scope.hpp"
#include "core/module_tensors/pending_writes.hpp"

namespace USE_GPU_EXPORT use_gpu {

std::map<std::string, at::Tensor> read_parameters(ConstModuleRef net) {
  const detail::NewTensorScope scope;
  const auto all = detail::named_tensors_of(net.get());
  detail::check_readable(all, "read_parameters");
  return detail::on_host(all, /*may_share=*/false);
}

void write_parameters(ModuleRef net, const std::map<std::string, at::Tensor>& values) {
  const detail::ValueScope scope;
  detail::PendingWrites pending{detail::named_tensors_of(net.get())};
  for (const auto& [name, value] : values) pending.add(name, value);
  pending.run("write_parameters: the values do not fit the network");
}

}  // namespace use_gpu
