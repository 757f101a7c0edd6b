// SPDX-License-Identifier: MIT
#include <use_gpu/gpu_info.hpp>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "gpu_info/nvml_query.hpp"
#include "messages/message.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

// The driver's texts may have any byte. The table shows only ASCII, so that a byte is a column.
std::string ascii(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  return text;
}

std::string fitting(const std::string& text, std::size_t width) {
  return detail::clipped(text.empty() ? "N/A" : ascii(text), width);
}

std::string left(const std::string& text, std::size_t width) {
  std::string column = fitting(text, width);
  column.resize(width, ' ');
  return column;
}

std::string right(const std::string& text, std::size_t width) {
  const std::string column = fitting(text, width);
  return std::string(width - column.size(), ' ') + column;
}

std::string mebibytes(const std::optional<std::uint64_t>& bytes) {
  return bytes ? std::to_string(*bytes >> 20) + "MiB" : "N/A";
}

std::string watts(const std::optional<double>& power) {
  return power ? std::to_string(std::lround(*power)) + 'W' : "N/A";
}

std::string with_unit(const std::optional<int>& value, char unit) {
  return value ? std::to_string(*value) + unit : "N/A";
}

// The widths are those of nvidia-smi: 91 columns in all, of which 87 are between "| " and " |".
std::string line(const std::string& text) { return "| " + left(text, 87) + " |\n"; }

std::string gpu_line(const std::string& gpu, const std::string& where, const std::string& state) {
  return line(left(gpu, 48) + " | " + right(where, 23) + " | " + right(state, 10));
}

std::string gpu_rule(char end, char stroke) {
  const auto strokes = [stroke](std::size_t count) { return std::string(count, stroke); };
  return end + strokes(50) + '+' + strokes(25) + '+' + strokes(12) + end + '\n';
}

// The end of a path says more than its beginning.
std::string end_of(const std::string& name, std::size_t width) {
  return name.size() <= width ? name : "..." + name.substr(name.size() - width + 3);
}

std::string process_line(const std::string& gpu, const std::string& pid, const std::string& name,
                         const std::string& memory) {
  return line(right(gpu, 3) + "  " + right(pid, 10) + "  " + left(end_of(name, 56), 56) + "  " +
              right(memory, 12));
}

void print_gpus(std::ostream& out, const std::vector<GpuInfo>& gpus) {
  out << gpu_rule('+', '-') << gpu_line("GPU  Name", "Bus-Id", "Temp")
      << gpu_line(right("Pwr:Usage/Cap", 48), "Memory-Usage", "GPU-Util") << gpu_rule('|', '=');
  for (const GpuInfo& gpu : gpus) {
    const std::string power = watts(gpu.power_watts) + " / " + watts(gpu.power_limit_watts);
    out << gpu_line(right(std::to_string(gpu.index), 3) + "  " + left(gpu.name, 43), gpu.pci_bus_id,
                    with_unit(gpu.temperature_celsius, 'C'))
        << gpu_line(right(power, 48),
                    mebibytes(gpu.memory_used_bytes) + " / " + mebibytes(gpu.memory_total_bytes),
                    with_unit(gpu.utilization_percent, '%'))
        << gpu_rule('+', '-');
  }
}

void print_processes(std::ostream& out, const std::vector<GpuInfo>& gpus) {
  out << line("Processes:") << process_line("GPU", "PID", "Process name", "GPU Memory")
      << '|' + std::string(89, '=') + "|\n";
  bool none = true;
  for (const GpuInfo& gpu : gpus) {
    for (const GpuProcess& process : gpu.processes) {
      out << process_line(std::to_string(gpu.index), std::to_string(process.pid), process.name,
                          mebibytes(process.memory_bytes));
      none = false;
    }
  }
  if (none) out << line("  No running processes found");
}

}  // namespace

GpuReport query_gpus() { return detail::query_gpus_from("libnvidia-ml.so.1"); }

std::ostream& operator<<(std::ostream& out, const GpuReport& report) {
  if (!report.gpus.empty()) {
    const auto known = [](const std::string& version) { return version.empty() ? "N/A" : version; };
    const std::string rule = '+' + std::string(89, '-') + "+\n";
    out << rule
        << line(left("Driver Version: " + known(report.driver_version), 60) +
                right("CUDA Version: " + known(report.cuda_version), 27));
    print_gpus(out, report.gpus);
    print_processes(out, report.gpus);
    out << rule;
  }
  if (report.gpus.empty() || !report.problem.empty()) out << ascii(report.problem) << '\n';
  return out;
}

}  // namespace use_gpu
