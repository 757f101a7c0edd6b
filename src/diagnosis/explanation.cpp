// SPDX-License-Identifier: MIT
#include "diagnosis/explanation.hpp"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "messages/message.hpp"

namespace use_gpu::detail {
namespace {

std::string counted(std::size_t gpus) {
  return std::to_string(gpus) + (gpus == 1 ? " GPU" : " GPUs");
}

// "cuda:0 to cuda:3 (NVIDIA H200, compute capability 9.0, 139.8 GiB each)", as far as known.
std::string described(const ProbedGpu& first, const ProbedGpu& last) {
  const bool is_one = first.name == last.name;
  std::string details = first.model;
  if (first.memory_bytes) {
    char memory[40];
    std::snprintf(memory, sizeof memory, "%s%.1f GiB%s", details.empty() ? "" : ", ",
                  static_cast<double>(*first.memory_bytes) / (1 << 30), is_one ? "" : " each");
    details += memory;
  }
  return first.name + (is_one ? "" : " to " + last.name) +
         (details.empty() ? "" : " (" + details + ")");
}

// Consecutive equal GPUs are listed together.
std::string described(const std::vector<ProbedGpu>& gpus) {
  std::string list;
  for (auto first = gpus.begin(); first != gpus.end();) {
    const auto next = std::find_if(first, gpus.end(), [&](const ProbedGpu& gpu) {
      return gpu.model != first->model || gpu.memory_bytes != first->memory_bytes;
    });
    list += (list.empty() ? "" : ", ") + described(*first, *(next - 1));
    first = next;
  }
  return list;
}

std::string all_well(const GpuFacts& facts) {
  std::string text = counted(facts.gpus.size()) + " can be used: " + described(facts.gpus) + '.';
  if (facts.cuda && facts.visible_devices && facts.report.gpus.size() > facts.gpus.size())
    text += " The machine has " + std::to_string(facts.report.gpus.size()) +
            "; CUDA_VISIBLE_DEVICES hides the others.";
  return text;
}

std::string no_accelerator(const GpuFacts& facts) {
  if (facts.cuda_not_loaded)
    return "This LibTorch was built for CUDA, but libtorch_cuda.so is not loaded: the linker drops "
           "it, as programs name no symbol of it. In CMake, "
           "target_link_libraries(app use_gpu::use_gpu), or \"${TORCH_LIBRARIES}\", keeps it; by "
           "hand, link with -Wl,--no-as-needed -ltorch_cuda. `ldd app` must list it.";
  const std::size_t cards = facts.report.gpus.size();
  return "This LibTorch was built without CUDA or another accelerator, so no GPU can be used" +
         (cards > 0 ? ", though the driver sees " + counted(cards) : "") +
         ". Install one built for the GPU (for NVIDIA's: scripts/setup of use_gpu; "
         "others: pytorch.org) and build with -DTorch_DIR=<its share/cmake/Torch>.";
}

constexpr const char* k_reload =
    "Reload the driver's module, `sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm`, or "
    "reboot; then restart the container if this is one.";

// What to do about an error of CUDA, whether it counted the GPUs or used one.
const char* remedy(std::string_view error) {
  static constexpr const char* k_remedies[][2] = {
      {"cudaErrorMemoryAllocation",
       "It cannot allocate memory: raise the address-space limit (`ulimit -v unlimited`) or free "
       "GPU memory (`nvidia-smi`). AddressSanitizer needs ASAN_OPTIONS=protect_shadow_gap=0."},
      {"cudaErrorInitializationError",
       "A process forked from one that uses CUDA cannot use CUDA: start a new one (exec; in Python "
       "the start method \"spawn\"). Otherwise see `sudo dmesg | grep NVRM`, and restart the "
       "container or the machine."},
      {"cudaErrorDevicesUnavailable",
       "A GPU that is busy or closed has a compute mode that is prohibited, or exclusive while "
       "another program uses it. End that program (`nvidia-smi` lists it), or allow several with "
       "`sudo nvidia-smi --compute-mode=DEFAULT`."},
      {"cudaErrorNoKernelImageForDevice",
       "It is of an architecture that this LibTorch has no code for. Install a LibTorch that has "
       "(for an old card one built for an older CUDA, for a new card a newer LibTorch: "
       "pytorch.org), or build it with TORCH_CUDA_ARCH_LIST set to that capability."},
      {"cudaErrorStubLibrary",
       "It is meant for linking and hides the driver's libcuda.so.1: remove its folder "
       "(lib64/stubs "
       "of the CUDA Toolkit) from LD_LIBRARY_PATH."},
      {"cudaErrorNoDevice",
       "`nvidia-smi -L` lists them. One in MIG mode needs an instance (`sudo nvidia-smi mig -cgi "
       "<profile> -C`); a container or job must be given its GPUs (`--gpus all`)."},
      {"cudaErrorSystemNotReady",
       "GPUs joined by NVSwitch need NVIDIA's fabric manager, of the driver's version: `sudo "
       "systemctl start nvidia-fabricmanager`."},
      {"cudaErrorCompatNotSupportedOnDevice",
       "CUDA's compatibility libraries do not serve this card: remove their folder (cuda/compat) "
       "from LD_LIBRARY_PATH, or update the driver."},
      {"cudaErrorOperatingSystem", k_reload},
      {"cudaErrorUnknown", k_reload}};
  for (const auto& [name, text] : k_remedies) {
    if (name == error) return text;
  }
  return "See `sudo dmesg | grep NVRM` for the cause; restart the program or the container, "
         "and reboot if in doubt.";
}

std::string no_cuda_gpu(const GpuFacts& facts, const CudaFacts& cuda) {
  const auto& [said, error] = cuda.error;
  const GpuReport& report = facts.report;
  if (error == "cudaErrorInsufficientDriver" && !cuda.driver_version.empty()) {
    const std::string& version = report.driver_version;
    return "The NVIDIA driver" + (version.empty() ? "" : ' ' + version) +
           " is too old for this LibTorch: it runs CUDA up to " + cuda.driver_version +
           ", and LibTorch was built for CUDA " + cuda.runtime_version +
           ". Update the driver (a container has the host's), until `nvidia-smi` shows CUDA " +
           cuda.runtime_version + " or later, or install a LibTorch built for CUDA " +
           cuda.driver_version + " or older (pytorch.org).";
  }
  if (said.empty())
    return "CUDA can use the GPUs now, but it could not when this program first counted them, and "
           "LibTorch keeps its first count. Restart the program.";
  if (report.gpus.empty() && !report.problem.empty()) return report.problem;
  const std::string seen = "The driver sees " + counted(report.gpus.size()) + ", but ";
  if (error == "cudaErrorInsufficientDriver")
    return seen +
           "its library for computing, libcuda.so.1, is not found. Start a container with `--gpus "
           "all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility`; elsewhere install the driver's "
           "CUDA part (Debian: libcuda1, Ubuntu: libnvidia-compute).";
  if (facts.visible_devices && (error == "cudaErrorNoDevice" || error == "cudaErrorInvalidDevice"))
    return seen + "CUDA_VISIBLE_DEVICES=" + in_quotes(*facts.visible_devices) +
           " shows this program none of them. Unset it, or name those to use with commas "
           "(one named twice hides all): numbers from 0, or UUIDs (`nvidia-smi -L`). In a job, "
           "ask its scheduler for one.";
  if (!report.problem.empty()) return report.problem;
  return seen + "CUDA does not: " + said + ". " + remedy(error);
}

std::string trouble(const GpuFacts& facts, const ProbedGpu& ill) {
  const auto well = std::ranges::count_if(
      facts.gpus, [](const ProbedGpu& gpu) { return gpu.error.text.empty(); });
  const auto& [said, error] = ill.error;
  const std::string begin = "Of " + counted(facts.gpus.size()) + " counted, " +
                            std::to_string(well) + " can be used. " + described(ill, ill);
  if (facts.cuda &&
      (error == "cudaErrorNoKernelImageForDevice" || error == "cudaErrorDevicesUnavailable"))
    return begin + " does not work. " + remedy(error);
  const bool may_be_settings = error.empty() || error == "cudaErrorNotSupported";
  return begin + " reports: " + said + ". " +
         (may_be_settings && !facts.allocator_settings.empty()
              ? facts.allocator_settings +
                    " may be malformed, or ask for what the GPU lacks: unset it and restart."
              : "Restart the program, and see what else uses the device (`nvidia-smi` for "
                "NVIDIA's) and what its driver logs (`sudo dmesg`).");
}

std::string explanation(const GpuFacts& facts) {
  if (facts.kind.empty()) return no_accelerator(facts);
  if (facts.gpus.empty() && facts.cuda) return no_cuda_gpu(facts, *facts.cuda);
  if (facts.gpus.empty())
    return "LibTorch was built for " + facts.kind + " devices and finds none: " + facts.error.text +
           ". Check that its driver is installed, that this user or container may open the "
           "device, and that no environment variable hides it.";
  if (facts.cuda && !facts.cuda->error.text.empty())
    return "LibTorch counted " + counted(facts.gpus.size()) +
           ", but now CUDA has none: " + facts.cuda->error.text + ". " +
           remedy(facts.cuda->error.name);
  const auto ill = std::ranges::find_if(
      facts.gpus, [](const ProbedGpu& gpu) { return !gpu.error.text.empty(); });
  return ill != facts.gpus.end() ? trouble(facts, *ill) : all_well(facts);
}

}  // namespace

std::string explain(const GpuFacts& facts) { return fitted(explanation(facts)); }

}  // namespace use_gpu::detail
