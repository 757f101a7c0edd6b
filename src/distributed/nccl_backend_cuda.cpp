// SPDX-License-Identifier: MIT
#include "distributed/nccl_backend_cuda.hpp"

#include <ATen/cuda/CUDAContext.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <span>
#include <stdexcept>
#include <utility>

#include "distributed/own_thread.hpp"
#include "gpu_info/message.hpp"

namespace use_gpu::detail {
namespace {

// LibTorch's watchdog ends the process if a peer is lost. Here the calls wait for their results, and
// throw; the watchdog is given nothing to watch, but what does not wait.
class WaitingNccl final : public c10d::ProcessGroupNCCL {
 public:
  WaitingNccl(const Membership& own, const c10::intrusive_ptr<c10d::Store>& store,
              c10::intrusive_ptr<Options> options)
      : ProcessGroupNCCL(store, own.rank, own.size(), std::move(options)) {
    blockingWait_ = true;
    heartbeatMonitor_->stop();  // it would ask the store every second, which may be gone
    setBoundDeviceId(own.device);
  }

  // What call() starts.
  template <class Call>
  c10::intrusive_ptr<c10d::Work> watch(const Call& call) {
    blockingWait_ = false;
    const auto restore = c10::make_scope_exit([this] { blockingWait_ = true; });
    return call();
  }
};

class WatchedNccl final : public c10d::Backend {
 public:
  explicit WatchedNccl(c10::intrusive_ptr<WaitingNccl> nccl)
      : Backend(nccl->getRank(), nccl->getSize()), nccl_(std::move(nccl)) {}
  [[nodiscard]] const std::string getBackendName() const override { return "nccl"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& x,
                                           const c10d::AllreduceOptions& options) override {
    return nccl_->watch([&] { return nccl_->allreduce(x, options); });
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& x,
                                           const c10d::BroadcastOptions& options) override {
    std::vector<at::Tensor> bytes{x.at(0).view(at::kByte)};  // NCCL lacks some dtypes
    return nccl_->watch([&] { return nccl_->broadcast(bytes, options); });
  }

 private:
  c10::intrusive_ptr<WaitingNccl> nccl_;
};

}  // namespace

Backend watched(const Backend& nccl) {
  return c10::make_intrusive<WatchedNccl>(c10::static_intrusive_pointer_cast<WaitingNccl>(nccl));
}

std::string gpu_id(c10::Device device) {
  if (!device.is_cuda()) return {};
  const auto& properties = *at::cuda::getDeviceProperties(device.index());
  return hex(std::as_bytes(std::span(properties.uuid.bytes)));
}

Backend make_nccl(const Membership& own, const c10::intrusive_ptr<c10d::Store>& store) {
  // LibTorch's options hold a struct of nccl.h, whose size differs between versions.
  if (torch::cuda::nccl::version() >> 16 != (std::uint64_t{NCCL_MAJOR} << 16 | NCCL_MINOR)) {
    throw std::runtime_error(
        "use_gpu was built with another nccl.h than LibTorch; build it with LibTorch's");
  }
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = own.timeout;
  auto nccl = c10::make_intrusive<WaitingNccl>(own, store, std::move(options));
  // NCCL waits for its peers without a time-out, and aborting it may wait for the same lock: the
  // thread is left alone then.
  auto connected =
      on_own_thread([nccl, device = own.device] { nccl->eagerConnectSingleDevice(device); });
  if (connected.wait_for(own.timeout) != std::future_status::ready)
    throw std::runtime_error("NCCL has not connected all ranks within the time-out");
  connected.get();
  return nccl;
}

}  // namespace use_gpu::detail
