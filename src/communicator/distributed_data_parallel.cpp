// SPDX-License-Identifier: MIT
//
// What Python's DistributedDataParallel does around c10d::Reducer, in the same order.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <use_gpu/device.hpp>
#include <use_gpu/distributed_data_parallel.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/transfers.hpp>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <tuple>

#include "communicator/group_state.hpp"
#include "communicator/reducer.hpp"
#include "messages/tensor_summary.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

constexpr const char* k_name = "DistributedDataParallel";

std::vector<at::Tensor> distinct_buffers_of(const torch::nn::Module& net) {
  std::vector<at::Tensor> buffers;
  std::set<const at::TensorImpl*> seen;
  for (const auto& x : net.buffers()) {
    if (x.defined() && seen.insert(x.unsafeGetTensorImpl()).second) buffers.push_back(x);
  }
  return buffers;
}

// All that the ranks must have in common beside what broadcast_parameters compares.
std::string description(const detail::Trained& trained, const torch::nn::Module& net) {
  std::ostringstream text;
  for (std::size_t i = 0; i < trained.names.size(); ++i) {
    text << trained.names[i] << trained.parameters[i].strides() << trained.have_sparse_gradients[i]
         << ';';
  }
  for (const auto& x : net.named_buffers()) text << x.key() << ';';
  return text.str();
}

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

  // A rank that throws must not leave the others waiting for its gradients.
  [[noreturn]] void refuse(const std::string& why, const std::string& remedy,
                           std::vector<std::string> names) {
    group.leave(std::string(k_name) + ": rank " + std::to_string(group.rank) + ": " + why);
    throw ParameterError(std::string(k_name) + ": " + why + remedy, std::move(names));
  }

  void check_place() {
    for (std::size_t i = 0; i < placed.size(); ++i) {
      const auto& x = trained.parameters[i];
      const auto& [device, dtype, sizes] = placed[i];
      if (x.device() == device && x.scalar_type() == dtype && x.sizes() == sizes) continue;
      refuse(trained.names[i] + " is now " + describe(x) + ", no longer as it was on " +
                 device.str() + " when this was made",
             ". Place the network first, and make a new one then.", {trained.names[i]});
    }
  }

  // Reducer tells in the next step which parameters had no gradient, by their places.
  void rebuild_buckets() try { reducer->rebuild_buckets(); } catch (const CommunicatorError&) {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    const auto mark = text.rfind("did not receive grad for rank");
    std::vector<std::string> unused;
    if (mark != text.npos) {
      std::istringstream places(text.substr(text.find(':', mark) + 1));
      for (std::size_t i = 0; places >> i && i < trained.names.size();)
        unused.push_back(trained.names[i]);
    }
    if (unused.empty()) refuse("the last backward pass did not end", ".", {});
    refuse(std::to_string(unused.size()) + " of " + std::to_string(trained.names.size()) +
               " parameters had no gradient in the last step: " + unused.front() +
               (unused.size() > 1 ? ", ..." : ""),
           ". The other ranks wait for them. If that is meant, set find_unused_parameters.",
           unused);
  }
};

detail::DistributedSteps::DistributedSteps(ModuleRef net, Communicator& group,
                                           const DistributedOptions& options)
    : state_(new State{*group.state_, options}) {
  auto& s = *state_;
  s.trained = detail::trained_parameters_of(net.get());
  s.buffers = distinct_buffers_of(net.get());
  const std::string start = std::string(k_name) + ": ";
  const auto choice = start + std::to_string(options.bucket_bytes.value_or(0)) +
                      (options.find_unused_parameters ? " unused" : "") +
                      (options.broadcast_buffers ? " buffers" : "");
  const auto stray = std::ranges::find_if(s.trained.parameters, [&](const at::Tensor& x) {
    return !same_device(x.device(), group.device());
  });
  const bool is_elsewhere = stray != s.trained.parameters.end();
  const auto found = s.group.compare_calls(k_name, choice, description(s.trained, net.get()), {},
                                           /*refuses=*/s.trained.names.empty() || is_elsewhere);
  if (s.trained.names.empty())
    throw ArgumentError(start + "the network has no parameter that requires a gradient.");
  if (is_elsewhere) {
    throw DeviceMismatch(start + "the network's " + describe(*stray) + " is not on " +
                         group.device().str() + ". Place the network on group.device() first.");
  }
  if (found.refusing_rank >= 0) {
    throw ParameterError(start + "rank " + std::to_string(found.refusing_rank) +
                         " cannot take part; its own error says why.");
  }
  if (!found.same_network) {
    throw ParameterError(
        start +
        "the ranks' networks differ in the names, the order or the strides of the "
        "parameters that require a gradient. Build the same network on every rank.");
  }
  broadcast_parameters(net, group);
  if (group.size() == 1) return;
  for (const auto& x : s.trained.parameters)
    s.placed.emplace_back(x.device(), x.scalar_type(), x.sizes().vec());
  s.processes = detail::reducer_processes(s.group);
  s.reducer = detail::make_reducer(s.trained, options, s.group, s.processes);
  s.logger = std::make_shared<c10d::Logger>(s.reducer);
  s.reducer->set_logger(s.logger);
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
  s.group.throw_if_lost(k_name);
  s.check_place();
  if (at::GradMode::is_enabled()) {
    if (s.exchanges) s.reducer->prepare_for_forward();
    s.rebuild_buckets();
  }
  if (s.must_copy_buffers && s.options.broadcast_buffers && !s.buffers.empty()) {
    constexpr std::size_t k_together = 250UL << 20;  // as Python
    const at::NoGradGuard no_grad;
    c10d::broadcast_coalesced(s.processes, s.buffers, k_together);
  }
}

std::vector<at::Tensor> detail::DistributedSteps::after_forward(
    const std::vector<at::Tensor>& outputs) {
  auto& s = *state_;
  if (!s.reducer) return outputs;
  if (needs_outputs() && outputs.empty()) {
    throw ArgumentError(std::string(k_name) +
                        ": forward() returned no tensor in a type that is known (batch.hpp), so "
                        "find_unused_parameters cannot see what was used.");
  }
  s.must_copy_buffers = at::GradMode::is_enabled() && s.exchanges;
  if (s.must_copy_buffers) s.reducer->prepare_for_backward(outputs);
  auto replaced = outputs;
  std::vector<at::Tensor> recorded;
  for (const auto& x : outputs) {
    if (x.grad_fn()) recorded.push_back(x);
  }
  if (recorded.empty()) return replaced;
  recorded = Outputs::apply(at::TensorList(recorded));
  auto next = recorded.begin();
  for (auto& x : replaced) {
    if (x.grad_fn()) x = *next++;
  }
  return replaced;
}

}  // namespace use_gpu
