// SPDX-License-Identifier: MIT
#include <use_gpu/communicator.hpp>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <use_gpu/device.hpp>

#include <set>

#include "core/device_cuda.hpp"
#include "core/messages/error_text.hpp"
#include "distributed/nccl_backend_cuda.hpp"
#include "distributed/own_thread.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

using detail::Backend;

Backend make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                  const std::string& address, std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname(address)};
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

c10::Device device_of(const detail::LaunchEnvironment& launch) {
  if (num_gpus() == 0) return cpu();
  if (launch.local_rank < num_gpus()) return gpu(launch.local_rank);
  // Some launchers show each process its own GPU and no other.
  if (num_gpus() == 1) return gpu(0);
  throw DeviceError(c10::str("Communicator::join: LOCAL_RANK ", launch.local_rank,
                             " needs a GPU of its own, but this program sees only ", num_gpus(),
                             ". Start at most that many processes here (torchrun "
                             "--nproc-per-node), or hide the GPUs from all "
                             "(CUDA_VISIBLE_DEVICES=)."));
}

// Connects the group by Gloo, and by NCCL where each rank has a GPU of its own.
void connect(detail::Membership& own, const c10::intrusive_ptr<c10d::Store>& store) try {
  own.gloo = make_gloo(store, own.rank, own.size(), own.self().address, own.timeout);
  std::set<std::string> gpus;
  for (const auto& peer : own.peers) gpus.insert(peer.gpu);
  if (gpus.size() == own.peers.size() && !gpus.contains(""))
    own.nccl = detail::make_nccl(own, store);
} catch (const std::exception& error) {
  std::string failed = "connect to the others", hint;
  if (own.gloo) {
    failed = "start NCCL on " + own.device.str();
    hint = " NCCL needs space in /dev/shm (docker run --shm-size=1g); NCCL_DEBUG=INFO says more.";
  }
  throw CommunicatorError(
      c10::str("Communicator::join: rank ", own.rank, ", at ", own.self().address, ", cannot ",
               failed, ": ", detail::error_cause(error), ". Rank 0 is at ", own.peers[0].address,
               "; every rank must reach every other, on any port.", hint));
}

}  // namespace

Communicator::Communicator(std::shared_ptr<detail::GroupState> state) : state_(std::move(state)) {}

Communicator Communicator::join(std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds k_longest = std::chrono::hours(24 * 365);
  if (timeout.count() <= 0 || timeout > k_longest) {
    throw ArgumentError(c10::str("Communicator::join: a time-out of ", timeout.count(),
                                 " ms was requested; use 1 ms to a year."));
  }
  const auto launch = detail::read_launch_environment();
  const auto device = launch ? device_of(*launch) : try_gpu();
  if (!launch || launch->size == 1)
    return Communicator(std::make_shared<detail::GroupState>(detail::Membership{device, timeout}));

  const auto card = detail::card_of(device);
  const auto id = detail::k_has_nccl && card ? card->uuid : "";
  const bool needs_own_gpu = !id.empty() && device.index() != launch->local_rank;
  const auto met = detail::meet(*launch, id, needs_own_gpu, timeout);
  detail::Membership own{device, timeout, launch->rank, met.peers};
  detail::on_own_thread([&] { connect(own, met.store); }).get();
  Communicator group(std::make_shared<detail::GroupState>(std::move(own)));
  // Rank 0 may serve the store, and must not leave while others still read from it.
  group.barrier();
  detail::log_message(LogLevel::debug,
                      c10::str("Communicator: rank ", group.rank(), " of ", group.size(), " at ",
                               group.state_->self().address, ", ",
                               group.backend()->getBackendName(), ", restart ", launch->restarts));
  return group;
}

int Communicator::rank() const noexcept { return state_->rank; }
int Communicator::size() const noexcept { return state_->size(); }
c10::Device Communicator::device() const noexcept { return state_->device; }

void Communicator::all_reduce(const at::Tensor& x, ReduceOp how) {
  state_->call("all_reduce", x, how);
}
void Communicator::broadcast(const at::Tensor& x, int root) { state_->call("broadcast", x, root); }
void Communicator::barrier() {
  state_->compare("barrier", [] { return detail::Call{"barrier"}; });
}

Backend Communicator::backend() {
  auto& s = *state_;
  if (!s.failure.empty()) throw CommunicatorError("backend: closed: " + s.failure);
  if (!s.gloo)  // a group of one creates it on first use
    s.gloo = make_gloo(c10::make_intrusive<c10d::HashStore>(), 0, 1, "127.0.0.1", s.timeout);
  return s.nccl ? s.nccl : s.gloo;
}

}  // namespace use_gpu
