// SPDX-License-Identifier: MIT
#include "communicator/nccl_backend_cuda.hpp"

#include <ATen/cuda/CUDAContext.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <use_gpu/log.hpp>

#include <cstdlib>
#include <span>
#include <stdexcept>

#include "communicator/own_thread.hpp"
#include "messages/message.hpp"

namespace use_gpu::detail {

std::string gpu_id(c10::Device device) {
  if (!device.is_cuda()) return {};
  const auto& properties = *at::cuda::getDeviceProperties(device.index());
  auto uuid = hex(std::as_bytes(std::span(properties.uuid.bytes)));
  if (std::getenv("SIMULATE_GPUS") == nullptr) return uuid;
  log_message(LogLevel::debug, "Communicator: " + device.str() +
                                   " is simulated, which NCCL does not know: Gloo is used");
  return std::string(k_simulated) + uuid;
}

Backend make_nccl(const Membership& own, const c10::intrusive_ptr<c10d::Store>& store) {
  // LibTorch's options hold a struct of nccl.h, whose size differs between versions.
  if (torch::cuda::nccl::version() >> 16 != (std::uint64_t{NCCL_MAJOR} << 16 | NCCL_MINOR)) {
    throw std::runtime_error(
        "use_gpu was built with another nccl.h than LibTorch; build it with LibTorch's");
  }
  // By default, watchdog threads of LibTorch monitor NCCL, and each other through the store, and
  // end the process if a peer is lost. Here calls wait and throw instead, which only the
  // environment can select.
  ::setenv("TORCH_NCCL_BLOCKING_WAIT", "1", /*overwrite=*/1);
  ::setenv("TORCH_NCCL_ENABLE_MONITORING", "0", /*overwrite=*/0);
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = own.timeout;
  auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, own.rank, own.size(), options);
  nccl->setBoundDeviceId(own.device);
  // NCCL waits for its peers without a time-out.
  auto connected =
      on_own_thread([nccl, device = own.device] { nccl->eagerConnectSingleDevice(device); });
  if (connected.wait_for(own.timeout) != std::future_status::ready) {
    nccl->abort();
    throw std::runtime_error("NCCL has not connected all ranks within the time-out");
  }
  connected.get();
  return nccl;
}

}  // namespace use_gpu::detail
