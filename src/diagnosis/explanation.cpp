// SPDX-License-Identifier: MIT
#include "diagnosis/explanation.hpp"

#include <algorithm>
#include <cstdio>

#include "messages/message.hpp"

namespace use_gpu::detail {
namespace {

std::string counted(std::size_t gpus) {
  return std::to_string(gpus) + (gpus == 1 ? " GPU" : " GPUs");
}

// "cuda:0 to cuda:3 (NVIDIA H200, compute capability 9.0, 139.8 GiB each)", as far as known.
std::string described(const ProbedGpu& first, const ProbedGpu& last) {
  std::string details = clipped(first.model, 100);
  if (first.memory_bytes) {
    char memory[40];
    std::snprintf(memory, sizeof memory, "%.1f GiB%s",
                  static_cast<double>(*first.memory_bytes) / (1 << 30),
                  first.name == last.name ? "" : " each");
    details += (details.empty() ? "" : ", ") + std::string(memory);
  }
  return first.name + (first.name == last.name ? "" : " to " + last.name) +
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
  return clipped(list, 250);
}

std::string all_well(const GpuFacts& facts) {
  std::string text = counted(facts.gpus.size()) + " can be used: " + described(facts.gpus) + '.';
  if (facts.cuda && facts.visible_devices && facts.report.gpus.size() > facts.gpus.size()) {
    text += " The machine has " + std::to_string(facts.report.gpus.size()) +
            "; CUDA_VISIBLE_DEVICES hides the others.";
  }
  return text;
}

std::string no_accelerator(const GpuFacts& facts) {
  if (facts.cuda_not_loaded) {
    return "This LibTorch was built for CUDA, but libtorch_cuda.so is not loaded: the linker drops "
           "it, as programs name no symbol of it. In CMake, "
           "target_link_libraries(app use_gpu::use_gpu), or \"${TORCH_LIBRARIES}\", keeps it; by "
           "hand, link with -Wl,--no-as-needed -ltorch_cuda. `ldd app` must list it.";
  }
  const std::size_t cards = facts.report.gpus.size();
  return "This LibTorch was built without CUDA or another accelerator, so no GPU can be used" +
         (cards > 0 ? ", though the driver sees " + counted(cards) : "") +
         ". Install one built for the GPU (for NVIDIA's: scripts/setup of use_gpu; "
         "others: pytorch.org) and build with -DTorch_DIR=<its share/cmake/Torch>.";
}

// What to do where CUDA cannot count the GPUs that the driver sees.
const char* remedy(int code) {
  switch (code) {
    case k_cuda_out_of_memory:
      return "It cannot allocate memory: raise the address-space limit (`ulimit -v "
             "unlimited`) or free GPU memory (`nvidia-smi`). AddressSanitizer needs "
             "ASAN_OPTIONS=protect_shadow_gap=0.";
    case k_cuda_initialization:
      return "A process forked from one that uses CUDA cannot use CUDA: start a new one "
             "(exec; in Python the start method \"spawn\"). Otherwise see `sudo dmesg | grep "
             "NVRM`, and "
             "restart the container or the machine.";
    case k_cuda_devices_unavailable:
      return "They are busy or closed: their compute mode is prohibited, or exclusive and another "
             "program has them. End that program (`nvidia-smi` lists it), or `sudo "
             "nvidia-smi --compute-mode=DEFAULT`.";
    case k_cuda_stub_library:
      return "It is meant for linking and hides the driver's libcuda.so.1: remove its folder "
             "(lib64/stubs of the CUDA Toolkit) from LD_LIBRARY_PATH.";
    case k_cuda_no_device:
      return "`nvidia-smi -L` lists them. One in MIG mode needs an instance (`sudo nvidia-smi mig "
             "-cgi <profile> -C`); a container or job must be given its GPUs (`--gpus all`).";
    case k_cuda_operating_system:
    case k_cuda_unknown:
      return "Reload the driver's module, `sudo modprobe -r nvidia_uvm && sudo modprobe "
             "nvidia_uvm`, or reboot; then restart the container if this is one.";
    case k_cuda_system_not_ready:
      return "GPUs joined by NVSwitch need NVIDIA's fabric manager, of the driver's version: `sudo "
             "systemctl start nvidia-fabricmanager`.";
    case k_cuda_compat_not_supported:
      return "CUDA's compatibility libraries do not serve this card: remove their folder "
             "(cuda/compat) from LD_LIBRARY_PATH, or update the driver.";
    default:
      return "See `sudo dmesg | grep NVRM` for the cause; restart the program or the container, "
             "and reboot if in doubt.";
  }
}

std::string no_cuda_gpu(const GpuFacts& facts, const CudaFacts& cuda) {
  const auto& [said, code] = cuda.error;
  const GpuReport& report = facts.report;
  if (code == k_cuda_insufficient_driver && !cuda.driver_version.empty()) {
    const std::string version = clipped(report.driver_version, 40);
    return "The NVIDIA driver" + (version.empty() ? "" : ' ' + version) +
           " is too old for this LibTorch: it runs CUDA up to " + cuda.driver_version +
           ", and LibTorch was built for CUDA " + cuda.runtime_version +
           ". Update the driver (a container has the host's), until `nvidia-smi` shows CUDA " +
           cuda.runtime_version + " or later, or install a LibTorch built for CUDA " +
           cuda.driver_version + " or older (pytorch.org).";
  }
  if (code == 0) {
    return "CUDA can use the GPUs now, but it could not when this program first counted them, and "
           "LibTorch keeps its first count. Restart the program.";
  }
  if (report.gpus.empty() && !report.problem.empty()) return report.problem;
  const std::string seen = "The driver sees " + counted(report.gpus.size()) + ", but ";
  if (code == k_cuda_insufficient_driver) {
    return seen +
           "its library for computing, libcuda.so.1, is not found. Start a container with `--gpus "
           "all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility`; elsewhere install the driver's "
           "CUDA part (Debian: libcuda1, Ubuntu: libnvidia-compute).";
  }
  if (facts.visible_devices && (code == k_cuda_no_device || code == k_cuda_invalid_device)) {
    return seen + "CUDA_VISIBLE_DEVICES=" + in_quotes(*facts.visible_devices) +
           " shows this program none of them. Unset it, or name those to use with commas "
           "(one named twice hides all): numbers from 0, or UUIDs (`nvidia-smi -L`). In a job, "
           "ask its scheduler for one.";
  }
  if (!report.problem.empty()) return report.problem;
  return seen + "CUDA does not: " + clipped(said, 120) + ". " + remedy(code);
}

std::string no_gpu(const GpuFacts& facts) {
  if (facts.cuda) return no_cuda_gpu(facts, *facts.cuda);
  return "LibTorch was built for " + facts.kind +
         " devices and finds none: " + clipped(facts.error.text, 150) +
         ". Check that its driver is installed, that this user or container may open the "
         "device, and that no environment variable hides it.";
}

std::string trouble(const GpuFacts& facts, const ProbedGpu& ill) {
  const auto well = std::ranges::count_if(
      facts.gpus, [](const ProbedGpu& gpu) { return gpu.error.text.empty(); });
  const std::string begin = "Of " + counted(facts.gpus.size()) + " counted, " +
                            std::to_string(well) + " can be used. " + described(ill, ill);
  if (facts.cuda && ill.error.code == k_cuda_no_kernel_image) {
    return begin +
           " is of an architecture that this LibTorch has no code for. Install a LibTorch that "
           "has (for an old card one built for an older CUDA, for a new card a newer LibTorch: "
           "pytorch.org), or build it with TORCH_CUDA_ARCH_LIST set to that capability.";
  }
  if (facts.cuda && ill.error.code == k_cuda_devices_unavailable) {
    return begin +
           " is busy or closed: its compute mode is prohibited, or exclusive and another program "
           "has it. End that program (`nvidia-smi` lists it), or allow several with `sudo "
           "nvidia-smi --compute-mode=DEFAULT`.";
  }
  std::string next_step =
      "Restart the program, and see what else uses the device (`nvidia-smi` for NVIDIA's) and what "
      "its driver logs (`sudo dmesg`).";
  const auto code = ill.error.code;
  if (!facts.allocator_settings.empty() && (code == 0 || code == k_cuda_not_supported)) {
    next_step = clipped(facts.allocator_settings, 70) +
                " may be malformed, or ask for what the GPU lacks: unset it and restart.";
  }
  return begin + " reports: " + clipped(ill.error.text, 120) + ". " + next_step;
}

std::string explanation(const GpuFacts& facts) {
  if (facts.kind.empty()) return no_accelerator(facts);
  if (facts.gpus.empty()) return no_gpu(facts);
  if (facts.cuda && facts.cuda->error.code != 0) {
    return "LibTorch counted " + counted(facts.gpus.size()) +
           ", but now CUDA has none: " + clipped(facts.cuda->error.text, 120) + ". " +
           remedy(facts.cuda->error.code);
  }
  const auto ill = std::ranges::find_if(
      facts.gpus, [](const ProbedGpu& gpu) { return !gpu.error.text.empty(); });
  if (ill != facts.gpus.end()) return trouble(facts, *ill);
  return all_well(facts);
}

}  // namespace

std::string explain(const GpuFacts& facts) {
  return clipped(explanation(facts), k_longest_message);
}

}  // namespace use_gpu::detail
