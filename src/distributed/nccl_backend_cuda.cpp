// SPDX-License-Identifier: MIT
#include "distributed/nccl_backend_cuda.hpp"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <stdexcept>

#include "distributed/own_thread.hpp"

namespace use_gpu::detail {
namespace {

using c10d::ProcessGroupNCCL;

// Whoever waits does so until the time-out, and throws. LibTorch's watchdog, which ends the process if a
// peer is lost, is given nothing to watch; nor does it ask the store, which may be gone.
class WaitingNccl final : public ProcessGroupNCCL {
 public:
  WaitingNccl(const Membership& own, const c10::intrusive_ptr<c10d::Store>& store)
      : ProcessGroupNCCL(store, own.rank, own.size()) {
    blockingWait_ = true;
    heartbeatMonitor_->stop();
  }
};

// NCCL waits for its peers without a time-out, and aborting it may wait for the same lock: the
// thread is left alone then.
Backend connected(const c10::intrusive_ptr<ProcessGroupNCCL>& nccl, const Membership& own) {
  nccl->setTimeout(own.timeout);
  nccl->setBoundDeviceId(own.device);
  auto done =
      on_own_thread([nccl, device = own.device] { nccl->eagerConnectSingleDevice(device); });
  if (done.wait_for(own.timeout) != std::future_status::ready)
    throw CommunicatorError("NCCL has not connected all ranks within the time-out");
  done.get();
  return nccl;
}

}  // namespace

Backend make_nccl(const Membership& own, const c10::intrusive_ptr<c10d::Store>& store) {
  // LibTorch's options hold a struct of nccl.h, whose size differs between versions.
  if (torch::cuda::nccl::version() >> 16 != (std::uint64_t{NCCL_MAJOR} << 16 | NCCL_MINOR)) {
    throw std::runtime_error(
        "use_gpu was built with another nccl.h than LibTorch; build it with LibTorch's");
  }
  return connected(c10::make_intrusive<WaitingNccl>(own, store), own);
}

Backend make_watched_nccl(const Membership& own) {
  auto options = ProcessGroupNCCL::Options::create();
  options->split_from = c10::static_intrusive_pointer_cast<ProcessGroupNCCL>(own.nccl);
  options->split_color = 0;
  const auto no_store = c10::make_intrusive<c10d::HashStore>();  // what is split needs none
  return connected(
      c10::make_intrusive<ProcessGroupNCCL>(no_store, own.rank, own.size(), std::move(options)),
      own);
}

}  // namespace use_gpu::detail
