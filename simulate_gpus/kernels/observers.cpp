// SPDX-License-Identifier: MIT
//
// Follows LibTorch for the runtime, where simulate_gpus was asked for it: the blocks that its caching
// allocator gives and gets back, and the operation that each thread is in.
#include <ATen/record_function.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <memory>

#include "kernels/own_kernels.hpp"
#include "runtime/interface.hpp"
#include "runtime/settings.hpp"

namespace simulate_gpus {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;
using Entry = allocator::TraceEntry;

// The allocator's lock is held.
void note(const Entry& entry) {
  const auto tell = [&](BlockChange change) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr)  LibTorch has the address as a number
    const auto* const address = reinterpret_cast<const void*>(entry.addr_);
    tell_block(entry.device_, address, entry.size_, change);
  };
  if (entry.action_ == Entry::ALLOC) tell(BlockChange::given);
  if (entry.action_ == Entry::FREE_REQUESTED) tell(BlockChange::freed);
  if (entry.action_ == Entry::FREE_COMPLETED) tell(BlockChange::released);
}

// CUDA's own asynchronous allocator, and those of a program, cannot be followed.
bool attach() {
  allocator::CUDAAllocator* const used = allocator::get();
  if (used == nullptr || !used->initialized() || used->name() != "native") return false;
  used->attachAllocatorTraceTracker(&note);
  return true;
}

// What ends in another thread is not this thread's operation.
std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& operation) {
  if (!operation.isAsync()) enter_operation(operation.name());
  return nullptr;
}

void leave(const at::RecordFunction& operation, at::ObserverContext*) {
  if (!operation.isAsync()) leave_operation();
}

}  // namespace

void add_observers() {
  if (!settings().is_followed()) return;
  at::addGlobalCallback(at::RecordFunctionCallback(&enter, &leave)
                            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                                     at::RecordScope::USER_SCOPE}));
  attach_to_allocator(&attach);
}

}  // namespace simulate_gpus
