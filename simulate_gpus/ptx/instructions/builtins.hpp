// Functions that CUDA gives to kernels and that have no PTX: printf, assert, malloc, free.
#pragma once

#include <cstddef>
#include <string>

#include "ptx/execution/instruction.hpp"

namespace simulate_gpus::ptx {

// Null, if there is none of that name. The handler's targets are the offsets of its result (or -1) and of its arguments
// in local memory.
Handler find_builtin(const std::string& name);
std::size_t builtin_places(const std::string& name);

// The text of printf's format with arguments as a kernel stores them; `read_text` has a %s argument's. That function is
// apart for its test.
class PrintfArguments {
 public:
  virtual ~PrintfArguments() = default;
  virtual std::uint64_t read(std::size_t offset, std::size_t bytes) = 0;
  virtual std::string read_text(std::uint64_t address) = 0;
};
std::string format_printf(const std::string& format, PrintfArguments& arguments);

}  // namespace simulate_gpus::ptx
