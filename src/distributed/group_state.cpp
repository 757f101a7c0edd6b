// SPDX-License-Identifier: MIT
#include "distributed/group_state.hpp"

#include <c10/util/ConstexprCrc.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "core/copies/value_scope.hpp"
#include "core/messages/error_text.hpp"
#include "core/messages/tensor_summary.hpp"
#include "distributed/own_thread.hpp"
#include "gpu_info/message.hpp"

namespace use_gpu::detail {
namespace {

std::int64_t hash(const std::string& text) {
  return static_cast<std::int64_t>(c10::util::crc64(text).checksum());
}

// What c10d does, by ReduceOp. A mean is a sum that is divided.
constexpr std::array k_operations = {c10d::ReduceOp::SUM, c10d::ReduceOp::SUM, c10d::ReduceOp::MIN,
                                     c10d::ReduceOp::MAX};

Work start(c10d::Backend& backend, const at::Tensor& wire, Collective what,
           std::chrono::milliseconds timeout) {
  if (const auto* root = std::get_if<int>(&what)) {
    std::vector<at::Tensor> bytes{wire.flatten().view(at::kByte)};  // both backends can send bytes
    return backend.broadcast(bytes, {.rootRank = *root, .timeout = timeout});
  }
  std::vector<at::Tensor> tensors{wire.is_complex() ? at::view_as_real(wire) : wire};
  const auto operation = k_operations[static_cast<std::size_t>(std::get<ReduceOp>(what))];
  return backend.allreduce(tensors, {.reduceOp = operation, .timeout = timeout});
}

}  // namespace

GroupState::~GroupState() {
  if (!nccl) return;
  try {  // NCCL shuts down together with its peers; a dead one never does
    auto left = on_own_thread([nccl = nccl, watched = watched_nccl] {
      if (watched) watched->shutdown();
      nccl->shutdown();
    });
    const auto patience = std::min<std::chrono::milliseconds>(timeout, std::chrono::seconds(10));
    if (left.wait_for(patience) == std::future_status::ready) {
      left.get();
    } else {  // abort() would wait for shutdown, which holds a lock; nothing is in flight
      log_message(LogLevel::warning, "~Communicator: left NCCL without waiting for a peer");
    }
  } catch (const std::exception& error) {
    log_message(LogLevel::error, "~Communicator: " + error_cause(error));
  }
}

void GroupState::call(const std::string& operation, const at::Tensor& x, Collective what) {
  const ValueScope scope;
  at::Tensor wire;
  compare(operation, [&] {
    const auto why = x.defined() ? why_not_sent(x, what) : "the tensor is undefined.";
    if (!why.empty()) throw ArgumentError(operation + ": " + why);
    if (const auto* root = std::get_if<int>(&what)) check_root(operation, *root);
    if (size() > 1) wire = to_wire(x, what, /*through_host=*/!by_nccl(x));
    return Call{operation + ' ' + text_of(what) + ' ' + dtype_and_shape(x) +
                (by_nccl(x) ? " by NCCL" : " by Gloo")};
  });
  if (size() > 1) send(operation, wire, x, what);
}

void GroupState::check_root(const std::string& operation, int root) const {
  if (root >= 0 && root < size()) return;
  throw ArgumentError(c10::str(operation, ": there is no rank ", root, " in a group of ", size(),
                               "; the root is one of 0 to ", size() - 1, '.'));
}

bool GroupState::compare(const std::string& operation, const std::function<Call()>& prepare) {
  Call own{"a call that this rank refuses"};
  std::exception_ptr error;
  try {
    own = prepare();
  } catch (...) {
    error = std::current_exception();
  }
  std::string network;
  for (const auto& [name, fact] : own.network.value_or(Facts()))
    network += name + '\0' + fact + '\0';
  const auto a = hash(own.text), b = hash(network), c = hash(own.choice);
  // Equal on all ranks if max(x) == min(x), which is ~max(~x).
  std::array<std::int64_t, 7> marks{a, ~a, b, ~b, c, ~c, error ? rank : -1};
  // A copy that outlives this call: work that was given up may still write to it.
  const auto all = at::from_blob(marks.data(), {std::ssize(marks)}, at::kLong).clone();
  if (size() > 1) send(operation, all, all, ReduceOp::max);
  if (error) std::rethrow_exception(error);
  const auto* const most = all.const_data_ptr<std::int64_t>();
  if (own.network && most[6] >= 0) {
    throw ParameterError(
        c10::str(operation, ": rank ", most[6], " cannot take part; its own error says why."));
  }
  if (most[0] != ~most[1]) {
    throw ArgumentError(operation + ": the ranks do not make the same call. Rank " +
                        std::to_string(rank) + " makes this one: " + own.text +
                        ". Operation, shape, dtype and root have to agree, and whether the tensor "
                        "is on group.device().");
  }
  if (most[2] != ~most[3]) throw_differences(operation, network);
  return most[4] == ~most[5];
}

void GroupState::throw_differences(const std::string& operation, const std::string& network) {
  const auto options = at::device(at::kCPU).dtype(at::kLong);
  const auto longest = at::full({1}, std::ssize(network), options);
  send(operation, longest, longest, ReduceOp::max);
  const auto length = longest.item<std::int64_t>();
  const auto texts = at::zeros({size(), length}, options.dtype(at::kByte));
  std::ranges::copy(network, texts[rank].mutable_data_ptr<std::uint8_t>());
  send(operation, texts, texts, ReduceOp::max);
  std::vector<Facts> networks;
  for (int i = 0; i < size(); ++i) {
    std::istringstream text(std::string(static_cast<const char*>(texts[i].const_data_ptr()),
                                        static_cast<std::size_t>(length)));
    auto& facts = networks.emplace_back();
    for (std::string name, fact; std::getline(text, name, '\0') && !name.empty();) {
      std::getline(text, fact, '\0');
      facts.emplace_back(name, fact);
    }
  }
  throw_if_any(operation +
                   ": the ranks' networks differ in the names, order, dtypes, shapes, "
                   "strides, ties, devices or gradients of their tensors (build the same "
                   "on every rank)",
               differences_between(networks, " on rank ", "missing or frozen"));
}

void GroupState::take_part(const std::string& operation, const std::function<void()>& work) try {
  if (size() != 1) work();
} catch (const std::exception& error) {
  if (failure.empty()) leave(failure_text(operation, error_cause(error)));
  throw;
}

void GroupState::send(const std::string& operation, const at::Tensor& wire, const at::Tensor& x,
                      Collective what) {
  const bool on_nccl = by_nccl(wire);
  const auto work =
      begin(operation, [&] { return start(on_nccl ? *nccl : *gloo, wire, what, timeout); });
  finish(operation, work, on_nccl);
  if (what == Collective(ReduceOp::mean)) wire.div_(size());
  if (what == Collective(rank)) return;  // the root has its values
  if (!wire.is_alias_of(x)) x.copy_(wire);
  x.unsafeGetTensorImpl()->bump_version();  // autograd does not see what c10d writes
}

Work GroupState::begin(const std::string& operation, const std::function<Work()>& work) {
  throw_if_lost(operation);
  const AllowTransfers certain;  // Gloo takes a GPU's tensors through host memory
  try {
    return work();
  } catch (const std::exception& error) {
    lose(operation, error);
  }
}

void GroupState::finish(const std::string& operation, const Work& work, bool on_nccl) {
  constexpr std::chrono::seconds k_grace(5);  // Gloo's own error at the time-out says more
  try {
    // Between polls of NCCL LibTorch sleeps longer than a small message takes.
    const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    while (on_nccl && !work->isCompleted() && std::chrono::steady_clock::now() < soon)
      std::this_thread::yield();
    work->wait(on_nccl ? timeout : timeout + k_grace);
  } catch (const std::exception& error) {
    // Gloo's threads block each other, and would never be joined.
    if (!on_nccl && !work->isCompleted()) static_cast<void>(gloo.release());
    lose(operation, error);
  }
}

void GroupState::throw_if_lost(const std::string& operation) const {
  if (failure.empty()) return;
  throw CommunicatorError(operation + ": this communicator is no longer usable: " + failure);
}

void GroupState::lose(const std::string& operation, const std::exception& error) {
  leave(failure_text(operation, error_cause(error)));
  throw CommunicatorError(failure +
                          ". A rank has died, left or been too late; this communicator is no "
                          "longer usable (torchrun --max-restarts starts a new group).");
}

std::string GroupState::failure_text(const std::string& operation, const std::string& cause) const {
  std::vector<int> there;  // the other ranks whose addresses the cause contains
  for (const auto& peer : peers) {
    if (peer.rank != rank && cause.find('[' + peer.address + ']') != std::string::npos)
      there.push_back(peer.rank);
  }
  return c10::str(operation, " on rank ", rank, " of ", size(), " failed: ", cause,
                  there.empty() ? "" : " (there: rank " + number_ranges(there) + ')');
}

void GroupState::leave(const std::string& why) {
  failure = why;
  gloo.reset();  // closes connections; NCCL's abort may wait for ranks that did not notice yet
  for (auto* const backend : {&watched_nccl, &nccl}) {
    try {
      if (const auto leaving = std::exchange(*backend, nullptr)) leaving->abort();
    } catch (const std::exception& error) {
      log_message(LogLevel::error, "Communicator: " + error_cause(error));
    }
  }
}

}  // namespace use_gpu::detail
