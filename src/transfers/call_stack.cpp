// SPDX-License-Identifier: MIT
#include "transfers/call_stack.hpp"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <c10/util/Type.h>
#include <execinfo.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string_view>

#include "messages/message.hpp"

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
      calls.push_back(std::strtoull(line.c_str() + number + 1, nullptr, 16) - 1);
    }
  }
  std::vector<std::uintptr_t> calls;
};

std::vector<std::uintptr_t> forward_calls(torch::autograd::Node& step) {
  ForwardCalls handler;
  const c10::WarningUtils::WarningHandlerGuard guard(&handler);
  torch::autograd::AnomalyMetadata copy = *step.metadata();
  copy.assign_parent(nullptr);  // whose calls would follow, in a backward pass of a backward pass
  copy.print_stack("");
  return handler.calls;
}

// Whether the function is in that namespace. Its name is mangled (Itanium C++ ABI, section 5.1) or
// not.
bool is_in(std::string_view name_space, std::string_view name) {
  if (!name.starts_with("_Z")) return name.starts_with(std::string(name_space) + "::");
  // Z: what a function contains has the function's scope. N: nested. Then what a member is.
  const auto scope = std::min(name.find_first_not_of("ZNrVKROH", 1), name.size());
  const bool is_nested = name.find('N') < scope;
  name.remove_prefix(scope);
  if (name.starts_with('S')) return name_space == "std";  // the abbreviations St, Sa, Ss ...
  return is_nested && name.starts_with(std::to_string(name_space.size()).append(name_space));
}

// Whether the frame is of LibTorch, of this library, or of C++ and C: what stands between a
// transfer and the code that wants it. Inline functions of these are in the program itself; and
// their libraries have functions without a name.
bool is_between(const Frame& frame) {
  constexpr std::string_view k_libraries[] = {
      "libtorch", "libc10", "libuse_gpu", "libuse_gpu_communicator", "libstdc++", "libc"};
  constexpr std::string_view k_namespaces[] = {"at", "c10", "torch", "use_gpu", "std", "__gnu_cxx"};
  const std::string_view object = frame.object;
  return object.starts_with("libtorch_") || object.starts_with("libc10_") ||
         std::ranges::count(k_libraries, object.substr(0, object.find(".so"))) > 0 ||
         std::ranges::any_of(k_namespaces, [&](auto each) { return is_in(each, frame.function); });
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

// For people; "(...)" stands for the parameters.
std::string readable(const std::string& function) {
  std::string name =
      function.starts_with("_Z") ? shortened(c10::demangle(function.c_str())) : function;
  c10::ReplaceAll(name, "(anonymous namespace)::", "");
  c10::ReplaceAll(name, "(anonymous)::", "");
  return clipped(name, k_longest_name) + "(...)";
}

std::string text_of(const Frame& frame) {
  std::ostringstream text;
  text << (frame.function.empty() ? frame.object : readable(frame.function));
  if (frame.function.empty() || frame.file.empty()) {
    text << " + 0x" << std::hex << frame.offset;
  } else {
    text << ' ' << frame.file << ':' << frame.line;
  }
  return text.str();
}

std::string first_name(const std::vector<std::uintptr_t>& calls, const Symbols& symbols) {
  std::optional<Frame> nameless;  // the first such; a caller in the same program says more
  for (const std::uintptr_t address : calls) {
    for (const Frame& frame : symbols(address)) {
      const bool is_backward = frame.function.starts_with("_ZN5torch8autograd6Engine");
      if (is_backward) return nameless ? text_of(*nameless) : "backward";
      if (is_between(frame)) continue;
      if (!nameless && frame.function.empty()) nameless = frame;
      if (nameless && frame.object != nameless->object) return text_of(*nameless);
      if (!frame.function.empty()) return text_of(frame);
    }
  }
  return nameless ? text_of(*nameless) : "unknown";
}

}  // namespace

CallStack CallStack::here() {
  std::array<void*, 256> calls{};
  const int count = backtrace(calls.data(), static_cast<int>(calls.size()));
  CallStack stack;
  for (int i = 0; i < count; ++i)
    stack.calls.push_back(std::bit_cast<std::uintptr_t>(calls[i]) - 1);
  const bool is_known = torch::autograd::AnomalyMode::is_enabled();
  const auto step = is_known ? torch::autograd::get_current_node() : nullptr;
  if (step) stack.forward = forward_calls(*step);
  return stack;
}

std::string call_site(const CallStack& stack, const Symbols& symbols) {
  const std::string name = first_name(stack.calls, symbols);
  const std::string made = name == "backward" ? first_name(stack.forward, symbols) : "unknown";
  return made == "unknown" ? name : "backward of " + made;
}

}  // namespace use_gpu::detail
