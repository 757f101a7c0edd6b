// SPDX-License-Identifier: MIT
//
// The index of a sharded model ("model.safetensors.index.json"): which file holds each tensor. As
// the reader of the format it trusts nothing, and knows neither files nor LibTorch.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

namespace use_gpu::detail {

/// The names of the tensors in each file; the files lie in the index's folder, or below it.
using ShardedIndex = std::map<std::string, std::set<std::string>>;

/// Reads the JSON object "weight_map"; what is beside it is ignored. std::runtime_error, with the
/// reason, if there is none, or if it names a tensor twice or a file outside of the folder.
[[nodiscard]] ShardedIndex parse_sharded_index(std::string_view text);

}  // namespace use_gpu::detail
