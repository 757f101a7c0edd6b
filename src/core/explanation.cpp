// SPDX-License-Identifier: MIT
#include "core/explanation.hpp"

#include <algorithm>

#include "gpu_info/message.hpp"

namespace use_gpu::detail {
namespace {

std::string counted(std::size_t gpus) {
  return std::to_string(gpus) + (gpus == 1 ? " GPU" : " GPUs");
}

// "cuda:0 to cuda:3 (NVIDIA H200, compute capability 9.0, 139.8 GiB each)", as far as known:
// consecutive equal GPUs are listed together.
std::string described(const std::vector<ProbedGpu>& gpus) {
  std::string list;
  for (auto first = gpus.begin(); first != gpus.end();) {
    const auto next = std::find_if(first, gpus.end(),
                                   [&](const ProbedGpu& gpu) { return gpu.model != first->model; });
    const bool is_one = next - first == 1;
    list += (list.empty() ? "" : ", ") + first->name + (is_one ? "" : " to " + (next - 1)->name);
    if (!first->model.empty()) list += " (" + first->model + (is_one ? ")" : " each)");
    first = next;
  }
  return list;
}

bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

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

// CUDA's own words for some of its errors, which LibTorch's messages contain.
constexpr const char* k_no_driver = "CUDA driver version is insufficient";
constexpr const char* k_no_device = "no CUDA-capable device is detected";
constexpr const char* k_no_code = "no kernel image is available";
constexpr const char* k_unavailable = "busy or unavailable";

// What to do about an error of CUDA, whether it counted the GPUs or used one.
const char* remedy(std::string_view error) {
  static constexpr const char* k_remedies[][2] = {
      {"out of memory",
       "It cannot allocate memory: raise the address-space limit (`ulimit -v unlimited`) or free "
       "GPU memory (`nvidia-smi`). AddressSanitizer needs ASAN_OPTIONS=protect_shadow_gap=0."},
      {"initialization error",
       "A process forked from one that uses CUDA cannot use it: start a new one (Python's "
       "\"spawn\"). Else see `sudo dmesg | grep NVRM`, and restart the container or the machine."},
      {k_unavailable,
       "A GPU is busy or closed if its compute mode is prohibited, or exclusive and in use. End "
       "that program (see `nvidia-smi`), or run `sudo nvidia-smi --compute-mode=DEFAULT`."},
      {k_no_code,
       "It is of an architecture that this LibTorch has no code for. Install one that has (for an "
       "old card one for an older CUDA, for a new card a newer LibTorch: pytorch.org), or build it "
       "with TORCH_CUDA_ARCH_LIST set to that capability."},
      {"stub library",
       "It is meant for linking and hides the driver's libcuda.so.1: remove its folder "
       "(lib64/stubs of the CUDA Toolkit) from LD_LIBRARY_PATH."},
      {k_no_device,
       "`nvidia-smi -L` lists them. One in MIG mode needs an instance (`sudo nvidia-smi mig -cgi "
       "<profile> -C`); a container or job must be given its GPUs (`--gpus all`)."},
      {"system not yet initialized",
       "GPUs joined by NVSwitch need NVIDIA's fabric manager, of the driver's version: `sudo "
       "systemctl start nvidia-fabricmanager`."},
      {"forward compatibility",
       "CUDA's compatibility libraries do not serve this card: remove their folder (cuda/compat) "
       "from LD_LIBRARY_PATH, or update the driver."}};
  for (const auto& [words, text] : k_remedies) {
    if (has(error, words)) return text;
  }
  return "See `sudo dmesg | grep NVRM`. Restart the program and the container; else reload the "
         "driver's module, `sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm`, or reboot.";
}

std::string no_cuda_gpu(const GpuFacts& facts, const CudaFacts& cuda) {
  const GpuReport& report = facts.report;
  if (has(cuda.error, k_no_driver) && !cuda.driver_version.empty()) {
    const std::string& version = report.driver_version;
    return "The NVIDIA driver" + (version.empty() ? "" : ' ' + version) +
           " is too old for this LibTorch: it runs CUDA up to " + cuda.driver_version +
           ", and LibTorch was built for CUDA " + cuda.runtime_version +
           ". Update the driver (a container has the host's), or install a LibTorch built for "
           "CUDA " +
           cuda.driver_version + " or older (pytorch.org).";
  }
  if (cuda.error.empty())
    return "CUDA can use the GPUs now, but it could not when this program first counted them, and "
           "LibTorch keeps its first count. Restart the program.";
  if (report.gpus.empty() && !report.problem.empty()) return report.problem;
  const std::string seen = "The driver sees " + counted(report.gpus.size()) + ", but ";
  if (has(cuda.error, k_no_driver))
    return seen +
           "its library for computing, libcuda.so.1, is not found. Start a container with `--gpus "
           "all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility`; elsewhere install the driver's "
           "CUDA part (Debian: libcuda1, Ubuntu: libnvidia-compute).";
  if (facts.visible_devices && (has(cuda.error, k_no_device) || has(cuda.error, "invalid device")))
    return seen + "CUDA_VISIBLE_DEVICES=" + in_quotes(*facts.visible_devices) +
           " shows this program none of them. Unset it, or name those to use with commas "
           "(one named twice hides all): numbers from 0, or UUIDs (`nvidia-smi -L`). In a job, "
           "ask its scheduler for one.";
  if (!report.problem.empty()) return report.problem;
  return seen + "CUDA does not: " + cuda.error + ". " + remedy(cuda.error);
}

std::string trouble(const GpuFacts& facts, const ProbedGpu& ill) {
  const auto well = std::ranges::count(facts.gpus, "", &ProbedGpu::error);
  const std::string begin = "Of " + counted(facts.gpus.size()) + " counted, " +
                            std::to_string(well) + " can be used. " + described({ill});
  if (facts.cuda && (has(ill.error, k_no_code) || has(ill.error, k_unavailable)))
    return begin + " does not work. " + remedy(ill.error);
  const bool is_other = has(ill.error, "CUDA error") || has(ill.error, "out of memory");
  const bool may_be_settings = !is_other || has(ill.error, "error: operation not supported");
  return begin + " reports: " + ill.error + ". " +
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
    return "LibTorch was built for " + facts.kind + " devices and finds none: " + facts.error +
           ". Check that its driver is installed, that this user or container may open the "
           "device, and that no environment variable hides it.";
  if (facts.cuda && !facts.cuda->error.empty())
    return "LibTorch counted " + counted(facts.gpus.size()) +
           ", but now CUDA has none: " + facts.cuda->error + ". " + remedy(facts.cuda->error);
  const auto ill = std::ranges::find_if(
      facts.gpus, [](const std::string& error) { return !error.empty(); }, &ProbedGpu::error);
  return ill != facts.gpus.end() ? trouble(facts, *ill) : all_well(facts);
}

}  // namespace

std::string explain(const GpuFacts& facts) { return fitted(explanation(facts)); }

}  // namespace use_gpu::detail
