// SPDX-License-Identifier: MIT
//
// Joins the PTX of objects that were compiled apart (nvcc -rdc=true, cuLinkAddData): what one declares as .extern,
// another defines.
#pragma once

#include <string>
#include <vector>

namespace simulate_gpus {

/// One text, of the newest version and target that the texts have. Names that a text keeps to itself are its own in the result.
/// Throws: KernelError, where two texts define the same name.
std::string link_ptx(const std::vector<std::string>& texts);

}  // namespace simulate_gpus
