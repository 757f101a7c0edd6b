// Reads a PTX text.
#pragma once

#include <string_view>

#include "ptx/reader/source.hpp"

namespace simulate_gpus::ptx {

// Throws: Error (invalid_ptx), with the line.
Source read_ptx(std::string_view text);

}  // namespace simulate_gpus::ptx
