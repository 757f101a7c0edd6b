// SPDX-License-Identifier: MIT
//
// What is to be written into a network. Everything is checked before the first tensor is written.
#pragma once

#include <unordered_map>

#include "core/module_tensors/parameter_differences.hpp"

namespace use_gpu::detail {

struct PendingWrites {
  NamedTensors known;            // the network's
  bool may_be_expanded = false;  // then a tensor that overlaps itself takes values that do so too
  Differences differences = {};
  Pairs writes = {};
  // The first name and value of each target.
  std::unordered_map<at::TensorImpl*, std::pair<std::string, at::Tensor>> written = {};

  /// A reason for which nothing may be written.
  void refuse(std::string difference) { differences.push_back(std::move(difference)); }

  /// The value of that name.
  void add(const std::string& name, at::Tensor source, bool may_convert = false);

  /// Writes in place; or ParameterError, which begins with `what`.
  void run(const std::string& what);
};

}  // namespace use_gpu::detail
