// SPDX-License-Identifier: MIT
#include "kernel_library.hpp"

#include <dlfcn.h>

#include <cstddef>
#include <filesystem>

#include "modules/decompress.hpp"

namespace simulate_gpus {
namespace {

// No PTX comes near it; a damaged header may claim any size.
constexpr std::size_t k_most_plain_bytes = std::size_t{512} << 20;

struct KernelLibrary {
  decltype(&simulate_gpus_ptx_load) load = nullptr;
  decltype(&simulate_gpus_decompress) decompress = nullptr;
  std::string failure;
};

// The same sources twice: for any CPU, and for those with vectors of 256 bits.
const char* library_name() {
#ifdef SIMULATE_GPUS_AVX2
  if (__builtin_cpu_supports("x86-64-v3") != 0) return "libsimulate_gpus_ptx_avx2.so";
#endif
  return "libsimulate_gpus_ptx.so";
}

KernelLibrary open_library() {
  Dl_info here{};
  dladdr(reinterpret_cast<void*>(&load_ptx), &here);
  const std::string file = std::filesystem::path(here.dli_fname).replace_filename(library_name());
  KernelLibrary library;
  void* const opened = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    library.failure = dlerror();
    return library;
  }
  library.load = reinterpret_cast<decltype(library.load)>(dlsym(opened, "simulate_gpus_ptx_load"));
  library.decompress =
      reinterpret_cast<decltype(library.decompress)>(dlsym(opened, "simulate_gpus_decompress"));
  return library;
}

const KernelLibrary& kernel_library() {
  static const auto* const library = new KernelLibrary(open_library());
  if (library->load == nullptr || library->decompress == nullptr)
    throw KernelError(cudaErrorNotSupported, std::string("kernels of programs need ") +
                                                 library_name() + ": " + library->failure);
  return *library;
}

cudaError_t code_of(ptx::Kind kind) {
  switch (kind) {
    case ptx::Kind::invalid_ptx:
      return cudaErrorInvalidPtx;
    case ptx::Kind::not_found:
      return cudaErrorSymbolNotFound;
    case ptx::Kind::invalid_value:
      return cudaErrorInvalidValue;
    case ptx::Kind::illegal_address:
      return cudaErrorIllegalAddress;
    case ptx::Kind::misaligned_address:
      return cudaErrorMisalignedAddress;
    case ptx::Kind::assertion:
      return cudaErrorAssert;
    case ptx::Kind::launch_failure:
      return cudaErrorLaunchFailure;
    case ptx::Kind::timeout:
      return cudaErrorLaunchTimeout;
    case ptx::Kind::out_of_memory:
      return cudaErrorMemoryAllocation;
    case ptx::Kind::not_offered:
      break;
  }
  return cudaErrorNotSupported;
}

}  // namespace

std::shared_ptr<ptx::Module> load_ptx(const std::string& text, const ptx::Host& host) try {
  return std::shared_ptr<ptx::Module>(kernel_library().load(text.data(), text.size(), host));
} catch (const ptx::Error& error) {
  throw error_of(error);
}

std::string text_of(const CodeImage& image) {
  std::string text;
  if (!image.is_compressed) {
    text.assign(image.stored.begin(), image.stored.end());
  } else {
    if (image.plain_bytes == 0 || image.plain_bytes > k_most_plain_bytes)
      throw KernelError(cudaErrorInvalidKernelImage, "a fat binary of the program is damaged");
    text.resize(image.plain_bytes);
    const long written = kernel_library().decompress(image.stored.data(), image.stored.size(),
                                                     text.data(), text.size());
    if (written == 0)
      throw KernelError(cudaErrorInvalidKernelImage, "a fat binary of the program is damaged");
    if (written < 0)
      throw KernelError(cudaErrorNotSupported,
                        std::string("the program's PTX is compressed by ") +
                            (written == -1 ? "LZ4" : "zstd") +
                            ", which simulate_gpus was built without: install " +
                            (written == -1 ? "liblz4-dev" : "libzstd-dev") +
                            " and build it again, or give nvcc --compress-mode=none");
    text.resize(static_cast<std::size_t>(written));
  }
  text.resize(text.find_last_not_of('\0') + 1);  // images are padded
  return text;
}

KernelError error_of(const ptx::Error& error) {
  return KernelError(code_of(error.kind()), error.what());
}

}  // namespace simulate_gpus
