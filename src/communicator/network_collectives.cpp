// SPDX-License-Identifier: MIT
//
// What a group does with a network. A rank that throws, or that has other tensors, must not leave
// the others waiting for messages that never come: so the ranks first compare, in one small
// message, what they are about to send.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/ConstexprCrc.h>
#include <torch/nn/module.h>
#include <use_gpu/communicator.hpp>
#include <use_gpu/device.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/tensor.hpp>
#include <use_gpu/transfers.hpp>

#include <sstream>

#include "communicator/group_state.hpp"
#include "communicator/wire_tensor.hpp"
#include "messages/message.hpp"
#include "network_tensors/each_copy.hpp"
#include "network_tensors/flat_buffers.hpp"
#include "network_tensors/named_tensors.hpp"
#include "network_tensors/parameter_differences.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

// A hash of all that decides which messages are sent. Of the devices, only whether each is the
// group's own.
std::int64_t fingerprint(const detail::NamedTensors& all, const Communicator& group) {
  std::ostringstream text;
  for (const auto& [name, x] : all) {
    text << name << ' ' << x.scalar_type() << x.sizes() << same_device(x.device(), group.device());
  }
  for (const auto& bucket : detail::buckets(detail::distinct_tensors(all))) {
    for (const auto i : bucket) text << ' ' << i;
    text << ';';
  }
  return static_cast<std::int64_t>(c10::util::crc64(text.str()).checksum());
}

// Throws on every rank if one has `trouble` with its tensors, or if the networks differ. Otherwise
// returns whether all ranks made the same choice.
bool agree(detail::GroupState& group, const std::string& function, const std::string& trouble,
           std::int64_t network, std::int64_t choice) {
  const auto all = group.agree(function, function, network, choice, !trouble.empty());
  if (!trouble.empty()) throw ParameterError(function + ": " + trouble);
  if (all.refusing_rank >= 0) {
    throw ParameterError(function + ": rank " + std::to_string(all.refusing_rank) +
                         " cannot take part; its own error says why.");
  }
  if (!all.same_network) {
    throw ParameterError(function +
                         ": the ranks' networks differ in the names, shapes, dtypes, devices, ties "
                         "or requires_grad of their tensors. Build the same network on every rank, "
                         "and place it on group.device().");
  }
  return all.same_choice;
}

std::string cannot_send(const std::string& what, const std::string& trouble) {
  return detail::clipped(what, 120) + " is " + trouble +
         "; only dense tensors with values can be sent.";
}

// The gradients that some rank has; zeros where this one has none.
std::vector<at::Tensor> gradients_of(const detail::NamedTensors& all,
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

}  // namespace

void broadcast_parameters(ModuleRef net, Communicator& group, int root) {
  const auto all = detail::named_tensors_of(net.get());
  const auto bad_root = detail::trouble_with_root(root, group.size());
  std::string trouble = bad_root;
  for (const auto& [name, x] : all) {
    if (const auto why = detail::trouble_with(x); !why.empty()) trouble = cannot_send(name, why);
  }
  const auto networks = trouble.empty() ? fingerprint(all, group) : 0;
  bool same_root = false;
  try {
    same_root = agree(*group.state_, "broadcast_parameters", trouble, networks, root);
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
  const auto tensors = detail::distinct_tensors(all);
  for (const auto& bucket : detail::buckets(tensors)) {
    const auto together = detail::select(tensors, bucket);
    const auto flat = detail::flatten(together);
    group.broadcast(flat, root);
    if (group.rank() == root) continue;
    const detail::EachCopy copies(detail::unflatten(flat, together), together);
    detail::write_with_retry([&] { copies.run(); });
  }
}

void average_gradients(ModuleRef net, Communicator& group) {
  const auto all = detail::trainable_parameters_of(net.get());
  const auto names = detail::distinct_names(all);
  std::string trouble;
  std::vector<std::int64_t> has_gradient;
  for (const auto& name : names) {
    const auto& gradient = all.at(name).grad();
    has_gradient.push_back(gradient.defined());
    const auto& x = gradient.defined() ? gradient : all.at(name);
    if (const auto why = detail::trouble_with(x); !why.empty()) {
      trouble = cannot_send("the gradient of " + name, why);
    } else if (!detail::reduction_dtype(x.scalar_type(), ReduceOp::mean)) {
      trouble = "the gradient of " + detail::clipped(name, 120) + " is " + describe(x) +
                ", a dtype that has no mean. Convert the network, say to float32.";
    }
  }
  const std::string_view mask(reinterpret_cast<const char*>(has_gradient.data()),
                              has_gradient.size() * sizeof(std::int64_t));
  const auto choice = static_cast<std::int64_t>(c10::util::crc64(mask).checksum());
  const auto network = trouble.empty() ? fingerprint(all, group) : 0;
  auto& state = *group.state_;
  const bool same_choice = agree(state, "average_gradients", trouble, network, choice);
  if (group.size() == 1) return;
  const AllowTransfers certain;
  const c10::InferenceMode inference;
  state.take_part("average_gradients", [&] {
    if (!same_choice) {
      const auto count = static_cast<std::int64_t>(has_gradient.size());
      state.all_reduce("average_gradients", at::from_blob(has_gradient.data(), {count}, at::kLong),
                       ReduceOp::max, /*on_nccl=*/false);
    }
    const auto gradients = gradients_of(all, names, has_gradient);
    for (const auto& bucket : detail::buckets(gradients)) {
      const auto together = detail::select(gradients, bucket);
      const auto flat = detail::flatten(together);
      const bool on_nccl = state.by_nccl(flat);
      const auto dtype = detail::reduction_dtype(flat.scalar_type(), ReduceOp::mean);
      const auto wire = detail::to_wire(flat, *dtype, !on_nccl);
      state.all_reduce("average_gradients", wire, ReduceOp::mean, on_nccl);
      detail::from_wire(wire, flat);
      const detail::EachCopy copies(detail::unflatten(flat, together), together);
      detail::write_with_retry([&] { copies.run(); });
    }
  });
}

}  // namespace use_gpu
