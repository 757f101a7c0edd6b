// SPDX-License-Identifier: MIT
//
// Starts a program on simulated GPUs: it preloads the libraries that replace CUDA's runtime, the
// driver, NVML, NCCL and CUPTI, configures them by the environment, and executes the program.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "launcher_options.hpp"
#include "runtime/gpu_profiles.hpp"

namespace {

using simulate_gpus::GpuProfile;
using simulate_gpus::stop;

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
  const simulate_gpus::LauncherOptions options = simulate_gpus::parse_options(argc, argv);
  check_torch_beside();
  set_variable("LD_PRELOAD", preloads());
  const GpuProfile& gpu = *options.gpu;
  if (options.count > 0) {
    set_default("PYTORCH_KERNEL_CACHE_PATH", kernel_cache());
    prepare_triton(gpu);
  }
  set_variable("SIMULATE_GPUS", std::to_string(options.count));
  set_variable("SIMULATE_GPUS_MEMORY", std::to_string(options.memory));
  set_variable("SIMULATE_GPUS_GPU", std::string(gpu.option));
  set_or_unset("SIMULATE_GPUS_DETERMINISTIC", options.deterministic);
  set_or_unset("SIMULATE_GPUS_SUMMARY", options.summary);
  set_or_unset("SIMULATE_GPUS_TRACE", options.trace);
  set_variable("SIMULATE_GPUS_TRACE_FILE",
               options.trace_file.empty() ? "" : trace_of_program(options.trace_file));
  set_or_unset("SIMULATE_GPUS_CHECK", options.check);
  set_variable("SIMULATE_GPUS_IGNORE", options.ignored);
  set_or_unset("SIMULATE_GPUS_DRY_RUN", options.dry_run);
  if (options.count == 0)  // what a program says of missing cards is about real ones
    std::fputs("simulate_gpus: 0 GPUs were asked for, so the program sees none\n", stderr);
  execvp(options.program[0], options.program);
  stop("cannot run \"" + std::string(options.program[0]) + "\": " + std::strerror(errno));
}
