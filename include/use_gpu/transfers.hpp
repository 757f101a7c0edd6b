// SPDX-License-Identifier: MIT
//
// Seeing, and forbidding, transfers between devices. They are slow and easy to ask for without
// knowing: printing a loss, `if (x.sum() > 0)`, an index from the wrong side. The chapter wants you
// "to be 100 % certain that you want to do something slow before we let you do it":
//
//   use_gpu::TransferGuard guard;                       // from here on, every implicit one throws
//   use_gpu::TransferLedger ledger;                     // counts them all, implicit or not
//   { use_gpu::AllowTransfers certain; y = x.cpu(); }
//   std::cout << ledger;
//
// The scopes hold for this thread, for the backward passes that it starts, and for threads that
// take over its at::ThreadLocalState, as those of parallel_on do; they nest strictly, like the
// braces they stand in. Outside of them nothing costs more.
//
// What is seen: each copy between devices, and each value or size that the host reads from a
// device, that goes through LibTorch's dispatcher: to(), cpu(), copy_(), Module::to,
// torch::tensor(..., device), printing, saving, indexing with a mask or from the other side (on
// CUDA also assigning a number at indices: x.index_put_({i}, 2) makes it on the host), item(), bool
// conversions, and nonzero, masked_select, unique*, repeat_interleave, equal, bincount, which read
// a size or one or two values back; other operations where their kernels do one of these.
//
// What is not seen: raw cudaMemcpy and direct at::_copy_from; what a communication library (NCCL,
// Gloo) moves; a new std::thread and at::parallel_for; work that a replayed CUDA graph does;
// kernels that read from the device by themselves (some of cuSOLVER's and cuSPARSE's).
// Synchronizing without reading is no transfer. A forbidden copy may have allocated its target
// before it was refused; nothing was copied.
#pragma once

#include <c10/core/Device.h>
#include <use_gpu/export.hpp>

#include <cstdint>
#include <iosfwd>
#include <memory>

namespace use_gpu::detail {  // what the scopes below are made of
class DispatchScope;
struct TransferCounts;
}  // namespace use_gpu::detail

namespace USE_GPU_EXPORT use_gpu {

/// From where to where. The host is the CPU, a device is every other.
enum class TransferDirection { host_to_device, device_to_host, device_to_device };

/// What a TransferLedger counted in one direction.
struct TransferCount {
  std::int64_t copies = 0;  ///< how many
  std::uint64_t bytes = 0;  ///< that travelled, all together
};

/// Counts the transfers of its scope, implicit and explicit ones; what an inner ledger counts, an
/// outer one counts too. A forbidden transfer did not happen and is not counted.
class TransferLedger {
 public:
  [[nodiscard]] TransferLedger();
  ~TransferLedger();
  TransferLedger(const TransferLedger&) = delete;
  TransferLedger& operator=(const TransferLedger&) = delete;

  /// Copies between devices in that direction, and the bytes that travelled: LibTorch expands and
  /// converts before it sends to a device, and converts after it has read from one.
  [[nodiscard]] TransferCount count(TransferDirection kind) const;

  /// Times that the host waited to read one value or size: item(), bool conversions, nonzero ...
  /// These do not count as copies.
  [[nodiscard]] std::int64_t item_reads() const;

  /// Whether nothing was transferred and nothing read.
  [[nodiscard]] bool empty() const;

 private:
  std::shared_ptr<detail::TransferCounts> counts_;
  std::unique_ptr<detail::DispatchScope> scope_;
};

/// A table: a row for each direction, copies and bytes, and the item reads.
std::ostream& operator<<(std::ostream& out, const TransferLedger& ledger);

/// What a TransferGuard does about an implicit transfer.
enum class OnTransfer { allow, log, forbid };

/// What is to happen with an implicit transfer in each direction; reading a value counts as device
/// to host. `log` writes a line at warning and lets it through.
struct TransferPolicy {
  OnTransfer host_to_device = OnTransfer::forbid;    ///< such as indexing with a CPU tensor
  OnTransfer device_to_host = OnTransfer::forbid;    ///< such as printing, item(), x.cpu()
  OnTransfer device_to_device = OnTransfer::forbid;  ///< between two GPUs
};

/// Treats the implicit transfers of its scope as its policy says. A forbidden one throws
/// TransferForbidden before anything is copied, with its operation, bytes, devices, and the call
/// that makes it explicit. The innermost guard decides.
class TransferGuard {
 public:
  /// Forbids everything, unless told otherwise.
  [[nodiscard]] explicit TransferGuard(TransferPolicy policy = {});
  ~TransferGuard();
  TransferGuard(const TransferGuard&) = delete;
  TransferGuard& operator=(const TransferGuard&) = delete;

 private:
  std::unique_ptr<detail::DispatchScope> scope_;
};

/// "100 % certain": lets the transfers of its scope through, whatever guard is open. This
/// library's own functions that move things (to_device, copy_to, show, place ...) open one themselves.
class AllowTransfers {
 public:
  [[nodiscard]] AllowTransfers();
  ~AllowTransfers();
  AllowTransfers(const AllowTransfers&) = delete;
  AllowTransfers& operator=(const AllowTransfers&) = delete;

 private:
  std::unique_ptr<detail::DispatchScope> scope_;
};

}  // namespace use_gpu
