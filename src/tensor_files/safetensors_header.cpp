// SPDX-License-Identifier: MIT
#include "tensor_files/safetensors_header.hpp"

#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "messages/message.hpp"

namespace use_gpu::detail {
namespace {

using nlohmann::json;

constexpr std::size_t k_most_dimensions = 64;
constexpr std::string_view k_metadata = "__metadata__";

// Handles the events of nlohmann's SAX parser. Its DOM would keep only the last of several equal
// names and allow any depth; its callbacks take time quadratic in the number of entries.
class HeaderReader {
 public:
  SafetensorsHeader header;

  bool start_object(std::size_t) { return depth_ < 2 ? bool(++depth_) : refuse(); }
  bool end_object() {
    if (depth_ == 2 && !in_metadata_) finish_entry();
    return (--depth_, true);
  }
  bool key(std::string& name) {
    auto& seen = depth_ == 1 ? names_ : keys_;
    if (!seen.insert(name).second)
      throw std::runtime_error("its header has " + in_quotes(name) + " twice");
    if (depth_ == 1) {
      keys_.clear();
      in_metadata_ = name == k_metadata;
      if (!in_metadata_) header.entries.push_back({name, {}, {}});
    }
    key_ = name;
    return true;
  }
  bool string(std::string& text) {
    if (depth_ != 2) return refuse();
    if (!in_metadata_ && key_ != "dtype") return refuse();
    (in_metadata_ ? header.metadata[key_] : header.entries.back().dtype) = text;
    return true;
  }
  bool start_array(std::size_t) {
    if (depth_ != 2 || in_metadata_) return refuse();
    if (key_ != "shape" && key_ != "data_offsets") return refuse();
    numbers_.clear();
    return (++depth_, true);
  }
  bool number_unsigned(std::uint64_t number) {
    if (depth_ != 3) return refuse();
    if (numbers_.size() == k_most_dimensions)
      throw std::runtime_error(subject() + "it has more than 64 dimensions");
    numbers_.push_back(number);
    return true;
  }
  bool end_array() {
    auto& entry = header.entries.back();
    if (key_ == "shape") {
      entry.shape = numbers_;
    } else if (numbers_.size() == 2 && numbers_[0] <= numbers_[1]) {
      entry.begin = numbers_[0];
      entry.end = numbers_[1];
    } else {
      throw std::runtime_error(subject() + "its data_offsets are not a begin and an end");
    }
    return (--depth_, true);
  }
  bool null() { return refuse(); }
  bool boolean(bool) { return refuse(); }
  bool number_integer(std::int64_t) { return refuse(); }
  bool number_float(double, const std::string&) { return refuse(); }
  bool binary(json::binary_t&) { return refuse(); }
  bool parse_error(std::size_t, const std::string&, const json::exception& error) {
    throw std::runtime_error("its header is not valid JSON: " + clipped(error.what(), 150));
  }

 private:
  // The format does not allow this element here.
  [[noreturn]] bool refuse() const {
    if (!in_metadata_)
      throw std::runtime_error(subject() + "its entry is not dtype, shape and data_offsets");
    throw std::runtime_error(depth_ == 1 ? "its metadata is not a JSON object"
                                         : "its metadata has a value that is not a string");
  }
  void finish_entry() const {
    static const std::set<std::string> k_all{"data_offsets", "dtype", "shape"};
    if (keys_ != k_all) refuse();
  }
  std::string subject() const { return in_quotes(header.entries.back().name) + ": "; }

  int depth_ = 0;  // 1 in the header, 2 in an entry or in the metadata, 3 in a list
  bool in_metadata_ = false;
  std::string key_;
  std::set<std::string> names_;  // in the header
  std::set<std::string> keys_;   // in the entry, or in the metadata
  std::vector<std::uint64_t> numbers_;
};

std::string json_text(std::string_view name) {
  try {
    return json(name).dump();
  } catch (const json::exception&) {
    throw std::runtime_error("the name " + in_quotes(name) + " is not UTF-8, as the format needs");
  }
}

}  // namespace

SafetensorsHeader parse_header(std::string_view text) {
  // nlohmann's parser takes a zero byte for the end of the text.
  if (text.substr(0, 1) != "{" || text.find('\0') != text.npos) {
    throw std::runtime_error("its header is not a JSON object");
  }
  HeaderReader reader;
  json::sax_parse(text.begin(), text.end(), &reader);
  return std::move(reader.header);
}

std::string text_of(const SafetensorsHeader& header) {
  // First the tensors, so that an error shows a name as it is: in the metadata more stands before it.
  std::string tensors;
  for (const auto& entry : header.entries) {
    if (entry.name == k_metadata)
      throw std::runtime_error("the format reserves the name __metadata__");
    tensors +=
        ',' + json_text(entry.name) + R"(:{"dtype":)" + json_text(entry.dtype) + R"(,"shape":[)";
    for (std::size_t i = 0; i < entry.shape.size(); ++i)
      tensors += (i == 0 ? "" : ",") + std::to_string(entry.shape[i]);
    tensors += R"(],"data_offsets":[)" + std::to_string(entry.begin) + ',' +
               std::to_string(entry.end) + "]}";
  }
  std::string text = '{' + json_text(k_metadata) + ":{";
  const char* comma = "";
  for (const auto& [key, value] : header.metadata) {
    text += comma + json_text(key) + ':' + json_text(value);
    comma = ",";
  }
  return text + '}' + tensors + '}';
}

}  // namespace use_gpu::detail
