// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "kernels/operation.hpp"

namespace simulate_gpus {

/// The results of linalg_lu_factor_ex or linalg_lu without pivoting, which the CPU lacks; none with pivoting.
std::optional<Values> lu_without_pivoting(const Operation& operation, const Values& arguments);

}  // namespace simulate_gpus
