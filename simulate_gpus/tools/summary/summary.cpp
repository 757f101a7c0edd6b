// SPDX-License-Identifier: MIT
#include "tools/summary/summary.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/current_operation.hpp"
#include "runtime/device_memory.hpp"
#include "runtime/devices.hpp"
#include "runtime/pinned_memory.hpp"
#include "runtime/settings.hpp"
#include "runtime/tool.hpp"

namespace simulate_gpus {
namespace {

struct Count {
  std::atomic<std::uint64_t> times = 0, bytes = 0;

  void add(std::uint64_t size) {
    ++times;
    bytes += size;
  }
};

struct Counts {
  struct OfKind {
    Count pageable, pinned;  // what is no copy from or to the host is all in the first
  };
  std::array<OfKind, 9> given;
  std::array<std::atomic<std::uint64_t>, 7> waits;  // by their reasons
  std::atomic<std::uint64_t> graph_launches = 0;

  std::mutex mutex;                              // guards the rest
  std::map<std::string, Count> collectives;      // by their names
  std::map<std::string, std::uint64_t> kernels;  // launches of those that the program brought
  // The most that tensors of a device had at a time, as the program requested it, and the operation that made it so
  // much. What LibTorch takes from a GPU is more, rounded up and kept for later.
  std::array<std::pair<std::uint64_t, std::string>, k_most_gpus> peaks;

  OfKind& of(Kind kind) { return given[static_cast<std::size_t>(kind)]; }
  [[nodiscard]] std::uint64_t of(HostWait::Reason reason) const {
    return waits[static_cast<std::size_t>(reason)];
  }

  void add(const Given& what) {
    auto& [pageable, pinned] = of(what.kind);
    (what.is_pinned.value_or(false) ? pinned : pageable).add(what.bytes.value_or(0));
    const bool is_of_program = what.kind == Kind::operation && what.size && !what.name.empty();
    if (what.kind != Kind::collective && !is_of_program) return;
    const std::scoped_lock lock(mutex);
    if (is_of_program)
      ++kernels[std::string(what.name)];
    else
      collectives[std::string(what.name)].add(*what.bytes);
  }
};

// Never destroyed: used until the very end of a process.
Counts& counts() {
  static auto* const counts = new Counts;
  return *counts;
}

constexpr std::pair<const char*, Kind> k_directions[] = {{"host to device", Kind::to_device},
                                                         {"device to host", Kind::to_host},
                                                         {"device to device", Kind::between},
                                                         {"within a device", Kind::within}};

// Between and within devices nothing is pinned.
bool has_pinned(Kind direction) { return direction < Kind::between; }

std::vector<std::pair<const char*, std::uint64_t>> rows() {
  using Reason = HostWait::Reason;
  Counts& all = counts();
  return {{settings().dry_run ? "kernels" : "operations", all.of(Kind::operation).pageable.times},
          {"graph launches", all.graph_launches},
          {"memory sets", all.of(Kind::set).pageable.times},
          {"stream synchronizations", all.of(Reason::stream)},
          {"event synchronizations", all.of(Reason::event)},
          {"device synchronizations", all.of(Reason::device)},
          {"allocations", num_allocations()},
          {"pinned allocations", num_pinned_allocations()}};
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

// As at::cuda::getChosenWorkspaceSize says.
const char* cublas_mebibytes() { return settings().gpu.major == 9 ? "32" : "8.1"; }

void print_collectives(std::FILE* out) {
  if (!counts().collectives.empty())
    std::fprintf(out, "\n  %-24s %12s %18s\n", "NCCL", "calls", "bytes");
  for (const auto& [name, count] : counts().collectives) {
    std::fprintf(out, "  %-24s %12s %18s\n", name.c_str(), grouped(count.times).c_str(),
                 grouped(count.bytes).c_str());
  }
}

void print_kernels(std::FILE* out) {
  if (!counts().kernels.empty())
    std::fprintf(out, "\n  %-24s %12s\n", "kernels of the program", "launches");
  for (const auto& [name, launches] : counts().kernels)
    std::fprintf(out, "  %-24s %12s\n", name.c_str(), grouped(launches).c_str());
}

// Of each GPU: what tensors had at most, and what LibTorch took for them.
void print_memory(std::FILE* out) {
  std::fprintf(out, "\n  %-24s %12s %18s %18s  %s\n", "", "context", "peak of tensors",
               "peak reserved", "the peak of tensors was in");
  for (int device = 0; device < num_devices(); ++device) {
    const auto& [bytes, operation] = counts().peaks[static_cast<std::size_t>(device)];
    std::fprintf(out, "  %-24s %12s %18s %18s", ("cuda:" + std::to_string(device)).c_str(),
                 has_context(device) ? "yes" : "no",
                 knows_blocks() ? grouped(bytes).c_str() : "unknown",
                 grouped(peak_allocated_bytes(device)).c_str());
    if (!operation.empty()) std::fprintf(out, "  %s", operation.c_str());
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
  for (const auto& [direction, kind] : k_directions) {
    const auto& [pageable, pinned] = counts().of(kind);
    const std::uint64_t copies = pageable.times + pinned.times;
    std::fprintf(out, "  %-24s %12s %18s", direction, grouped(copies).c_str(),
                 grouped(pageable.bytes + pinned.bytes).c_str());
    if (has_pinned(kind) && copies > 0) {
      std::fprintf(out, "  %s (%s bytes); %s (%s bytes)", grouped(pinned.times).c_str(),
                   grouped(pinned.bytes).c_str(), grouped(pageable.times).c_str(),
                   grouped(pageable.bytes).c_str());
    }
    std::fputc('\n', out);
  }
  std::fputc('\n', out);
  for (const auto& [name, value] : rows()) {
    std::fprintf(out, "  %-24s %12s\n", name, grouped(value).c_str());
  }
  const std::scoped_lock lock(counts().mutex);
  print_kernels(out);
  print_collectives(out);
  print_memory(out);
}

class Summary final : public Tool {
 public:
  void given(CUstream_st&, const Given& given, bool is_captured) override {
    if (!is_captured) counts().add(given);
  }

  void launched(CUstream_st&, std::span<const Captured> graph) override {
    ++counts().graph_launches;
    for (const Captured& captured : graph) counts().add(captured.given);
  }

  void host_waits(const HostWait& wait) override {
    ++counts().waits[static_cast<std::size_t>(wait.reason)];
  }

  void changes(const TensorBlock& block) override {
    const std::scoped_lock lock(counts().mutex);
    auto& [bytes, operation] = counts().peaks[static_cast<std::size_t>(block.device)];
    if (block.bytes_of_tensors <= bytes) return;
    bytes = block.bytes_of_tensors;
    operation = current_operation();
  }

  void finish() override {
    if (settings().summary && has_used_gpus()) print_summary();
  }
};

}  // namespace

void start_summary() { add_tool(*new Summary); }

}  // namespace simulate_gpus

using namespace simulate_gpus;

std::uint64_t simulated_cuda_count(const char* row) {
  const std::string_view wanted = row;
  for (const auto& [name, value] : rows()) {
    if (wanted == name) return value;
  }
  for (const auto& [direction, kind] : k_directions) {
    const auto& [pageable, pinned] = counts().of(kind);
    const std::string name = direction;
    if (wanted == name + " copies") return pageable.times + pinned.times;
    if (wanted == name + " bytes") return pageable.bytes + pinned.bytes;
    if (has_pinned(kind) && wanted == name + " pinned copies") return pinned.times;
    if (has_pinned(kind) && wanted == name + " pinned bytes") return pinned.bytes;
  }
  // "AllReduce calls", "AllReduce bytes": 0 where there was none.
  const std::string name(wanted.substr(0, wanted.rfind(' ')));
  const bool is_calls = wanted.ends_with(" calls");
  if (is_calls || wanted.ends_with(" bytes")) {
    const std::scoped_lock lock(counts().mutex);
    const auto& all = counts().collectives;
    const auto found = all.find(name);
    if (found == all.end()) return 0;
    return is_calls ? found->second.times : found->second.bytes;
  }
  std::fprintf(stderr, "simulated_cuda_count: no row is called \"%s\"\n", row);
  std::abort();
}
