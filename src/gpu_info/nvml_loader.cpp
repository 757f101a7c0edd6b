// SPDX-License-Identifier: MIT
#include "gpu_info/nvml_loader.hpp"

#include <dlfcn.h>

#include "messages/message.hpp"

namespace use_gpu::detail {
namespace {

struct Explanation {
  std::string cause;
  const char* remedy;
};

// The codes with a more helpful text than the driver's own.
Explanation explanation(nvmlReturn_t code, const char* words) {
  switch (code) {
    case NVML_ERROR_DRIVER_NOT_LOADED:
      return {"the NVIDIA driver is installed but its kernel module is not loaded",
              "Load it with `sudo modprobe nvidia`; if that fails, reinstall the driver for the "
              "running kernel (`uname -r`) and reboot. Start a container with `--gpus all`."};
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH:
      return {
          "the driver's library and the loaded kernel module have different versions, as after "
          "an update of the driver",
          "Reboot the machine; restart a container that was started before the update."};
    case NVML_ERROR_NO_PERMISSION:
      return {
          "this user, container or job has no permission",
          "Look at `ls -l /dev/nvidia*`: join the group that owns the devices and log in again, "
          "or ask for the GPU when starting the container (`--gpus all`) or job."};
    case NVML_ERROR_OPERATING_SYSTEM:
    case NVML_ERROR_UNKNOWN:
      return {"the operating system blocks its devices, or the driver failed",
              "Restart the container, if any: it loses its GPUs when the host reloads "
              "systemd. Else see `sudo dmesg | grep NVRM`, and reboot."};
    case NVML_ERROR_GPU_NOT_FOUND:
      return {
          "the driver finds none",
          "See whether `lspci | grep -i nvidia` lists one. A virtual machine or a container must "
          "be given its GPUs (`--gpus all`); a card listed but not found may be too old or too "
          "new for this driver: see `sudo dmesg | grep NVRM`."};
    case NVML_ERROR_GPU_IS_LOST:
      return {"the card is lost, it no longer answers", "Reboot; see `sudo dmesg | grep Xid`."};
    case NVML_ERROR_RESET_REQUIRED:
      return {"the card must be reset first",
              "End its programs, then `sudo nvidia-smi --gpu-reset`, or reboot."};
    case NVML_ERROR_INSUFFICIENT_POWER:
      return {"a power cable of the card is not properly attached",
              "Switch the machine off and attach it."};
    default:
      return {words, "See `sudo dmesg | grep NVRM` for the cause; reboot if in doubt."};
  }
}

}  // namespace

Nvml::Nvml(const std::string& library) : library_(dlopen(library.c_str(), RTLD_LAZY)) {
  if (!library_) {
    problem_ = fitted(std::string("No NVIDIA driver was found (") + dlerror() +
                      "). If this machine has an NVIDIA GPU, install its driver; start a container "
                      "with `--gpus all`.");
  } else if (!symbol("nvmlInit_v2") || !symbol("nvmlShutdown") || !symbol("nvmlErrorString")) {
    problem_ = in_quotes(library) +
               " is not NVIDIA's management library: it lacks functions that every version has. "
               "Reinstall the NVIDIA driver, version 319 or later; it brings the right one.";
  } else {
    const nvmlReturn_t code = USE_GPU_NVML(*this, nvmlInit_v2)();
    initialized_ = code == NVML_SUCCESS;
    if (!initialized_) problem_ = explain("No GPU can be used", code);
  }
}

Nvml::~Nvml() {
  if (initialized_) USE_GPU_NVML(*this, nvmlShutdown)();
}

std::string Nvml::explain(const std::string& subject, nvmlReturn_t code) const {
  auto* const words = reinterpret_cast<decltype(nvmlErrorString)*>(symbol("nvmlErrorString"));
  const auto [cause, remedy] = explanation(code, words(code));
  return fitted(subject + ": " + cause + " (NVML error " + std::to_string(code) + "). " + remedy);
}

void* Nvml::symbol(const char* name) const noexcept { return dlsym(library_.get(), name); }

void Nvml::Close::operator()(void* library) const noexcept {
#ifdef __SANITIZE_ADDRESS__  // LeakSanitizer knows the driver's own leaks by the library's name
  static_cast<void>(library);
#else
  dlclose(library);
#endif
}

}  // namespace use_gpu::detail
