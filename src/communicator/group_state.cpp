// SPDX-License-Identifier: MIT
#include "communicator/group_state.hpp"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_as_real.h>
#include <c10/util/ConstexprCrc.h>
#include <use_gpu/errors.hpp>
#include <use_gpu/log.hpp>
#include <use_gpu/transfers.hpp>

#include <algorithm>
#include <array>
#include <future>
#include <sstream>
#include <thread>
#include <utility>

#include "communicator/nccl_backend_cuda.hpp"
#include "messages/error_text.hpp"
#include "messages/message.hpp"

namespace use_gpu::detail {
namespace {

// What has to be the same on all ranks, as one text.
std::string call_text(const std::string& operation, const at::Tensor& x, Collective what,
                      bool by_nccl) {
  constexpr std::array k_names = {"sum", "mean", "min", "max"};
  std::ostringstream text;
  text << operation << ' ';
  if (const auto* root = std::get_if<int>(&what)) {
    text << "from " << *root;
  } else {
    text << k_names[static_cast<std::size_t>(std::get<ReduceOp>(what))];
  }
  text << ' ' << c10::getDtypeNames(x.scalar_type()).first << x.sizes()
       << (by_nccl ? " by NCCL" : " by Gloo");
  return text.str();
}

}  // namespace

GroupState::~GroupState() {
  if (!nccl) return;
  try {  // NCCL shuts down together with its peers; a dead one never does
    std::packaged_task<void()> leave([nccl = nccl] { nccl->shutdown(); });
    auto left = leave.get_future();
    std::thread(std::move(leave)).detach();
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

bool GroupState::by_nccl(const at::Tensor& x) const {
  return nccl && x.defined() && x.device() == device;
}

at::Tensor GroupState::wire_of(const at::Tensor& x, Collective what) const {
  const auto* how = std::get_if<ReduceOp>(&what);
  const auto dtype = how == nullptr ? x.scalar_type() : *reduction_dtype(x.scalar_type(), *how);
  return to_wire(x, dtype, /*through_host=*/!by_nccl(x));
}

void GroupState::call(const std::string& operation, const at::Tensor& x, Collective what) {
  const AllowTransfers certain;
  const c10::InferenceMode inference;  // so nothing is recorded, and inference tensors are taken
  at::Tensor wire;
  try {
    check_collective(operation, x, what, size());
    if (size() > 1) wire = wire_of(x, what);
  } catch (...) {
    if (failure.empty()) {
      try {  // so that the others get an error too
        compare_calls(operation, operation + " was refused on a rank");
      } catch (const ArgumentError&) {  // this rank's own error says more
      }
    }
    throw;
  }
  if (size() == 1) return;
  compare_calls(operation, call_text(operation, x, what, by_nccl(x)));
  send_wire(operation, wire, x, what);
}

CallComparison GroupState::compare_calls(const std::string& operation, const std::string& call,
                                         std::int64_t network, std::int64_t choice, bool refuses) {
  if (!failure.empty()) {
    throw CommunicatorError(operation + ": this communicator is no longer usable: " + failure);
  }
  const auto number = static_cast<std::int64_t>(c10::util::crc64(call).checksum());
  // Equal on all ranks if max(x) == min(x), which is ~max(~x).
  std::array<std::int64_t, 7> most{
      number, ~number, network, ~network, choice, ~choice, refuses ? rank : -1};
  if (size() > 1) {
    run(operation, /*on_nccl=*/false, [&](c10d::Backend& backend) {
      std::vector<at::Tensor> tensors{
          at::from_blob(most.data(), {static_cast<std::int64_t>(most.size())}, at::kLong)};
      c10d::AllreduceOptions options;
      options.reduceOp = c10d::ReduceOp::MAX;
      options.timeout = timeout;
      return backend.allreduce(tensors, options);
    });
  }
  if (most[0] != ~most[1]) {
    throw ArgumentError(operation + ": the ranks do not make the same call. Rank " +
                        std::to_string(rank) + " makes this one: " + call +
                        ". Operation, shape, dtype and root have to agree, and whether the tensor "
                        "is on group.device().");
  }
  return {most[2] == ~most[3], most[4] == ~most[5], static_cast<int>(most[6])};
}

void GroupState::take_part(const std::string& operation, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    if (failure.empty() && size() > 1) leave(operation, error_cause(error));
    throw;
  }
}

void GroupState::send(const std::string& operation, const at::Tensor& x, Collective what) {
  send_wire(operation, wire_of(x, what), x, what);
}

void GroupState::send_wire(const std::string& operation, const at::Tensor& wire,
                           const at::Tensor& x, Collective what) {
  if (const auto* root = std::get_if<int>(&what)) {
    std::vector<at::Tensor> bytes{wire.flatten().view(at::kByte)};  // both backends can send bytes
    c10d::BroadcastOptions options;
    options.timeout = timeout;
    options.rootRank = *root;
    run(operation, by_nccl(x),
        [&](c10d::Backend& backend) { return backend.broadcast(bytes, options); });
    if (*root == rank) return;
  } else {
    using RedOp = c10d::ReduceOp::RedOpType;
    const auto how = std::get<ReduceOp>(what);
    std::vector<at::Tensor> tensors{wire.is_complex() ? at::view_as_real(wire) : wire};
    c10d::AllreduceOptions options;
    options.timeout = timeout;
    options.reduceOp = how == ReduceOp::min   ? RedOp::MIN
                       : how == ReduceOp::max ? RedOp::MAX
                                              : RedOp::SUM;
    run(operation, by_nccl(x),
        [&](c10d::Backend& backend) { return backend.allreduce(tensors, options); });
    if (how == ReduceOp::mean) wire.div_(size());
  }
  from_wire(wire, x);
}

void GroupState::run(const std::string& operation, bool on_nccl, const Start& start) {
  constexpr std::chrono::seconds k_grace(5);  // Gloo's own error at the time-out says more
  c10::intrusive_ptr<c10d::Work> work;
  try {
    work = start(on_nccl ? *nccl : *gloo);
    if (on_nccl) {
      wait_for_nccl(*work, timeout);
    } else {
      work->wait(timeout + k_grace);
    }
  } catch (const std::exception& error) {
    // Gloo's threads block each other, and would never be joined.
    if (!on_nccl && work && !work->isCompleted()) static_cast<void>(gloo.release());
    leave(operation, error_cause(error));
    throw CommunicatorError(failure +
                            ". A rank has died, left or been too late; this communicator "
                            "is no longer usable (torchrun --max-restarts starts a new "
                            "group).");
  }
}

// So that the other ranks, which may wait for this one, notice at once.
void GroupState::leave(const std::string& operation, const std::string& cause) {
  failure = operation + " on rank " + std::to_string(rank) + " of " + std::to_string(size()) +
            " failed: " + cause + at_those_addresses(cause);
  try {
    gloo.reset();  // closes connections; NCCL's abort may wait for ranks that did not notice yet
    if (const auto leaving = std::exchange(nccl, nullptr)) leaving->abort();
  } catch (const std::exception& error) {
    log_message(LogLevel::error, "Communicator: " + error_cause(error));
  }
}

// The ranks whose addresses the cause contains, as a text: " (there: rank 1)".
std::string GroupState::at_those_addresses(const std::string& cause) const {
  std::vector<int> there;
  for (int other = 0; other < static_cast<int>(peers.size()); ++other) {
    const auto& address = peers[static_cast<std::size_t>(other)].address;
    if (other != rank && cause.find('[' + address + ']') != std::string::npos)
      there.push_back(other);
  }
  return there.empty() ? "" : " (there: rank " + number_ranges(there) + ')';
}

}  // namespace use_gpu::detail
