// SPDX-License-Identifier: MIT
#include "registered_code.hpp"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <ranges>
#include <set>
#include <unordered_map>
#include <vector>

#include "devices.hpp"
#include "errors.hpp"
#include "fat_binary.hpp"
#include "launches.hpp"
#include "ptx_linker.hpp"

namespace simulate_gpus {
namespace {

struct ManagedVariable {
  void** place;  // where the host finds its address
  const char* name;
};

struct RegisteredBinary {
  const void* wrapper;
  std::vector<ManagedVariable> managed = {};
  std::shared_ptr<ProgramModule> module = {};
  bool is_libtorchs = false;  // known with the module
};

struct RegisteredKernel {
  const void* function;
  const char* name;  // in the program's own memory
  RegisteredBinary* binary;
};

struct Variable {
  const void* symbol;
  const char* name;
  std::size_t bytes;
  RegisteredBinary* binary;
};

// Never destroyed: a binary is unregistered at the very end of a process.
struct Registered {
  std::mutex mutex;
  std::vector<RegisteredKernel> kernels;
  std::vector<Variable> variables;
  // Made when something is looked up: how many kernels are in it, and the last that a function stands for.
  std::size_t num_indexed = 0;
  std::unordered_map<const void*, std::size_t> index;
  std::map<std::size_t, std::unique_ptr<CUfunc_st>> used;
  std::set<const void*> handles;
};

Registered& registered() {
  static auto* const registered = new Registered;
  return *registered;
}

bool is_libtorchs(const void* wrapper) {
  Dl_info place{};
  if (dladdr(wrapper, &place) == 0 || place.dli_fname == nullptr) return false;
  const std::string file = std::filesystem::path(place.dli_fname).filename();
  return file.starts_with("libtorch_cuda") || file.starts_with("libtorch_nvshmem") ||
         file.starts_with("libtorch.so") || file.starts_with("libc10_cuda");
}

std::string read_registered(const void* wrapper) {
  std::vector<std::string> texts;
  for (const void* const binary : fat_binaries_of(wrapper)) {
    const auto images = read_fat_binary(binary, std::numeric_limits<std::uint32_t>::max());
    if (!images)
      throw KernelError(cudaErrorInvalidKernelImage, "a fat binary of the program is damaged");
    texts.push_back(choose_ptx(*images));
  }
  return texts.size() == 1 ? texts.front() : link_ptx(texts);
}

// Gives the mutex back meanwhile: dladdr takes the loader's lock, under which another thread may be registering.
void know_module(RegisteredBinary& binary, std::unique_lock<std::mutex>& lock) {
  if (binary.module) return;
  lock.unlock();
  const bool is_known = is_libtorchs(binary.wrapper);
  lock.lock();
  if (binary.module) return;
  binary.is_libtorchs = is_known;
  binary.module = std::make_shared<ProgramModule>(
      [wrapper = binary.wrapper] { return read_registered(wrapper); }, !binary.managed.empty());
}

// Expects the mutex.
const RegisteredKernel* find_kernel(const void* function) {
  auto& [mutex, kernels, variables, num_indexed, index, used, handles] = registered();
  for (; num_indexed < kernels.size(); ++num_indexed)
    index[kernels[num_indexed].function] = num_indexed;
  const auto found = index.find(function);
  return found == index.end() ? nullptr : &kernels[found->second];
}

RegisteredBinary* binary_of(void** handle) { return reinterpret_cast<RegisteredBinary*>(handle); }

}  // namespace

std::string kernel_name(const void* function) {
  const std::scoped_lock lock(registered().mutex);
  const RegisteredKernel* const found = find_kernel(function);
  return found ? readable_kernel_name(found->name) : "(unknown)";
}

CUfunc_st* kernel_of(const void* function) {
  std::unique_lock lock(registered().mutex);
  if (registered().handles.contains(function))
    return static_cast<CUfunc_st*>(const_cast<void*>(function));
  const RegisteredKernel* found = find_kernel(function);
  if (found == nullptr || found->binary == nullptr) return nullptr;
  know_module(*found->binary, lock);
  found = find_kernel(function);  // others may have registered meanwhile
  if (found == nullptr || found->binary == nullptr || found->binary->is_libtorchs) return nullptr;
  auto& kernel = registered().used[static_cast<std::size_t>(found - registered().kernels.data())];
  if (!kernel) kernel = std::make_unique<CUfunc_st>(found->binary->module, found->name);
  return kernel.get();
}

void add_kernel_handle(CUfunc_st* kernel) {
  const std::scoped_lock lock(registered().mutex);
  registered().handles.insert(kernel);
}

RegisteredVariable variable_registered_as(const void* symbol) {
  std::unique_lock lock(registered().mutex);
  auto newest_first = std::views::reverse(registered().variables);
  const auto found = std::ranges::find(newest_first, symbol, &Variable::symbol);
  if (found == newest_first.end()) throw KernelError(cudaErrorInvalidSymbol);
  const Variable variable = *found;
  know_module(*variable.binary, lock);
  return {variable.name, variable.bytes,
          variable.binary->is_libtorchs ? nullptr : variable.binary->module.get()};
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

// CUDA's own names begin with two underscores. NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  return reinterpret_cast<void**>(new RegisteredBinary{wrapper});
}
void __cudaRegisterFatBinaryEnd(void**) {}

// Its device memory stays: at the end of a process nothing may be called any more that frees it.
void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void** binary, const char* function, char*, const char* name, int,
                            uint3*, uint3*, dim3*, dim3*, int*) {
  const std::scoped_lock lock(registered().mutex);
  registered().kernels.push_back({function, name, binary_of(binary)});
}

void __cudaRegisterVar(void** binary, char* symbol, char*, const char* name, int, std::size_t bytes,
                       int, int) {
  const std::scoped_lock lock(registered().mutex);
  registered().variables.push_back({symbol, name, bytes, binary_of(binary)});
}

void __cudaRegisterManagedVar(void** binary, void** place, char*, const char* name, int,
                              std::size_t bytes, int, int) {
  const std::scoped_lock lock(registered().mutex);
  registered().variables.push_back(
      {static_cast<const void*>(place), name, bytes, binary_of(binary)});
  binary_of(binary)->managed.push_back({place, name});
}

// Called before the host first uses a managed variable: whether their addresses are there now.
char __cudaInitModule(void** handle) {
  RegisteredBinary& binary = *binary_of(handle);
  {
    std::unique_lock lock(registered().mutex);
    know_module(binary, lock);
  }
  try {
    for (const auto& [place, name] : binary.managed) {
      const ptx::Variable found = variable_of(*binary.module, name, current_device());
      std::memcpy(static_cast<void*>(place), &found.address, sizeof *place);
    }
    return 1;
  } catch (const KernelError& error) {
    std::fprintf(stderr, "simulate_gpus: __managed__ variables: %s\n", error.what());
    fail(error.code, error.what());
    return 0;
  }
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
}
// NOLINTEND(bugprone-reserved-identifier)

const char* simulate_gpus::compiled_name(const void* kernel) {
  const std::scoped_lock lock(registered().mutex);
  const RegisteredKernel* const found = find_kernel(kernel);
  return found ? found->name : nullptr;
}
