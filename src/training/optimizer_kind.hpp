// SPDX-License-Identifier: MIT
//
// What LibTorch's optimizers keep, by name: each has its own type of state and of options, and
// nothing that walks over them.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace use_gpu::detail {

/// A member, in the state or the options that it points into.
using Field = std::variant<at::Tensor*, std::deque<at::Tensor>*, std::int64_t*, double*, bool*,
                           std::optional<std::int64_t>*, std::optional<std::string>*>;
using Fields = std::vector<std::pair<const char*, Field>>;

struct OptimizerKind {
  const char* name;
  bool (*is)(const torch::optim::Optimizer& optimizer);
  std::unique_ptr<torch::optim::OptimizerParamState> (*make_state)();
  /// Of a parameter, and of a group; those of an optimizer of this kind.
  Fields (*state)(torch::optim::OptimizerParamState& state);
  Fields (*options)(torch::optim::OptimizerOptions& options);
  /// Whether each tensor is shaped like its parameter. Else there is one state, for all parameters.
  bool is_elementwise;
};

/// ArgumentError, which begins with `function`, for an optimizer that is not LibTorch's.
[[nodiscard]] const OptimizerKind& kind_of(const torch::optim::Optimizer& optimizer,
                                           const char* function);

}  // namespace use_gpu::detail
