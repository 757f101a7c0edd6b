// SPDX-License-Identifier: MIT
//
// What Python's DistributedDataParallel does around c10d::Reducer, in the same order.
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <use_gpu/allow_transfers.hpp>
#include <use_gpu/default_device.hpp>
#include <use_gpu/device.hpp>
#include <use_gpu/distributed_data_parallel.hpp>
#include <use_gpu/tensor.hpp>

#include <algorithm>

#include "core/messages/tensor_summary.hpp"
#include "distributed/nccl_backend_cuda.hpp"
#include "distributed/reducer.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

constexpr const char* k_name = "DistributedDataParallel";

// Outputs that the loss does not use have no gradient, but the parameters behind them are still told
// of it, so that Reducer hears of each.
struct Outputs : torch::autograd::Function<Outputs> {
  static std::vector<at::Tensor> forward(torch::autograd::AutogradContext* context,
                                         at::TensorList outputs) {
    context->set_materialize_grads(false);
    std::vector<at::Tensor> copies;
    for (const auto& x : outputs) copies.push_back(x.clone());
    return copies;
  }
  static std::vector<at::Tensor> backward(torch::autograd::AutogradContext*,
                                          std::vector<at::Tensor> gradients) {
    return gradients;
  }
};

// Whether Reducer has heard of each parameter, or does not wait for it. Not of bool: several threads
// write.
using Told = std::shared_ptr<std::vector<char>>;

// Notes each parameter of which Reducer hears, by a hook where Reducer has its own. The hooks live as long as
// Reducer, which keeps the accumulators: so it is made first.
Told note_told(const std::vector<at::Tensor>& parameters) {
  using torch::autograd::utils::LambdaPostHook;
  const auto told = std::make_shared<std::vector<char>>(parameters.size(), true);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto note = [told, i](const auto& gradients, const auto&) {
      (*told)[i] = true;
      return gradients;
    };
    torch::autograd::impl::grad_accumulator(parameters[i])
        ->add_post_hook(std::make_unique<LambdaPostHook>(note));
  }
  return told;
}

}  // namespace

struct detail::DistributedSteps::State {
  GroupState& group;
  DistributedOptions options;
  detail::Trained trained = {};
  std::vector<at::Tensor> buffers = {};
  // What the parameters were when it began.
  std::vector<std::tuple<c10::Device, at::ScalarType, std::vector<std::int64_t>>> placed = {};
  bool exchanges = true, must_copy_buffers = true;
  c10::intrusive_ptr<c10d::ProcessGroup> processes = {};
  std::shared_ptr<c10d::Reducer> reducer = {};  // none in a group of one
  std::shared_ptr<c10d::Logger> logger = {};    // which Reducer calls without asking
  Told told = {};

  // A rank that throws must not leave the others waiting for its gradients.
  [[noreturn]] void refuse(const std::string& why, const std::string& remedy,
                           std::vector<std::string> names) {
    group.leave(std::string(k_name) + ": rank " + std::to_string(group.rank) + ": " + why);
    throw ParameterError(std::string(k_name) + ": " + why + remedy, std::move(names));
  }

  // Makes the Reducer, which sends nothing yet. Returns all that the ranks must have in common beside
  // what broadcast_parameters compares.
  Facts take(const torch::nn::Module& net) {
    const std::string start = std::string(k_name) + ": ";
    Facts facts;
    trained = detail::trained_parameters_of(net);
    if (trained.names.empty())
      throw ArgumentError(start + "the network has no parameter that requires a gradient.");
    for (std::size_t i = 0; i < trained.names.size(); ++i) {
      const auto& x = trained.parameters[i];
      const auto& name = trained.names[i];
      if (!same_device(x.device(), group.device)) {
        throw DeviceMismatch(start + name + " is " + describe(x) + ", and the group is on " +
                             group.device.str() + ". Place the network on group.device() first.");
      }
      const bool is_sparse = trained.have_sparse_gradients[i];
      const auto trouble = is_sparse && group.nccl ? "has a sparse gradient, which NCCL cannot send"
                                                   : detail::why_not_sent(x, ReduceOp::mean);
      if (!trouble.empty()) throw ParameterError(start + name + ' ' + trouble, {name});
      placed.emplace_back(x.device(), x.scalar_type(), x.sizes().vec());
      facts.emplace_back(
          name, detail::dtype_and_shape(x) + c10::str(" with strides ", x.strides(),
                                                      is_sparse ? " and a sparse gradient" : ""));
    }
    detail::NamedTensors named;
    for (const auto& x : net.named_buffers()) named.emplace(x.key(), x.value());
    buffers = detail::distinct_tensors(named);
    if (group.size() == 1) return facts;
    processes = detail::reducer_processes(group);
    reducer = detail::make_reducer(trained, options, group, processes);
    logger = std::make_shared<c10d::Logger>(reducer);
    reducer->set_logger(logger);
    told = note_told(trained.parameters);
    return facts;
  }

  void check_place() {
    for (std::size_t i = 0; i < placed.size(); ++i) {
      const auto& x = trained.parameters[i];
      const auto& [device, dtype, sizes] = placed[i];
      if (x.device() == device && x.scalar_type() == dtype && x.sizes() == sizes) continue;
      refuse(trained.names[i] + " is now " + describe(x) + ", and was of another dtype, shape or " +
                 "device (" + device.str() + ") when this was made",
             ". Place the network first, and make a new one then.", {trained.names[i]});
    }
  }

  // Reducer still waits where some parameters, but not all, had a part in the last backward pass.
  void check_told() {
    std::vector<std::string> unused;
    for (std::size_t i = 0; i < told->size(); ++i) {
      if (!(*told)[i]) unused.push_back(trained.names[i]);
    }
    if (unused.empty() || unused.size() == told->size() || options.find_unused_parameters) return;
    refuse(std::to_string(unused.size()) + " of " + std::to_string(told->size()) +
               " parameters had no gradient in the last step: " + unused.front() +
               (unused.size() > 1 ? ", ..." : ""),
           ". The other ranks may wait for them. If that is meant, set find_unused_parameters.",
           unused);
  }
};

detail::DistributedSteps::DistributedSteps(ModuleRef net, Communicator& group,
                                           const DistributedOptions& options)
    : state_(new State{*group.state_, options}) {
  auto& s = *state_;
  const DefaultDeviceGuard on_host(cpu());  // where Reducer writes what it allocates
  const c10::InferenceMode no_inference_mode(false);
  const auto choice = "bucket_bytes " +
                      (options.bucket_bytes ? std::to_string(*options.bucket_bytes) : "unset") +
                      (options.find_unused_parameters ? ", find_unused_parameters" : "") +
                      (options.broadcast_buffers ? ", broadcast_buffers" : "");
  s.group.compare(k_name, [&] {
    return Call{std::string(k_name) + " with " + choice, s.take(net.get())};
  });
  s.group.take_part(k_name, [&] {
    if (!s.group.nccl || s.group.watched_nccl) return;
    try {
      s.group.watched_nccl = make_watched_nccl(s.group);
    } catch (const std::exception& error) {
      static_cast<void>(s.group.nccl.release());  // the split may hold the lock that abort() needs
      s.group.lose(k_name, error);
    }
  });
  broadcast_parameters(net, group);
}

detail::DistributedSteps::~DistributedSteps() = default;

bool detail::DistributedSteps::needs_outputs() const {
  return state_->reducer && state_->options.find_unused_parameters && at::GradMode::is_enabled();
}

bool detail::DistributedSteps::set_exchanging(bool exchanges) {
  return std::exchange(state_->exchanges, exchanges);
}

void detail::DistributedSteps::before_forward() {
  auto& s = *state_;
  if (!s.reducer) return;
  const AllowTransfers certain;
  const DefaultDeviceGuard on_host(cpu());
  s.group.throw_if_lost(k_name);
  s.check_place();
  if (at::GradMode::is_enabled()) {
    if (s.exchanges) s.reducer->prepare_for_forward();
    s.check_told();
    s.group.take_part(k_name, [&] { s.reducer->rebuild_buckets(); });
  }
  if (s.must_copy_buffers && s.options.broadcast_buffers && !s.buffers.empty()) {
    constexpr std::size_t k_together = 250UL << 20;  // as Python
    const at::NoGradGuard no_grad;
    c10d::broadcast_coalesced(s.processes, s.buffers, k_together);
  }
}

void detail::DistributedSteps::forward_failed() noexcept {
  auto& s = *state_;
  if (!s.reducer || !s.exchanges || !at::GradMode::is_enabled() || !s.group.failure.empty()) return;
  s.group.leave(std::string(k_name) + ": forward() failed on rank " + std::to_string(s.group.rank));
}

std::vector<at::Tensor> detail::DistributedSteps::after_forward(
    const std::vector<at::Tensor>& outputs, bool are_all) {
  auto& s = *state_;
  if (!s.reducer) return outputs;
  if (needs_outputs() && (outputs.empty() || !are_all)) {
    throw ArgumentError(
        std::string(k_name) + ": forward() returned " +
        (are_all ? "no tensor" : "a type that is not known") +
        ", so find_unused_parameters cannot see what was used. Return tensors in types "
        "that batch.hpp lists.");
  }
  s.must_copy_buffers = at::GradMode::is_enabled() && s.exchanges;
  if (s.must_copy_buffers) s.reducer->prepare_for_backward(outputs);
  // In no_sync() Reducer is not told of the backward pass: nothing is awaited.
  if (at::GradMode::is_enabled()) std::ranges::fill(*s.told, !s.must_copy_buffers);
  if (outputs.empty()) return outputs;
  auto replaced = Outputs::apply(at::TensorList(outputs));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].grad_fn()) replaced[i] = outputs[i];
  }
  return replaced;
}

}  // namespace use_gpu
