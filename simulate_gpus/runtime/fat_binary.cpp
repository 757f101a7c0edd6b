// SPDX-License-Identifier: MIT
#include "fat_binary.hpp"

#include <cstring>

namespace simulate_gpus {
namespace {

constexpr std::uint32_t k_wrapper_magic = 0x466243b1, k_binary_magic = 0xBA55ED50;
constexpr std::uint16_t k_kind_of_ptx = 1, k_kind_of_machine_code = 2;

struct Wrapper {
  std::uint32_t magic, version;
  const void* binary;
  const void* const* objects;  // of version 2: the fat binaries that were linked, then null
};

struct BinaryHeader {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t bytes;  // of all images
};

struct ImageHeader {
  std::uint16_t kind, version;
  std::uint32_t header_bytes;
  std::uint64_t bytes;
  std::uint32_t compressed_bytes;  // 0 if it is plain
  std::uint32_t options;
  std::uint16_t minor, major;
  std::uint32_t capability;
  std::uint32_t name_offset, name_bytes;
  std::uint64_t flags, reserved, plain_bytes;
};
static_assert(sizeof(BinaryHeader) == 16 && sizeof(ImageHeader) == 64);

template <class Header>
Header read_header(const char* place) {
  Header header;
  std::memcpy(&header, place, sizeof header);
  return header;
}

}  // namespace

std::optional<std::vector<CodeImage>> read_fat_binary(const void* address, std::size_t most) {
  if (most < sizeof(BinaryHeader)) return std::nullopt;
  const auto* place = static_cast<const char*>(address);
  const auto whole = read_header<BinaryHeader>(place);
  if (whole.magic != k_binary_magic || whole.header_bytes < sizeof(BinaryHeader) ||
      whole.header_bytes > most || whole.bytes > most - whole.header_bytes)
    return std::nullopt;
  std::vector<CodeImage> images;
  place += whole.header_bytes;
  for (std::uint64_t left = whole.bytes; left >= sizeof(ImageHeader);) {
    const auto header = read_header<ImageHeader>(place);
    if (header.header_bytes < sizeof(ImageHeader) || header.header_bytes > left ||
        header.bytes > left - header.header_bytes || header.compressed_bytes > header.bytes)
      return std::nullopt;
    const bool is_compressed = header.compressed_bytes != 0;
    if (header.kind == k_kind_of_ptx || header.kind == k_kind_of_machine_code) {
      images.push_back(
          {static_cast<int>(header.capability),
           header.kind == k_kind_of_ptx,
           is_compressed,
           {place + header.header_bytes, is_compressed ? header.compressed_bytes : header.bytes},
           header.plain_bytes});
    }
    place += header.header_bytes + header.bytes;
    left -= header.header_bytes + header.bytes;
  }
  return images;
}

std::vector<const void*> fat_binaries_of(const void* address) {
  const auto wrapper = read_header<Wrapper>(static_cast<const char*>(address));
  if (wrapper.magic != k_wrapper_magic) return {};
  if (wrapper.version < 2 || wrapper.objects == nullptr) return {wrapper.binary};
  std::vector<const void*> objects;
  for (const void* const* each = wrapper.objects; *each != nullptr; ++each)
    objects.push_back(*each);
  return objects;
}

std::string machine_code_of(const std::vector<CodeImage>& images) {
  std::string text;
  for (const CodeImage& image : images) {
    if (image.is_ptx) continue;
    text += (text.empty() ? "sm_" : ", sm_") + std::to_string(image.capability);
  }
  return text;
}

}  // namespace simulate_gpus
