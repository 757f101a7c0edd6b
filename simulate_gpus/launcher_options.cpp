// SPDX-License-Identifier: MIT
#include "launcher_options.hpp"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/settings.hpp"

namespace simulate_gpus {
namespace {

constexpr char k_usage[] =
    R"(simulate_gpus [--memory SIZE | --gpu NAME] [--deterministic] [--summary] [--trace[=FILE]] [--check [--ignore OPERATION]... | --dry-run] COUNT PROGRAM [ARGUMENT...]
)";

constexpr char k_help[] =
    R"(
Runs a program that uses LibTorch, in C++ or Python, on COUNT simulated CUDA GPUs (0 to 16): cuda:0,
cuda:1 ... Values are the CPU's; times say nothing. The exit status is the program's.

  --memory SIZE  the memory of each GPU, as in 1GiB or 512MiB (default: 8GiB; 16 MiB of it are reserved)
  --gpu NAME     GPUs like a real card, with its memory: t4, v100, v100-32, a10, a100-40, a100-80, l4, l40s,
                 rtx3090, rtx4090, rtx5090, h100, h200 or b200
  --deterministic
                 the program's own kernels run block by block in a fixed order, and two events are always 1 s apart, so
                 that autotuners take their first candidate
  --summary      when a process ends, prints its GPU activity to stderr
  --trace        prints each copy, operation, event and wait to stderr, in the order of the program
  --trace=FILE   draws them for Perfetto or chrome://tracing; other processes write theirs beside it
  --check        finds two uses of the same memory that nothing orders; the exit status is then 3
  --ignore NAME  an operation that --check does not report; may be given again
  --dry-run      launches and counts LibTorch's own CUDA kernels; values are unspecified
  --help         prints this

Example: simulate_gpus --summary 2 python3 train.py
)";

[[noreturn]] void stop_with_usage(const std::string& why) {
  stop(why + ". Usage: " + std::string(k_usage, sizeof k_usage - 2));
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::uint64_t parse_memory(std::string_view text) {
  std::string_view digits = text;
  int shift = 0;
  for (const auto& [suffix, bits] : {std::pair("MiB", 20), std::pair("GiB", 30)}) {
    if (text.ends_with(suffix)) {
      digits.remove_suffix(3);
      shift = bits;
    }
  }
  const auto number = parse_number<std::uint64_t>(digits);
  constexpr std::uint64_t k_most = std::uint64_t{1} << 40;
  if (!number || *number > k_most >> shift || *number << shift <= k_reserved_bytes) {
    stop("--memory " + std::string(text) +
         ": expected a size from 17MiB to 1024GiB, as in 8GiB or 512MiB");
  }
  return *number << shift;
}

const GpuProfile* parse_gpu(std::string_view name) {
  if (const GpuProfile* const found = find_gpu_profile(name)) return found;
  std::string names;
  for (const GpuProfile& each : gpu_profiles())
    names += (names.empty() ? "" : ", ") + std::string(each.option);
  stop("--gpu " + std::string(name) + ": expected one of " + names);
}

}  // namespace

void stop(const std::string& why) {
  std::fprintf(stderr, "simulate_gpus: %s\n", why.c_str());
  std::exit(2);
}

LauncherOptions parse_options(int argc, char** argv) {
  LauncherOptions options;
  std::optional<std::uint64_t> memory;
  int next = 1;
  for (; next < argc && argv[next][0] == '-'; ++next) {
    const std::string_view option = argv[next];
    if (option == "--help") {
      std::printf("%s%s", k_usage, k_help);
      std::exit(0);
    } else if (option == "--deterministic") {
      options.deterministic = true;
    } else if (option == "--summary") {
      options.summary = true;
    } else if (option == "--trace") {
      options.trace = true;
    } else if (option.starts_with("--trace=")) {
      options.trace_file = option.substr(std::strlen("--trace="));
      if (options.trace_file.empty()) stop_with_usage("no file after --trace=");
    } else if (option == "--check") {
      options.check = true;
    } else if (option == "--ignore" && next + 1 < argc) {
      options.ignored += (options.ignored.empty() ? "" : ",") + std::string(argv[++next]);
    } else if (option == "--dry-run") {
      options.dry_run = true;
    } else if (option == "--memory" && next + 1 < argc) {
      memory = parse_memory(argv[++next]);
    } else if (option.starts_with("--memory=")) {
      memory = parse_memory(option.substr(std::strlen("--memory=")));
    } else if (option == "--gpu" && next + 1 < argc) {
      options.gpu = parse_gpu(argv[++next]);
    } else if (option.starts_with("--gpu=")) {
      options.gpu = parse_gpu(option.substr(std::strlen("--gpu=")));
    } else {
      stop_with_usage((option == "--memory" ? "no size after "
                       : option == "--gpu"  ? "no name after "
                                            : "unknown option ") +
                      std::string(option));
    }
  }
  if (options.gpu && memory)
    stop_with_usage("--gpu brings its memory: --memory cannot be given too");
  if (next == argc) stop_with_usage("no number of GPUs");
  const auto count = parse_number<int>(argv[next]);
  if (!count || *count < 0 || *count > k_most_gpus) {
    stop_with_usage("the number of GPUs is \"" + std::string(argv[next]) + "\", expected 0 to " +
                    std::to_string(k_most_gpus));
  }
  if (++next == argc) stop_with_usage("no program");

  if (options.check && options.dry_run)
    stop(
        "--check needs the memory that each operation uses, which a dry run does not know. Give "
        "one of them");
  if (options.gpu == nullptr) options.gpu = &k_plain_gpu;
  options.memory = memory.value_or((options.gpu->mebibytes - options.gpu->mebibytes_unseen) << 20);
  options.count = *count;
  options.program = argv + next;
  return options;
}

}  // namespace simulate_gpus
