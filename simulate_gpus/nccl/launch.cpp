// SPDX-License-Identifier: MIT
#include "nccl/launch.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "runtime/interface.hpp"
#include "runtime/settings.hpp"

namespace simulate_gpus::nccl {
namespace {

using Group = std::shared_ptr<const std::vector<Operation>>;

// A step of a group, as work of a stream: each operation is tried until it is done. Nobody waits
// while holding a stream: if one is left, the runtime is told when to try again.
class Step {
 public:
  using Attempt = bool (Operation::*)() const;
  Step(Group group, Attempt attempt)
      : group_(std::move(group)), attempt_(attempt), is_done_(group_->size()) {}

  void operator()() {
    std::function<void()> wait;
    for (std::size_t i = 0; i < is_done_.size(); ++i) {
      if (is_done_[i]) continue;
      const Operation& operation = (*group_)[i];
      const std::uint32_t seen = operation.self->changes().value();
      is_done_[i] = (operation.*attempt_)();
      if (is_done_[i] || wait) continue;
      wait = [self = operation.self, seen] {
        // Not longer: the group may wait for another communicator too.
        self->changes().wait(seen, std::chrono::milliseconds(20));
      };
    }
    if (wait) throw NotYet(std::move(wait));
  }

 private:
  Group group_;
  Attempt attempt_;
  std::vector<bool> is_done_;
};

StreamMoment submit(cudaStream_t stream, Step step) {
  return submit_with_moment(stream, std::move(step));
}

void number(Operation& operation) {
  operation.number = operation.self->next_number(operation.duty(), operation.peer);
}

void submit_together(const std::vector<Operation>& operations, cudaStream_t stream) {
  const auto group = std::make_shared<const std::vector<Operation>>(operations);
  const auto given = submit(stream, Step(group, &Operation::try_give));
  const auto taken = submit(stream, Step(group, &Operation::try_take));
  for (const Operation& operation : *group) {
    const Duty duty = operation.duty();
    const auto owe = [&](std::uint64_t what, const auto& moment, bool only_makes_room) {
      operation.self->owe({duty, operation.peer, what, moment, only_makes_room});
    };
    if (duty == Duty::receive) {
      owe(operation.number, taken, !operation.waits_for_receipt());
    } else {
      owe(operation.number, given, false);
    }
    // A collective that has been taken makes room for the one that will have the same place.
    if (duty == Duty::collective) owe(operation.number + SharedFile::k_parts, taken, true);
  }
}

// Operations of one device that have their numbers. More than there is room for go one after the
// other: in parts that all ranks make alike.
void submit_group(const std::vector<Operation>& operations, cudaStream_t stream) {
  constexpr std::uint64_t k_together = SharedFile::k_parts / 2;
  std::map<std::uint64_t, std::vector<Operation>> parts;
  for (const Operation& operation : operations) {
    auto& part = parts[operation.number / k_together].emplace_back(operation);
    part.is_alone = operations.size() == 1;
  }
  for (const auto& [place, part] : parts) submit_together(part, stream);
  if (!settings().check) return;
  for (const Operation& operation : operations)
    tell_uses(stream, name_of(operation.call.kind), operation.ranges());
}

}  // namespace

OnDevice::OnDevice(int device) {
  cudaGetDevice(&before_);
  if (device != before_) cudaSetDevice(device);
}

OnDevice::~OnDevice() { cudaSetDevice(before_); }

void launch(std::vector<Operation> group) {
  std::vector<std::pair<int, cudaStream_t>> streams;  // and whose default stream null means
  const auto stream_of = [](const Operation& operation) {
    return std::pair(operation.self->device, operation.stream);
  };
  for (Operation& operation : group) {
    // In the order of the calls; in that of the launches where they are captured.
    if (!is_captured(operation.stream)) number(operation);
    if (std::ranges::count(streams, stream_of(operation)) == 0)
      streams.push_back(stream_of(operation));
  }
  for (const auto& place : streams) {
    std::vector<Operation> of_stream;
    std::ranges::copy_if(group, std::back_inserter(of_stream),
                         [&](const Operation& operation) { return stream_of(operation) == place; });
    const OnDevice current(place.first);
    const ToldCall call("cudaLaunchKernelExC");  // as NCCL launches its kernels
    for (const Operation& operation : of_stream)
      tell_collective(place.second, name_of(operation.call.kind), operation.call.bytes(),
                      text_of(operation.call));
    if (is_captured(place.second)) {
      record_submission(place.second, [of_stream](cudaStream_t launched) {
        auto numbered = of_stream;
        for (Operation& operation : numbered) number(operation);
        submit_group(numbered, launched);
      });
    } else {
      submit_group(of_stream, place.second);
    }
  }
}

}  // namespace simulate_gpus::nccl
