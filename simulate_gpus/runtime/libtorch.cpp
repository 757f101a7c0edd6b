// SPDX-License-Identifier: MIT
//
// Why the kernels are not linked or preloaded. They need LibTorch, and a library linked to LibTorch
// loads it: also in programs without one, where it costs half a second and 460 MB, and as a second
// copy where a Python program loads its own. Opened late, they find by name the libraries that the
// program already has.
#include "libtorch.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <string>

#include "settings.hpp"

namespace simulate_gpus {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  std::fprintf(stderr, "simulate_gpus: %s\n", why.c_str());
  _exit(2);
}

std::string version_text(std::uint64_t version) {
  const auto part = [&](int shift) { return std::to_string(version >> shift & 0xFF); };
  return part(56) + '.' + part(48) + '.' + part(40);
}

// The file beside this library.
std::string neighbour(const char* name) {
  Dl_info here{};
  dladdr(reinterpret_cast<void*>(&meet_libtorch), &here);
  return std::filesystem::path(here.dli_fname).replace_filename(name);
}

void replace_kernels() {
  void* const libtorch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (libtorch == nullptr || dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD) == nullptr) return;
  // major, minor, patch and a tweak, a byte each from the highest
  using Version = std::uint64_t();
  auto* const version = reinterpret_cast<Version*>(dlsym(libtorch, "aoti_torch_abi_version"));
  const std::string found = version ? version_text(version()) : "unknown";
  if (found != SIMULATE_GPUS_LIBTORCH_VERSION) {
    refuse("the program has LibTorch " + found +
           ", and this simulate_gpus was built with " SIMULATE_GPUS_LIBTORCH_VERSION
           ". Build simulate_gpus with the program's LibTorch");
  }
  const std::string file = neighbour("libtorch_simulate_gpus.so");
  void* const kernels = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (kernels == nullptr) refuse(dlerror());
  using Replace = void();
  reinterpret_cast<Replace*>(dlsym(kernels, "simulate_gpus_replace_kernels"))();
}

}  // namespace

void meet_libtorch() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (!settings().visible.empty()) replace_kernels();
  });
}

}  // namespace simulate_gpus
