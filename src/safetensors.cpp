// SPDX-License-Identifier: MIT
#include "safetensors.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <utility>

#include "message.hpp"

namespace use_gpu {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

using nlohmann::json;
using Bytes = std::span<const std::byte>;

constexpr std::size_t k_length_bytes = sizeof(std::uint64_t);
constexpr std::uint64_t k_most_header_bytes = 100'000'000;  // the format's own limit
constexpr int k_most_dimensions = 64;                       // LibTorch's limit
constexpr const char* k_metadata = "__metadata__";
constexpr std::string_view k_checksum = "xxh3:";  // "xxh3:0.weight", beside other metadata

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

// How wide an element is.
std::uint64_t bits_of(std::string_view dtype) {
  static constexpr std::array<std::pair<std::string_view, std::uint64_t>, 22> k_bits{{
      {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
      {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
      {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
      {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
      {"I64", 64},        {"U64", 64},
  }};
  for (const auto& [name, bits] : k_bits) {
    if (name == dtype) return bits;
  }
  fail("dtype " + in_quotes(dtype) + " is not one of the format's");
}

std::string checksum(Bytes data) {
  constexpr char k_hex[] = "0123456789abcdef";
  std::uint64_t hash = XXH3_64bits(data.data(), data.size());
  std::string text(16, '0');
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, hash >>= 4)
    *digit = k_hex[hash & 15];
  return text;
}

// nlohmann's parser keeps the last of several equal names and nests as deep as it is told to.
class Strictness {
 public:
  bool operator()(int depth, json::parse_event_t event, const json& parsed) {
    using enum json::parse_event_t;
    if (event == object_start || event == array_start) {
      if (depth > 2) fail("its header is nested too deeply");
      values_ = 0;
      if (event == object_start) names_[static_cast<std::size_t>(depth)].clear();
    } else if (event == key && !names_[static_cast<std::size_t>(depth - 1)].insert(parsed).second) {
      fail("its header has " + in_quotes(parsed.get_ref<const std::string&>()) + " twice");
    } else if (event == value && depth > 2 && ++values_ > k_most_dimensions) {
      fail("a tensor has more than 64 dimensions");
    }
    return true;
  }

 private:
  std::array<std::set<std::string>, 3> names_;
  int values_ = 0;
};

json parsed_header(std::string_view text) {
  // nlohmann's parser takes a zero byte for the end of the text.
  if (text.substr(0, 1) != "{" || text.find('\0') != text.npos)
    fail("its header is not a JSON object");
  Strictness strictness;
  try {
    return json::parse(text.begin(), text.end(), std::ref(strictness));
  } catch (const json::exception& error) {
    fail("its header is not valid JSON: " + clipped(error.what(), 150));
  }
}

std::vector<std::uint64_t> unsigned_numbers(const json& list) {
  if (!list.is_array() || !std::all_of(list.begin(), list.end(),
                                       [](const json& x) { return x.is_number_unsigned(); })) {
    fail("it is not a list of natural numbers");
  }
  return list.get<std::vector<std::uint64_t>>();
}

struct Entry {
  StoredTensor tensor;
  std::uint64_t begin, end;
};

// Name, dtype, shape and offsets; the data is added when the offsets are known to fit each other.
Entry parsed_entry(const std::string& name, const json& entry) {
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") ||
      !entry.contains("shape") || !entry.contains("data_offsets") || !entry["dtype"].is_string()) {
    fail("its entry is not dtype, shape and data_offsets");
  }
  Entry result{{name, entry["dtype"], {}, {}}, 0, 0};
  std::uint64_t elements = 1;
  std::uint64_t bits = 0;
  bool empty = false;
  // The sizes of an empty tensor must be multiplied without overflow too, as LibTorch does it.
  for (const auto size : unsigned_numbers(entry["shape"])) {
    if (__builtin_mul_overflow(elements, std::max<std::uint64_t>(size, 1), &elements))
      fail("its shape is too large");
    empty = empty || size == 0;
    result.tensor.shape.push_back(static_cast<std::int64_t>(size));
  }
  if (__builtin_mul_overflow(elements, bits_of(result.tensor.dtype), &bits) || bits > INT64_MAX) {
    fail("its shape is too large");
  }
  const auto offsets = unsigned_numbers(entry["data_offsets"]);
  if (offsets.size() != 2 || offsets[0] > offsets[1])
    fail("its data_offsets are not a begin and an end");
  result.begin = offsets[0];
  result.end = offsets[1];
  const std::uint64_t bytes = empty ? 0 : bits / 8;
  if ((!empty && bits % 8 != 0) || result.end - result.begin != bytes) {
    fail("its dtype and shape do not give the number of bytes of its data_offsets");
  }
  return result;
}

// In the order of their data, which must follow each other without holes up to the end.
std::vector<StoredTensor> placed(std::vector<Entry> entries, Bytes data) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  std::vector<StoredTensor> tensors;
  std::uint64_t end = 0;
  for (auto& entry : entries) {
    if (entry.begin != end)
      fail("the data of " + in_quotes(entry.tensor.name) + " leaves a hole or overlaps other data");
    if (entry.end > data.size())
      fail("the data of " + in_quotes(entry.tensor.name) + " is past the end: was it cut off?");
    end = entry.end;
    entry.tensor.data = data.subspan(entry.begin, entry.end - entry.begin);
    tensors.push_back(std::move(entry.tensor));
  }
  if (end != data.size()) fail("it has data that belongs to no tensor");
  return tensors;
}

// Either every tensor has a checksum, and no other name has one, or there are none at all.
void check_checksums(const json& metadata, const std::vector<StoredTensor>& tensors) {
  std::map<std::string_view, std::string_view> expected;
  for (const auto& [key, text] : metadata.items()) {
    if (!text.is_string()) fail("its metadata has a value that is not a text");
    if (key.starts_with(k_checksum)) {
      expected.emplace(std::string_view(key).substr(k_checksum.size()),
                       text.get_ref<const std::string&>());
    }
  }
  if (expected.empty()) return;
  for (const auto& x : tensors) {
    const auto found = expected.find(x.name);
    if (found == expected.end()) fail(in_quotes(x.name) + " has no checksum, but others have");
    if (found->second != checksum(x.data))
      fail(in_quotes(x.name) + " is damaged: its checksum does not match");
  }
  if (expected.size() != tensors.size()) fail("it has a checksum of a tensor that is not there");
}

// Another byte than these in a C++ bool is undefined behaviour.
void check_bools(const std::vector<StoredTensor>& tensors) {
  for (const auto& x : tensors) {
    if (x.dtype == "BOOL" &&
        std::any_of(x.data.begin(), x.data.end(), [](std::byte b) { return b > std::byte{1}; })) {
      fail(in_quotes(x.name) + " is BOOL and has a byte that is neither 0 nor 1");
    }
  }
}

}  // namespace

std::vector<StoredTensor> parse_safetensors(Bytes file) {
  std::uint64_t length = 0;
  if (file.size() < k_length_bytes) fail("it is too short for a safetensors file");
  std::memcpy(&length, file.data(), k_length_bytes);
  if (length > k_most_header_bytes)
    fail("its header would be larger than 100 MB: is it a safetensors file?");
  if (length > file.size() - k_length_bytes)
    fail("its header is cut off: is it a safetensors file?");
  const auto body = file.subspan(k_length_bytes);
  const json header = parsed_header({reinterpret_cast<const char*>(body.data()), length});

  std::vector<Entry> entries;
  json metadata = json::object();
  for (const auto& [name, value] : header.items()) {
    if (name == k_metadata) {
      if (!value.is_object()) fail("its metadata is not a JSON object");
      metadata = value;
      continue;
    }
    try {
      entries.push_back(parsed_entry(name, value));
    } catch (const std::runtime_error& error) {
      fail(in_quotes(name) + ": " + error.what());
    }
  }
  auto tensors = placed(std::move(entries), body.subspan(length));
  check_checksums(metadata, tensors);
  check_bools(tensors);
  return tensors;
}

SafetensorsParts make_safetensors(std::vector<StoredTensor> tensors) {
  // As Python's writer: the widest first, so that each tensor is aligned in a file that is mapped.
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    const auto width_a = bits_of(a.dtype);
    const auto width_b = bits_of(b.dtype);
    return width_a != width_b ? width_a > width_b : a.name < b.name;
  });
  json header = {{k_metadata, {{"format", "pt"}}}};  // "pt": Python's transformers ask for it
  SafetensorsParts parts;
  std::uint64_t end = 0;
  for (const auto& x : tensors) {
    if (header.contains(x.name)) fail("the format cannot hold the name " + in_quotes(x.name));
    const auto begin = std::exchange(end, end + x.data.size());
    header[x.name] = {{"dtype", x.dtype}, {"shape", x.shape}, {"data_offsets", {begin, end}}};
    header[k_metadata][std::string(k_checksum) + x.name] = checksum(x.data);
    parts.data.push_back(x.data);
  }
  try {
    parts.header = header.dump();
  } catch (const json::exception& error) {
    fail(std::string("the format cannot hold a name that is not UTF-8: ") + error.what());
  }
  parts.header.resize((parts.header.size() + 7) / 8 * 8, ' ');  // aligned, as the data after it
  if (parts.header.size() > k_most_header_bytes)
    fail("the header would be larger than the format's 100 MB");
  const std::uint64_t length = parts.header.size();
  parts.header.insert(0, reinterpret_cast<const char*>(&length), k_length_bytes);
  return parts;
}

}  // namespace use_gpu
