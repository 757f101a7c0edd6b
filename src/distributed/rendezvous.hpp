// SPDX-License-Identifier: MIT
//
// How the ranks of a group find each other, through a store that all of them can reach: torchrun's,
// or one that rank 0 serves.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <vector>

#include "distributed/launch_environment.hpp"

namespace c10d {
class Store;
}

namespace use_gpu::detail {

/// What each rank tells the others about itself.
struct Peer {
  int rank = 0;
  int size = 1;                // its WORLD_SIZE
  std::string address;         // where its Gloo listens: the local address that reaches MASTER_ADDR
  std::string gpu;             // its UUID; empty: not to be used by NCCL
  bool needs_own_gpu = false;  // its LOCAL_RANK is past the GPUs that it sees: it sees only its own
  std::string mark;            // random, another one after a restart
};

struct Rendezvous {
  c10::intrusive_ptr<c10d::Store> store;  // keys of this group alone, not of one before a restart
  std::vector<Peer> peers;                // by rank
};

/// Returns when all ranks joined. CommunicatorError after the time-out, with the ranks that did, or
/// if there is another process of this rank; at once if the port is taken or an address cannot be
/// used; when all are there, if ranks share a GPU that one of them needs; then, or at the time-out,
/// if a rank has another WORLD_SIZE.
[[nodiscard]] Rendezvous meet(const LaunchEnvironment& launch, const std::string& gpu,
                              bool needs_own_gpu, std::chrono::milliseconds timeout);

}  // namespace use_gpu::detail
