// SPDX-License-Identifier: MIT
//
// Seeing, and forbidding, transfers between devices. They are slow and easily caused by accident:
// printing a loss, `if (x.sum() > 0)`, an index on another device. The chapter wants you "to be
// 100 % certain that you want to do something slow before we let you do it":
//
//   use_gpu::TransferGuard guard;                        // from here on x.cpu() throws
//   { use_gpu::AllowTransfers certain; y = x.cpu(); }    // except in this scope
//   use_gpu::TransferLedger ledger;                      // counts the transfers, also those allowed
//   use_gpu::TransferLedger lines({.call_sites = true}); // and tells which lines cause them
//   std::cout << ledger << lines;
//
// Implicit is every transfer outside of an AllowTransfers scope, x.cpu() too. This library's own
// functions that transfer (to_device, copy_to, show, place ...) open one themselves.
//
// Threads: the scopes apply to this thread, to backward passes started by it, and to threads that use its
// at::ThreadLocalState, such as those of parallel_on. The innermost guard or AllowTransfers decides.
// They may end in any order; each takes itself alone out of the thread that it was opened in. One
// that ends in another thread logs a warning, changes nothing there, and stays open in its own until
// that ends. Outside of them an operation costs a few instructions at most.
//
// What is detected, and what is not, is listed at the end of this file.
#pragma once

#include <use_gpu/allow_transfers.hpp>
#include <use_gpu/errors.hpp>

#include <cstdint>
#include <iosfwd>

namespace use_gpu::detail {
struct TransferCounts;
}

namespace USE_GPU_EXPORT use_gpu {

/// The host is the CPU; any other device counts as a device.
enum class TransferDirection { host_to_device, device_to_host, device_to_device };

/// What a TransferLedger counted in one direction.
struct TransferCount {
  std::int64_t copies = 0;  ///< how many
  std::uint64_t bytes = 0;  ///< transferred in total
};

/// What a call site in the program caused in one direction.
struct TransferSite {
  /// The first function that is not in LibTorch, in this library or in the namespace std, with the
  /// line that it was at: "train(...) train.cpp:41". LibTorch reads lines of debug information
  /// (-g). Where there are none, and where an optimizing compiler has put LibTorch's own code there,
  /// the offset in the program, for addr2line: "train(...) + 0x2f41". Functions that a compiler has
  /// inlined are named by their caller. Steps of a backward pass are "backward"; in LibTorch's anomaly
  /// mode, "backward of train(...) train.cpp:38", the line of the forward pass.
  std::string where;
  TransferDirection direction;  ///< that of a read is device to host
  std::int64_t copies;          ///< how many
  std::int64_t item_reads;      ///< how many
  std::uint64_t bytes;          ///< of the copies
};

/// What a TransferLedger is to record.
struct LedgerOptions {
  /// Also where in the program each transfer was asked for. A transfer then takes about 30,000
  /// instructions more. If the last act of a function is the transfer, an optimizing compiler may
  /// replace that call by a jump; then the function's caller is named.
  bool call_sites = false;
};

/// Counts the transfers of its scope, implicit and explicit ones; what an inner ledger counts, an
/// outer one counts too. A forbidden transfer did not happen and is not counted.
class TransferLedger {
 public:
  [[nodiscard]] TransferLedger();
  /// One that records what the options ask for.
  [[nodiscard]] explicit TransferLedger(LedgerOptions options);
  ~TransferLedger();

  /// Copies between devices in that direction, and the bytes that were really sent. LibTorch
  /// expands a tensor before every copy, so the target's shape counts. It converts before a copy to
  /// a device, so the target's dtype counts there; and after one to the host, so the source's does.
  [[nodiscard]] TransferCount count(TransferDirection kind) const;

  /// Number of reads of a value or size by the host: item(), bool conversions, nonzero ... These do
  /// not count as copies.
  [[nodiscard]] std::int64_t item_reads() const;

  /// True if nothing was transferred or read.
  [[nodiscard]] bool empty() const;

  /// By call site, most bytes first; empty unless asked for. Reads symbols and debug information
  /// of the program and of the libraries that are still loaded, which may take a second.
  [[nodiscard]] std::vector<TransferSite> sites() const;

 private:
  std::shared_ptr<detail::TransferCounts> counts_;
  std::unique_ptr<detail::DispatchScope> scope_;
};

/// A table of the first 20 call sites, and how many more there are.
std::ostream& operator<<(std::ostream& out, const std::vector<TransferSite>& sites);

/// A table: for each direction copies, bytes and item reads, which are from a device to the host; then the call sites.
std::ostream& operator<<(std::ostream& out, const TransferLedger& ledger);

/// What a TransferGuard does about an implicit transfer.
enum class OnTransfer { allow, log, forbid };

/// What is to happen with an implicit transfer in each direction; reading a value counts as device
/// to host. `log` logs a warning and allows it.
struct TransferPolicy {
  OnTransfer host_to_device = OnTransfer::forbid;    ///< such as indexing with a CPU tensor
  OnTransfer device_to_host = OnTransfer::forbid;    ///< such as printing, item(), x.cpu()
  OnTransfer device_to_device = OnTransfer::forbid;  ///< between two GPUs
};

/// Applies its policy to the implicit transfers of its scope. The innermost guard decides.
///
/// Throws: an operation in its scope throws TransferForbidden for a forbidden transfer, before
/// anything is copied, with the operation, bytes, devices, and the call that makes the transfer
/// explicit.
///
/// Chapter: the side notes.
class TransferGuard {
 public:
  /// Forbids every direction by default.
  [[nodiscard]] explicit TransferGuard(TransferPolicy policy = {});
  ~TransferGuard();

 private:
  std::unique_ptr<detail::DispatchScope> scope_;
};

}  // namespace use_gpu

// Detected: copies between devices, and reads of a value or size by the host, if they go through
// LibTorch's dispatcher: to(), cpu(), copy_(), Module::to, torch::tensor(..., device), printing,
// saving, indexing with a mask or an index on another device (on CUDA also assigning a number:
// x.index_put_({i}, 2) creates it on the host), item(), bool conversions, and nonzero,
// masked_select, unique*, repeat_interleave, equal, bincount, mode of long rows, coalesce, which
// read a size or a few values back; also operations whose kernels call one of these.
//
// Where LibTorch checks or measures for you, a read may surprise: one_hot without its number of
// classes, normal with a tensor of deviations, histc, allclose, arange up to a tensor's value,
// torch::linalg's inv, solve and cholesky (not inv_ex ...), clip_grad_norm_ (it returns a double),
// ctc_loss (it copies its lengths to the host), and in anomaly mode each function of the backward
// pass.
//
// Not detected: raw cudaMemcpy and direct at::_copy_from; what a communication library (NCCL, Gloo)
// moves; a new std::thread and at::parallel_for; work that a replayed CUDA graph does; kernels that
// read from the device by themselves: products and softmax of sparse tensors, solvers of MAGMA,
// cuSOLVER and cuSPARSE. Synchronizing without reading is no transfer. A forbidden copy may have
// allocated its target before it was refused; nothing was copied.
