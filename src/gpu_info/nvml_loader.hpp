// SPDX-License-Identifier: MIT
//
// The one place that knows how to reach NVML, NVIDIA's management library.
//
// Why it is opened at run time. libnvidia-ml.so.1 comes with the driver, not with the CUDA Toolkit.
// A program linked to it does not start where there is no driver, and that is exactly where a user
// wants to be told why there is no GPU. So it is opened with dlopen on demand, as c10 does, and its
// absence is a result.
//
// Why functions are looked up by name, one by one. Each driver has its own set: an old one lacks
// what a newer nvml.h declares. A missing function returns NVML_ERROR_FUNCTION_NOT_FOUND, which
// callers treat as any other "not supported".
//
// Why NVML_NO_UNVERSIONED_FUNC_DEFS. nvml.h otherwise renames functions by macros (nvmlInit becomes
// nvmlInit_v2 ...), differently in each release. With it, a name in our source is the exported
// name, and the older versions, to which we fall back, are declared too.
//
// Why the library is closed again. Nothing of it remains between two queries: no handle, no
// initialised NVML, no state of ours. NVML counts its users, so neither a second thread nor
// LibTorch, which has the library open as well, is disturbed; NVIDIA's own go-nvml does the same.
//
//   const Nvml nvml("libnvidia-ml.so.1");
//   if (!nvml.problem().empty()) return nvml.problem();
//   nvmlReturn_t code = USE_GPU_NVML(nvml, nvmlDeviceGetCount_v2)(&count);
#pragma once

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include <memory>
#include <string>

namespace use_gpu::detail {

/// NVML, initialised for as long as this lives.
class Nvml {
 public:
  /// Opens the library and initialises NVML. Errors are in problem().
  explicit Nvml(const std::string& library);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Why NVML is not usable, and what to do; empty if it is.
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }

  /// "GPU 1 cannot be used: the card is lost ... (NVML error 15). Reboot ...": the subject, what
  /// the code means, and what to do about it.
  [[nodiscard]] std::string explain(const std::string& subject, nvmlReturn_t code) const;

  /// The function of that name, to be called at once. See USE_GPU_NVML.
  template <class Function>
  [[nodiscard]] auto function(const char* name) const {
    return [pointer = reinterpret_cast<Function*>(symbol(name))](auto... arguments) {
      return pointer ? pointer(arguments...) : NVML_ERROR_FUNCTION_NOT_FOUND;
    };
  }

 private:
  struct Close {
    void operator()(void* library) const noexcept;
  };

  void* symbol(const char* name) const noexcept;

  std::unique_ptr<void, Close> library_;
  bool initialized_ = false;
  std::string problem_;
};

/// A function of NVML with the type that nvml.h declares. A macro, so that name and type agree.
#define USE_GPU_NVML(nvml, name) (nvml).function<decltype(name)>(#name)

}  // namespace use_gpu::detail
