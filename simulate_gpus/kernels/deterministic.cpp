// SPDX-License-Identifier: MIT
#include "kernels/deterministic.hpp"

#include <ATen/Context.h>
#include <ATen/core/Reduction.h>

#include <map>
#include <string_view>

namespace simulate_gpus {
namespace {

struct Alert {
  const char* caller;  // as LibTorch's kernel calls itself
  bool (*applies)(const Values& arguments) = [](const Values&) { return true; };
};

// Every call of Context::alertNotDeterministic that an operation on CUDA tensors can reach in LibTorch
// 2.11, and on host tensors cannot.
const std::map<std::string_view, Alert> k_alerts = {
    {"_adaptive_avg_pool2d_backward", {"adaptive_avg_pool2d_backward_cuda"}},
    {"_adaptive_avg_pool3d_backward", {"adaptive_avg_pool3d_backward_cuda"}},
    {"_ctc_loss_backward", {"ctc_loss_backward_gpu"}},
    {"_embedding_bag_backward",
     {"embedding_bag_backward_cuda_max",
      [](const Values& arguments) { return arguments[8].toInt() == 2; }}},
    {"_embedding_bag_dense_backward",
     {"embedding_bag_backward_cuda_max",
      [](const Values& arguments) { return arguments[7].toInt() == 2; }}},
    {"_upsample_bicubic2d_aa_backward", {"upsample_bicubic2d_aa_backward_out_cuda"}},
    {"_upsample_bilinear2d_aa_backward", {"upsample_bilinear2d_aa_backward_out_cuda"}},
    {"adaptive_max_pool2d_backward", {"adaptive_max_pool2d_backward_cuda"}},
    {"avg_pool3d_backward", {"avg_pool3d_backward_cuda"}},
    {"bincount",
     {"_bincount_cuda", [](const Values& arguments) { return !arguments[1].isNone(); }}},
    {"fractional_max_pool2d_backward", {"fractional_max_pool2d_backward_cuda"}},
    {"fractional_max_pool3d_backward", {"fractional_max_pool3d_backward_cuda"}},
    {"grid_sampler_2d_backward", {"grid_sampler_2d_backward_cuda"}},
    {"grid_sampler_3d_backward", {"grid_sampler_3d_backward_cuda"}},
    {"histc",
     {"_histc_cuda with floating point input",
      [](const Values& arguments) { return arguments[0].toTensor().is_floating_point(); }}},
    {"index_reduce", {"index_reduce_cuda"}},
    {"max_pool3d_with_indices_backward", {"max_pool3d_with_indices_backward_cuda"}},
    {"max_unpool2d", {"max_unpooling2d_forward_out"}},
    {"max_unpool3d", {"max_unpooling3d_forward_out"}},
    {"median",
     {"median CUDA with indices output",
      [](const Values& arguments) { return arguments.size() > 1; }}},
    {"nanmedian",
     {"median CUDA with indices output",
      [](const Values& arguments) { return arguments.size() > 1; }}},
    {"nll_loss2d_forward",
     {"nll_loss2d_forward_out_cuda_template",
      [](const Values& arguments) { return arguments[3].toInt() != at::Reduction::None; }}},
    {"put", {"put_", [](const Values& arguments) { return arguments[3].toBool(); }}},
    {"reflection_pad1d_backward", {"reflection_pad1d_backward_out_cuda"}},
    {"reflection_pad3d_backward", {"reflection_pad3d_backward_out_cuda"}},
    {"replication_pad1d_backward", {"replication_pad1d_backward_cuda"}},
    {"replication_pad2d_backward", {"replication_pad2d_backward_cuda"}},
    {"replication_pad3d_backward", {"replication_pad3d_backward_cuda"}},
    {"scatter",
     {"scatter_reduce_cuda_kernel",
      [](const Values& arguments) {
        return arguments.size() > 4 && arguments[3].isTensor() && arguments[4].isString() &&
               arguments[4].toStringRef() == "multiply";
      }}},
    {"scatter_reduce",
     {"scatter_reduce_cuda_prod_",
      [](const Values& arguments) { return arguments[4].toStringRef() == "prod"; }}},
    {"upsample_bicubic2d_backward", {"upsample_bicubic2d_backward_out_cuda"}},
    {"upsample_bilinear2d_backward", {"upsample_bilinear2d_backward_out_cuda"}},
    {"upsample_linear1d_backward", {"upsample_linear1d_backward_out_cuda"}},
    {"upsample_trilinear3d_backward", {"upsample_trilinear3d_backward_out_cuda"}},
};

}  // namespace

void check_deterministic(const c10::FunctionSchema& schema, const Values& arguments) {
  if (!at::globalContext().deterministicAlgorithms()) return;
  const auto alert = k_alerts.find(base_name(schema));
  if (alert != k_alerts.end() && alert->second.applies(arguments)) {
    at::globalContext().alertNotDeterministic(alert->second.caller);
  }
}

}  // namespace simulate_gpus
