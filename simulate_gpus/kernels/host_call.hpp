// SPDX-License-Identifier: MIT
//
// A call of the CPU's kernel in place of CUDA's, with the gaps between the two closed: where the CPU lacks a dtype, it computes in a
// wider one (float16 in float32), and rounds what it returns and writes. It does so for the few operations that are known; for any
// other after a first call that failed, if it is known which dtypes the results have on a GPU.
#pragma once

#include <ATen/core/Generator.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/operation.hpp"

namespace simulate_gpus {

/// Of the tensors in the results, in their order.
using Dtypes = std::vector<at::ScalarType>;

/// An operation with its arguments as the CPU's kernel takes them. It may be called again, as each replay of a graph does.
struct HostCall {
  const Operation* operation;
  Values arguments;
  std::vector<std::pair<std::size_t, std::function<at::Generator()>>> generators = {};
  Dtypes wanted = {};                // of the results, where the CPU lacks a dtype of theirs
  std::optional<Values> known = {};  // the results, where there is nothing to compute

  [[nodiscard]] Values operator()() const;
};

/// Takes a turn of each generator among the program's arguments, or of the device's own.
void add_generators(HostCall& call, const Values& arguments, c10::Device device);

/// The call's results. Where the CPU refuses it, CUDA's kernel is asked by the program's arguments, and the call keeps what was found
/// out for the next time. During a capture only shapes and dtypes of the results matter. Throws LibTorch's errors.
Values results_of(HostCall& call, const Values& arguments, bool captured);

}  // namespace simulate_gpus
