// SPDX-License-Identifier: MIT
#include "dispatch/call_stack.hpp"

#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function.h>
#include <unwind.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <utility>

#include "messages/message.hpp"

namespace use_gpu::detail {
namespace {

constexpr std::size_t k_deepest = 256, k_longest_name = 80;

_Unwind_Reason_Code add_call(_Unwind_Context* context, void* stack) {
  auto& addresses = *static_cast<std::vector<std::uintptr_t>*>(stack);
  int is_before_call = 0;
  const std::uintptr_t address = _Unwind_GetIPInfo(context, &is_before_call);
  if (address == 0 || addresses.size() == k_deepest) return _URC_END_OF_STACK;
  addresses.push_back(is_before_call != 0 ? address : address - 1);  // else it is after the call
  return _URC_NO_REASON;
}

// Takes a warning's text instead of printing it.
struct FirstWarning : c10::WarningHandler {
  void process(const c10::Warning& warning) override {
    if (text.empty()) text = warning.msg();
  }
  std::string text;
};

// The calls that made a step of the backward pass. LibTorch keeps them as a text, private to
// AnomalyMetadata, and gives it out as a warning: "frame #3: train() + 0x4 (0x7f1e in /bin/train)".
std::vector<std::uintptr_t> forward_calls(torch::autograd::Node& step) {
  FirstWarning warning;
  {
    const c10::WarningUtils::WarningHandlerGuard guard(&warning);
    step.metadata()->print_stack("");
  }
  std::vector<std::uintptr_t> addresses;
  std::istringstream lines(warning.text);
  for (std::string line; std::getline(lines, line);) {
    const auto number = line.rfind("(0x");
    if (!line.starts_with("frame #") || number == line.npos) continue;
    addresses.push_back(std::strtoull(line.c_str() + number + 1, nullptr, 16) - 1);
  }
  return addresses;
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
  for (const char* library :
       {"libtorch", "libc10", "libuse_gpu", "libsimulated", "libstdc++", "libc"}) {
    std::string_view object = frame.object;
    if (consume(object, library) && (object.starts_with('.') || object.starts_with('_')))
      return true;
  }
  constexpr std::string_view k_scopes[] = {"at", "c10", "torch", "use_gpu", "std", "__gnu_cxx"};
  return std::ranges::count(k_scopes, outermost_scope(frame.function)) > 0;
}

bool is_backward_pass(const Frame& frame) {
  return frame.function.starts_with("_ZN5torch8autograd6Engine");
}

// A function's name for people: without its return type, and "(...)" for the parameters.
std::string readable(const std::string& function) {
  std::string name = c10::demangle(function.c_str());
  const auto erase_all = [&](std::string_view part) {
    for (auto at = name.find(part); at != name.npos; at = name.find(part, at)) {
      name.erase(at, part.size());
    }
  };
  erase_all("(anonymous namespace)::");
  erase_all("(anonymous)::");
  // The parameters end at the last parenthesis: const or [clone .cold] may follow.
  int depth = 0;
  for (auto at = name.rfind(')'); at < name.size(); --at) {
    depth += (name[at] == ')') - (name[at] == '(');
    if (depth > 0) continue;
    name.resize(at);
    break;
  }
  if (name.ends_with('>')) {  // only templates' names have a return type
    depth = 0;
    for (auto at = name.size() - 1; at < name.size(); --at) {
      const char c = name[at];
      depth += (c == '>' || c == ')' || c == '}') - (c == '<' || c == '(' || c == '{');
      if (c != ' ' || depth != 0) continue;
      name.erase(0, at + 1);
      break;
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
  if (torch::autograd::AnomalyMode::is_enabled()) {
    if (const auto step = torch::autograd::get_current_node()) {
      stack.addresses = forward_calls(*step);
      stack.is_of_forward = !stack.addresses.empty();
      if (stack.is_of_forward) return stack;
    }
  }
  _Unwind_Backtrace(&add_call, &stack.addresses);
  return stack;
}

std::string CallSiteNames::name(const CallStack& stack) {
  std::string nameless;  // the first one; perhaps a caller's name says more
  const std::string prefix = stack.is_of_forward ? "backward of " : "";
  for (const std::uintptr_t address : stack.addresses) {
    auto known = known_.find(address);
    if (known == known_.end()) known = known_.emplace(address, symbols_.frames_at(address)).first;
    for (const Frame& frame : known->second) {
      if (is_backward_pass(frame)) return "backward";
      if (is_between(frame)) continue;
      if (!frame.function.empty()) return prefix + text_of(frame);
      if (nameless.empty()) nameless = prefix + text_of(frame);
    }
  }
  return nameless.empty() ? "unknown" : nameless;
}

}  // namespace use_gpu::detail
