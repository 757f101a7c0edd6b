// SPDX-License-Identifier: MIT
//
// Naming, counting and choosing devices. A missing GPU is a normal result, not an error:
// `num_gpus()` is 0 and `try_gpu()` is the CPU, so the same program runs on every machine.
//
//   c10::Device device = use_gpu::try_gpu();                   // the first GPU, or the CPU
//   for (c10::Device d : use_gpu::try_all_gpus()) { ... }      // every GPU, or just the CPU
//   use_gpu::synchronize(device);                              // before reading a clock
//
// "GPU" is the accelerator that LibTorch itself would choose (CUDA, ROCm, XPU, MPS ... or the
// simulated one), CUDA where it has none. Qualify the names: `at::cpu` exists too.
#pragma once

#include <c10/core/Device.h>
#include <use_gpu/errors.hpp>

#include <string_view>

/// The namespace of the whole library.
namespace USE_GPU_EXPORT use_gpu {

/// The CPU.
///
/// Chapter: `cpu()`.
[[nodiscard]] c10::Device cpu();

/// Names a GPU, whether it is there or not.
///
/// Throws: DeviceError for an index outside 0 to 127, where LibTorch would wrap around: its
/// Device("cuda:300") is cuda:44.
///
/// Chapter: `gpu()`, `gpu(1)`.
[[nodiscard]] c10::Device gpu(int index = 0);

/// How many GPUs this program can use; 0 when there is none. Never throws, never prints.
///
/// Chapter: `num_gpus()`.
[[nodiscard]] int num_gpus() noexcept;

/// gpu(index) if it is there, else the CPU.
///
/// Throws: DeviceError if index < 0.
///
/// Chapter: `try_gpu(i)`.
[[nodiscard]] c10::Device try_gpu(int index = 0);

/// Every GPU, or the CPU alone: never empty.
///
/// Chapter: `try_all_gpus()`.
[[nodiscard]] std::vector<c10::Device> try_all_gpus();

/// Whether both name the same device. Unlike `==` it knows that "cuda" is the current CUDA device
/// (cuda:0 if there is none), and likewise for other types; "cpu:0" is the CPU. The devices need
/// not be there.
[[nodiscard]] bool same_device(c10::Device a, c10::Device b);

/// Reads "cpu", "gpu", "gpu:1", "auto" (try_gpu()) or the name of an accelerator in LibTorch, such
/// as "cuda" or "cuda:1". "cuda" alone is the current one, as in LibTorch; "gpu" is gpu(0). Whether
/// the device is there is not checked.
///
/// Throws: DeviceError, with the accepted names, for anything else: upper case, spaces, signs,
/// leading zeros, indices past 127.
[[nodiscard]] c10::Device parse_device(std::string_view name);

/// Returns when all work queued on the device, by any thread, is done. Does nothing on the CPU,
/// even in a CPU build, where torch::cuda::synchronize() throws.
///
/// Waits: for the device.
///
/// Throws: DeviceError if the device is not there.
void synchronize(c10::Device device);

}  // namespace use_gpu
