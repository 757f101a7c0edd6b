// SPDX-License-Identifier: MIT
//
// The one reader of JSON: of an object whose members are objects in their turn, as the header of a
// safetensors file and the index of a sharded model are. It trusts nothing: deep nesting takes no
// stack, and long lists no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace use_gpu::detail {

/// Of a list this many numbers are kept: one more than LibTorch's tensors have dimensions.
constexpr std::size_t k_kept_numbers = 65;
using JsonNumbers = std::vector<std::uint64_t>;

/// A text, a list of numbers that are neither negative nor fractions, or, as monostate, anything
/// else.
using JsonValue = std::variant<std::monostate, std::string, JsonNumbers>;
/// What an object in the object contains, by name; nothing for a member that is no object.
using JsonMembers = std::optional<std::map<std::string, JsonValue>>;

/// The members of a JSON object. std::runtime_error, which begins with `what`, if the text is no
/// JSON object, or has a name twice in it or in one of its members.
[[nodiscard]] std::map<std::string, JsonMembers> read_json(std::string_view text, const char* what);

}  // namespace use_gpu::detail
