// SPDX-License-Identifier: MIT
#include "transfers/call_stack.hpp"

#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function.h>
#include <unwind.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "messages/message.hpp"

namespace use_gpu::detail {
namespace {

constexpr std::size_t k_deepest = 256, k_longest_name = 80;

_Unwind_Reason_Code add_call(_Unwind_Context* context, void* stack) {
  auto& calls = *static_cast<std::vector<std::uintptr_t>*>(stack);
  int is_before_call = 0;
  const std::uintptr_t address = _Unwind_GetIPInfo(context, &is_before_call);
  if (address == 0 || calls.size() == k_deepest) return _URC_END_OF_STACK;
  calls.push_back(is_before_call != 0 ? address : address - 1);  // else it is after the call
  return _URC_NO_REASON;
}

// Takes a warning's text instead of printing it.
struct FirstWarning : c10::WarningHandler {
  void process(const c10::Warning& warning) override {
    if (text.empty()) text = warning.msg();
  }
  std::string text;
};

// The calls that made a step of the backward pass. LibTorch keeps them as a private text, and gives
// that out as a warning: "frame #3: train() + 0x4 (0x7f1e in /bin/train)", or "... [0x7f1e]" if it
// cannot read its own line. print_stack() changes what it is called on: a copy.
std::vector<std::uintptr_t> forward_calls(torch::autograd::Node& step) {
  FirstWarning warning;
  {
    const c10::WarningUtils::WarningHandlerGuard guard(&warning);
    torch::autograd::AnomalyMetadata copy = *step.metadata();
    copy.print_stack("");
  }
  std::vector<std::uintptr_t> calls;
  std::istringstream lines(warning.text);
  for (std::string line; std::getline(lines, line);) {
    const auto number = std::min(line.rfind("(0x"), line.rfind("[0x"));
    if (!line.starts_with("frame #") || number == line.npos) continue;
    calls.push_back(std::strtoull(line.c_str() + number + 1, nullptr, 16) - 1);
  }
  return calls;
}

bool consume(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// The outermost namespace or class of a function's name, mangled (Itanium C++ ABI, section 5.1) or
// not; empty if there is none.
std::string_view outermost_scope(std::string_view name) {
  if (!consume(name, "_Z"))
    return name.substr(0, name.find("::") == name.npos ? 0 : name.find("::"));
  while (consume(name, "Z")) continue;  // what a function contains has the function's scope
  const bool is_nested = consume(name, "N");
  name.remove_prefix(std::min(name.find_first_not_of("rVKROH"), name.size()));
  if (name.starts_with('S')) return "std";  // the abbreviations St, Sa, Ss ...
  std::size_t length = 0;
  while (!name.empty() && name.front() >= '0' && name.front() <= '9') {
    length = 10 * length + static_cast<std::size_t>(name.front() - '0');
    name.remove_prefix(1);
  }
  return is_nested ? name.substr(0, length) : std::string_view();
}

// Whether the frame is of LibTorch, of this library, or of C++ and C: what stands between a
// transfer and the code that wants it. Inline functions of these are in the program itself; and
// their libraries have functions without a name.
bool is_between(const Frame& frame) {
  constexpr std::string_view k_libraries[] = {
      "libtorch", "libc10", "libuse_gpu", "libuse_gpu_communicator", "libstdc++", "libc"};
  constexpr std::string_view k_scopes[] = {"at", "c10", "torch", "use_gpu", "std", "__gnu_cxx"};
  const std::string_view object = frame.object;
  return object.starts_with("libtorch_") || object.starts_with("libc10_") ||
         std::ranges::count(k_libraries, object.substr(0, object.find(".so"))) > 0 ||
         std::ranges::count(k_scopes, outermost_scope(frame.function)) > 0;
}

bool is_backward_pass(const Frame& frame) {
  return frame.function.starts_with("_ZN5torch8autograd6Engine");
}

// A demangled name without its return type and its parameters.
std::string shortened(std::string name) {
  // The parameters end at the last parenthesis: const or [clone .cold] may follow.
  int depth = 0;
  for (auto at = name.rfind(')'); at < name.size(); --at) {
    depth += (name[at] == ')') - (name[at] == '(');
    if (depth > 0) continue;
    name.resize(at);
    break;
  }
  if (!name.ends_with('>')) return name;  // only templates' names have a return type
  depth = 0;
  for (auto at = name.size() - 1; at > 0; --at) {
    const char c = name[at];
    depth += (c == '>' || c == ')' || c == '}') - (c == '<' || c == '(' || c == '{');
    if (c != ' ' || depth != 0 || name[at - 1] == '<') continue;  // "operator<< <int>"
    name.erase(0, at + 1);
    break;
  }
  return name;
}

// For people; "(...)" stands for the parameters.
std::string readable(const std::string& function) {
  std::string name =
      function.starts_with("_Z") ? shortened(c10::demangle(function.c_str())) : function;
  for (const std::string_view part : {"(anonymous namespace)::", "(anonymous)::"}) {
    for (auto at = name.find(part); at != name.npos; at = name.find(part, at)) {
      name.erase(at, part.size());
    }
  }
  return clipped(name, k_longest_name) + "(...)";
}

std::string text_of(const Frame& frame) {
  if (!frame.function.empty() && !frame.file.empty()) {
    return readable(frame.function) + ' ' + frame.file + ':' + std::to_string(frame.line);
  }
  std::ostringstream text;
  text << (frame.function.empty() ? frame.object : readable(frame.function)) << " + 0x" << std::hex
       << frame.offset;
  return text.str();
}

}  // namespace

CallStack CallStack::here() {
  CallStack stack;
  _Unwind_Backtrace(&add_call, &stack.calls);
  if (torch::autograd::AnomalyMode::is_enabled()) {
    if (const auto step = torch::autograd::get_current_node()) stack.forward = forward_calls(*step);
  }
  return stack;
}

const std::vector<Frame>& CallSiteNames::frames_at(std::uintptr_t address) {
  auto known = known_.find(address);
  if (known == known_.end()) known = known_.emplace(address, symbols_.frames_at(address)).first;
  return known->second;
}

std::string CallSiteNames::first_name(const std::vector<std::uintptr_t>& calls) {
  const Frame* nameless = nullptr;  // the first such; a caller in the same program says more
  for (const std::uintptr_t address : calls) {
    for (const Frame& frame : frames_at(address)) {
      if (is_backward_pass(frame)) return nameless != nullptr ? text_of(*nameless) : "backward";
      if (is_between(frame)) continue;
      if (nameless == nullptr && frame.function.empty()) nameless = &frame;
      if (nameless != nullptr && frame.object != nameless->object) return text_of(*nameless);
      if (!frame.function.empty()) return text_of(frame);
    }
  }
  return nameless != nullptr ? text_of(*nameless) : "unknown";
}

std::string CallSiteNames::name(const CallStack& stack) {
  const std::string name = first_name(stack.calls);
  const std::string made = name == "backward" ? first_name(stack.forward) : "unknown";
  return made == "unknown" ? name : "backward of " + made;
}

}  // namespace use_gpu::detail
