// SPDX-License-Identifier: MIT
#include "communicator/reducer_group.hpp"

#include <use_gpu/transfers.hpp>

#include <exception>
#include <map>
#include <string>
#include <utility>

#include "communicator/nccl_backend_cuda.hpp"

namespace use_gpu::detail {
namespace {

constexpr const char* k_operation = "DistributedDataParallel";

// A work of Gloo's that is waited for as the group's own calls are.
class LimitedWork final : public c10d::Work {
 public:
  LimitedWork(c10::intrusive_ptr<c10d::Work> work, GroupState& group)
      : Work(group.rank), work_(std::move(work)), group_(group) {}

  bool isCompleted() override { return work_->isCompleted(); }
  bool isSuccess() const override { return work_->isSuccess(); }
  std::exception_ptr exception() const override { return work_->exception(); }
  std::vector<at::Tensor> result() override { return work_->result(); }
  void synchronize() override { work_->synchronize(); }
  bool wait(std::chrono::milliseconds) override {
    group_.finish(k_operation, work_, /*on_nccl=*/false);
    return true;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return work_->getFuture(); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  GroupState& group_;
};

class LimitedGloo final : public c10d::Backend {
 public:
  explicit LimitedGloo(GroupState& group) : Backend(group.rank, group.size()), group_(group) {}
  [[nodiscard]] const std::string getBackendName() const override { return "gloo"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& x,
                                           const c10d::AllreduceOptions& options) override {
    return start([&](c10d::Backend& gloo) { return gloo.allreduce(x, options); });
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& x,
                                           const c10d::BroadcastOptions& options) override {
    return start([&](c10d::Backend& gloo) { return gloo.broadcast(x, options); });
  }

 private:
  template <class Call>
  c10::intrusive_ptr<c10d::Work> start(const Call& call) try {
    const AllowTransfers certain;  // Gloo takes a GPU's tensors through host memory
    group_.throw_if_lost(k_operation);
    return c10::make_intrusive<LimitedWork>(call(*group_.gloo), group_);
  } catch (const std::exception& error) {
    if (group_.failure.empty()) group_.lose(k_operation, error);
    throw;
  }

  GroupState& group_;
};

// Of each bucket, by its index: what is under way, and its values.
class GlooAverages final : public c10d::CommHookInterface {
 public:
  explicit GlooAverages(GroupState& group) : gloo_(c10::make_intrusive<LimitedGloo>(group)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    auto& values = bucket.getBufferRef();
    values.mul_(1.0 / gloo_->getSize());
    std::vector<at::Tensor> tensors{values};
    const auto index = static_cast<std::int64_t>(bucket.getIndex());
    started_[index] = {gloo_->allreduce(tensors, {}), values};
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
    future->markCompleted(index);  // the wait is in parseHookResult, in the backward pass's thread
    return future;
  }

  at::Tensor parseHookResult(const c10::IValue& index) override {
    const auto [work, values] = started_.extract(index.toInt()).mapped();
    work->wait();
    return values;
  }

 private:
  c10::intrusive_ptr<LimitedGloo> gloo_;
  std::map<std::int64_t, std::pair<c10::intrusive_ptr<c10d::Work>, at::Tensor>> started_;
};

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroup> reducer_group(GroupState& group) {
  using Type = c10d::ProcessGroup::BackendType;
  auto processes = c10::make_intrusive<c10d::ProcessGroup>(group.rank, group.size());
  const Backend gloo = c10::make_intrusive<LimitedGloo>(group);
  processes->setBackend(c10::kCPU, Type::GLOO, gloo);
  if (group.nccl) {
    processes->setBackend(c10::kCUDA, Type::NCCL, watched(group.nccl));
  } else if (!group.device.is_cpu()) {
    processes->setBackend(group.device.type(), Type::GLOO, gloo);
  }
  processes->setDefaultBackend(group.nccl ? Type::NCCL : Type::GLOO);
  return processes;
}

std::unique_ptr<c10d::CommHookInterface> gloo_averages(GroupState& group) {
  return std::make_unique<GlooAverages>(group);
}

}  // namespace use_gpu::detail
