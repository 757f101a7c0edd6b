// SPDX-License-Identifier: MIT
//
// Variables of the program in device memory (__device__, __constant__), by the variable of the host that stands for each.
#include <cuda_runtime_api.h>

#include "device_memory.hpp"
#include "devices.hpp"
#include "errors.hpp"
#include "program_module.hpp"
#include "registered_code.hpp"
#include "settings.hpp"

using namespace simulate_gpus;

namespace {

struct Symbol {
  char* address;
  std::size_t bytes;
};

Symbol find_symbol(const void* symbol) {
  const RegisteredVariable registered = variable_registered_as(symbol);
  if (registered.module == nullptr)
    throw KernelError(cudaErrorNotSupported,
                      registered.name + " is a variable of LibTorch's kernels, which are not run");
  const ptx::Variable found = variable_of(*registered.module, registered.name, current_device());
  // NOLINTNEXTLINE(performance-no-int-to-ptr): PTX has integers
  return {reinterpret_cast<char*>(found.address), registered.bytes};
}

template <class Action>
cudaError_t with_symbol(const void* symbol, const Action& action) {
  Symbol found{};
  try {
    found = find_symbol(symbol);
  } catch (const KernelError& error) {
    const bool is_missing = error.code == cudaErrorSymbolNotFound;
    return fail(is_missing ? cudaErrorInvalidSymbol : error.code, error.what());
  }
  return action(found);
}

// What LibTorch sets is never read.
bool is_left_alone(const void* symbol) {
  try {
    return settings().dry_run || variable_registered_as(symbol).module == nullptr;
  } catch (const KernelError&) {
    return false;
  }
}

template <class Action>
cudaError_t with_part(const void* symbol, std::size_t bytes, std::size_t offset,
                      const Action& action) {
  return with_symbol(symbol, [&](const Symbol& found) {
    if (offset > found.bytes || bytes > found.bytes - offset) return fail(cudaErrorInvalidValue);
    return action(found.address + offset);
  });
}

}  // namespace

extern "C" {

cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, address);
  return with_symbol(symbol, [&](const Symbol& found) {
    *address = found.address;
    return cudaSuccess;
  });
}

cudaError_t cudaGetSymbolSize(std::size_t* bytes, const void* symbol) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, bytes);
  return with_symbol(symbol, [&](const Symbol& found) {
    *bytes = found.bytes;
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes,
                               std::size_t offset, cudaMemcpyKind kind) {
  SIMULATE_GPUS_ENTER();
  if (is_left_alone(symbol)) return cudaSuccess;
  return with_part(symbol, bytes, offset,
                   [&](char* place) { return cudaMemcpy(place, from, bytes, kind); });
}

cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, std::size_t bytes,
                                 std::size_t offset, cudaMemcpyKind kind) {
  SIMULATE_GPUS_ENTER();
  return with_part(symbol, bytes, offset,
                   [&](const char* place) { return cudaMemcpy(to, place, bytes, kind); });
}

cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, std::size_t bytes,
                                    std::size_t offset, cudaMemcpyKind kind, cudaStream_t stream) {
  SIMULATE_GPUS_ENTER();
  if (is_left_alone(symbol)) return cudaSuccess;
  return with_part(symbol, bytes, offset,
                   [&](char* place) { return cudaMemcpyAsync(place, from, bytes, kind, stream); });
}

cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, std::size_t bytes,
                                      std::size_t offset, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  SIMULATE_GPUS_ENTER();
  return with_part(symbol, bytes, offset, [&](const char* place) {
    return cudaMemcpyAsync(to, place, bytes, kind, stream);
  });
}
}
