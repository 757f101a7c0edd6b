// SPDX-License-Identifier: MIT
#include "nvrtc/real_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

namespace simulate_gpus {
namespace {

namespace fs = std::filesystem;

// Of what the program has loaded, the folders where wheels put CUDA's libraries beside it.
int add_folders_beside(dl_phdr_info* info, std::size_t, void* folders) {
  const fs::path file = info->dlpi_name;
  if (!file.filename().string().starts_with("libtorch")) return 0;
  const fs::path packages = file.parent_path() / "../../nvidia";
  auto& found = *static_cast<std::vector<fs::path>*>(folders);
  found.push_back(packages / ("cu" SIMULATE_GPUS_CUDA_VERSION "/lib"));
  found.push_back(packages / "cuda_nvrtc/lib");
  return 0;
}

std::vector<fs::path> folders_of_cuda() {
  std::vector<fs::path> folders;
  const char* const search = std::getenv("LD_LIBRARY_PATH");
  std::istringstream entries(search ? search : "");
  for (std::string entry; std::getline(entries, entry, ':');)
    if (!entry.empty()) folders.emplace_back(entry);
  dl_iterate_phdr(add_folders_beside, &folders);
  for (const char* const variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* const root = std::getenv(variable)) {
      folders.push_back(fs::path(root) / "lib64");
      folders.push_back(fs::path(root) / "lib");
    }
  }
  for (const char* const folder :
       {"/usr/local/cuda/lib64", "/usr/local/cuda/lib", "/usr/lib/x86_64-linux-gnu"})
    folders.emplace_back(folder);
  return folders;
}

// By its path: by its name the program has this library.
void* open_real_library() {
  constexpr char k_name[] = "libnvrtc.so." SIMULATE_GPUS_CUDA_VERSION;
  Dl_info here{};
  dladdr(reinterpret_cast<void*>(&real_nvrtc), &here);
  const fs::path own = here.dli_fname;
  for (const fs::path& folder : folders_of_cuda()) {
    std::error_code none;
    const fs::path file = folder / k_name;
    if (!fs::exists(file, none) || fs::equivalent(file, own, none)) continue;
    if (void* const opened = dlopen(fs::canonical(file, none).c_str(), RTLD_LAZY | RTLD_LOCAL))
      return opened;
  }
  std::fprintf(
      stderr,
      "simulate_gpus: the program compiles a kernel by NVRTC, and %s of NVIDIA was not found "
      "beside LibTorch, in CUDA_HOME or in /usr/local/cuda: pip install nvidia-cuda-nvrtc\n",
      k_name);
  return nullptr;
}

}  // namespace

void* real_nvrtc(const char* function) {
  static void* const library = open_real_library();
  return library ? dlsym(library, function) : nullptr;
}

}  // namespace simulate_gpus
