// SPDX-License-Identifier: MIT
#include <use_gpu/communicator.hpp>

#include <signal.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <use_gpu/device.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/log.hpp>
#include <use_gpu/transfers.hpp>

#include <array>
#include <set>
#include <sstream>
#include <utility>

#include "communicator/endpoint.hpp"
#include "communicator/group_state.hpp"
#include "communicator/nccl_backend_cuda.hpp"
#include "communicator/wire_tensor.hpp"
#include "messages/error_text.hpp"
#include "messages/message.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

using Backend = c10::intrusive_ptr<c10d::Backend>;

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

// What to do where NCCL does not start.
const char* nccl_hint(const std::string& cause) {
  const bool is_memory = cause.find("/dev/shm") != std::string::npos ||
                         cause.find("shared memory") != std::string::npos;
  return is_memory ? ". In a container give /dev/shm more (docker run --shm-size=1g)."
                   : ". Every rank must reach every other, on any port; NCCL_DEBUG=INFO shows "
                     "what NCCL tried.";
}

const char* name_of(ReduceOp how) {
  constexpr std::array k_names = {"sum", "mean", "min", "max"};
  return k_names[static_cast<std::size_t>(how)];
}

// What has to be the same on all ranks, as one text.
std::string call_text(const char* operation, const at::Tensor& x, const std::string& how,
                      bool by_nccl) {
  std::ostringstream text;
  text << operation << ' ' << how << ' ' << c10::getDtypeNames(x.scalar_type()).first << x.sizes()
       << (by_nccl ? " by NCCL" : " by Gloo");
  return text.str();
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
  auto state = std::make_unique<detail::GroupState>(launch ? device_of(*launch) : try_gpu());
  state->timeout = timeout;
  if (!launch || launch->size == 1) return Communicator(std::move(state));
  state->rank = launch->rank;
  state->size = launch->size;

  const SigpipeBlocked blocked;
  detail::Peer self{detail::local_address(*launch), detail::gpu_id(state->device),
                    /*needs_own_gpu=*/num_gpus() > 0 && launch->local_rank >= num_gpus()};
  try {
    self.lifeline_port = state->lifeline.listen(self.address);
  } catch (const std::system_error& error) {
    detail::throw_not_joined(*launch, error.what());
  }
  auto [store, peers] = detail::meet(*launch, self, timeout);
  state->peers = std::move(peers);
  const auto who =
      "Communicator::join: rank " + std::to_string(state->rank) + ", at " + self.address;
  try {
    std::vector<detail::Lifeline::Place> places;
    for (const auto& peer : state->peers) places.push_back({peer.address, peer.lifeline_port});
    state->lifeline.connect(state->rank, places, std::chrono::steady_clock::now() + timeout);
    state->gloo = make_gloo(store, state->rank, state->size, self.address, timeout);
  } catch (const std::exception& error) {
    throw CommunicatorError(who + ", cannot connect to the others: " + detail::error_cause(error) +
                            ". Rank 0 is at " + state->peers[0].address +
                            "; every rank must reach every other, on any port.");
  }
  if (nccl_connects(state->peers)) {
    try {
      state->nccl = detail::make_nccl(store, state->rank, state->size, state->device, timeout);
    } catch (const CommunicatorError&) {
      throw;
    } catch (const std::exception& error) {
      const auto cause = detail::error_cause(error);
      throw CommunicatorError(who + ", cannot start NCCL on " + state->device.str() + ": " + cause +
                              nccl_hint(cause));
    }
  }
  // Rank 0 may serve the store, and must not leave while others still read from it.
  auto group = Communicator(std::move(state));
  group.barrier();
  log_message(LogLevel::debug, "Communicator: rank " + std::to_string(group.rank()) + " of " +
                                   std::to_string(group.size()) + " at " + self.address + ", " +
                                   group.backend()->getBackendName() + ", restart " +
                                   std::to_string(launch->restarts));
  return group;
}

int Communicator::rank() const noexcept { return state_->rank; }
int Communicator::size() const noexcept { return state_->size; }
c10::Device Communicator::device() const noexcept { return state_->device; }

void Communicator::all_reduce(const at::Tensor& x, ReduceOp how) {
  const AllowTransfers certain;
  const c10::InferenceMode inference;  // so nothing is recorded, and inference tensors are taken
  const bool by_nccl = state_->by_nccl(x);
  at::Tensor wire;
  state_->prepare("all_reduce", [&] {
    detail::check_sendable("all_reduce", x);
    detail::check_reducible(x, how);
    const auto dtype = detail::reduction_dtype(x.scalar_type(), how);
    if (size() > 1) wire = detail::to_wire(x, *dtype, !by_nccl);
  });
  if (size() == 1) return;
  state_->compare_calls("all_reduce", call_text("all_reduce", x, name_of(how), by_nccl));
  state_->all_reduce("all_reduce", wire, how, by_nccl);
  detail::from_wire(wire, x);
}

void Communicator::broadcast(const at::Tensor& x, int root) {
  const AllowTransfers certain;
  const c10::InferenceMode inference;
  const bool by_nccl = state_->by_nccl(x);
  at::Tensor wire;
  state_->prepare("broadcast", [&] {
    detail::check_sendable("broadcast", x);
    if (const auto trouble = detail::trouble_with_root(root, size()); !trouble.empty()) {
      throw ArgumentError("broadcast: " + trouble);
    }
    if (size() > 1) wire = detail::to_wire(x, x.scalar_type(), !by_nccl);
  });
  if (size() == 1) return;
  state_->compare_calls("broadcast",
                        call_text("broadcast", x, "from " + std::to_string(root), by_nccl));
  state_->broadcast("broadcast", wire, root, by_nccl);
  if (rank() != root) detail::from_wire(wire, x);
}

void Communicator::barrier() {
  if (size() > 1) state_->compare_calls("barrier", "barrier");
}

Backend Communicator::backend() {
  auto& s = *state_;
  if (!s.failure.empty())
    throw CommunicatorError("backend: closed: " + detail::clipped(s.failure, 250));
  if (!s.gloo)  // a group of one creates it on first use
    s.gloo = make_gloo(c10::make_intrusive<c10d::HashStore>(), 0, 1, "127.0.0.1", s.timeout);
  return s.nccl ? s.nccl : s.gloo;
}

}  // namespace use_gpu
