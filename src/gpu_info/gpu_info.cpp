// SPDX-License-Identifier: MIT
#include <use_gpu/gpu_info.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <initializer_list>
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

std::string known(const std::string& text) { return text.empty() ? "N/A" : ascii(text); }

std::string mebibytes(const std::optional<std::uint64_t>& bytes) {
  return bytes ? std::to_string(*bytes >> 20) + "MiB" : "N/A";
}

std::string watts(const std::optional<double>& power) {
  return power ? std::to_string(std::lround(*power)) + 'W' : "N/A";
}

std::string with_unit(const std::optional<int>& value, char unit) {
  return value ? std::to_string(*value) + unit : "N/A";
}

// The end of a path says more than its beginning.
std::string end_of(const std::string& name, std::size_t width) {
  return name.size() <= width ? name : "..." + name.substr(name.size() - width + 3);
}

// The widths are those of nvidia-smi: 91 columns in all.
constexpr const char* k_versions = "| %-60.60s%27.27s |\n";
constexpr const char* k_gpu = "| %3.3s  %-43.43s | %23.23s | %10.10s |\n";
constexpr const char* k_gpu_load = "| %48.48s | %23.23s | %10.10s |\n";
constexpr const char* k_process = "| %3.3s  %10.10s  %-56.56s  %12.12s |\n";
constexpr const char* k_remark = "| %-87.87s |\n";

void print(std::ostream& out, const char* format, const auto&... cells) {
  std::array<char, 100> line{};
  std::snprintf(line.data(), line.size(), format, std::string(cells).c_str()...);
  out << line.data();
}

// From one end to the other, with a crossing where a column ends.
void print_rule(std::ostream& out, char end, char stroke,
                std::initializer_list<std::size_t> widths) {
  std::string rule;
  for (const auto width : widths) rule += (rule.empty() ? end : '+') + std::string(width, stroke);
  out << rule << end << '\n';
}

void print_gpus(std::ostream& out, const std::vector<GpuInfo>& gpus) {
  print_rule(out, '+', '-', {50, 25, 12});
  print(out, k_gpu, "GPU", "Name", "Bus-Id", "Temp");
  print(out, k_gpu_load, "Pwr:Usage/Cap", "Memory-Usage", "GPU-Util");
  print_rule(out, '|', '=', {50, 25, 12});
  for (const GpuInfo& gpu : gpus) {
    print(out, k_gpu, std::to_string(gpu.index), detail::clipped(known(gpu.name), 43),
          known(gpu.pci_bus_id), with_unit(gpu.temperature_celsius, 'C'));
    print(out, k_gpu_load, watts(gpu.power_watts) + " / " + watts(gpu.power_limit_watts),
          mebibytes(gpu.memory_used_bytes) + " / " + mebibytes(gpu.memory_total_bytes),
          with_unit(gpu.utilization_percent, '%'));
    print_rule(out, '+', '-', {50, 25, 12});
  }
}

void print_processes(std::ostream& out, const std::vector<GpuInfo>& gpus) {
  print(out, k_remark, "Processes:");
  print(out, k_process, "GPU", "PID", "Process name", "GPU Memory");
  print_rule(out, '|', '=', {89});
  bool none = true;
  for (const GpuInfo& gpu : gpus) {
    for (const GpuProcess& process : gpu.processes) {
      print(out, k_process, std::to_string(gpu.index), std::to_string(process.pid),
            end_of(known(process.name), 56), mebibytes(process.memory_bytes));
      none = false;
    }
  }
  if (none) print(out, k_remark, "  No running processes found");
}

}  // namespace

GpuReport query_gpus() { return detail::query_gpus_from("libnvidia-ml.so.1"); }

std::ostream& operator<<(std::ostream& out, const GpuReport& report) {
  if (!report.gpus.empty()) {
    print_rule(out, '+', '-', {89});
    print(out, k_versions, "Driver Version: " + known(report.driver_version),
          "CUDA Version: " + known(report.cuda_version));
    print_gpus(out, report.gpus);
    print_processes(out, report.gpus);
    print_rule(out, '+', '-', {89});
  }
  if (report.gpus.empty() || !report.problem.empty()) out << ascii(report.problem) << '\n';
  return out;
}

}  // namespace use_gpu
