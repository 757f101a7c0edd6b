// SPDX-License-Identifier: MIT
//
// The file of simulate_gpus --trace=FILE, in Chrome's trace format (chrome://tracing, Perfetto).
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/settings.hpp"

namespace simulate_gpus {

/// The number of the host in the file; those of the devices are theirs.
inline constexpr int k_host_process = k_most_gpus;

/// Rows begin here: Perfetto takes 0, and the number of its process, for the process's main thread.
inline constexpr int k_first_row = 1000;

/// Whether this process writes one.
bool has_trace_file();

/// Appends an event of a phase, in a process and its row.
void write_trace_event(char phase, const std::pair<int, int>& place, const std::string& fields);

/// Has all that was appended in the file.
void flush_trace_file();

/// Ends the file, unless it is that of the process from which this one was forked.
void finish_trace_file();

/// A field of an event, or of an object: ,"name":value
std::string field(std::string_view name, std::string_view text);
inline std::string field(std::string_view name, std::integral auto value) {
  return std::string(",\"").append(name) + "\":" + std::to_string(value);
}
inline std::string field(std::string_view name, bool value) {
  return std::string(",\"").append(name) + (value ? "\":true" : "\":false");
}
inline std::string field(std::string_view name, const char* text) {
  return field(name, std::string_view(text));
}

/// ,"name":{fields}
std::string object(std::string_view name, const std::string& fields);

}  // namespace simulate_gpus
