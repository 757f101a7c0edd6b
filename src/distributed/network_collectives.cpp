// SPDX-License-Identifier: MIT
//
// What a group does with a network. A rank that throws, or that has other tensors, must not leave
// the others waiting for messages that never come: so the ranks first compare, in one small
// message, what they are about to send.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/unflatten_dense_tensors.h>
#include <ATen/ops/zeros_like.h>
#include <use_gpu/communicator.hpp>
#include <use_gpu/device.hpp>
#include <use_gpu/errors.hpp>

#include <exception>
#include <string>
#include <unordered_map>

#include "core/copies/each_copy.hpp"
#include "core/copies/flat_buffers.hpp"
#include "core/messages/tensor_summary.hpp"
#include "core/module_tensors/named_tensors.hpp"
#include "distributed/group_state.hpp"
#include "distributed/wire_tensor.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

using detail::Collective;

// What is sent of x: its gradient for a mean, or x itself. Where it has no gradient, the zeros that
// are sent instead are like x.
const at::Tensor& sent_of(const at::Tensor& x, Collective what) {
  return what == Collective(ReduceOp::mean) && x.grad().defined() ? x.grad() : x;
}

// All that decides which messages are sent, in each call anew, as a device or a dtype may have changed
// on one rank alone. Only which tensors are tied matters, and which are on one device, and whether a
// device is the group's own.
std::string description(const detail::NamedTensors& all, Collective what, c10::Device own) {
  std::unordered_map<const at::TensorImpl*, std::string> tensors;
  std::unordered_map<c10::Device, std::string> devices;
  std::string facts;
  for (const auto& [name, x] : all) {
    const auto& sent = sent_of(x, what);
    const auto& first = tensors.try_emplace(x.unsafeGetTensorImpl(), name).first->second;
    const auto& device = devices.try_emplace(sent.device(), name).first->second;
    facts += name + '\0' + detail::dtype_and_shape(x);
    if (sent.scalar_type() != x.scalar_type())
      facts += " with a gradient in " + detail::dtype_and_shape(sent);
    if (!same_device(sent.device(), own)) facts += " not on group.device(), but with " + device;
    if (first != name) facts += " tied to " + first;
    facts += '\0';
  }
  return facts;
}

// Throws on every rank if one cannot send its tensors, or if the networks differ. Otherwise returns
// whether all ranks made the same choice.
bool check_networks(detail::GroupState& group, const std::string& function,
                    const detail::NamedTensors& all, Collective what,
                    const std::string& choice = {}) {
  std::exception_ptr own;
  for (const auto& [name, x] : all) {
    const auto& sent = sent_of(x, what);
    if (const auto why = detail::why_not_sent(sent, what); !why.empty()) {
      const auto whose = (sent.is_same(x) ? "" : "the gradient of ") + name;
      own = std::make_exception_ptr(ParameterError(function + ": " + whose + ": " + why));
    }
  }
  return group.compare_networks(
      function, function + ' ' + detail::text_of(what),
      own ? "" : description(all, what, group.device),
      "the ranks' networks differ in the names, shapes, dtypes, devices, ties "
      "or requires_grad of their tensors, or in their gradients' dtypes "
      "(build the same on every rank)",
      own, choice);
}

// The gradients that some rank has; zeros where this one has none.
std::vector<at::Tensor> gradients_to_send(const detail::NamedTensors& all,
                                          const std::vector<std::string>& names,
                                          const std::string& has_gradient) {
  std::vector<at::Tensor> gradients;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (has_gradient[i] == '0') continue;
    auto& gradient = all.at(names[i]).mutable_grad();
    if (!gradient.defined()) {
      // If made in inference mode, backward could not add to it.
      const c10::InferenceMode no_inference_mode(false);
      const at::NoGradGuard no_grad;
      gradient = at::zeros_like(all.at(names[i]));
    }
    gradients.push_back(gradient);
  }
  return gradients;
}

// Sends the tensors in few messages.
void exchange(detail::GroupState& group, const std::string& function,
              const std::vector<at::Tensor>& tensors, Collective what) {
  for (const auto& bucket : detail::buckets(tensors)) {
    const auto together = detail::select(tensors, bucket);
    const auto flat = detail::flatten(together);
    const auto wire = detail::to_wire(flat, what, /*through_host=*/!group.by_nccl(flat));
    group.send(function, wire, flat, what);
    if (what == Collective(group.rank)) continue;  // the root has its values
    detail::each_copy(at::unflatten_dense_tensors(flat, together), together)();
  }
}

}  // namespace

void broadcast_parameters(ModuleRef net, Communicator& group, int root) {
  auto& state = *group.state_;
  detail::NamedTensors all;
  try {
    all = detail::named_tensors_of(net.get());
  } catch (...) {
    state.refuse("broadcast_parameters");
    throw;
  }
  check_networks(state, "broadcast_parameters", all, root);
  if (const auto trouble = detail::trouble_with_root(root, state.size()); !trouble.empty())
    throw ArgumentError("broadcast_parameters: " + trouble);
  state.take_part("broadcast_parameters", [&] {
    exchange(state, "broadcast_parameters", detail::distinct_tensors(all), root);
    // A rank that has its values does not hear of one that has not.
    state.compare_calls("broadcast_parameters", "the end of broadcast_parameters");
  });
}

void average_gradients(ModuleRef net, Communicator& group) {
  const auto all = detail::trainable_parameters_of(net.get());
  const auto names = detail::distinct_names(all);
  std::string has_gradient;
  for (const auto& name : names) has_gradient += all.at(name).grad().defined() ? '1' : '0';
  auto& state = *group.state_;
  const bool same = check_networks(state, "average_gradients", all, ReduceOp::mean, has_gradient);
  state.take_part("average_gradients", [&] {
    if (!same) {  // a '1' of any rank counts
      const auto any =
          at::from_blob(has_gradient.data(), {std::ssize(has_gradient)}, at::kChar).clone();
      state.send("average_gradients", any, any, ReduceOp::max);
      has_gradient.assign(static_cast<const char*>(any.const_data_ptr()), has_gradient.size());
    }
    exchange(state, "average_gradients", gradients_to_send(all, names, has_gradient),
             ReduceOp::mean);
  });
}

}  // namespace use_gpu
