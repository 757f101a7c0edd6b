// SPDX-License-Identifier: MIT
//
// What a program's ncclComm_t points to, and the group of calls that a thread is in.
#pragma once

#include <nccl.h>

#include <memory>
#include <string>
#include <vector>

#include "nccl/operation.hpp"
#include "nccl/rank.hpp"

struct ncclComm {
  std::shared_ptr<simulate_gpus::nccl::Rank> rank;
  bool is_blocking = true;  // whether functions wait for the other ranks
};

namespace simulate_gpus::nccl {

/// Remembers the reason for ncclGetLastError, and returns the code.
ncclResult_t refuse(const std::string& why, ncclResult_t code = ncclInvalidArgument);

/// Makes a communicator of that file, for the current device.
ncclResult_t join(ncclComm_t* comm, const MemoryFile& shared, int size, int rank);

/// Whether functions of such a communicator wait.
bool is_blocking(const ncclConfig_t* config);

/// What this thread has asked for since ncclGroupStart.
struct OpenGroup {
  int depth = 0;
  std::vector<Operation> operations;
  std::vector<std::shared_ptr<Rank>> joining;
};
OpenGroup& open_group();

/// Returns when all ranks have joined; an error if they are no communicator, or if this rank or its
/// rank in the communicator that is split was aborted.
ncclResult_t wait_for_all(Rank& rank, const Rank* parent = nullptr);

}  // namespace simulate_gpus::nccl
