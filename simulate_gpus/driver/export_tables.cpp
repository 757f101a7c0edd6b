// SPDX-License-Identifier: MIT
//
// The driver's tables that no header describes. NVIDIA's own libraries ask for them, and do without. A CUDA runtime
// does not: that is how one shows itself which the program has linked, so that it cannot be replaced.
#include <cuda.h>
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "driver/refusal.hpp"
#include "runtime/interface.hpp"

using namespace simulate_gpus;

namespace {

// What every CUDA runtime asks for when it starts, here those of CUDA 12 and 13; it returns the error that it gets.
constexpr std::array<unsigned char, 16> k_table_of_runtimes = {
    0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};

// The file that holds the code.
std::string file_of(const void* code) {
  Dl_info found{};
  if (dladdr(code, &found) == 0 || found.dli_fname == nullptr) return "the program";
  const std::string_view path = found.dli_fname;
  return std::string(path.substr(path.rfind('/') + 1));
}

// Libraries of NVIDIA's, such as cuBLAS, have a runtime in them, and LibTorch calls few of them here.
bool is_nvidias(std::string_view file) {
  return !file.starts_with("libcudart") &&
         (file.starts_with("libcu") || file.starts_with("libnv") || file.starts_with("libnpp"));
}

void tell_of_runtime(const std::string& file) {
  static std::atomic<bool> is_told = false;
  if (is_nvidias(file) || is_told.exchange(true)) return;
  std::fprintf(
      stderr,
      "simulate_gpus: %s has a CUDA runtime of its own linked in (libcudart_static), which "
      "simulated GPUs cannot replace: its calls return error 801. Build it with nvcc "
      "--cudart shared, or CMake's CUDA_RUNTIME_LIBRARY Shared; see "
      "simulate_gpus/README.md\n",
      file.c_str());
}

}  // namespace

extern "C" CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  if (table) *table = nullptr;
  if (id && std::memcmp(id, k_table_of_runtimes.data(), k_table_of_runtimes.size()) == 0)
    tell_of_runtime(file_of(__builtin_return_address(0)));
  return static_cast<CUresult>(
      refuse_in_driver(CUDA_ERROR_NOT_SUPPORTED, not_offered("cuGetExportTable")));
}
