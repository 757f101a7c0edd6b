// SPDX-License-Identifier: MIT
#include <use_gpu/gpu_info.hpp>

#include <array>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "gpu_info/message.hpp"
#include "gpu_info/nvml_query.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

// The table in nvidia-smi's widths, 91 columns, as formats of printf.
constexpr const char* k_head =
    "+-----------------------------------------------------------------------------------------+\n"
    "| %-60.60s%27.27s |\n"
    "+--------------------------------------------------+-------------------------+------------+\n"
    "| GPU  Name                                        |                  Bus-Id |       Temp |\n"
    "|                                    Pwr:Usage/Cap |            Memory-Usage |   GPU-Util |\n"
    "|==================================================+=========================+============|\n";
constexpr const char* k_gpu =
    "| %3.3s  %-43.43s | %23.23s | %10.10s |\n"
    "| %48.48s | %23.23s | %10.10s |\n"
    "+--------------------------------------------------+-------------------------+------------+\n";
constexpr const char* k_processes =
    "| Processes:                                                                              |\n"
    "| GPU         PID  Process name                                                GPU Memory |\n"
    "|=========================================================================================|\n";
constexpr const char* k_process = "| %3.3s  %10.10s  %-56.56s  %12.12s |\n";
constexpr const char* k_no_process =
    "|   No running processes found                                                            |\n";
constexpr const char* k_end =
    "+-----------------------------------------------------------------------------------------+\n";

void print(std::ostream& out, const char* format, const auto&... cells) {
  std::array<char, 1000> text{};
  std::snprintf(text.data(), text.size(), format, cells.c_str()...);
  out << text.data();
}

// The driver's texts may have any byte. The table shows only ASCII, so that a byte is a column.
std::string ascii(const std::string& text) { return detail::printable(text, 0x7e); }

std::string known(const std::string& text) { return text.empty() ? "N/A" : ascii(text); }

template <class Value>
std::string known(const std::optional<Value>& value, const char* unit, Value unit_size = 1) {
  return value ? std::to_string(std::llround(*value / unit_size)) + unit : "N/A";
}

std::string mebibytes(const std::optional<std::uint64_t>& bytes) {
  return known(bytes, "MiB", std::uint64_t{1} << 20);
}

}  // namespace

GpuReport query_gpus() { return detail::query_gpus_from("libnvidia-ml.so.1"); }

std::ostream& operator<<(std::ostream& out, const GpuReport& report) {
  if (report.gpus.empty()) return out << ascii(report.problem) << '\n';
  print(out, k_head, "Driver Version: " + known(report.driver_version),
        "CUDA Version: " + known(report.cuda_version));
  for (const GpuInfo& gpu : report.gpus) {
    print(out, k_gpu, std::to_string(gpu.index), detail::clipped(known(gpu.name), 43),
          known(gpu.pci_bus_id), known(gpu.temperature_celsius, "C"),
          known(gpu.power_watts, "W") + " / " + known(gpu.power_limit_watts, "W"),
          mebibytes(gpu.memory_used_bytes) + " / " + mebibytes(gpu.memory_total_bytes),
          known(gpu.utilization_percent, "%"));
  }
  out << k_processes;
  bool none = true;
  for (const GpuInfo& gpu : report.gpus) {
    for (const GpuProcess& process : gpu.processes) {
      // The end of a path says more than its beginning.
      print(out, k_process, std::to_string(gpu.index), std::to_string(process.pid),
            detail::clipped(known(process.name), 56, 53), mebibytes(process.memory_bytes));
      none = false;
    }
  }
  out << (none ? k_no_process : "") << k_end;
  return report.problem.empty() ? out : out << ascii(report.problem) << '\n';
}

}  // namespace use_gpu
