// SPDX-License-Identifier: MIT
#include "transfers/call_stack.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/profiler/unwind/unwind.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "gpu_info/message.hpp"

namespace use_gpu::detail {
namespace {

constexpr std::size_t k_longest_name = 80;

// The calls that made a step of the backward pass. LibTorch keeps them as a private text, and gives
// that out as a warning: "frame #3: train() + 0x4 (0x7f1e in /bin/train)", or "... [0x7f1e]" if it
// cannot read its own line.
struct ForwardCalls : c10::WarningHandler {
  void process(const c10::Warning& warning) override {
    std::istringstream lines(warning.msg());
    for (std::string line; std::getline(lines, line);) {
      const auto number = std::min(line.rfind("(0x"), line.rfind("[0x"));
      if (!line.starts_with("frame #") || number == line.npos) continue;
      calls.push_back(std::bit_cast<void*>(std::strtoull(line.c_str() + number + 1, nullptr, 16)));
    }
  }
  std::vector<void*> calls;
};

std::vector<void*> forward_calls(torch::autograd::Node& step) {
  ForwardCalls handler;
  const c10::WarningUtils::WarningHandlerGuard guard(&handler);
  torch::autograd::AnomalyMetadata copy = *step.metadata();
  copy.assign_parent(nullptr);  // whose calls would follow, in a backward pass of a backward pass
  copy.print_stack("");
  return handler.calls;
}

// A demangled name without its return type and its parameters.
std::string shortened(const std::string& name) {
  // The parameters end at the last parenthesis: const or [clone .cold] may follow.
  std::size_t begin = name.rfind(')'), end = name.npos;
  for (int depth = 0; begin < name.size(); --begin) {
    const char c = name[begin];
    depth += (c == '>' || c == ')' || c == '}') - (c == '<' || c == '(' || c == '{');
    if (depth != 0) continue;
    if (end != name.npos && c == ' ' && name[begin - 1] != '<') break;  // not "operator<< <int>"
    if (end != name.npos) continue;
    end = begin;
    if (end == 0 || name[end - 1] != '>') return name.substr(0, end);  // else it has a return type
  }
  return name.substr(begin + 1, end - begin - 1);
}

// What is known of a call: what stands at the address before the one to which it returns.
struct Frame {
  std::string function;  // with its namespaces, without its parameters; empty: unknown
  std::string object;    // the program or library, without its folder; empty: unknown
  std::string place;     // "train.cpp:41"; without debug information in the object, "+ 0x2f41"
};

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> starts) {
  return std::ranges::any_of(starts, [&](auto start) { return text.starts_with(start); });
}

bool is_library(std::string_view object) {
  return starts_with_any(object, {"libtorch.", "libtorch_", "libc10.", "libc10_", "libuse_gpu.",
                                  "libstdc++.", "libc.", "libclang_rt."});
}

// Whether the frame is of LibTorch, of this library, or of C++ and C: what stands between a transfer
// and the code that wants it. Inline functions of these are in the program itself. Sanitizers
// intercept backtrace().
bool is_between(const Frame& frame) {
  return is_library(frame.object) ||
         starts_with_any(frame.function, {"at::", "c10::", "torch::", "use_gpu::", "std::",
                                          "__gnu_cxx::", "__interceptor_", "___interceptor_"});
}

// Whether the line is in a header of a library, whose function the compiler has put into the
// program's function.
bool is_in_header(const std::string& file) {
  return file.find("/torch/include/") != file.npos || file.find("/include/c++/") != file.npos ||
         file.find("/include/use_gpu/") != file.npos;
}

using Frames = std::map<void*, Frame>;

// LibTorch reads symbol tables and debug information once for all calls; of its own libraries it would
// take long.
Frames frames_at(const std::set<void*>& calls) {
  Frames frames;
  std::vector<void*> of_program;
  for (void* const call : calls) {
    Dl_info info{};
    if (dladdr(static_cast<const char*>(call) - 1, &info) == 0) continue;
    auto& frame = frames[call];
    frame.object = std::filesystem::path(info.dli_fname).filename().string();
    if (info.dli_sname != nullptr) frame.function = shortened(c10::demangle(info.dli_sname));
    if (!is_library(frame.object)) of_program.push_back(call);
  }
  static std::mutex mutex;  // LibTorch's own list of libraries has none
  const std::scoped_lock lock(mutex);
  const auto found = torch::unwind::symbolize(of_program, torch::unwind::Mode::fast);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& [file, function, line] = found[i];
    auto& frame = frames[of_program[i]];
    const auto library = torch::unwind::libraryFor(of_program[i]);
    if (!library) continue;
    if (function != "??") frame.function = shortened(function);
    if (file == library->first || is_in_header(file))
      frame.place = c10::str("+ 0x", std::hex, library->second - 1);
    else
      frame.place = c10::str(std::filesystem::path(file).filename().string(), ':', line);
  }
  return frames;
}

// For people; "(...)" stands for the parameters.
std::string text_of(const Frame& frame) {
  std::string name = frame.function;
  c10::ReplaceAll(name, "(anonymous namespace)::", "");
  const auto who = name.empty() ? frame.object : clipped(name, k_longest_name) + "(...)";
  if (who.empty()) return "unknown";
  return frame.place.empty() ? who : who + ' ' + frame.place;
}

std::string first_name(const std::vector<void*>& calls, Frames& frames) {
  const Frame* nameless = nullptr;  // the first such; a caller in the same program says more
  for (void* const call : calls) {
    const Frame& frame = frames[call];
    if (frame.function.starts_with("torch::autograd::Engine"))
      return nameless ? text_of(*nameless) : "backward";
    if (is_between(frame)) continue;
    if (!nameless && frame.function.empty()) nameless = &frame;
    if (nameless && frame.object != nameless->object) return text_of(*nameless);
    if (!frame.function.empty()) return text_of(frame);
  }
  return nameless ? text_of(*nameless) : "unknown";
}

}  // namespace

CallStack CallStack::here() {
  CallStack stack{std::vector<void*>(256), {}};
  stack.calls.resize(static_cast<std::size_t>(backtrace(stack.calls.data(), 256)));
  const auto step = torch::autograd::get_current_node();
  if (step && torch::autograd::AnomalyMode::is_enabled()) stack.forward = forward_calls(*step);
  return stack;
}

std::vector<std::string> call_sites(const std::vector<const CallStack*>& stacks) {
  std::set<void*> calls;
  for (const auto* stack : stacks) {
    calls.insert(stack->calls.begin(), stack->calls.end());
    calls.insert(stack->forward.begin(), stack->forward.end());
  }
  auto frames = frames_at(calls);
  std::vector<std::string> sites;
  for (const auto* stack : stacks) {
    const auto& name = sites.emplace_back(first_name(stack->calls, frames));
    const auto made = name == "backward" ? first_name(stack->forward, frames) : "unknown";
    if (made != "unknown") sites.back() = "backward of " + made;
  }
  return sites;
}

}  // namespace use_gpu::detail
