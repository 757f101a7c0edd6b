// SPDX-License-Identifier: MIT
#include "distributed/reducer.hpp"

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <algorithm>
#include <limits>
#include <set>

namespace use_gpu::detail {
namespace {

constexpr const char* k_operation = "DistributedDataParallel";

// What Reducer sends by: Gloo, for whose work its callers wait here, or NCCL that is watched.
class ReducerBackend final : public c10d::Backend {
 public:
  ReducerBackend(GroupState& group, bool is_nccl)
      : Backend(group.rank, group.size()), group_(group), is_nccl_(is_nccl) {}
  [[nodiscard]] const std::string getBackendName() const override {
    return is_nccl_ ? "nccl" : "gloo";
  }
  Work allreduce(std::vector<at::Tensor>& x, const c10d::AllreduceOptions& options) override {
    return run([&](c10d::Backend& backend) { return backend.allreduce(x, options); });
  }
  Work broadcast(std::vector<at::Tensor>& x, const c10d::BroadcastOptions& options) override {
    std::vector<at::Tensor> bytes{x.at(0).view(at::kByte)};  // both have few dtypes
    return run([&](c10d::Backend& backend) { return backend.broadcast(bytes, options); });
  }

 private:
  Work run(const auto& start) {
    const auto work = group_.begin(
        k_operation, [&] { return start(is_nccl_ ? *group_.watched_nccl : *group_.gloo); });
    if (!is_nccl_) group_.finish(k_operation, work, /*on_nccl=*/false);
    return work;
  }

  GroupState& group_;
  bool is_nccl_;
};

// Averages Reducer's buckets by Gloo to the same bits as Reducer itself, which would wait without a
// time-out. Of each bucket, by its index: what is under way, and its values.
class GlooAverages final : public c10d::CommHookInterface {
 public:
  explicit GlooAverages(GroupState& group) : group_(group) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    auto& values = bucket.getBufferRef();
    // As Reducer: mul_(number) would round it to bfloat16 first.
    const double size = group_.size();
    values.is_sparse() ? values.div_(size)
                       : values.mul_(at::native::wrapped_scalar_tensor(1 / size));
    std::vector<at::Tensor> tensors{values};
    const auto index = static_cast<std::int64_t>(bucket.getIndex());
    started_[index] = {
        group_.begin(k_operation, [&] { return group_.gloo->allreduce(tensors, {}); }), values};
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
    future->markCompleted(index);  // the wait is in parseHookResult, in the backward pass's thread
    return future;
  }

  at::Tensor parseHookResult(const c10::IValue& index) override {
    const auto [work, values] = started_.extract(index.toInt()).mapped();
    group_.finish(k_operation, work, /*on_nccl=*/false);
    return values;
  }

 private:
  GroupState& group_;
  std::map<std::int64_t, std::pair<Work, at::Tensor>> started_;
};

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroup> reducer_processes(GroupState& group) {
  using Type = c10d::ProcessGroup::BackendType;
  auto processes = c10::make_intrusive<c10d::ProcessGroup>(group.rank, group.size());
  const bool is_nccl = group.nccl != nullptr;
  const auto type = is_nccl ? Type::NCCL : Type::GLOO;
  const auto backend = [&](bool nccl) { return c10::make_intrusive<ReducerBackend>(group, nccl); };
  processes->setBackend(c10::kCPU, Type::GLOO, backend(false));
  if (!group.device.is_cpu()) processes->setBackend(group.device.type(), type, backend(is_nccl));
  processes->setDefaultBackend(type);
  return processes;
}

Trained trained_parameters_of(const torch::nn::Module& net) {
  std::set<const at::TensorImpl*> sparse, seen;
  net.apply([&](const torch::nn::Module& module) {
    const auto* embedding = module.as<torch::nn::EmbeddingImpl>();
    const auto* bag = module.as<torch::nn::EmbeddingBagImpl>();
    if (embedding && embedding->options.sparse())
      sparse.insert(embedding->weight.unsafeGetTensorImpl());
    if (bag && bag->options.sparse()) sparse.insert(bag->weight.unsafeGetTensorImpl());
  });
  Trained trained;
  for (const auto& p : net.named_parameters()) {
    const auto& x = p.value();
    if (!x.requires_grad() || !seen.insert(x.unsafeGetTensorImpl()).second) continue;
    trained.names.push_back(p.key());
    trained.parameters.push_back(x);
    trained.have_sparse_gradients.push_back(sparse.contains(x.unsafeGetTensorImpl()));
  }
  return trained;
}

std::shared_ptr<c10d::Reducer> make_reducer(const Trained& trained,
                                            const DistributedOptions& options, GroupState& group,
                                            c10::intrusive_ptr<c10d::ProcessGroup> processes) {
  const std::size_t cap = options.bucket_bytes.value_or(c10d::kDefaultBucketBytesCap);
  const std::size_t first = options.bucket_bytes ? cap : c10d::kDefaultFirstBucketBytes;
  // Where buckets are made anew after the first step, in the order of its gradients, one will do.
  const auto sizes = options.find_unused_parameters
                         ? std::vector{first, cap}
                         : std::vector{std::numeric_limits<std::size_t>::max()};
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(trained.parameters, sizes,
                                                                   trained.have_sparse_gradients);
  std::ranges::reverse(buckets);  // the last parameters' gradients come first
  std::unordered_map<std::size_t, std::string> names;
  for (std::size_t i = 0; i < trained.names.size(); ++i) names[i] = trained.names[i];
  auto reducer = std::make_shared<c10d::Reducer>(
      trained.parameters, std::move(buckets), std::move(processes), trained.have_sparse_gradients,
      static_cast<std::int64_t>(cap), options.find_unused_parameters,
      /*gradient_as_bucket_view=*/false, std::move(names), static_cast<std::int64_t>(first),
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      std::vector<std::int64_t>());
  if (!group.nccl) reducer->register_comm_hook(std::make_unique<GlooAverages>(group));
  return reducer;
}

}  // namespace use_gpu::detail
