// SPDX-License-Identifier: MIT
#include <use_gpu/tensor_file.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <use_gpu/transfers.hpp>

#include <vector>

#include "copies/bulk_copy.hpp"
#include "device/device_check.hpp"
#include "network_tensors/named_tensors.hpp"
#include "tensor_files/tensor_file_io.hpp"

namespace USE_GPU_EXPORT use_gpu {

std::map<std::string, at::Tensor> load_tensors(const std::filesystem::path& file,
                                               c10::Device device) {
  const AllowTransfers certain;
  // The caller may change the tensors, in inference mode or not.
  const c10::InferenceMode no_inference_mode(false);
  const at::NoGradGuard no_grad;
  const auto present = detail::present_device(device);
  const detail::TensorFileReader reader("load_tensors", file);
  std::map<std::string, at::Tensor> tensors;
  std::vector<at::Tensor> values;
  std::vector<at::Tensor> targets;
  for (const auto& stored : reader.tensors()) {
    values.push_back(reader.value_of(stored));
    const auto& value = values.back();
    targets.push_back(at::empty(value.sizes(), value.options().device(present)));
    tensors.emplace(stored.name, targets.back());
  }
  if (!present.is_meta()) detail::bulk_copy(values, targets);
  return tensors;
}

void save_tensors(const std::map<std::string, at::Tensor>& tensors,
                  const std::filesystem::path& file) {
  const AllowTransfers certain;
  const c10::InferenceMode inference;
  detail::write_tensor_file("save_tensors", detail::on_host(tensors, "save_tensors"), file);
}

}  // namespace use_gpu
