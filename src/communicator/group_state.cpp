// SPDX-License-Identifier: MIT
#include "communicator/group_state.hpp"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_as_real.h>
#include <c10/util/ConstexprCrc.h>
#include <use_gpu/errors.hpp>
#include <use_gpu/log.hpp>

#include <algorithm>
#include <array>
#include <future>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "communicator/nccl_backend_cuda.hpp"
#include "messages/error_text.hpp"
#include "messages/message.hpp"

namespace use_gpu::detail {

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

CallComparison GroupState::compare_calls(const std::string& operation, const std::string& call,
                                         std::int64_t network, std::int64_t choice, bool refuses) {
  if (!failure.empty()) {
    throw CommunicatorError(operation +
                            ": this communicator is no longer usable: " + clipped(failure, 250));
  }
  const auto number = static_cast<std::int64_t>(c10::util::crc64(call).checksum());
  // Equal on all ranks if max(x) == min(x), which is ~max(~x).
  std::array<std::int64_t, 7> most{
      number, ~number, network, ~network, choice, ~choice, refuses ? rank : -1};
  if (size > 1) {
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
                        std::to_string(rank) + " makes this one: " + clipped(call, 200) +
                        ". Operation, shape, dtype and root have to agree, and whether the tensor "
                        "is on group.device().");
  }
  return {most[2] == ~most[3], most[4] == ~most[5], static_cast<int>(most[6])};
}

void GroupState::prepare(const std::string& operation, const std::function<void()>& work) {
  try {
    work();
  } catch (...) {
    if (failure.empty()) {
      try {
        compare_calls(operation, operation + " was refused on a rank");
      } catch (const ArgumentError&) {  // this rank's own error says more
      }
    }
    throw;
  }
}

void GroupState::take_part(const std::string& operation, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    if (failure.empty() && size > 1) leave(operation, error_cause(error));
    throw;
  }
}

void GroupState::all_reduce(const std::string& operation, const at::Tensor& wire, ReduceOp how,
                            bool on_nccl) {
  using RedOp = c10d::ReduceOp::RedOpType;
  std::vector<at::Tensor> tensors{wire.is_complex() ? at::view_as_real(wire) : wire};
  c10d::AllreduceOptions options;
  options.timeout = timeout;
  options.reduceOp = how == ReduceOp::min   ? RedOp::MIN
                     : how == ReduceOp::max ? RedOp::MAX
                                            : RedOp::SUM;
  run(operation, on_nccl,
      [&](c10d::Backend& backend) { return backend.allreduce(tensors, options); });
  if (how == ReduceOp::mean) wire.div_(size);
}

void GroupState::broadcast(const std::string& operation, const at::Tensor& wire, int root,
                           bool on_nccl) {
  std::vector<at::Tensor> bytes{wire.flatten().view(at::kByte)};  // both backends can send bytes
  c10d::BroadcastOptions options;
  options.timeout = timeout;
  options.rootRank = root;
  run(operation, on_nccl,
      [&](c10d::Backend& backend) { return backend.broadcast(bytes, options); });
}

void GroupState::run(const std::string& operation, bool on_nccl, const Start& start) {
  c10::intrusive_ptr<c10d::Work> work;
  try {
    work = start(on_nccl ? *nccl : *gloo);
    if (on_nccl) {
      wait_for_nccl(*work, timeout);
    } else {
      wait_for_gloo(*work);
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

// Gloo's own errors come first: of its time-out, and of a rank that has gone. Where it does not
// notice that one, the lifeline does.
void GroupState::wait_for_gloo(c10d::Work& work) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds k_slice(500), k_grace(5000);
  const auto end = Clock::now() + timeout + k_grace;
  std::optional<Clock::time_point> noticed;
  while (!work.isCompleted() && Clock::now() < end) {
    try {
      work.wait(k_slice);
      return;
    } catch (const std::exception&) {
      if (work.isCompleted()) break;  // else the slice is over
    }
    const int gone = lifeline.lost();
    if (gone < 0) continue;
    if (!noticed) noticed = Clock::now();
    if (Clock::now() > *noticed + k_grace) {
      throw std::runtime_error("the process of rank " + std::to_string(gone) + ", at " +
                               peers[static_cast<std::size_t>(gone)].address +
                               ", has ended or left");
    }
  }
  work.wait(std::chrono::milliseconds(1));  // throws the operation's error, if there is one
}

// So that the other ranks, which may wait for this one, notice at once.
void GroupState::leave(const std::string& operation, const std::string& cause) {
  failure = operation + " on rank " + std::to_string(rank) + " of " + std::to_string(size) +
            " failed: " + cause + at_those_addresses(cause);
  lifeline.leave();
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
