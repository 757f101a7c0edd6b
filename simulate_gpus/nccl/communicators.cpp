// SPDX-License-Identifier: MIT
//
// Communicators: how they begin and end.
#include "nccl/communicator.hpp"

#include <cuda_runtime_api.h>

#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include "nccl/errors.hpp"
#include "nccl/launch.hpp"

using namespace simulate_gpus::nccl;

namespace {

constexpr char k_magic[] = "simulated NCCL";

struct UniqueId {
  char magic[sizeof k_magic];
  MemoryFile file;
};
static_assert(sizeof(UniqueId) <= NCCL_UNIQUE_ID_BYTES);

// Waits for the others, unless the program, or its group of calls, will.
ncclResult_t finish_joining(ncclComm_t comm, const ncclConfig_t* config) {
  comm->is_blocking = is_blocking(config);
  if (!comm->is_blocking) return ncclInProgress;
  const auto self = comm->rank;  // another thread may abort it, and free comm
  if (open_group().depth == 0) return wait_for_all(*self);
  open_group().joining.push_back(self);
  return ncclSuccess;
}

}  // namespace

namespace simulate_gpus::nccl {

ncclResult_t refuse(const std::string& why, ncclResult_t code) {
  return static_cast<ncclResult_t>(refuse_in_nccl(code, why));
}

bool is_blocking(const ncclConfig_t* config) { return config == nullptr || config->blocking != 0; }

ncclResult_t join(ncclComm_t* comm, const MemoryFile& shared, int size, int rank) {
  if (size < 1 || rank < 0 || rank >= size)
    return refuse("there is no rank " + std::to_string(rank) + " of " + std::to_string(size));
  if (size > k_most_ranks) {
    return refuse("a communicator of simulated GPUs has at most " + std::to_string(k_most_ranks) +
                  " ranks, not " + std::to_string(size));
  }
  try {
    *comm = new ncclComm{Rank::join(shared, rank, size)};
    return ncclSuccess;
  } catch (const std::invalid_argument& error) {
    return refuse(error.what(), ncclInvalidUsage);
  } catch (const std::exception& error) {
    return refuse(error.what(), ncclSystemError);
  }
}

OpenGroup& open_group() {
  thread_local OpenGroup group;
  return group;
}

ncclResult_t wait_for_all(Rank& rank, const Rank* parent) {
  while (!rank.is_aborted() && !(parent && parent->is_aborted())) {
    const std::uint32_t seen = rank.changes().value();
    if (rank.have_all_joined()) {
      const std::string duplicate = rank.duplicate_gpu();
      return duplicate.empty() ? ncclSuccess : refuse(duplicate, ncclInvalidUsage);
    }
    rank.changes().wait(seen, std::chrono::milliseconds(50));
  }
  return refuse("the communicator was aborted", ncclInternalError);
}

}  // namespace simulate_gpus::nccl

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* unique) {
  UniqueId id{};
  std::memcpy(id.magic, k_magic, sizeof k_magic);
  id.file = MemoryFile::make();
  if (id.file.file < 0) return refuse("no memory for a communicator", ncclSystemError);
  *unique = {};
  std::memcpy(unique, &id, sizeof id);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId unique, int rank,
                                    ncclConfig_t* config) {
  UniqueId id;
  std::memcpy(&id, &unique, sizeof id);
  *comm = nullptr;
  if (std::memcmp(id.magic, k_magic, sizeof k_magic) != 0)
    return refuse("the unique id is not of simulated GPUs");
  if (const ncclResult_t failed = join(comm, id.file, size, rank)) return failed;
  const ncclResult_t result = finish_joining(*comm, config);
  if (result != ncclSuccess && result != ncclInProgress)
    ncclCommAbort(std::exchange(*comm, nullptr));
  return result;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, size, id, rank, nullptr);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int size, int rank, int, ncclUniqueId* ids,
                                      ncclConfig_t* config) {
  return ncclCommInitRankConfig(comm, size, ids[0], rank, config);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  ncclUniqueId id;
  ncclResult_t result = ncclGetUniqueId(&id);
  ncclGroupStart();
  for (int rank = 0; rank < count && result == ncclSuccess; ++rank) {
    const OnDevice current(devices ? devices[rank] : rank);
    result = ncclCommInitRank(&comms[rank], count, id, rank);
  }
  if (result != ncclSuccess) open_group().joining.clear();
  const ncclResult_t ended = ncclGroupEnd();
  return result == ncclSuccess ? ended : result;
}

// What others may still want of this rank is given.
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  const auto self = comm->rank;
  while (true) {
    const std::uint32_t seen = self->changes().value();
    if (self->pay(/*only_wanted=*/false)) return ncclSuccess;
    self->changes().wait(seen, std::chrono::milliseconds(2));
  }
}

// c10d ends some communicators twice, the second time without one.
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  ncclCommFinalize(comm);
  comm->rank->leave();
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  comm->rank->abort();
  comm->rank->leave();
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  Rank& self = *comm->rank;
  *error = ncclSuccess;
  if (const auto what = self.failure(); !what.empty()) {
    *error = refuse(what, ncclInvalidUsage);
  } else if (!comm->is_blocking && !self.is_aborted()) {
    *error = self.have_all_joined() ? wait_for_all(self) : ncclInProgress;
  }
  return ncclSuccess;
}

// Of any communicator, as NCCL's.
const char* ncclGetLastError(ncclComm_t) {
  thread_local std::string text;
  text = last_refusal();
  return text.c_str();
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->rank->size;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = comm->rank->device;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank->rank;
  return ncclSuccess;
}
}
