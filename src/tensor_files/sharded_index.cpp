// SPDX-License-Identifier: MIT
#include "tensor_files/sharded_index.hpp"

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "messages/message.hpp"
#include "tensor_files/json_members.hpp"

namespace use_gpu::detail {
namespace {

constexpr std::size_t k_most_bytes = 100'000'000;  // as the format's headers

// By its name alone: a file there may well be a link to another folder, as in download caches.
bool is_in_folder(const std::string& file) {
  const std::filesystem::path path(file);
  return !file.empty() && file.find('\0') == file.npos && path.is_relative() &&
         std::find(path.begin(), path.end(), "..") == path.end();
}

}  // namespace

ShardedIndex parse_sharded_index(std::string_view text) {
  if (text.size() > k_most_bytes) throw std::runtime_error("it is larger than 100 MB");
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  const auto members = read_json(text, "the index");
  const auto map = members.find("weight_map");
  if (map == members.end())
    throw std::runtime_error("it has no weight_map: is it the index of a sharded model?");
  if (!map->second) throw std::runtime_error("its weight_map is not a JSON object");
  ShardedIndex index;
  for (const auto& [name, value] : *map->second) {
    const auto* const file = std::get_if<std::string>(&value);
    if (file == nullptr)
      throw std::runtime_error("its weight_map has no file name for " + in_quotes(name));
    if (!is_in_folder(*file))
      throw std::runtime_error(in_quotes(name) + " is in " + in_quotes(*file) +
                               ", which is not in the index's folder");
    index[*file].insert(name);
  }
  return index;
}

}  // namespace use_gpu::detail
