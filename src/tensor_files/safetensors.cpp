// SPDX-License-Identifier: MIT
#include "tensor_files/safetensors.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <utility>

#include "messages/message.hpp"
#include "tensor_files/safetensors_header.hpp"

namespace use_gpu::detail {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

using Bytes = std::span<const std::byte>;
using Entry = SafetensorsHeader::Entry;

constexpr std::size_t k_length_bytes = sizeof(std::uint64_t);
constexpr std::uint64_t k_most_header_bytes = 100'000'000;  // the format's own limit
constexpr std::string_view k_checksum = "xxh3:";  // "xxh3:0.weight", beside other metadata
// Ends the headers that this library writes. Python's writer aligns to eight bytes too, and adds no
// more than seven spaces. A flipped bit in them is an error of JSON, so damage does not make a file
// of ours look like another program's.
constexpr std::string_view k_own_end = "        ";

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

// How wide an element is.
std::uint64_t bits_of(std::string_view dtype) {
  static constexpr std::array<std::pair<std::uint64_t, std::string_view>, 22> k_dtypes{{
      {32, "F32"},    {16, "BF16"},   {16, "F16"},        {64, "I64"},        {64, "F64"},
      {32, "I32"},    {8, "U8"},      {8, "BOOL"},        {8, "I8"},          {16, "I16"},
      {16, "U16"},    {32, "U32"},    {64, "U64"},        {64, "C64"},        {8, "F8_E4M3"},
      {8, "F8_E5M2"}, {8, "F8_E8M0"}, {8, "F8_E4M3FNUZ"}, {8, "F8_E5M2FNUZ"}, {6, "F6_E2M3"},
      {6, "F6_E3M2"}, {4, "F4"},
  }};
  for (const auto& [bits, name] : k_dtypes) {
    if (name == dtype) return bits;
  }
  fail("dtype " + in_quotes(dtype) + " is not one of the format's");
}

std::string checksum(Bytes data) {
  XXH64_canonical_t bytes;  // the most significant first
  XXH64_canonicalFromHash(&bytes, XXH3_64bits(data.data(), data.size()));
  return hex(std::as_bytes(std::span(bytes.digest)));
}

// Checks that dtype and shape give the number of bytes of the data.
void check_size(const Entry& entry) {
  std::uint64_t elements = 1;
  std::uint64_t bits = 0;
  bool empty = false;
  // The sizes of an empty tensor must be multiplied without overflow too, as LibTorch does it.
  for (const auto size : entry.shape) {
    if (__builtin_mul_overflow(elements, std::max<std::uint64_t>(size, 1), &elements))
      fail("its shape is too large");
    empty = empty || size == 0;
  }
  if (__builtin_mul_overflow(elements, bits_of(entry.dtype), &bits) || bits > INT64_MAX)
    fail("its shape is too large");
  if (empty) bits = 0;
  if (bits % 8 != 0 || entry.end - entry.begin != bits / 8) {
    fail("its dtype and shape do not give the number of bytes of its data_offsets");
  }
}

// The tensors in the order of their data, which must follow each other without holes up to the end.
std::vector<StoredTensor> placed(std::vector<Entry> entries, Bytes data) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  std::vector<StoredTensor> tensors;
  std::uint64_t end = 0;
  for (auto& entry : entries) {
    try {
      check_size(entry);
      if (entry.begin != end) fail("its data leaves a hole or overlaps other data");
      if (entry.end > data.size()) fail("its data is past the end: was the file cut off?");
    } catch (const std::runtime_error& error) {
      fail(in_quotes(entry.name) + ": " + error.what());
    }
    end = entry.end;
    tensors.push_back({std::move(entry.name),
                       std::move(entry.dtype),
                       {entry.shape.begin(), entry.shape.end()},
                       data.subspan(entry.begin, entry.end - entry.begin)});
  }
  if (end != data.size()) fail("it has data that belongs to no tensor");
  return tensors;
}

// Why the checksums do not fit; empty if they do: every tensor has one, and no other name has one,
// or there are none at all.
std::string checksum_doubt(const std::map<std::string, std::string>& metadata,
                           const std::vector<StoredTensor>& tensors) {
  const auto is_one = [](const auto& item) { return item.first.starts_with(k_checksum); };
  const auto count = std::count_if(metadata.begin(), metadata.end(), is_one);
  if (count == 0) return {};
  for (const auto& x : tensors) {
    const auto found = metadata.find(std::string(k_checksum) + x.name);
    if (found == metadata.end()) return in_quotes(x.name) + " has no checksum, but others have";
    if (found->second != checksum(x.data))
      return in_quotes(x.name) +
             " is damaged, or was changed by a program that kept the old checksums (the metadata " +
             std::string(k_checksum) + "*): they do not match";
  }
  const bool has_more = static_cast<std::size_t>(count) != tensors.size();
  return has_more ? "it has a checksum of a tensor that is not there" : "";
}

// Any byte but 0 and 1 in a bool is undefined behaviour.
void check_bools(const std::vector<StoredTensor>& tensors) {
  for (const auto& x : tensors) {
    if (x.dtype == "BOOL" &&
        std::any_of(x.data.begin(), x.data.end(), [](std::byte b) { return b > std::byte{1}; })) {
      fail(in_quotes(x.name) + " is BOOL and has a byte that is neither 0 nor 1");
    }
  }
}

}  // namespace

ParsedSafetensors parse_safetensors(Bytes file) {
  std::uint64_t length = 0;
  if (file.size() < k_length_bytes) fail("it is too short for a safetensors file");
  std::memcpy(&length, file.data(), k_length_bytes);
  if (length > k_most_header_bytes)
    fail("it is no safetensors file (torch.save writes another format), or its start is damaged");
  if (length > file.size() - k_length_bytes)
    fail("its header is cut off: is it a safetensors file?");
  const auto body = file.subspan(k_length_bytes);
  const std::string_view text(reinterpret_cast<const char*>(body.data()), length);
  auto header = parse_header(text);
  auto tensors = placed(std::move(header.entries), body.subspan(length));
  auto doubt = checksum_doubt(header.metadata, tensors);
  if (!doubt.empty() && text.ends_with(k_own_end)) fail(doubt);
  check_bools(tensors);
  return {std::move(tensors), std::move(doubt)};
}

SafetensorsParts make_safetensors(std::vector<StoredTensor> tensors) {
  // As Python's writer: the widest first, so that each tensor is aligned in a file that is mapped.
  const auto wider = [](const StoredTensor& a, const StoredTensor& b) {
    return bits_of(a.dtype) > bits_of(b.dtype);
  };
  std::stable_sort(tensors.begin(), tensors.end(), wider);
  SafetensorsHeader header;
  header.metadata["format"] = "pt";  // Python's transformers need it
  SafetensorsParts parts;
  std::uint64_t end = 0;
  for (const auto& x : tensors) {
    const auto begin = std::exchange(end, end + x.data.size());
    header.entries.push_back({x.name, x.dtype, {x.shape.begin(), x.shape.end()}, begin, end});
    header.metadata[std::string(k_checksum) + x.name] = checksum(x.data);
    parts.data.push_back(x.data);
  }
  parts.header = text_of(header);
  parts.header.resize((parts.header.size() + 7) / 8 * 8, ' ');  // aligned, as the data after it
  parts.header += k_own_end;
  if (parts.header.size() > k_most_header_bytes)
    fail("the header would be larger than the format's 100 MB");
  const std::uint64_t length = parts.header.size();
  parts.header.insert(0, reinterpret_cast<const char*>(&length), k_length_bytes);
  return parts;
}

}  // namespace use_gpu::detail
