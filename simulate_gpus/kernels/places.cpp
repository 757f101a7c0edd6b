// SPDX-License-Identifier: MIT
#include "kernels/places.hpp"

#include <ATen/ATen.h>
#include <dlfcn.h>
#include <torch/csrc/profiler/combined_traceback.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace simulate_gpus {
namespace {

using torch::unwind::Frame;

std::filesystem::path library_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

// The folder of LibTorch's libraries, which lies in that of its Python package.
const std::filesystem::path& libtorch_folder() {
  static const auto folder =
      library_of(reinterpret_cast<const void*>(&torch::unwind::symbolize)).parent_path();
  return folder;
}

// NumPy's functions read what a tensor's numpy() shares, and Triton launches kernels. They may be in another folder of packages.
bool is_of_torch(const Frame& frame) {
  static const auto torch = libtorch_folder().parent_path();
  const auto is_in = [&](const char* folder) {
    return frame.filename.find(folder) != std::string::npos;
  };
  return frame.filename.starts_with(torch.string() + '/') || is_in("-packages/numpy/") ||
         is_in("-packages/triton/") || frame.filename.starts_with("<frozen ");
}

bool is_of_program(const void* address) {
  const auto library = library_of(address);
  const std::string name = library.filename();
  constexpr std::array k_others = {
      "libc.",   "libstdc++", "libgcc_s", "libpthread", "ld-linux",  "libgomp",         "libasan",
      "libtsan", "libpython", "libcuda",  "libnccl",    "libtorch_", "libnvidia-ml.so."};
  return !library.empty() && library.parent_path() != libtorch_folder() &&
         std::ranges::none_of(k_others, [&](const char* other) { return name.starts_with(other); });
}

std::string clipped(std::string text) {
  constexpr std::size_t k_longest = 40;
  if (text.size() > k_longest) text.replace(k_longest - 3, std::string::npos, "...");
  return text;
}

// Without its arguments.
std::string function_of(const Frame& frame) {
  std::string name = frame.funcname;
  constexpr std::string_view k_unnamed = "(anonymous namespace)::";
  for (auto at = name.find(k_unnamed); at != std::string::npos; at = name.find(k_unnamed))
    name.erase(at, k_unnamed.size());
  return name.substr(0, name.find('('));
}

// Whether the line is one of a library's header: the function is the library's, or the program's into which the compiler
// has put the library's.
bool is_in_header(const Frame& frame) {
  constexpr std::array k_folders = {"/torch/include/", "/usr/include/", "/usr/local/include/"};
  return std::ranges::any_of(k_folders, [&](const char* folder) {
    return frame.filename.find(folder) != std::string::npos;
  });
}

bool is_of_library(const Frame& frame) {
  constexpr std::array k_namespaces = {"at::", "c10::", "torch::", "std::"};
  const std::string function = function_of(frame);
  return is_in_header(frame) && std::ranges::any_of(k_namespaces, [&](const char* name) {
           return function.find(name) != std::string::npos;
         });
}

std::string text_of(const Frame& frame) {
  std::string function = clipped(function_of(frame));
  if (frame.lineno == 0 || is_in_header(frame)) return function;
  return clipped(std::filesystem::path(frame.filename).filename().string()) + ':' +
         std::to_string(frame.lineno) + " (" + function + ')';
}

// The program's part of a stack, with lines where there is debug information that LibTorch reads.
std::vector<Frame> frames_at(const std::vector<void*>& addresses) {
  using torch::unwind::Mode;
  std::vector<void*> of_program;
  std::ranges::copy_if(addresses, std::back_inserter(of_program), is_of_program);
  auto frames = [&] {
    try {
      return torch::unwind::symbolize(of_program, Mode::fast);
    } catch (const std::exception&) {
      return torch::unwind::symbolize(of_program, Mode::dladdr);
    }
  }();
  for (std::size_t i = 0; i < frames.size(); ++i) {  // an offset in the library is no line
    if (frames[i].filename == library_of(of_program[i])) frames[i].lineno = 0;
  }
  return frames;
}

std::string text_at(const std::vector<void*>& addresses) {
  static std::mutex mutex;  // and a memory, as it takes a tenth of a second
  static auto* const known = new std::map<std::vector<void*>, std::string>;
  const std::scoped_lock lock(mutex);
  const auto [entry, is_new] = known->try_emplace(addresses);
  if (is_new) {
    const auto frames = frames_at(addresses);
    const auto own = std::ranges::find_if_not(frames, is_of_library);
    if (own != frames.end()) entry->second = text_of(*own);
  }
  return entry->second;
}

// Another thread must not wait for Python's lock: the one that holds it may wait for this thread.
bool is_of_python() {
  static const auto state =
      reinterpret_cast<void* (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"));
  return state != nullptr && state() != nullptr;
}

constexpr std::size_t k_deepest = 100;

// As backtrace(3) gives them: after each call. After an access to memory that was interrupted too, as LibTorch looks
// for the line of the byte before.
_Unwind_Reason_Code add_address(_Unwind_Context* context, void* to) {
  auto& addresses = *static_cast<std::vector<void*>*>(to);
  int is_interrupted = 0;
  const auto address = _Unwind_GetIPInfo(context, &is_interrupted) + (is_interrupted != 0 ? 1 : 0);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the unwinder has integers
  addresses.push_back(reinterpret_cast<void*>(address));
  return addresses.size() < k_deepest ? _URC_NO_REASON : _URC_END_OF_STACK;
}

struct Place : ProgramPlace {
  [[nodiscard]] std::string text() const override {
    if (!python) return text_at(addresses);
    if (!is_of_python()) return "";
    const auto python_frames = torch::symbolize({python.get()}).all_frames;
    const auto frame = std::ranges::find_if_not(python_frames, is_of_torch);
    if (frame != python_frames.end()) return text_of(*frame);
    if (!python_frames.empty()) return "";
    return text_at(addresses);
  }

  std::shared_ptr<torch::CapturedTraceback> python;
  std::vector<void*> addresses;
};

}  // namespace

std::shared_ptr<const ProgramPlace> here() {
  auto place = std::make_shared<Place>();
  if (is_of_python())
    place->python =
        torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
  place->addresses.reserve(k_deepest);
  _Unwind_Backtrace(add_address, &place->addresses);
  return place;
}

}  // namespace simulate_gpus
