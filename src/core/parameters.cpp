// SPDX-License-Identifier: MIT
#include <use_gpu/parameters.hpp>

#include <c10/core/InferenceMode.h>
#include <use_gpu/allow_transfers.hpp>

#include "core/module_tensors/named_tensors.hpp"
#include "core/module_tensors/pending_writes.hpp"

namespace USE_GPU_EXPORT use_gpu {

std::map<std::string, at::Tensor> read_parameters(ConstModuleRef net) {
  const AllowTransfers certain;
  // The caller may change the copies, in inference mode or not.
  const c10::InferenceMode no_inference_mode(false);
  return detail::on_host(detail::named_tensors_of(net.get()), "read_parameters",
                         /*may_share=*/false);
}

void write_parameters(ModuleRef net, const std::map<std::string, at::Tensor>& values) {
  const AllowTransfers certain;
  // In inference mode tensors that were made in it can be written too.
  const c10::InferenceMode inference;
  detail::PendingWrites pending{detail::named_tensors_of(net.get())};
  for (const auto& [name, value] : values) pending.add(name, value);
  pending.run("write_parameters: the values do not fit the network");
}

}  // namespace use_gpu
