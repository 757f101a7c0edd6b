// SPDX-License-Identifier: MIT
#include "core/messages/error_text.hpp"

#include <utility>

#include "gpu_info/message.hpp"

namespace use_gpu::detail {
namespace {

std::string_view first_line(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  return text.substr(0, text.find_last_not_of(". ") + 1);
}

// What follows the text's first `mark`; nothing if there is none.
std::string_view after(std::string_view text, std::string_view mark) {
  const auto at = text.find(mark);
  return at == std::string_view::npos ? "" : text.substr(at + mark.size());
}

}  // namespace

std::string error_text(const std::exception& error) {
  const auto* const from_c10 = dynamic_cast<const c10::Error*>(&error);
  return from_c10 == nullptr ? error.what() : from_c10->what_without_backtrace();
}

std::string current_error_text() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error_text(error);
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

std::string error_cause(const std::exception& error) {
  constexpr std::size_t k_most = 150;
  const auto text = error_text(error);
  // LibTorch writes "NCCL error in: <file>:<line>, <meaning of the code>", an explanation of the
  // code, and last what NCCL itself reports.
  if (const auto detail = first_line(after(text, "Last error:\n")); !detail.empty())
    return clipped("NCCL: " + std::string(detail), k_most);
  auto cause = first_line(text);
  for (const auto& [start, mark] : {std::pair("[", "] "), std::pair("NCCL error in: ", ", ")}) {
    if (cause.starts_with(start) && !after(cause, mark).empty()) cause = after(cause, mark);
  }
  // Of several sentences, whole ones: what was tried and what is free come first.
  const auto end = cause.size() > k_most ? cause.rfind(". ", k_most) : cause.npos;
  if (end != cause.npos && end > k_most / 2) cause = cause.substr(0, end);
  return clipped(cause, k_most);
}

}  // namespace use_gpu::detail
