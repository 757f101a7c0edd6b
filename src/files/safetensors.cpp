// SPDX-License-Identifier: MIT
#include "files/safetensors.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "files/json_members.hpp"
#include "gpu_info/message.hpp"

namespace use_gpu::detail {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

using Bytes = std::span<const std::byte>;
using nlohmann::json;

constexpr std::size_t k_length_bytes = sizeof(std::uint64_t);
constexpr std::uint64_t k_most_json_bytes = 100'000'000;  // the format's own limit
constexpr const char* k_metadata = "__metadata__";
constexpr const char* k_checksum = "xxh3:";  // "xxh3:0.weight", beside other metadata
// Ends the headers that this library writes. Python's writer aligns to eight bytes too, and adds no
// more than seven spaces. A flipped bit in them is an error of JSON, so damage does not make a file
// of ours look like another program's.
constexpr std::string_view k_own_end = "        ";

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

// The size of a tensor; of one without a shape, that of an element. That of an empty one must be
// multiplied without overflow too, as LibTorch does it.
std::uint64_t bits_of(std::string_view dtype, const JsonNumbers& shape = {}) {
  static constexpr std::array<std::pair<std::uint64_t, std::string_view>, 22> k_dtypes{{
      {32, "F32"},    {16, "BF16"},   {16, "F16"},        {64, "I64"},        {64, "F64"},
      {32, "I32"},    {8, "U8"},      {8, "BOOL"},        {8, "I8"},          {16, "I16"},
      {16, "U16"},    {32, "U32"},    {64, "U64"},        {64, "C64"},        {8, "F8_E4M3"},
      {8, "F8_E5M2"}, {8, "F8_E8M0"}, {8, "F8_E4M3FNUZ"}, {8, "F8_E5M2FNUZ"}, {6, "F6_E2M3"},
      {6, "F6_E3M2"}, {4, "F4"},
  }};
  const auto found = std::ranges::find(k_dtypes, dtype, &decltype(k_dtypes)::value_type::second);
  if (found == k_dtypes.end()) fail("dtype " + in_quotes(dtype) + " is not one of the format's");
  auto bits = found->first;
  for (const auto size : shape) {
    if (__builtin_mul_overflow(bits, std::max<std::uint64_t>(size, 1), &bits) || bits > INT64_MAX)
      fail("its shape is too large");
  }
  return std::ranges::count(shape, 0U) > 0 ? 0 : bits;
}

std::string checksum_text(std::uint64_t checksum) {
  XXH64_canonical_t bytes;  // the most significant first
  XXH64_canonicalFromHash(&bytes, checksum);
  return hex(std::as_bytes(std::span(bytes.digest)));
}

// The tensor of an entry of the header. `data` is what follows the header.
StoredTensor tensor_of(const std::string& name, JsonMembers& entry, Bytes data) try {
  // Where it is no object, or lacks one of these, the part is nothing.
  auto& parts = entry ? *entry : entry.emplace();
  const auto* const dtype = std::get_if<std::string>(&parts["dtype"]);
  const auto* const shape = std::get_if<JsonNumbers>(&parts["shape"]);
  const auto* const offsets = std::get_if<JsonNumbers>(&parts["data_offsets"]);
  if (!dtype || !shape || !offsets || parts.size() != 3)
    fail("its entry is not dtype, shape and data_offsets");
  if (shape->size() == k_kept_numbers) fail("it has more than 64 dimensions");
  if (offsets->size() != 2 || offsets->front() > offsets->back())
    fail("its data_offsets are not a begin and an end");
  const auto size = offsets->back() - offsets->front();
  if (offsets->back() > data.size()) fail("its data is past the end: was the file cut off?");
  if (bits_of(*dtype, *shape) != 8 * size)
    fail("its dtype and shape do not give the number of bytes of its data_offsets");
  return {name, *dtype, {shape->begin(), shape->end()}, data.subspan(offsets->front(), size)};
} catch (const std::runtime_error& error) {
  fail(in_quotes(name) + ": " + error.what());
}

// Sorts the tensors by their data, which must follow each other without holes up to the end.
void sort_by_data(std::vector<StoredTensor>& tensors, Bytes data) {
  std::ranges::sort(tensors, {},
                    [](const StoredTensor& x) { return std::tuple(x.data.data(), x.data.size()); });
  const auto* end = data.data();
  for (const auto& x : tensors) {
    if (x.data.data() != end)
      fail(in_quotes(x.name) + ": its data leaves a hole or overlaps other data");
    end += x.data.size();
  }
  if (end != data.data() + data.size()) fail("it has data that belongs to no tensor");
}

// Reads and checks all values. Why the checksums do not fit; empty if they do: every tensor has one, and
// no other name has one, or there are none at all.
std::string doubt_of_values(std::map<std::string, JsonValue> metadata,
                            const std::vector<StoredTensor>& tensors, const ReadValues& read) {
  std::erase_if(metadata, [](const auto& item) { return !item.first.starts_with(k_checksum); });
  const bool has_checksums = !metadata.empty();
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  if (!state) throw std::bad_alloc();
  std::string doubt;
  for (const auto& x : tensors) {
    XXH3_64bits_reset(state.get());
    read(x, [&](Bytes piece) {
      // Any byte but 0 and 1 in a bool is undefined behaviour.
      if (x.dtype == "BOOL" &&
          std::ranges::any_of(piece, [](std::byte b) { return b > std::byte{1}; }))
        fail(in_quotes(x.name) + ": it is BOOL and has a byte that is neither 0 nor 1");
      if (has_checksums) XXH3_64bits_update(state.get(), piece.data(), piece.size());
    });
    const auto stored = metadata.extract(k_checksum + x.name);
    if (!has_checksums || !doubt.empty()) continue;
    if (!stored) {
      doubt = in_quotes(x.name) + " has no checksum, but others have";
    } else if (stored.mapped() != JsonValue(checksum_text(XXH3_64bits_digest(state.get())))) {
      doubt = in_quotes(x.name) +
              " is damaged, or was changed by a program that kept the old checksums (the metadata "
              "xxh3:*): they do not match";
    }
  }
  if (doubt.empty() && !metadata.empty()) return "it has a checksum of a tensor that is not there";
  return doubt;
}

std::string json_text(const std::string& name) try {
  if (name == k_metadata) fail("the format reserves the name __metadata__");
  return json(name).dump();
} catch (const json::exception&) {
  fail("the name " + in_quotes(name) + " is not UTF-8, as the format needs");
}

}  // namespace

std::uint64_t checksum_of(Bytes data) { return XXH3_64bits(data.data(), data.size()); }

ParsedSafetensors parse_safetensors(Bytes file, const ReadValues& read) {
  std::uint64_t length = 0;
  if (file.size() < k_length_bytes) fail("it is too short for a safetensors file");
  std::memcpy(&length, file.data(), k_length_bytes);
  if (length > k_most_json_bytes)
    fail("it is no safetensors file (torch.save writes another format), or its start is damaged");
  if (length > file.size() - k_length_bytes)
    fail("its header is cut off: is it a safetensors file?");
  const auto body = file.subspan(k_length_bytes);
  const std::string_view header(reinterpret_cast<const char*>(body.data()), length);
  const auto data = body.subspan(length);
  auto entries = read_json(header, "its header");
  JsonMembers metadata(std::in_place);
  if (auto found = entries.extract(k_metadata)) metadata = std::move(found.mapped());
  if (!metadata) fail("its metadata is not a JSON object");
  for (const auto& [name, value] : *metadata) {
    if (!std::holds_alternative<std::string>(value))
      fail("its metadata has a value that is not a string");
  }
  std::vector<StoredTensor> tensors;
  for (auto& [name, entry] : entries) tensors.push_back(tensor_of(name, entry, data));
  sort_by_data(tensors, data);
  if (!read) return {std::move(tensors), ""};
  auto doubt = doubt_of_values(std::move(*metadata), tensors, read);
  if (!doubt.empty() && header.ends_with(k_own_end)) fail(doubt);
  return {std::move(tensors), std::move(doubt)};
}

void sort_for_file(std::vector<StoredTensor>& tensors) {
  // As Python's writer: the widest first, so that each tensor is aligned in a file that is mapped.
  std::ranges::stable_sort(tensors, std::ranges::greater(),
                           [](const StoredTensor& x) { return bits_of(x.dtype); });
}

std::string file_start(const std::vector<StoredTensor>& tensors) {
  // Put together here: the destructor of nlohmann's objects needs memory, and ends the program where
  // there is none.
  std::string header = R"({"__metadata__":{"format":"pt")";  // Python's transformers need it
  std::string entries;
  std::uint64_t end = 0;
  for (const auto& x : tensors) {
    const auto name = json_text(x.name);
    std::string shape;
    for (const auto size : x.shape) shape += (shape.empty() ? "" : ",") + std::to_string(size);
    const auto begin = std::exchange(end, end + x.data.size());
    entries += ',' + name + R"(:{"dtype":")" + x.dtype + R"(","shape":[)" + shape +
               R"(],"data_offsets":[)" + std::to_string(begin) + ',' + std::to_string(end) + "]}";
    header += ",\"" + (k_checksum + name.substr(1)) + ":\"" + checksum_text(x.checksum) + '"';
  }
  header += '}' + entries + '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');  // aligned, as the data after it
  header += k_own_end;
  if (header.size() > k_most_json_bytes)
    fail("the header would be larger than the format's 100 MB");
  const std::uint64_t length = header.size();
  return header.insert(0, reinterpret_cast<const char*>(&length), k_length_bytes);
}

ShardedIndex parse_sharded_index(std::string_view text) {
  if (text.size() > k_most_json_bytes) fail("it is larger than 100 MB");
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  const auto map = std::move(read_json(text, "the index")["weight_map"]);
  if (!map)
    fail("it has no weight_map, or one that is not a JSON object: is it the index of a model?");
  ShardedIndex index;
  for (const auto& [name, value] : *map) {
    const auto* const file = std::get_if<std::string>(&value);
    if (file == nullptr) fail("its weight_map has no file name for " + in_quotes(name));
    // By its name alone: a file there may well be a link to another folder, as in download caches.
    const std::filesystem::path path(*file);
    if (file->empty() || file->find('\0') != file->npos || path.is_absolute() ||
        std::find(path.begin(), path.end(), "..") != path.end())
      fail(in_quotes(name) + " is in " + in_quotes(*file) + ", which is not in the index's folder");
    index[*file].insert(name);
  }
  return index;
}

}  // namespace use_gpu::detail
