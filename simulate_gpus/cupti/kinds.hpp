// SPDX-License-Identifier: MIT
//
// What the program wants to have recorded, and by which clock.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <optional>

#include "cupti/functions.hpp"

namespace simulate_gpus::cupti {

bool is_enabled(CUpti_ActivityKind kind);
bool is_any_enabled();

/// Whether calls of the function are recorded.
bool is_recorded(const Function& function);

/// While the program ends a recording, for which all streams finish their work: when the thread that ends it was back
/// from its last call of CUDA. At any other time none.
std::optional<std::uint64_t> last_call_of_ending();

/// In nanoseconds, by the program's clock.
std::uint64_t now();

/// How often the program has set a clock: times of different ones cannot be compared.
std::uint32_t clock_number();

/// Records nothing from now on.
void disable_all();

}  // namespace simulate_gpus::cupti
