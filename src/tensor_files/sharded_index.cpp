// SPDX-License-Identifier: MIT
#include "tensor_files/sharded_index.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "messages/message.hpp"

namespace use_gpu::detail {
namespace {

using nlohmann::json;

constexpr std::size_t k_most_bytes = 100'000'000;  // as the format's headers
constexpr std::string_view k_weight_map = "weight_map";

// By its name alone: a file there may well be a link to another folder, as in download caches.
bool is_in_folder(const std::string& file) {
  const std::filesystem::path path(file);
  return !file.empty() && file.find('\0') == file.npos && path.is_relative() &&
         std::find(path.begin(), path.end(), "..") == path.end();
}

// Handles the events of nlohmann's SAX parser, whose DOM would keep only the last of several equal
// names.
class IndexReader {
 public:
  ShardedIndex index;
  bool has_map = false;

  bool start_object(std::size_t) {
    if (is_map_next()) {
      if (std::exchange(has_map, true)) throw std::runtime_error("it has weight_map twice");
      in_map_ = true;
    } else {
      ignore();
    }
    return (++depth_, true);
  }
  bool end_object() {
    if (--depth_ == 1) in_map_ = false;
    return true;
  }
  bool start_array(std::size_t) { return (ignore(), ++depth_, true); }
  bool end_array() { return (--depth_, true); }
  bool key(std::string& name) {
    if (in_map_ && !names_.insert(name).second)
      throw std::runtime_error("its weight_map has " + in_quotes(name) + " twice");
    if (in_map_ || depth_ == 1) key_ = name;
    return true;
  }
  bool string(std::string& file) {
    if (!in_map_) return ignore();
    if (!is_in_folder(file))
      throw std::runtime_error(in_quotes(key_) + " is in " + in_quotes(file) +
                               ", which is not in the index's folder");
    index[file].insert(key_);
    return true;
  }
  bool null() { return ignore(); }
  bool boolean(bool) { return ignore(); }
  bool number_integer(std::int64_t) { return ignore(); }
  bool number_unsigned(std::uint64_t) { return ignore(); }
  bool number_float(double, const std::string&) { return ignore(); }
  bool binary(json::binary_t&) { return ignore(); }
  bool parse_error(std::size_t, const std::string&, const json::exception& error) {
    throw std::runtime_error("it is not valid JSON: " + clipped(error.what(), 150));
  }

 private:
  [[nodiscard]] bool is_map_next() const { return depth_ == 1 && key_ == k_weight_map; }
  // An element that has no meaning here, which in the map is an error.
  bool ignore() const {
    if (in_map_) throw std::runtime_error("its weight_map has no file name for " + in_quotes(key_));
    if (is_map_next()) throw std::runtime_error("its weight_map is not a JSON object");
    return true;
  }

  std::size_t depth_ = 0;  // 1 in the index, 2 in the weight_map
  bool in_map_ = false;
  std::string key_;              // of the index, or of the weight_map
  std::set<std::string> names_;  // in the weight_map
};

}  // namespace

ShardedIndex parse_sharded_index(std::string_view text) {
  if (text.size() > k_most_bytes) throw std::runtime_error("it is larger than 100 MB");
  // nlohmann's parser takes a zero byte for the end of the text.
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos || text[begin] != '{' || text.find('\0') != text.npos)
    throw std::runtime_error("it is not a JSON object, as the index of a sharded model is");
  IndexReader reader;
  json::sax_parse(text.begin(), text.end(), &reader);
  if (!reader.has_map)
    throw std::runtime_error("it has no weight_map: is it the index of a sharded model?");
  return std::move(reader.index);
}

}  // namespace use_gpu::detail
