// SPDX-License-Identifier: MIT
#include <use_gpu/communicator.hpp>

#include <signal.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <use_gpu/device.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/log.hpp>

#include <set>
#include <utility>

#include "communicator/endpoint.hpp"
#include "communicator/group_state.hpp"
#include "communicator/nccl_backend_cuda.hpp"
#include "messages/error_text.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

using detail::Backend;

// Gloo and the store's server write to connections whose peer may be gone; SIGPIPE would then end
// the process (Python ignores it). Threads started in this scope inherit that it is blocked; for
// the rest of the program nothing changes.
class SigpipeBlocked {
 public:
  SigpipeBlocked() {
    ::sigemptyset(&sigpipe_);
    ::sigaddset(&sigpipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~SigpipeBlocked() {
    if (::sigismember(&before_, SIGPIPE) == 0) {
      const timespec now{};
      ::sigtimedwait(&sigpipe_, nullptr, &now);  // discards a pending one
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SigpipeBlocked(const SigpipeBlocked&) = delete;
  SigpipeBlocked& operator=(const SigpipeBlocked&) = delete;

 private:
  sigset_t sigpipe_{}, before_{};
};

Backend make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                  const std::string& address, std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname(address)};
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

bool nccl_connects(const std::vector<detail::Peer>& peers) {
  std::set<std::string> gpus;
  for (const auto& peer : peers) {
    if (!peer.gpu.empty() && !peer.gpu.starts_with(detail::k_simulated)) gpus.insert(peer.gpu);
  }
  return gpus.size() == peers.size();
}

c10::Device device_of(const detail::LaunchEnvironment& launch) {
  if (num_gpus() == 0) return cpu();
  if (launch.local_rank < num_gpus()) return gpu(launch.local_rank);
  // Some launchers show each process its own GPU and no other.
  if (num_gpus() == 1) return gpu(0);
  throw DeviceError("Communicator::join: LOCAL_RANK " + std::to_string(launch.local_rank) +
                    " needs a GPU of its own, but this program sees only " +
                    std::to_string(num_gpus()) +
                    ". Start at most that many processes here "
                    "(torchrun --nproc-per-node), or hide the GPUs from all "
                    "(CUDA_VISIBLE_DEVICES=).");
}

detail::Peer self_of(const detail::LaunchEnvironment& launch, c10::Device device) {
  const bool needs_own_gpu = num_gpus() > 0 && launch.local_rank >= num_gpus();
  return {launch.rank,   launch.size, detail::local_address(launch), detail::gpu_id(device),
          needs_own_gpu, /*mark=*/{}};
}

std::string who(const detail::Membership& own) {
  return "Communicator::join: rank " + std::to_string(own.rank) + ", at " + own.self().address;
}

Backend connect(const detail::Membership& own, const c10::intrusive_ptr<c10d::Store>& store) try {
  return make_gloo(store, own.rank, own.size(), own.self().address, own.timeout);
} catch (const std::exception& error) {
  throw CommunicatorError(who(own) + ", cannot connect to the others: " +
                          detail::error_cause(error) + ". Rank 0 is at " + own.peers[0].address +
                          "; every rank must reach every other, on any port.");
}

Backend connect_nccl(const detail::Membership& own,
                     const c10::intrusive_ptr<c10d::Store>& store) try {
  return detail::make_nccl(store, own.rank, own.size(), own.device, own.timeout);
} catch (const CommunicatorError&) {
  throw;
} catch (const std::exception& error) {
  const auto cause = detail::error_cause(error);
  const bool is_memory = cause.find("/dev/shm") != std::string::npos ||
                         cause.find("shared memory") != std::string::npos;
  throw CommunicatorError(
      who(own) + ", cannot start NCCL on " + own.device.str() + ": " + cause +
      (is_memory ? ". In a container give /dev/shm more (docker run --shm-size=1g)."
                 : ". Every rank must reach every other, on any port; NCCL_DEBUG=INFO shows what "
                   "NCCL tried."));
}

}  // namespace

CommunicatorError::CommunicatorError(const std::string& message) : Error(message) {}

Communicator::Communicator(std::unique_ptr<detail::GroupState> state) : state_(std::move(state)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;

Communicator::~Communicator() = default;

Communicator Communicator::join(std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds k_longest = std::chrono::hours(24 * 365);
  if (timeout.count() <= 0 || timeout > k_longest) {
    throw ArgumentError("Communicator::join: a time-out of " + std::to_string(timeout.count()) +
                        " ms was requested; use 1 ms to a year.");
  }
  const auto launch = detail::read_launch_environment();
  const auto device = launch ? device_of(*launch) : try_gpu();
  if (!launch || launch->size == 1)
    return Communicator(std::make_unique<detail::GroupState>(detail::Membership{device, timeout}));

  const SigpipeBlocked blocked;
  auto [store, peers] = detail::meet(*launch, self_of(*launch, device), timeout);
  detail::Membership own{device, timeout, launch->rank, std::move(peers)};
  own.gloo = connect(own, store);
  if (nccl_connects(own.peers)) own.nccl = connect_nccl(own, store);
  auto group = Communicator(std::make_unique<detail::GroupState>(std::move(own)));
  group
      .barrier();  // rank 0 may serve the store, and must not leave while others still read from it
  log_message(LogLevel::debug, "Communicator: rank " + std::to_string(group.rank()) + " of " +
                                   std::to_string(group.size()) + " at " +
                                   group.state_->self().address + ", " +
                                   group.backend()->getBackendName() + ", restart " +
                                   std::to_string(launch->restarts));
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
  if (size() > 1) state_->compare_calls("barrier", "barrier");
}

Backend Communicator::backend() {
  auto& s = *state_;
  if (!s.failure.empty()) throw CommunicatorError("backend: closed: " + s.failure);
  if (!s.gloo)  // a group of one creates it on first use
    s.gloo = make_gloo(c10::make_intrusive<c10d::HashStore>(), 0, 1, "127.0.0.1", s.timeout);
  return s.nccl ? s.nccl : s.gloo;
}

}  // namespace use_gpu
