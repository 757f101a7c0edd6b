// SPDX-License-Identifier: MIT
//
// Memory of a GPU by itself, before it is mapped anywhere: a file in memory, which processes can share.
#pragma once

#include <cstddef>
#include <memory>

#include "interface.hpp"

struct simulate_gpus::interface::PhysicalMemory {
  PhysicalMemory(int its_card, std::size_t its_bytes, int its_file, bool is_new)
      : card(its_card), bytes(its_bytes), file(its_file), is_counted(is_new), is_filled(!is_new) {}
  PhysicalMemory(const PhysicalMemory&) = delete;
  ~PhysicalMemory();
  int card;
  std::size_t bytes;
  int file;
  bool is_counted;  // here, and not by the process that it comes from
  bool is_filled;
};

namespace simulate_gpus {

/// Memory of another process, of so many bytes, as memory of the device. The file is closed with it.
std::shared_ptr<PhysicalMemory> adopt_memory(int file, std::size_t bytes, int device);

}  // namespace simulate_gpus
