// SPDX-License-Identifier: MIT
//
// Launches of the program's kernels: checked as CUDA does, then queued in their stream as any work.
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "devices.hpp"
#include "errors.hpp"
#include "interface.hpp"
#include "kernel_library.hpp"
#include "lost_devices.hpp"
#include "program_kernel.hpp"
#include "settings.hpp"
#include "streams.hpp"
#include "tool.hpp"

namespace simulate_gpus {
namespace {

struct KernelJob {
  int device;
  std::shared_ptr<ptx::Module> module;
  ptx::Launch launch;
  std::string name;  // as people read it
};

ptx::Dimensions dimensions(const std::array<unsigned, 3>& size) {
  return {size[0], size[1], size[2]};
}

void check_shape(const KernelLaunch& launch, const ptx::Attributes& attributes,
                 const cudaFuncAttributes& limits) {
  const auto [x, y, z] = launch.block;
  const auto threads = std::uint64_t{x} * y * z;
  const bool is_block = x <= 1024 && y <= 1024 && z <= 64 && threads > 0 &&
                        threads <= static_cast<std::uint64_t>(limits.maxThreadsPerBlock);
  const auto [columns, rows, layers] = launch.grid;
  const bool is_grid = columns > 0 && columns <= 0x7FFFFFFF && rows > 0 && rows <= 65535 &&
                       layers > 0 && layers <= 65535;
  const auto& required = attributes.required_threads;
  const bool is_as_required =
      required[0] == 0 || (required[0] == x && required[1] == y && required[2] == z);
  if (!is_block || !is_grid || !is_as_required ||
      launch.shared_bytes > static_cast<std::size_t>(limits.maxDynamicSharedSizeBytes))
    throw KernelError(cudaErrorInvalidValue);
}

void check_residence(CUfunc_st& kernel, const KernelLaunch& launch, int device) {
  if (!launch.is_cooperative) return;
  const auto [x, y, z] = launch.block;
  const auto blocks = std::uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  const int resident =
      occupancy_of(kernel, static_cast<int>(x * y * z), launch.shared_bytes, device);
  if (blocks > static_cast<std::uint64_t>(resident) *
                   static_cast<std::uint64_t>(settings().gpu.multiprocessors))
    throw KernelError(cudaErrorCooperativeLaunchTooLarge);
}

std::vector<std::byte> parameters_of(const KernelLaunch& launch,
                                     const ptx::Attributes& attributes) {
  std::vector<std::byte> bytes(attributes.parameter_bytes);
  if (bytes.empty()) return bytes;
  if ((launch.buffer == nullptr) == (launch.arguments == nullptr))
    throw KernelError(cudaErrorInvalidValue);
  if (launch.buffer != nullptr) {
    if (launch.buffer_bytes < bytes.size()) throw KernelError(cudaErrorInvalidValue);
    std::memcpy(bytes.data(), launch.buffer, bytes.size());
    return bytes;
  }
  for (std::size_t index = 0; index < attributes.parameters.size(); ++index) {
    const auto& [offset, size, alignment] = attributes.parameters[index];
    std::memcpy(bytes.data() + offset, launch.arguments[index], size);
  }
  return bytes;
}

std::string with_readable_name(std::string text, const KernelJob& job) {
  const auto place = text.find(job.launch.kernel);
  if (place != std::string::npos) text.replace(place, job.launch.kernel.size(), job.name);
  return text;
}

void run(const KernelJob& job, std::vector<ptx::Touched>* touched = nullptr) {
  if (is_lost(job.device)) return;
  ptx::Launch launch = job.launch;
  launch.touched = touched;
  try {
    job.module->launch(launch);
  } catch (const ptx::Error& error) {
    const cudaError_t code = error_of(error).code;
    const std::string text = with_readable_name(error.what(), job);
    lose_device(job.device, code, text);
    throw WorkFailure(code, text);
  } catch (const std::exception& error) {  // the host has no memory left, say
    const std::string text = "the kernel " + job.name + " could not be simulated: " + error.what();
    lose_device(job.device, cudaErrorLaunchFailure, text);
    throw WorkFailure(cudaErrorLaunchFailure, text);
  }
}

// --check needs the memory that the kernel uses, which only its end tells.
void run_at_once(CUstream_st& stream, const KernelJob& job) {
  finish(stream);
  std::vector<ptx::Touched> touched;
  try {
    run(job, &touched);
  } catch (const WorkFailure&) {
    return;  // the device is lost
  }
  std::vector<MemoryRange> uses;
  for (const auto& [begin, end, read, written] : touched)
    uses.push_back({static_cast<std::uintptr_t>(begin), static_cast<std::uintptr_t>(end), written});
  submit(stream, [] {});  // so that the stream is busy until it is waited for
  tell(&Tool::uses, stream, job.name, uses);
}

void give(CUstream_st& stream, const std::shared_ptr<const KernelJob>& job) {
  if (is_captured(stream)) {
    record_submission(&stream, [job](cudaStream_t launched) { give(*launched, job); });
  } else if (settings().check) {
    run_at_once(stream, *job);
  } else {
    submit(stream, [job] { run(*job); });
  }
}

}  // namespace
}  // namespace simulate_gpus

using namespace simulate_gpus;

void simulate_gpus::launch_kernel(CUfunc_st& kernel, const KernelLaunch& launch) {
  CUstream_st& stream = stream_of(launch.stream);
  std::string name = readable_kernel_name(kernel.name.c_str());
  const LaunchSize size{launch.grid, launch.block, launch.shared_bytes};
  if (settings().dry_run) {
    tell_given(stream, {.kind = Kind::operation, .name = name, .size = size});
    submit(stream, [] {});
    return;
  }
  if (stream.device != current_device()) throw KernelError(cudaErrorInvalidResourceHandle);
  if (const cudaError_t refused = unreported_refusal())
    throw KernelError(refused, "another kernel was refused before, which nobody looked at");
  try {
    auto module = kernel.module->on(stream.device);
    const ptx::Attributes& attributes = ptx_attributes_of(kernel, stream.device);
    check_shape(launch, attributes, attributes_of(kernel, stream.device));
    check_residence(kernel, launch, stream.device);
    module->resolve(kernel.name);
    const auto job = std::make_shared<const KernelJob>(
        KernelJob{stream.device,
                  std::move(module),
                  {.kernel = kernel.name,
                   .grid = dimensions(launch.grid),
                   .block = dimensions(launch.block),
                   .dynamic_shared_bytes = launch.shared_bytes,
                   .parameters = parameters_of(launch, attributes),
                   .cooperative = launch.is_cooperative,
                   .multiprocessors = static_cast<std::uint32_t>(settings().gpu.multiprocessors),
                   .threads = settings().deterministic ? 1U : 0U},
                  name});
    make_context(stream.device);
    tell_given(stream, {.kind = Kind::operation, .name = name, .size = size});
    give(stream, job);
  } catch (const ptx::Error& error) {
    throw error_of(error);
  }
}
