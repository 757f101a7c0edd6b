// SPDX-License-Identifier: MIT
//
// What `nvidia-smi` shows, as data and as a table. LibTorch only counts the GPUs that it can use;
// this queries NVIDIA's management library (NVML) for every card, the programs that run on it, and
// the reason if there is none. Needs no LibTorch, and no driver to build or to start:
//
//   const use_gpu::GpuReport report = use_gpu::query_gpus();
//   std::cout << report;                                       // the table, or why there is none
//   for (const use_gpu::GpuInfo& gpu : report.gpus) { ... gpu.memory_used_bytes ... }
#pragma once

#include <use_gpu/export.hpp>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace USE_GPU_EXPORT use_gpu {

/// A program with memory on a GPU, for computing or for graphics.
struct GpuProcess {
  std::uint32_t pid = 0;  ///< as the driver numbers it
  /// As the driver reports it, often a path, in any encoding; empty if not permitted.
  std::string name;
  std::optional<std::uint64_t> memory_bytes;  ///< what it uses of this GPU's memory
};

/// One card. An unsupported value is empty, not zero.
struct GpuInfo {
  /// In the order of the PCI bus, as nvidia-smi counts. CUDA, and so LibTorch, may differ:
  /// it obeys CUDA_VISIBLE_DEVICES and puts the fastest card first unless
  /// CUDA_DEVICE_ORDER=PCI_BUS_ID. The UUID is the same everywhere.
  int index = 0;
  std::string name;  ///< "NVIDIA H200"
  std::string uuid;  ///< "GPU-12345678-..."
  /// domain:bus:device.function, e.g. "00000000:18:00.0".
  std::string pci_bus_id;
  std::optional<std::uint64_t> memory_total_bytes;  ///< what the card has
  /// Leaves out what the driver reserves for itself, except on drivers older than 510.
  std::optional<std::uint64_t> memory_used_bytes;
  /// Share of the last sample period (up to a second) with a kernel running: 0 to 100.
  std::optional<int> utilization_percent;
  std::optional<int> temperature_celsius;   ///< of the chip
  std::optional<double> power_watts;        ///< what the card draws now
  std::optional<double> power_limit_watts;  ///< the limit that it enforces
  std::vector<GpuProcess> processes;  ///< those with memory on this card; none before driver 450
  std::optional<std::uint64_t> memory_free_bytes{};  ///< what the driver can still give
};

/// Every card of this machine, at one moment.
struct GpuReport {
  std::string driver_version;  ///< "580.65.06"; empty where not known
  std::string cuda_version;    ///< the newest it supports, "13.0"; empty where not known
  std::vector<GpuInfo> gpus;   ///< each that the driver counts, even one that fails
  /// Empty if there is no problem. Otherwise why there are no GPUs, or which one fails, and what to
  /// do, in at most 400 characters.
  std::string problem;
};

/// Queries the driver about every GPU. Does not throw if a driver or GPU is missing or fails:
/// `gpus` then has the GPUs found, and `problem` the reason. Uses no CUDA context, and leaves no
/// library open.
///
/// Threads: several may call it at once.
///
/// Chapter: `!nvidia-smi`.
[[nodiscard]] GpuReport query_gpus();

/// A table like that of nvidia-smi, in 91 columns of printable ASCII, and below it the problem
/// if there is one; the problem alone, in one line, where there is no GPU. Ends with a newline.
std::ostream& operator<<(std::ostream& out, const GpuReport& report);

}  // namespace use_gpu
