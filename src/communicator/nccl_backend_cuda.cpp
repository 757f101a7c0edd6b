// SPDX-License-Identifier: MIT
#include "communicator/nccl_backend_cuda.hpp"

#include <ATen/cuda/CUDAContext.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <use_gpu/communicator.hpp>
#include <use_gpu/log.hpp>

#include <cstdlib>
#include <future>
#include <span>
#include <stdexcept>
#include <thread>

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

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size, c10::Device device,
                                            std::chrono::milliseconds timeout) {
  // LibTorch's options hold a struct of nccl.h, whose size differs between versions.
  if (torch::cuda::nccl::version() >> 16 != (std::uint64_t{NCCL_MAJOR} << 16 | NCCL_MINOR)) {
    throw CommunicatorError(
        "use_gpu was built with another nccl.h than LibTorch; build it with LibTorch's");
  }
  // By default, watchdog threads of LibTorch monitor NCCL, and each other through the store, and
  // end the process if a peer is lost. Here calls wait and throw instead, which only the
  // environment can select.
  ::setenv("TORCH_NCCL_BLOCKING_WAIT", "1", /*overwrite=*/1);
  ::setenv("TORCH_NCCL_ENABLE_MONITORING", "0", /*overwrite=*/0);
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
  nccl->setBoundDeviceId(device);
  std::packaged_task<void()> connect([nccl, device] { nccl->eagerConnectSingleDevice(device); });
  auto connected = connect.get_future();
  std::thread(std::move(connect)).detach();  // NCCL waits for its peers without a time-out
  if (connected.wait_for(timeout) != std::future_status::ready) {
    nccl->abort();
    throw std::runtime_error("NCCL has not connected all ranks within the time-out");
  }
  connected.get();
  return nccl;
}

void wait_for_nccl(c10d::Work& work, std::chrono::milliseconds timeout) {
  // Between polls LibTorch sleeps longer than a small message takes.
  const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  while (!work.isCompleted() && std::chrono::steady_clock::now() < soon) std::this_thread::yield();
  work.wait(timeout);
}

}  // namespace use_gpu::detail
