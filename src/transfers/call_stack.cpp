// SPDX-License-Identifier: MIT
#include "transfers/call_stack.hpp"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <c10/util/Type.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/profiler/unwind/unwind.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <string_view>

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
  std::string function;      // with its namespaces, without its parameters; empty: unknown
  std::string file;          // without its folder; empty without debug information
  std::uint64_t line = 0;    // of the call
  std::string object;        // the program or library, without its folder; empty: unknown
  std::uint64_t offset = 0;  // of the call in the object
};

std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> starts) {
  return std::ranges::any_of(starts, [&](auto start) { return text.starts_with(start); });
}

// Sanitizers intercept backtrace().
bool is_library(std::string_view object) {
  return starts_with_any(object, {"libtorch.", "libtorch_", "libc10.", "libc10_", "libuse_gpu.",
                                  "libstdc++.", "libc.", "libclang_rt."});
}

// A function of LibTorch, of this library or of C++, which inline functions of these are in the
// program itself.
bool is_between(const Frame& frame) {
  return is_library(frame.object) ||
         starts_with_any(frame.function, {"at::", "c10::", "torch::", "use_gpu::", "std::",
                                          "__gnu_cxx::", "__interceptor_", "___interceptor_"});
}

// LibTorch reads symbol tables and debug information. Of a library of its own that would take long.
Frame frame_at(void* call) {
  Frame frame;
  Dl_info info{};
  if (dladdr(static_cast<const char*>(call) - 1, &info) == 0) return frame;
  frame.object = file_name(info.dli_fname);
  frame.offset =
      std::bit_cast<std::uintptr_t>(call) - 1 - std::bit_cast<std::uintptr_t>(info.dli_fbase);
  if (info.dli_sname != nullptr) frame.function = shortened(c10::demangle(info.dli_sname));
  if (is_library(frame.object)) return frame;
  const auto found = torch::unwind::symbolize({call}, torch::unwind::Mode::fast).front();
  if (found.funcname != "??") frame.function = shortened(found.funcname);
  const bool is_in_header = found.filename.find("/include/") != std::string::npos;
  if (file_name(found.filename) != frame.object && !is_in_header) {
    frame.file = file_name(found.filename);
    frame.line = found.lineno;
  }
  return frame;
}

// For people; "(...)" stands for the parameters.
std::string text_of(const Frame& frame) {
  std::string name = frame.function;
  c10::ReplaceAll(name, "(anonymous namespace)::", "");
  std::ostringstream text;
  text << (name.empty() ? frame.object : clipped(name, k_longest_name) + "(...)");
  if (frame.file.empty()) {
    text << " + 0x" << std::hex << frame.offset;
  } else {
    text << ' ' << frame.file << ':' << frame.line;
  }
  return text.str();
}

std::string first_name(const std::vector<void*>& calls) {
  std::optional<Frame> nameless;  // the first such; a caller in the same program says more
  for (void* const call : calls) {
    const Frame frame = frame_at(call);
    if (frame.function.starts_with("torch::autograd::Engine"))
      return nameless ? text_of(*nameless) : "backward";
    if (is_between(frame)) continue;
    if (!nameless && frame.function.empty()) nameless = frame;
    if (nameless && frame.object != nameless->object) return text_of(*nameless);
    if (!frame.function.empty()) return text_of(frame);
  }
  return nameless ? text_of(*nameless) : "unknown";
}

}  // namespace

CallStack CallStack::here() {
  CallStack stack;
  stack.calls.resize(256);
  const int count = backtrace(stack.calls.data(), 256);
  stack.calls.resize(static_cast<std::size_t>(count));
  const auto step = torch::autograd::get_current_node();
  if (step && torch::autograd::AnomalyMode::is_enabled()) stack.forward = forward_calls(*step);
  return stack;
}

std::string call_site(const CallStack& stack) {
  const std::string name = first_name(stack.calls);
  const std::string made = name == "backward" ? first_name(stack.forward) : "unknown";
  return made == "unknown" ? name : "backward of " + made;
}

}  // namespace use_gpu::detail
