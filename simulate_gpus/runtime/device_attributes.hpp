// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

namespace simulate_gpus {

/// The attribute of that number, of the runtime or the driver; nullopt for a number that none has.
std::optional<int> attribute_of(int card, int number);

}  // namespace simulate_gpus
