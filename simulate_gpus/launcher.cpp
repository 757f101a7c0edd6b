// SPDX-License-Identifier: MIT
//
// Starts a program on simulated GPUs: it preloads the libraries that replace CUDA's runtime, the
// driver, NVML, NCCL and CUPTI, configures them by the environment, and executes the program.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/gpu_profiles.hpp"
#include "runtime/settings.hpp"

namespace {

using simulate_gpus::GpuProfile;
using simulate_gpus::k_most_gpus;
using simulate_gpus::k_reserved_bytes;

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

[[noreturn]] void stop(const std::string& why) {
  std::fprintf(stderr, "simulate_gpus: %s\n", why.c_str());
  std::exit(2);
}

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
  if (const GpuProfile* const found = simulate_gpus::find_gpu_profile(name)) return found;
  std::string names;
  for (const GpuProfile& each : simulate_gpus::gpu_profiles())
    names += (names.empty() ? "" : ", ") + std::string(each.option);
  stop("--gpu " + std::string(name) + ": expected one of " + names);
}

// Where the libraries lie, seen from this program.
std::filesystem::path library_folder() {
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const auto folder = (here / SIMULATE_GPUS_LIBRARIES).lexically_normal();
  if (!std::filesystem::exists(folder / SIMULATE_GPUS_RUNTIME)) {
    stop("its libraries were not found: " + folder.string() + " has no " SIMULATE_GPUS_RUNTIME);
  }
  return std::filesystem::canonical(folder);
}

// Whether it is a library of a simulate_gpus, this one or another.
bool is_ours(const std::filesystem::path& library) {
  return std::filesystem::exists(library.parent_path() / "libtorch_simulate_gpus.so");
}

// LD_PRELOAD for the program: our libraries, then the old ones except those of another
// simulate_gpus.
std::string preloads() {
  const std::string folder = library_folder();
  if (folder.find_first_of(" :") != std::string::npos) {
    stop("its libraries are in \"" + folder +
         "\", and a preloaded library's path must not contain a space or a colon");
  }
  std::string list;
  for (const char* library : {SIMULATE_GPUS_RUNTIME, "libcuda.so.1", "libnvidia-ml.so.1",
                              "libnccl.so.2", SIMULATE_GPUS_CUPTI, SIMULATE_GPUS_NVRTC}) {
    if (!std::filesystem::exists(folder + '/' + library)) continue;  // built without its headers
    list += (list.empty() ? "" : ":") + folder + '/' + library;
  }
  const char* before = std::getenv("LD_PRELOAD");
  std::istringstream entries(before ? before : "");
  for (std::string entry; std::getline(entries, entry, ':');) {
    if (!entry.empty() && !is_ours(entry)) list += ':' + entry;
  }
  return list;
}

// The text between the quotes of a line of Python: cuda: Optional[str] = '13.0'
std::string text_in_quotes(const std::string& line) {
  const auto begin = line.find('\''), end = line.rfind('\'');
  return begin < end ? line.substr(begin + 1, end - begin - 1) : "";
}

// What a torch's version.py says, as in "2.11.0 for CUDA 13.0" or "2.11.0 without CUDA".
std::string read_version(std::ifstream file) {
  std::string version, cuda;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("__version__ = ")) version = text_in_quotes(line);
    if (line.starts_with("cuda")) cuda = text_in_quotes(line);
  }
  version.resize(std::min(version.size(), version.find('+')));  // 2.11.0+cu130
  return version + (cuda.empty() ? " without CUDA" : " for CUDA " + cuda);
}

// Installed by pip, this program lies beside the environment's torch, which may be another by now. pip does not see it:
// 2.11.0 for the CPU has the same version.
void check_torch_beside() {
  const auto prefix = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
  std::error_code no_lib;
  for (const auto& python : std::filesystem::directory_iterator(prefix / "lib", no_lib)) {
    for (const char* folder : {"site-packages", "dist-packages"}) {
      const auto packages = python.path() / folder;
      std::ifstream file(packages / "torch/version.py");
      if (!file || !std::filesystem::exists(packages / "simulate_gpus")) continue;
      const auto found = read_version(std::move(file));
      if (found == SIMULATE_GPUS_BUILT_WITH) continue;
      stop("this environment has torch " + found +
           ", and this simulate_gpus was built with torch " SIMULATE_GPUS_BUILT_WITH
           ". Install that torch, or simulate_gpus again");
    }
  }
}

// Where the program, which will have this process's number, writes its trace. Until then the file has
// one of nothing.
std::string trace_of_program(const std::string& file) {
  if (!(std::ofstream(file) << "[]\n" << std::flush)) {
    stop("--trace=" + file + ": the file cannot be written: " + std::strerror(errno));
  }
  return std::to_string(getpid()) + ':' + std::filesystem::absolute(file).string();
}

// Where LibTorch keeps what NVRTC has compiled: for simulated GPUs that is PTX, so a folder beside the one for real GPUs.
std::string kernel_cache() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  if (cache && *cache) return std::string(cache) + "/torch/simulated_kernels";
  return std::string(home ? home : "/tmp") + "/.cache/torch/simulated_kernels";
}

void set_variable(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

// A variable that the program's environment may set itself.
void set_default(const char* name, const std::string& value) { setenv(name, value.c_str(), 0); }

void set_or_unset(const char* name, bool on) {
  on ? set_variable(name, "1") : static_cast<void>(unsetenv(name));
}

// Triton, and torch.compile with it: PTX in place of machine code, for a card without what simulated GPUs do not offer
// (wgmma and TMA, from 9.0 on), and caches of their own.
void prepare_triton(const GpuProfile& gpu) {
  const std::string folder = library_folder();
  // Triton links its own code to the driver, and looks for it where the linker would.
  set_variable("TRITON_LIBCUDA_PATH", folder);
  const char* const linked = std::getenv("LIBRARY_PATH");
  set_variable("LIBRARY_PATH", linked && *linked ? folder + ':' + linked : folder);
  set_default("TRITON_PTXAS_PATH", folder + "/ptxas");
  set_default("TRITON_PTXAS_BLACKWELL_PATH", folder + "/ptxas");
  if (gpu.major >= 9) set_default("TRITON_OVERRIDE_ARCH", "sm89");
  // From 2.13 on PyTorch registers kernels in Python for some operations. Without them its C++ code runs, which is what
  // simulated GPUs ask before they compute.
  set_variable("TORCH_DISABLE_NATIVE_JIT", "1");
  set_default("TORCHINDUCTOR_CACHE_DIR",
              std::filesystem::temp_directory_path() /
                  ("torchinductor_simulated_" + std::to_string(getuid())));
}

}  // namespace

int main(int argc, char** argv) {
  std::optional<std::uint64_t> memory;
  const GpuProfile* gpu = nullptr;
  bool deterministic = false, summary = false, trace = false, check = false, dry_run = false;
  std::string trace_file, ignored;
  int next = 1;
  for (; next < argc && argv[next][0] == '-'; ++next) {
    const std::string_view option = argv[next];
    if (option == "--help") {
      std::printf("%s%s", k_usage, k_help);
      return 0;
    } else if (option == "--deterministic") {
      deterministic = true;
    } else if (option == "--summary") {
      summary = true;
    } else if (option == "--trace") {
      trace = true;
    } else if (option.starts_with("--trace=")) {
      trace_file = option.substr(std::strlen("--trace="));
      if (trace_file.empty()) stop_with_usage("no file after --trace=");
    } else if (option == "--check") {
      check = true;
    } else if (option == "--ignore" && next + 1 < argc) {
      ignored += (ignored.empty() ? "" : ",") + std::string(argv[++next]);
    } else if (option == "--dry-run") {
      dry_run = true;
    } else if (option == "--memory" && next + 1 < argc) {
      memory = parse_memory(argv[++next]);
    } else if (option.starts_with("--memory=")) {
      memory = parse_memory(option.substr(std::strlen("--memory=")));
    } else if (option == "--gpu" && next + 1 < argc) {
      gpu = parse_gpu(argv[++next]);
    } else if (option.starts_with("--gpu=")) {
      gpu = parse_gpu(option.substr(std::strlen("--gpu=")));
    } else {
      stop_with_usage((option == "--memory" ? "no size after "
                       : option == "--gpu"  ? "no name after "
                                            : "unknown option ") +
                      std::string(option));
    }
  }
  if (gpu && memory) stop_with_usage("--gpu brings its memory: --memory cannot be given too");
  if (next == argc) stop_with_usage("no number of GPUs");
  const auto count = parse_number<int>(argv[next]);
  if (!count || *count < 0 || *count > k_most_gpus) {
    stop_with_usage("the number of GPUs is \"" + std::string(argv[next]) + "\", expected 0 to " +
                    std::to_string(k_most_gpus));
  }
  if (++next == argc) stop_with_usage("no program");

  if (check && dry_run)
    stop(
        "--check needs the memory that each operation uses, which a dry run does not know. Give "
        "one of them");
  check_torch_beside();
  set_variable("LD_PRELOAD", preloads());
  const auto& profile = gpu ? *gpu : simulate_gpus::k_plain_gpu;
  if (*count > 0) {
    set_default("PYTORCH_KERNEL_CACHE_PATH", kernel_cache());
    prepare_triton(profile);
  }
  set_variable("SIMULATE_GPUS", std::to_string(*count));
  set_variable(
      "SIMULATE_GPUS_MEMORY",
      std::to_string(memory.value_or((profile.mebibytes - profile.mebibytes_unseen) << 20)));
  set_variable("SIMULATE_GPUS_GPU", std::string(profile.option));
  set_or_unset("SIMULATE_GPUS_DETERMINISTIC", deterministic);
  set_or_unset("SIMULATE_GPUS_SUMMARY", summary);
  set_or_unset("SIMULATE_GPUS_TRACE", trace);
  set_variable("SIMULATE_GPUS_TRACE_FILE", trace_file.empty() ? "" : trace_of_program(trace_file));
  set_or_unset("SIMULATE_GPUS_CHECK", check);
  set_variable("SIMULATE_GPUS_IGNORE", ignored);
  set_or_unset("SIMULATE_GPUS_DRY_RUN", dry_run);
  if (*count == 0)  // what a program says of missing cards is about real ones
    std::fputs("simulate_gpus: 0 GPUs were asked for, so the program sees none\n", stderr);
  execvp(argv[next], argv + next);
  stop("cannot run \"" + std::string(argv[next]) + "\": " + std::strerror(errno));
}
