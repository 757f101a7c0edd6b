// SPDX-License-Identifier: MIT
#include "driver/modules.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/settings.hpp"

using namespace simulate_gpus;

namespace {

// Of the current device.
CUmodule module_with(std::shared_ptr<ProgramModule> read) {
  auto* const made = new CUmod_st;
  made->module = std::move(read);
  made->device = device_of_thread();
  return made;
}

// The options' values are pointers, or numbers in their place.
struct Log {
  char* text = nullptr;
  std::size_t bytes = 0;
  void** used = nullptr;  // where the driver tells how much it wrote

  void write(std::string_view message) const {
    const std::size_t count =
        text && bytes > 0 ? std::min(message.size(), bytes - 1) : std::size_t{0};
    if (count > 0 || (text && bytes > 0)) {
      std::memcpy(text, message.data(), count);
      text[count] = '\0';
    }
    // NOLINTNEXTLINE(performance-no-int-to-ptr): CUDA's options are numbers in place of pointers
    if (used) *used = reinterpret_cast<void*>(static_cast<std::uintptr_t>(count));
  }
};

Log find_log(unsigned count, const CUjit_option* options, void** values, CUjit_option buffer,
             CUjit_option size) {
  Log log;
  for (unsigned index = 0; index < count; ++index) {
    if (options[index] == buffer) log.text = static_cast<char*>(values[index]);
    if (options[index] == size) {
      log.bytes = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(values[index]));
      log.used = &values[index];
    }
  }
  return log;
}

// The first time in the process.
void say(const std::string& refusal) {
  static auto* const said =
      new std::pair<std::mutex, std::set<std::string>>;  // outlives its callers
  const std::scoped_lock lock(said->first);
  if (said->second.insert(refusal).second)
    std::fprintf(stderr, "simulate_gpus: a kernel of the program: %s\n", refusal.c_str());
}

}  // namespace

CUresult simulate_gpus::refused_as(const KernelError& error) {
  if (error.code == cudaErrorNotSupported) say(error.what());
  return static_cast<CUresult>(refuse_in_driver(error.code, error.what()));
}

std::string simulate_gpus::bytes_of_file(const char* name) {
  std::ifstream file(name, std::ios::binary);
  std::string bytes;
  try {
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  } catch (const std::ios::failure&) {  // a folder
    file.setstate(std::ios::failbit);
  }
  if (!file) throw KernelError(cudaErrorFileNotFound, std::string(name) + " cannot be read");
  return bytes;
}

CUfunction simulate_gpus::function_of(CUmod_st& module, const std::string& name) {
  const std::scoped_lock lock(module.mutex);
  // What cannot run here is refused when it is launched, which a program may never do.
  const auto is_there = [&] {
    try {
      return settings().dry_run || has_kernel(*module.module, name);
    } catch (const KernelError& error) {
      if (error.code == cudaErrorNotSupported) return true;
      throw;
    }
  };
  if (!module.functions.contains(name) && !is_there())
    throw KernelError(cudaErrorSymbolNotFound, "the module has no kernel " + name.substr(0, 200));
  CUfunc_st& function = module.functions.try_emplace(name, module.module, name).first->second;
  function.device = module.device;
  return &function;
}

int simulate_gpus::device_of_thread() {
  int device = 0;
  static_cast<void>(cudaGetDevice(&device));
  return device;
}

extern "C" {

CUresult cuModuleLoad(CUmodule* module, const char* name) {
  if (module == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return attempt_in_driver([&] {
    const std::string bytes = bytes_of_file(name);  // ends with a zero
    *module = module_with(read_module(bytes.c_str(), bytes.size()));
  });
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return attempt_in_driver([&] { *module = module_with(read_module(image)); });
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count,
                            CUjit_option* options, void** values) {
  const Log errors =
      find_log(count, options, values, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
  find_log(count, options, values, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES)
      .write("");
  const CUresult failed = cuModuleLoadData(module, image);
  const char* text = "";
  if (failed != CUDA_SUCCESS) static_cast<void>(cuGetErrorString(failed, &text));
  errors.write(text);
  return failed;
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* binary) {
  return cuModuleLoadData(module, binary);
}

CUresult cuModuleUnload(CUmodule module) {
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  finish_all_work();  // which may use the module's variables
  delete module;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return attempt_in_driver([&] { *function = function_of(*module, name); });
}

CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule module) {
  if (count == nullptr || module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return attempt_in_driver(
      [&] { *count = static_cast<unsigned>(kernels_of(*module->module).size()); });
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned count, CUmodule module) {
  if (functions == nullptr || module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return attempt_in_driver([&] {
    const std::vector<std::string> names = kernels_of(*module->module);
    const std::size_t most = std::min(std::size_t{count}, names.size());
    for (std::size_t index = 0; index < most; ++index)
      functions[index] = function_of(*module, names[index]);
  });
}

CUresult cuModuleGetGlobal(CUdeviceptr* address, std::size_t* bytes, CUmodule module,
                           const char* name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return attempt_in_driver([&] {
    const ptx::Variable found =
        variable_of(*module->module, name, module->device.value_or(device_of_thread()));
    if (address) *address = found.address;
    if (bytes) *bytes = found.bytes;
  });
}
}
