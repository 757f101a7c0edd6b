// SPDX-License-Identifier: MIT
#include "files/json_members.hpp"

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "gpu_info/message.hpp"

namespace use_gpu::detail {
namespace {

using nlohmann::json;

// Handles the events of nlohmann's SAX parser. Its DOM would keep only the last of several equal
// names, and a file of 100 MB could make it take gigabytes; its callbacks take time quadratic in
// the number of members.
class JsonReader {
 public:
  explicit JsonReader(const char* what) : what_(what) {}

  std::map<std::string, JsonMembers> object;

  bool start_object(std::size_t) {
    if (depth_ == 1) members_->emplace();
    return keep({}, /*deeper=*/1);
  }
  bool start_array(std::size_t) { return keep(JsonNumbers(), /*deeper=*/1); }
  bool end_object() { return --depth_ >= 0; }
  bool end_array() { return --depth_ >= 0; }
  bool key(std::string& name) {
    const auto add = [&](auto& members) {
      const auto [member, is_first] = members.try_emplace(name);
      if (!is_first) throw std::runtime_error(what_ + " has " + in_quotes(name) + " twice");
      return &member->second;
    };
    if (depth_ == 1) members_ = add(object);
    if (depth_ <= 2) value_ = depth_ == 2 ? add(**members_) : nullptr;
    return true;
  }
  bool number_unsigned(std::uint64_t number) {
    // A list is not one of numbers any more once it contains another list.
    auto* const list = std::get_if<JsonNumbers>(value_);
    if (list == nullptr) return keep({});
    if (list->size() < k_kept_numbers) list->push_back(number);
    return true;
  }
  bool string(std::string& text) { return keep(std::move(text)); }
  bool null() { return keep({}); }
  bool boolean(bool) { return keep({}); }
  bool number_integer(std::int64_t) { return keep({}); }
  bool number_float(double, const std::string&) { return keep({}); }
  bool binary(json::binary_t&) { return keep({}); }
  bool parse_error(std::size_t at, const std::string& last, const json::exception&) {
    throw std::runtime_error(what_ + " is not valid JSON, at byte " + std::to_string(at) +
                             ", after " + in_quotes(last));
  }

 private:
  // The value of a name; or one further inside, which a value may not have.
  bool keep(JsonValue value, int deeper = 0) {
    if (value_ != nullptr) *value_ = depth_ == 2 ? std::move(value) : JsonValue();
    depth_ += deeper;
    return true;
  }

  const std::string what_;
  int depth_ = 0;                   // 1 in the object, 2 in a member
  JsonMembers* members_ = nullptr;  // of the member that is read
  JsonValue* value_ = nullptr;      // of them; null in a member that is no object
};

}  // namespace

std::map<std::string, JsonMembers> read_json(std::string_view text, const char* what) {
  // nlohmann's parser takes a zero byte for the end of the text.
  if (!text.starts_with('{') || text.find('\0') != text.npos)
    throw std::runtime_error(std::string(what) + " is not a JSON object");
  JsonReader reader(what);
  json::sax_parse(text.begin(), text.end(), &reader);
  return std::move(reader.object);
}

}  // namespace use_gpu::detail
