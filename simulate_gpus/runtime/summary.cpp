// SPDX-License-Identifier: MIT
//
// What the program asked the simulated GPUs to do, printed when it ends (simulate_gpus --summary),
// and for tests.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "check.hpp"
#include "counts.hpp"
#include "current_operation.hpp"
#include "device_memory.hpp"
#include "devices.hpp"
#include "errors.hpp"
#include "interface.hpp"
#include "reports.hpp"
#include "settings.hpp"
#include "tensor_memory.hpp"

namespace simulated_cuda {

Counts& counts() {
  static auto* const counts = new Counts;  // never destroyed: read at the end of the process
  return *counts;
}

void count_collective(const std::string& name, std::uint64_t bytes) {
  const std::scoped_lock lock(counts().mutex);
  counts().collectives[name].add(bytes);
}

namespace {

struct CopyRow {
  const char* direction;
  const CopyCount* pinned;    // null: between devices nothing is pinned
  const CopyCount* pageable;  // or the only count

  [[nodiscard]] std::uint64_t copies() const {
    return pageable->copies + (pinned ? pinned->copies.load() : 0);
  }
  [[nodiscard]] std::uint64_t bytes() const {
    return pageable->bytes + (pinned ? pinned->bytes.load() : 0);
  }
};

std::vector<CopyRow> copy_rows() {
  const Counts& all = counts();
  return {{"host to device", &all.pinned_to_device, &all.pageable_to_device},
          {"device to host", &all.device_to_pinned, &all.device_to_pageable},
          {"device to device", nullptr, &all.between_devices},
          {"within a device", nullptr, &all.within_device}};
}

std::vector<std::pair<const char*, std::uint64_t>> rows() {
  const Counts& all = counts();
  return {{settings().dry_run ? "kernels" : "operations", all.operations},
          {"graph launches", all.graph_launches},
          {"memory sets", all.memory_sets},
          {"stream synchronizations", all.stream_synchronizations},
          {"event synchronizations", all.event_synchronizations},
          {"device synchronizations", all.device_synchronizations},
          {"allocations", num_allocations()},
          {"pinned allocations", all.pinned_allocations}};
}

// 1234567 as "1,234,567".
std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (auto place = std::ssize(text) - 3; place > 0; place -= 3) {
    text.insert(static_cast<std::size_t>(place), ",");
  }
  return text;
}

std::string program_name() {
  std::ifstream file("/proc/self/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

bool used_a_gpu() {
  for (int device = 0; device < std::ssize(settings().visible); ++device) {
    if (has_context(device)) return true;
  }
  return false;
}

// As at::cuda::getChosenWorkspaceSize says.
const char* cublas_mebibytes() { return settings().gpu.major == 9 ? "32" : "8.1"; }

// Of each GPU: what tensors had at most, and what LibTorch took for them.
void print_memory(std::FILE* out) {
  std::fprintf(out, "\n  %-24s %12s %18s %18s  %s\n", "", "context", "peak of tensors",
               "peak reserved", "the peak of tensors was in");
  for (int device = 0; device < std::ssize(settings().visible); ++device) {
    const TensorPeak peak = tensor_peak(device);
    std::fprintf(out, "  %-24s %12s %18s %18s", ("cuda:" + std::to_string(device)).c_str(),
                 has_context(device) ? "yes" : "no",
                 knows_blocks() ? grouped(peak.bytes).c_str() : "unknown",
                 grouped(peak_allocated_bytes(device)).c_str());
    if (!peak.operation.empty()) std::fprintf(out, "  %s", peak.operation.c_str());
    std::fputc('\n', out);
  }
  std::fprintf(out,
               "\n  A real card keeps about 1 GiB for its driver and a context (so does --gpu), "
               "and LibTorch %s "
               "MiB for each stream that uses cuBLAS; cuDNN and NCCL are not counted.\n",
               cublas_mebibytes());
}

void print_summary() {
  std::FILE* const out = stderr;
  std::fprintf(out, "\nsimulate_gpus: %s (process %d)\n\n", program_name().c_str(), getpid());
  std::fprintf(out, "  %-24s %12s %18s  %s\n", "", "copies", "bytes", "of these pinned; pageable");
  for (const CopyRow& row : copy_rows()) {
    std::fprintf(out, "  %-24s %12s %18s", row.direction, grouped(row.copies()).c_str(),
                 grouped(row.bytes()).c_str());
    if (row.pinned && row.copies() > 0) {
      std::fprintf(out, "  %s (%s bytes); %s (%s bytes)", grouped(row.pinned->copies).c_str(),
                   grouped(row.pinned->bytes).c_str(), grouped(row.pageable->copies).c_str(),
                   grouped(row.pageable->bytes).c_str());
    }
    std::fputc('\n', out);
  }
  std::fputc('\n', out);
  for (const auto& [name, value] : rows()) {
    std::fprintf(out, "  %-24s %12s\n", name, grouped(value).c_str());
  }
  const std::scoped_lock lock(counts().mutex);
  if (!counts().collectives.empty())
    std::fprintf(out, "\n  %-24s %12s %18s\n", "NCCL", "calls", "bytes");
  for (const auto& [name, count] : counts().collectives) {
    std::fprintf(out, "  %-24s %12s %18s\n", name.c_str(), grouped(count.copies).c_str(),
                 grouped(count.bytes).c_str());
  }
  print_memory(out);
}

// Runs after LibTorch's destructors: libraries are finalized in reverse order. And after that of the trace, whose
// source is listed below this one.
struct AtExit {
  ~AtExit() {
    if (!used_a_gpu() || enter("") != cudaSuccess) return;
    if (settings().summary) print_summary();
    if (!is_checked() || end_reports()) return;
    std::fflush(nullptr);
    _exit(3);
  }
} at_exit;

}  // namespace
}  // namespace simulated_cuda

using namespace simulated_cuda;

std::uint64_t simulated_cuda_count(const char* row) {
  const std::string_view wanted = row;
  for (const auto& [name, value] : rows()) {
    if (wanted == name) return value;
  }
  for (const CopyRow& copies : copy_rows()) {
    const std::string direction = copies.direction;
    if (wanted == direction + " copies") return copies.copies();
    if (wanted == direction + " bytes") return copies.bytes();
    if (copies.pinned && wanted == direction + " pinned copies") return copies.pinned->copies;
    if (copies.pinned && wanted == direction + " pinned bytes") return copies.pinned->bytes;
  }
  // "AllReduce calls", "AllReduce bytes": 0 where there was none.
  const std::string name(wanted.substr(0, wanted.rfind(' ')));
  const bool is_calls = wanted.ends_with(" calls");
  if (is_calls || wanted.ends_with(" bytes")) {
    const std::scoped_lock lock(counts().mutex);
    const auto& all = counts().collectives;
    const auto found = all.find(name);
    if (found == all.end()) return 0;
    return is_calls ? found->second.copies : found->second.bytes;
  }
  std::fprintf(stderr, "simulated_cuda_count: no row is called \"%s\"\n", row);
  std::abort();
}
