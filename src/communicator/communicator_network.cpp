// SPDX-License-Identifier: MIT
//
// What a group does with a network. A rank that throws, or that has other tensors, must not leave
// the others waiting for messages that never come: so the ranks first compare, in one small
// message, what they are about to send.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/ConstexprCrc.h>
#include <torch/nn/module.h>
#include <use_gpu/communicator.hpp>
#include <use_gpu/device.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/transfers.hpp>

#include <sstream>

#include "communicator/wire_tensor.hpp"
#include "messages/message.hpp"
#include "network_tensors/flat_buffers.hpp"
#include "network_tensors/named_tensors.hpp"
#include "network_tensors/parameter_differences.hpp"

namespace use_gpu {
namespace {

// A number for all that decides which messages are sent; which device it is does not, but whether
// it is the group's own does.
std::int64_t fingerprint(const NamedTensors& all, const Communicator& group) {
  std::ostringstream text;
  for (const auto& [name, x] : all) {
    text << name << ' ' << x.scalar_type() << x.sizes() << same_device(x.device(), group.device());
  }
  for (const auto& bucket : buckets(distinct_tensors(all))) {
    for (const auto i : bucket) text << ' ' << i;
    text << ';';
  }
  return static_cast<std::int64_t>(c10::util::crc64(text.str()).checksum());
}

// All-reduces a few integers, in place.
void all_max(Communicator& group, std::vector<std::int64_t>& values) {
  group.all_reduce(
      at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, at::kLong),
      ReduceOp::max);
}

// Throws on every rank if `trouble`, of its tensors, is not empty on one, or the fingerprints differ.
// Otherwise says whether all ranks have the same mask.
bool agree(Communicator& group, const std::string& function, const std::string& trouble,
           std::int64_t networks, std::int64_t masks) {
  std::vector<std::int64_t> most{trouble.empty() ? -1 : group.rank(), networks, ~networks, masks,
                                 ~masks};
  all_max(group, most);
  if (!trouble.empty()) throw ParameterError(function + ": " + trouble);
  if (most[0] >= 0) {
    throw ParameterError(function + ": rank " + std::to_string(most[0]) +
                         " cannot take part; its own error says why.");
  }
  if (most[1] != ~most[2]) {
    throw ParameterError(
        function +
        ": the ranks' networks differ in the names, order, shapes, dtypes, devices "
        "or requires_grad of their tensors. Build the same network on every rank, "
        "and place it on group.device().");
  }
  return most[3] == ~most[4];
}

std::string cannot_send(const std::string& what, const std::string& trouble) {
  return clipped(what, 120) + " is " + trouble + "; only dense tensors with values can be sent.";
}

}  // namespace

void broadcast_parameters(ModuleRef net, Communicator& group, int root) {
  const auto all = named_tensors_of(net.get());
  const auto bad_root = trouble_with_root(root, group.size());
  std::string trouble = bad_root;
  for (const auto& [name, x] : all) {
    if (const auto why = trouble_with(x); !why.empty()) trouble = cannot_send(name, why);
  }
  const auto networks = trouble.empty() ? fingerprint(all, group) : 0;
  bool same_root = false;
  try {
    same_root = agree(group, "broadcast_parameters", trouble, networks, root);
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
  const auto tensors = distinct_tensors(all);
  for (const auto& bucket : buckets(tensors)) {
    const auto together = select(tensors, bucket);
    const auto flat = flatten(together);
    group.broadcast(flat, root);
    if (group.rank() == root) continue;
    write_with_retry([&] { at::_foreach_copy_(together, unflatten(flat, together)); });
  }
}

void average_gradients(ModuleRef net, Communicator& group) {
  const auto all = trainable_parameters_of(net.get());
  const auto names = distinct_names(all);
  std::string trouble;
  std::vector<std::int64_t> has_gradient;
  for (const auto& name : names) {
    const auto& gradient = all.at(name).grad();
    has_gradient.push_back(gradient.defined());
    const auto why = trouble_with(gradient.defined() ? gradient : all.at(name));
    if (!why.empty()) trouble = cannot_send("the gradient of " + name, why);
  }
  const std::string_view mask(reinterpret_cast<const char*>(has_gradient.data()),
                              has_gradient.size() * sizeof(std::int64_t));
  const auto masks = static_cast<std::int64_t>(c10::util::crc64(mask).checksum());
  const auto networks = trouble.empty() ? fingerprint(all, group) : 0;
  if (!agree(group, "average_gradients", trouble, networks, masks)) all_max(group, has_gradient);
  if (group.size() == 1) return;

  std::vector<at::Tensor> gradients;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!has_gradient[i]) continue;
    const auto& x = all.at(names[i]);
    if (!x.grad().defined()) {
      // Made in inference mode, the next backward could not add to it.
      const c10::InferenceMode no_inference_mode(false);
      const at::NoGradGuard no_grad;
      x.mutable_grad() = at::zeros_like(x);
    }
    gradients.push_back(x.grad());
  }
  const AllowTransfers certain;
  const c10::InferenceMode inference;
  for (const auto& bucket : buckets(gradients)) {
    const auto together = select(gradients, bucket);
    const auto flat = flatten(together);
    group.all_reduce(flat, ReduceOp::mean);
    const auto means = unflatten(flat, together);
    write_with_retry([&] { at::_foreach_copy_(together, means); });
  }
}

}  // namespace use_gpu
