// SPDX-License-Identifier: MIT
//
// What a group does with a network. A rank that throws, or that has other tensors, must not leave
// the others waiting for messages that never come: so the ranks first compare, in one small
// message, what they are about to send.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/unflatten_dense_tensors.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/ConstexprCrc.h>
#include <torch/nn/module.h>
#include <use_gpu/communicator.hpp>
#include <use_gpu/device.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/tensor.hpp>
#include <use_gpu/transfers.hpp>

#include <map>
#include <sstream>

#include "communicator/group_state.hpp"
#include "communicator/wire_tensor.hpp"
#include "copies/each_copy.hpp"
#include "copies/flat_buffers.hpp"
#include "network_tensors/named_tensors.hpp"
#include "network_tensors/parameter_differences.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

// A parameter's gradient; itself where it has none, as the zeros that are sent instead are like it.
const at::Tensor& gradient_or_itself(const at::Tensor& x) {
  return x.grad().defined() ? x.grad() : x;
}

const at::Tensor& itself(const at::Tensor& x) { return x; }

// A hash of all that decides which messages are sent. Ties and devices are numbered in the order of
// first use, as only what is the same one matters, and whether a device is the group's own.
std::int64_t fingerprint(const detail::NamedTensors& all, const Communicator& group,
                         const at::Tensor& (*sent_of)(const at::Tensor&)) {
  std::map<const at::TensorImpl*, std::size_t> tensors;
  std::map<std::string, std::size_t> devices;
  const auto number = [](auto& seen, const auto& key) {
    return seen.try_emplace(key, seen.size()).first->second;
  };
  std::ostringstream text;
  for (const auto& [name, x] : all) {
    const auto& sent = sent_of(x);
    text << name << ' ' << number(tensors, x.unsafeGetTensorImpl()) << ' ' << x.scalar_type()
         << sent.scalar_type() << sent.sizes() << number(devices, sent.device().str())
         << same_device(sent.device(), group.device()) << ';';
  }
  return static_cast<std::int64_t>(c10::util::crc64(text.str()).checksum());
}

// Throws on every rank if one has `trouble` with its tensors, or if the networks differ. Otherwise
// returns whether all ranks made the same choice.
bool check_networks(detail::GroupState& group, const std::string& function,
                    const std::string& trouble, std::int64_t network, std::int64_t choice) {
  const auto all = group.compare_calls(function, function, network, choice, !trouble.empty());
  if (!trouble.empty()) throw ParameterError(function + ": " + trouble);
  if (all.refusing_rank >= 0) {
    throw ParameterError(function + ": rank " + std::to_string(all.refusing_rank) +
                         " cannot take part; its own error says why.");
  }
  if (!all.same_network) {
    throw ParameterError(function +
                         ": the ranks' networks differ in the names, shapes, dtypes, devices, ties "
                         "or requires_grad of their tensors, or in their gradients' dtypes. Build "
                         "the same network on every rank, and place it on group.device().");
  }
  return all.same_choice;
}

std::string cannot_send(const std::string& what, const std::string& trouble) {
  return what + " is " + trouble + "; only dense tensors with values can be sent.";
}

// The gradients that some rank has; zeros where this one has none.
std::vector<at::Tensor> gradients_to_send(const detail::NamedTensors& all,
                                          const std::vector<std::string>& names,
                                          const std::vector<std::int64_t>& has_gradient) {
  std::vector<at::Tensor> gradients;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (has_gradient[i] == 0) continue;
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

// Sends the tensors in few messages. A rank that cannot go on leaves, so that none waits.
void exchange(detail::GroupState& state, const std::string& function,
              const std::vector<at::Tensor>& tensors, detail::Collective what) {
  for (const auto& bucket : detail::buckets(tensors)) {
    const auto together = detail::select(tensors, bucket);
    const auto flat = detail::flatten(together);
    state.send(function, flat, what);
    if (what == detail::Collective(state.rank)) continue;  // the root has its values
    detail::each_copy(at::unflatten_dense_tensors(flat, together), together)();
  }
}

}  // namespace

void broadcast_parameters(ModuleRef net, Communicator& group, int root) {
  const auto all = detail::named_tensors_of(net.get());
  const auto bad_root = detail::trouble_with_root(root, group.size());
  std::string trouble = bad_root;
  for (const auto& [name, x] : all) {
    if (const auto why = detail::trouble_with(x); !why.empty()) trouble = cannot_send(name, why);
  }
  const auto networks = trouble.empty() ? fingerprint(all, group, itself) : 0;
  bool same_root = false;
  try {
    same_root = check_networks(*group.state_, "broadcast_parameters", trouble, networks, root);
  } catch (const ParameterError&) {
    if (bad_root.empty()) throw;
    throw ArgumentError("broadcast_parameters: " + bad_root);
  }
  if (!same_root) {
    throw ArgumentError("broadcast_parameters: not all ranks name the same root as this one, " +
                        std::to_string(root) + '.');
  }
  if (group.size() == 1) return;
  const AllowTransfers certain;
  const c10::InferenceMode inference;
  group.state_->take_part("broadcast_parameters", [&] {
    exchange(*group.state_, "broadcast_parameters", detail::distinct_tensors(all), root);
    // A rank that has its values does not hear of one that has not.
    group.state_->compare_calls("broadcast_parameters", "the end of broadcast_parameters");
  });
}

void average_gradients(ModuleRef net, Communicator& group) {
  const auto all = detail::trainable_parameters_of(net.get());
  const auto names = detail::distinct_names(all);
  std::string trouble;
  std::vector<std::int64_t> has_gradient;
  for (const auto& name : names) {
    has_gradient.push_back(all.at(name).grad().defined());
    const auto& x = gradient_or_itself(all.at(name));
    if (const auto why = detail::trouble_with(x); !why.empty()) {
      trouble = cannot_send("the gradient of " + name, why);
    } else if (!detail::reduction_dtype(x.scalar_type(), ReduceOp::mean)) {
      trouble = "the gradient of " + name + " is " + describe(x) +
                ", a dtype that has no mean. Convert the network, say to float32.";
    }
  }
  const std::string_view mask(reinterpret_cast<const char*>(has_gradient.data()),
                              has_gradient.size() * sizeof(std::int64_t));
  const auto choice = static_cast<std::int64_t>(c10::util::crc64(mask).checksum());
  const auto network = trouble.empty() ? fingerprint(all, group, gradient_or_itself) : 0;
  auto& state = *group.state_;
  const bool same_choice = check_networks(state, "average_gradients", trouble, network, choice);
  if (group.size() == 1) return;
  const AllowTransfers certain;
  const c10::InferenceMode inference;
  state.take_part("average_gradients", [&] {
    if (!same_choice) {
      const auto count = static_cast<std::int64_t>(has_gradient.size());
      state.send("average_gradients", at::from_blob(has_gradient.data(), {count}, at::kLong),
                 ReduceOp::max);
    }
    exchange(state, "average_gradients", gradients_to_send(all, names, has_gradient),
             ReduceOp::mean);
  });
}

}  // namespace use_gpu
