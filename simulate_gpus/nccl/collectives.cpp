// SPDX-License-Identifier: MIT
//
// Collectives, messages, and groups of them.
#include <cuda_runtime_api.h>

#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "nccl/communicator.hpp"
#include "nccl/launch.hpp"

using namespace simulate_gpus::nccl;

namespace {

ncclResult_t try_launch(const std::vector<Operation>& group) {
  try {
    launch(group);
    return ncclSuccess;
  } catch (const std::exception& error) {
    return refuse(error.what(), ncclInternalError);
  }
}

// Adds the operation to the group that is open, or launches it.
ncclResult_t enqueue(ncclComm_t comm, const Call& call, const void* from, void* to,
                     cudaStream_t stream, int peer = 0) {
  const std::string function = std::string("nccl") + name_of(call.kind);
  if (comm == nullptr) return refuse(function + ": the communicator is null");
  if (call.type < 0 || call.type >= ncclNumTypes)
    return refuse(function + ": there is no data type " + std::to_string(call.type));
  for (const int other : {call.root, peer}) {
    if (other >= 0 && other < comm->rank->size) continue;
    return refuse(function + ": there is no rank " + std::to_string(other) + " among " +
                  std::to_string(comm->rank->size));
  }
  Operation operation{
      .self = comm->rank, .call = call, .peer = peer, .from = from, .to = to, .stream = stream};
  if (call.reduction < 0 || call.reduction >= ncclNumOps) {
    const auto scalar = comm->rank->made_reduction(call.reduction);
    if (!scalar)
      return refuse(function + ": there is no reduction " + std::to_string(call.reduction));
    operation.scalar = *scalar;
    operation.call.reduction = k_made_reduction;
  }
  if (open_group().depth == 0) return try_launch({operation});
  open_group().operations.push_back(std::move(operation));
  return ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, {Kind::all_reduce, type, reduction, 0, count}, from, to, stream);
}

ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclRedOp_t reduction, int root, ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, {Kind::reduce, type, reduction, root, count}, from, to, stream);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, {Kind::reduce_scatter, type, reduction, 0, count}, from, to, stream);
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, {Kind::broadcast, type, ncclSum, root, count}, from, to, stream);
}

ncclResult_t ncclBcast(void* values, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return ncclBroadcast(values, values, count, type, root, comm, stream);
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, {Kind::all_gather, type, ncclSum, 0, count}, from, to, stream);
}

ncclResult_t ncclAlltoAll(const void* from, void* to, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, {Kind::all_to_all, type, ncclSum, 0, count}, from, to, stream);
}

ncclResult_t ncclGather(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, {Kind::gather, type, ncclSum, root, count}, from, to, stream);
}

ncclResult_t ncclScatter(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, {Kind::scatter, type, ncclSum, root, count}, from, to, stream);
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, {Kind::send, type, ncclSum, 0, count}, from, nullptr, stream, peer);
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return enqueue(comm, {Kind::receive, type, ncclSum, 0, count}, nullptr, to, stream, peer);
}

ncclResult_t ncclGroupStart() {
  ++open_group().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  OpenGroup& group = open_group();
  if (group.depth == 0) return refuse("ncclGroupEnd without ncclGroupStart", ncclInvalidUsage);
  if (--group.depth > 0) return ncclSuccess;
  const auto joining = std::exchange(group.joining, {});
  const auto operations = std::exchange(group.operations, {});
  for (const auto& rank : joining) {
    if (const ncclResult_t failed = wait_for_all(*rank)) return failed;
  }
  return try_launch(operations);
}

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* info) {
  open_group() = {};
  if (info) info->estimatedTime = 0;
  return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* reduction, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  Scalar made;
  if (residence == ncclScalarDevice) {
    made.on_device = scalar;
  } else {
    std::memcpy(made.value.data(), scalar, Call{.type = type, .count = 1}.bytes());
  }
  *reduction = static_cast<ncclRedOp_t>(comm->rank->make_reduction(made));
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t reduction, ncclComm_t comm) {
  comm->rank->destroy_reduction(reduction);
  return ncclSuccess;
}

// Memory that a program registers is reached faster; here all is.
ncclResult_t ncclCommRegister(const ncclComm_t, void* memory, size_t, void** handle) {
  *handle = memory;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t, void*) { return ncclSuccess; }

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  return cudaMalloc(memory, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* memory) {
  return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
}
