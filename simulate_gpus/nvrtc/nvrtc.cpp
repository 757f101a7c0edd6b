// SPDX-License-Identifier: MIT
//
// Stands in front of NVIDIA's libnvrtc, which compiles: for a real architecture (sm_90) it would make machine code. Here it is asked
// for the virtual one (compute_90), and the PTX is given where the program asks for machine code. Without nvrtc.h, which
// few builds have: all functions take words.
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "nvrtc/real_library.hpp"

namespace {

using Word = void*;
using Program = void*;
constexpr int k_internal_error = 11;  // NVRTC_ERROR_INTERNAL_ERROR

// Every function takes at most six words, in registers; those that it does not take do no harm.
int ask(const char* function, Word a = nullptr, Word b = nullptr, Word c = nullptr,
        Word d = nullptr, Word e = nullptr, Word f = nullptr) {
  auto* const real = reinterpret_cast<int (*)(Word, Word, Word, Word, Word, Word)>(
      simulate_gpus::real_nvrtc(function));
  return real ? real(a, b, c, d, e, f) : k_internal_error;
}

// Those that the program wanted machine code of.
struct Programs {
  std::mutex mutex;
  std::set<Program> of_machine_code;
};

Programs& programs() {
  static auto* const programs = new Programs;
  return *programs;
}

bool wants_machine_code(Program program) {
  const std::scoped_lock lock(programs().mutex);
  return programs().of_machine_code.contains(program);
}

void note(Program program, bool is_of_machine_code) {
  const std::scoped_lock lock(programs().mutex);
  if (is_of_machine_code) {
    programs().of_machine_code.insert(program);
  } else {
    programs().of_machine_code.erase(program);
  }
}

// "-arch=sm_90" and "--gpu-architecture=sm_90a", or the value that stands apart. Whether the option named a real
// architecture.
bool make_virtual(std::string& option, bool is_value) {
  const auto equals = option.find('=');
  const std::string_view name = std::string_view(option).substr(0, equals);
  const bool names_architecture = name == "-arch" || name == "--gpu-architecture";
  const std::size_t value = is_value ? 0 : equals + 1;
  if (!is_value && (!names_architecture || equals == std::string::npos)) return false;
  if (option.compare(value, 3, "sm_") != 0) return false;
  option.replace(value, 3, "compute_");
  return true;
}

// LibTorch makes the folder where it keeps compiled kernels only where the environment does not name it, as simulate_gpus
// does. It asks for the version before it looks for the folder.
void make_kernel_cache() {
  const char* const folder = std::getenv("PYTORCH_KERNEL_CACHE_PATH");
  if (folder == nullptr || !std::string_view(folder).ends_with("/torch/simulated_kernels")) return;
  std::error_code none;
  std::filesystem::create_directories(folder, none);
}

}  // namespace

#define SIMULATE_GPUS_FORWARD(function)                          \
  int function(Word a, Word b, Word c, Word d, Word e, Word f) { \
    return ask(#function, a, b, c, d, e, f);                     \
  }

extern "C" {

const char* nvrtcGetErrorString(int code) {
  auto* const real =
      reinterpret_cast<const char* (*)(int)>(simulate_gpus::real_nvrtc("nvrtcGetErrorString"));
  return real ? real(code) : "NVRTC_ERROR_INTERNAL_ERROR";
}

int nvrtcVersion(int* major, int* minor) {
  make_kernel_cache();
  return ask("nvrtcVersion", major, minor);
}

int nvrtcCompileProgram(Program program, int count, const char* const* options) {
  std::vector<std::string> texts(options, options + count);
  std::vector<const char*> pointers;
  bool is_of_machine_code = false, is_value = false;
  for (std::string& text : texts) {
    is_of_machine_code |= make_virtual(text, is_value);
    is_value = text == "-arch" || text == "--gpu-architecture";
    pointers.push_back(text.c_str());
  }
  note(program, is_of_machine_code);
  auto* const real = reinterpret_cast<int (*)(Program, int, const char* const*)>(
      simulate_gpus::real_nvrtc("nvrtcCompileProgram"));
  return real ? real(program, count, pointers.data()) : k_internal_error;
}

int nvrtcGetCUBINSize(Program program, std::size_t* bytes) {
  return ask(wants_machine_code(program) ? "nvrtcGetPTXSize" : "nvrtcGetCUBINSize", program, bytes);
}

int nvrtcGetCUBIN(Program program, char* image) {
  return ask(wants_machine_code(program) ? "nvrtcGetPTX" : "nvrtcGetCUBIN", program, image);
}

int nvrtcDestroyProgram(Program* program) {
  if (program) note(*program, false);
  return ask("nvrtcDestroyProgram", static_cast<void*>(program));
}

SIMULATE_GPUS_FORWARD(nvrtcAddNameExpression)
SIMULATE_GPUS_FORWARD(nvrtcCreateProgram)
SIMULATE_GPUS_FORWARD(nvrtcGetLTOIR)
SIMULATE_GPUS_FORWARD(nvrtcGetLTOIRSize)
SIMULATE_GPUS_FORWARD(nvrtcGetLoweredName)
SIMULATE_GPUS_FORWARD(nvrtcGetNVVM)
SIMULATE_GPUS_FORWARD(nvrtcGetNVVMSize)
SIMULATE_GPUS_FORWARD(nvrtcGetNumSupportedArchs)
SIMULATE_GPUS_FORWARD(nvrtcGetOptiXIR)
SIMULATE_GPUS_FORWARD(nvrtcGetOptiXIRSize)
SIMULATE_GPUS_FORWARD(nvrtcGetPCHCreateStatus)
SIMULATE_GPUS_FORWARD(nvrtcGetPCHHeapSize)
SIMULATE_GPUS_FORWARD(nvrtcGetPCHHeapSizeRequired)
SIMULATE_GPUS_FORWARD(nvrtcGetPTX)
SIMULATE_GPUS_FORWARD(nvrtcGetPTXSize)
SIMULATE_GPUS_FORWARD(nvrtcGetProgramLog)
SIMULATE_GPUS_FORWARD(nvrtcGetProgramLogSize)
SIMULATE_GPUS_FORWARD(nvrtcGetSupportedArchs)
SIMULATE_GPUS_FORWARD(nvrtcSetFlowCallback)
SIMULATE_GPUS_FORWARD(nvrtcSetPCHHeapSize)
}
