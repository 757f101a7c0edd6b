// SPDX-License-Identifier: MIT
//
// The program's buffers, which records are written to.
#pragma once

#include "cupti/records.hpp"

namespace simulate_gpus::cupti {

/// Writes the records into one buffer. Where the program gives none that has room they are dropped, and counted.
void emit(const Block& block);

/// Gives the buffer that is being filled to the program.
void flush();

}  // namespace simulate_gpus::cupti
