// SPDX-License-Identifier: MIT
//
// What a group does with a network. A rank that throws, or that has other tensors, must not leave
// the others waiting for messages that never come: so the ranks first compare, in one small
// message, what they are about to send.
#include <use_gpu/communicator.hpp>
#include <use_gpu/device.hpp>

#include <unordered_map>

#include "core/copies/flat_buffers.hpp"
#include "core/copies/value_scope.hpp"
#include "core/messages/tensor_summary.hpp"
#include "distributed/group_state.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

using detail::Collective;

// All that decides which messages are sent, in each call anew, as a device or a dtype may have changed
// on one rank alone. Of devices only matters whether each is the group's own, and which tensors share
// one. ParameterError if a tensor cannot be sent.
detail::Call call_for(const std::string& function, const detail::NamedTensors& all, Collective what,
                      c10::Device own, const std::string& choice = {}) {
  std::unordered_map<c10::Device, std::string> devices;
  auto facts = detail::facts_of(all);
  for (auto& [name, fact] : facts) {
    const auto& x = all.at(name);
    // Its gradient for a mean. Where it has none, the zeros that are sent instead are like x.
    const auto& sent = what == Collective(ReduceOp::mean) && x.grad().defined() ? x.grad() : x;
    if (const auto why = detail::why_not_sent(sent, what); !why.empty()) {
      throw ParameterError(function + ": " + (sent.is_same(x) ? "" : "the gradient of ") + name +
                           ": " + why);
    }
    if (sent.scalar_type() != x.scalar_type())
      fact += " with a gradient in " + detail::dtype_and_shape(sent);
    const auto& on_its_device = devices.try_emplace(sent.device(), name).first->second;
    if (!same_device(sent.device(), own))
      fact += " not on group.device(), but with " + on_its_device;
  }
  return {function + ' ' + detail::text_of(what), std::move(facts), choice};
}

// The gradients that some rank has; zeros where this one has none.
std::vector<at::Tensor> gradients_to_send(const std::vector<at::Tensor>& parameters,
                                          const std::string& has_gradient) {
  std::vector<at::Tensor> gradients;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (has_gradient[i] == '0') continue;
    auto& gradient = parameters[i].mutable_grad();
    if (!gradient.defined()) {
      const detail::NewTensorScope scope;  // so that backward can add to it
      gradient = at::zeros_like(parameters[i]);
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
  state.compare("broadcast_parameters", [&] {
    all = detail::named_tensors_of(net.get());
    return call_for("broadcast_parameters", all, root, state.device);
  });
  state.check_root("broadcast_parameters", root);
  state.take_part("broadcast_parameters", [&] {
    const detail::ValueScope scope;
    exchange(state, "broadcast_parameters", detail::distinct_tensors(all), root);
    // A rank that has its values does not hear of one that has not.
    state.compare("broadcast_parameters",
                  [] { return detail::Call{"the end of broadcast_parameters"}; });
  });
}

void average_gradients(ModuleRef net, Communicator& group) {
  const auto all = detail::trainable_parameters_of(net.get());
  const auto parameters = detail::distinct_tensors(all);
  std::string has_gradient;
  for (const auto& x : parameters) has_gradient += x.grad().defined() ? '1' : '0';
  auto& state = *group.state_;
  const bool same = state.compare("average_gradients", [&] {
    return call_for("average_gradients", all, ReduceOp::mean, state.device, has_gradient);
  });
  state.take_part("average_gradients", [&] {
    const detail::ValueScope scope;
    if (!same) {  // a '1' of any rank counts
      const auto any =
          at::from_blob(has_gradient.data(), {std::ssize(has_gradient)}, at::kChar).clone();
      state.send("average_gradients", any, any, ReduceOp::max);
      has_gradient.assign(static_cast<const char*>(any.const_data_ptr()), has_gradient.size());
    }
    exchange(state, "average_gradients", gradients_to_send(parameters, has_gradient),
             ReduceOp::mean);
  });
}

}  // namespace use_gpu
