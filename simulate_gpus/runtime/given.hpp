// SPDX-License-Identifier: MIT
//
// What streams are given, and what is noted of moments in them, as the runtime tells it to tools.
#pragma once

#include <driver_types.h>

#include <any>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "interface.hpp"

namespace simulate_gpus {

/// What tools know of a moment in a stream, each in a type of its own, for whoever waits for that moment.
class Notes {
 public:
  [[nodiscard]] bool is_empty() const { return !notes_; }

  template <class Note>
  void add(Note note) {
    if (!notes_) notes_ = std::make_shared<std::vector<std::any>>();
    notes_->emplace_back(std::move(note));
  }

  /// Null if no tool has added one.
  template <class Note>
  [[nodiscard]] const Note* find() const {
    if (!notes_) return nullptr;
    for (const std::any& note : *notes_) {
      if (const auto* const found = std::any_cast<Note>(&note)) return found;
    }
    return nullptr;
  }

 private:
  std::shared_ptr<std::vector<std::any>> notes_;
};

/// What a stream is given. The first four are copies.
enum class Kind { to_device, to_host, between, within, set, operation, collective, event, wait };

struct Given {
  Kind kind;
  std::string_view name = {};  ///< the caller's
  std::optional<std::uint64_t> bytes = {};
  std::optional<bool> is_pinned = {};  ///< the host's memory, of a copy
  std::string_view call = {};          ///< of a collective, as the program made it
  const void* kernel = nullptr;        ///< of an operation without a name: kernel_name() finds it
  Notes notes = {};                    ///< of the event
  std::optional<LaunchSize> size = {};
  int to = k_host, from = k_host;  ///< the devices of a copy, or the one of a memory set
  int value = 0;                   ///< of a memory set

  static constexpr int k_host = -1;
};

/// The same in a graph.
struct Captured {
  int device, stream;
  bool is_origin;  ///< whether the capture began in that stream
  Given given;
};

}  // namespace simulate_gpus
