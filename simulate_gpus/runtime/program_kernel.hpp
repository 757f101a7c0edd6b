// SPDX-License-Identifier: MIT
//
// A kernel of the program: what CUDA tells of it, and its launch. The functions throw KernelError.
#pragma once

#include <driver_types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "program_module.hpp"
#include "settings.hpp"

/// The driver's handle, CUfunction or CUkernel, and the runtime's.
struct CUfunc_st {
  CUfunc_st(std::shared_ptr<simulate_gpus::ProgramModule> its_module, std::string its_name)
      : module(std::move(its_module)), name(std::move(its_name)) {}

  std::shared_ptr<simulate_gpus::ProgramModule> module;
  std::string name;                // as in the PTX
  std::optional<int> device = {};  // where alone it may be launched
  std::mutex mutex;                // of the attributes, which are the same on all devices
  std::optional<simulate_gpus::ptx::Attributes> attributes;
  // Of each device, what the program has allowed itself, plus one; 0 is what every kernel may have.
  std::array<std::atomic<int>, simulate_gpus::k_most_gpus> allowed_shared_bytes{};
};

namespace simulate_gpus {

struct KernelLaunch {
  std::array<unsigned, 3> grid, block;
  std::size_t shared_bytes;  // dynamic
  cudaStream_t stream;
  bool is_cooperative = false;
  void** arguments = nullptr;  // an address for each parameter; or all of them in
  const void* buffer = nullptr;
  std::size_t buffer_bytes = 0;
};

inline namespace interface {  // what the library exports

[[nodiscard]] cudaFuncAttributes attributes_of(CUfunc_st& kernel, int device);

/// Offset and bytes of a parameter.
[[nodiscard]] ptx::Parameter parameter_of(CUfunc_st& kernel, std::size_t index);

/// `attribute` has CUDA's number, of the runtime or the driver.
void set_kernel_attribute(CUfunc_st& kernel, int attribute, int value, int device);

/// How many blocks of so many threads a multiprocessor has room for.
[[nodiscard]] int occupancy_of(CUfunc_st& kernel, int threads, std::size_t shared_bytes,
                               int device);

void launch_kernel(CUfunc_st& kernel, const KernelLaunch& launch);

/// Why a launch with this attribute is refused, which the driver has under the same number; empty if it is not.
[[nodiscard]] std::string refusal_of(const cudaLaunchAttribute& attribute);

}  // namespace interface

const ptx::Attributes& ptx_attributes_of(CUfunc_st& kernel, int device);

/// "void f<int>(float*)" as "f(float*)", at most 200 characters, of a mangled name.
std::string readable_kernel_name(const char* mangled);

}  // namespace simulate_gpus
