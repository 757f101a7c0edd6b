// SPDX-License-Identifier: MIT
#include "distributed/group_state.hpp"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <c10/util/ConstexprCrc.h>
#include <use_gpu/allow_transfers.hpp>
#include <use_gpu/errors.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <thread>
#include <utility>

#include "core/messages/error_text.hpp"
#include "core/messages/log_message.hpp"
#include "core/messages/tensor_summary.hpp"
#include "core/module_tensors/parameter_differences.hpp"
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

c10::intrusive_ptr<c10d::Work> start(c10d::Backend& backend, const at::Tensor& wire,
                                     Collective what, std::chrono::milliseconds timeout) {
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
    auto left = on_own_thread([nccl = nccl] { nccl->shutdown(); });
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
  const AllowTransfers certain;
  const c10::InferenceMode inference;  // so nothing is recorded, and inference tensors are taken
  at::Tensor wire;
  try {
    check_collective(operation, x, what, size());
    if (size() == 1) return;
    wire = to_wire(x, what, /*through_host=*/!by_nccl(x));
  } catch (...) {
    refuse(operation);
    throw;
  }
  compare_calls(operation, operation + ' ' + text_of(what) + ' ' + dtype_and_shape(x) +
                               (by_nccl(x) ? " by NCCL" : " by Gloo"));
  send(operation, wire, x, what);
}

void GroupState::refuse(const std::string& operation) try {
  compare_calls(operation, operation + " was refused on a rank");
} catch (const ArgumentError&) {  // this rank's own error says more
}

CallComparison GroupState::compare_calls(const std::string& operation, const std::string& call,
                                         const std::string& network, const std::string& choice,
                                         bool refuses) {
  throw_if_lost(operation);
  const auto a = hash(call), b = hash(network), c = hash(choice);
  // Equal on all ranks if max(x) == min(x), which is ~max(~x).
  std::array<std::int64_t, 7> own{a, ~a, b, ~b, c, ~c, refuses ? rank : -1};
  // A copy that outlives this call: work that was given up may still write to it.
  const auto all = at::from_blob(own.data(), {std::ssize(own)}, at::kLong).clone();
  if (size() > 1) send(operation, all, all, ReduceOp::max);
  const auto* const most = all.const_data_ptr<std::int64_t>();
  if (most[0] != ~most[1]) {
    throw ArgumentError(operation + ": the ranks do not make the same call. Rank " +
                        std::to_string(rank) + " makes this one: " + call +
                        ". Operation, shape, dtype and root have to agree, and whether the tensor "
                        "is on group.device().");
  }
  return {most[2] == ~most[3], most[4] == ~most[5], static_cast<int>(most[6])};
}

bool GroupState::compare_networks(const std::string& operation, const std::string& call,
                                  const std::string& network, const std::string& what,
                                  const std::exception_ptr& own, const std::string& choice) {
  const auto found = compare_calls(operation, call, network, choice, own != nullptr);
  if (own) std::rethrow_exception(own);
  if (found.refusing_rank >= 0) {
    throw ParameterError(operation + ": rank " + std::to_string(found.refusing_rank) +
                         " cannot take part; its own error says why.");
  }
  if (!found.same_network) throw_differences(operation, what, network);
  return found.same_choice;
}

void GroupState::throw_differences(const std::string& operation, const std::string& what,
                                   const std::string& network) {
  const auto bytes = at::device(at::kCPU).dtype(at::kByte);
  const auto longest = at::full({1}, std::ssize(network), bytes.dtype(at::kLong));
  send(operation, longest, longest, ReduceOp::max);
  using Facts = std::vector<std::pair<std::string, std::string>>;
  std::vector<Facts> ranks;
  for (int root = 0; root < size(); ++root) {
    const auto text = at::zeros({longest.item<std::int64_t>() + 1}, bytes);
    if (root == rank) std::ranges::copy(network, text.mutable_data_ptr<std::uint8_t>());
    send(operation, text, text, root);
    auto& facts = ranks.emplace_back();
    for (const auto* next = static_cast<const char*>(text.const_data_ptr()); *next != 0;) {
      const std::string name = next;
      facts.emplace_back(name, next += name.size() + 1);
      next += facts.back().second.size() + 1;
    }
  }
  Differences differences;
  for (int other = 1; other < size(); ++other) {
    const auto &first = ranks[0], &own = ranks[static_cast<std::size_t>(other)];
    const std::string where = " on rank " + std::to_string(other), none = "missing or frozen";
    std::map<std::string, std::string> rest(own.begin(), own.end());
    const auto compare = [&](const std::string& name, const std::string& a, const std::string& b) {
      if (a != b) differences.push_back(name + " is " + a + " on rank 0, but " + b + where);
    };
    for (const auto& [name, facts] : first) {
      const auto found = rest.extract(name);
      compare(name, facts, found.empty() ? none : found.mapped());
    }
    for (const auto& [name, facts] : rest) compare(name, none, facts);
    if (!differences.empty()) continue;
    const auto [here, there] = std::ranges::mismatch(first, own);
    if (here != first.end()) compare("the first one in another place", here->first, there->first);
  }
  throw_if_any(operation + ": " + what, std::move(differences));
}

void GroupState::take_part(const std::string& operation, const std::function<void()>& work) {
  if (size() == 1) return;
  const AllowTransfers certain;
  const c10::InferenceMode inference;
  try {
    work();
  } catch (const std::exception& error) {
    if (failure.empty()) leave(failure_text(operation, error_cause(error)));
    throw;
  }
}

void GroupState::send(const std::string& operation, const at::Tensor& wire, const at::Tensor& x,
                      Collective what) {
  const bool on_nccl = by_nccl(wire);
  c10::intrusive_ptr<c10d::Work> work;
  try {
    work = start(on_nccl ? *nccl : *gloo, wire, what, timeout);
  } catch (const std::exception& error) {
    lose(operation, error);
  }
  finish(operation, work, on_nccl);
  if (what == Collective(ReduceOp::mean)) wire.div_(size());
  if (what != Collective(rank)) from_wire(wire, x);
}

void GroupState::finish(const std::string& operation, const c10::intrusive_ptr<c10d::Work>& work,
                        bool on_nccl) {
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
  return operation + " on rank " + std::to_string(rank) + " of " + std::to_string(size()) +
         " failed: " + cause + (there.empty() ? "" : " (there: rank " + number_ranges(there) + ')');
}

void GroupState::leave(const std::string& why) {
  failure = why;
  try {
    gloo.reset();  // closes connections; NCCL's abort may wait for ranks that did not notice yet
    if (const auto leaving = std::exchange(nccl, nullptr)) leaving->abort();
  } catch (const std::exception& error) {
    log_message(LogLevel::error, "Communicator: " + error_cause(error));
  }
}

}  // namespace use_gpu::detail
