// SPDX-License-Identifier: MIT
//
// The libFuzzer target of the readers of safetensors files and of indexes, run by scripts/fuzz. All
// bytes are either refused, or give tensors that lie inside of them and survive a round trip
// through a new file; or tensors that an index lists once, in files of its folder.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "files/safetensors.hpp"

namespace {

using namespace use_gpu::detail;

void require(bool condition) {
  if (!condition) std::abort();
}

std::map<std::string, StoredTensor> by_name(const std::vector<StoredTensor>& tensors) {
  std::map<std::string, StoredTensor> all;
  for (const auto& x : tensors) require(all.emplace(x.name, x).second);
  return all;
}

// Their file, in memory.
std::vector<std::byte> file_of(std::vector<StoredTensor> tensors) {
  sort_for_file(tensors);
  for (auto& x : tensors) x.checksum = checksum_of(x.data);
  const auto text = file_start(tensors);
  const auto start = std::as_bytes(std::span(text));
  std::vector<std::byte> file(start.begin(), start.end());
  for (const auto& x : tensors) file.insert(file.end(), x.data.begin(), x.data.end());
  return file;
}

void check_file(std::span<const std::byte> file) {
  const auto tensors = parse_safetensors(file).tensors;
  std::size_t bytes = 0;
  for (const auto& x : tensors) {
    require(x.data.empty() || (x.data.data() >= file.data() &&
                               x.data.data() + x.data.size() <= file.data() + file.size()));
    bytes += x.data.size();
  }
  require(bytes <= file.size());
  const auto again = file_of(tensors);
  const auto expected = by_name(tensors);
  const auto read = parse_safetensors(again);
  require(read.doubt.empty());
  const auto found = by_name(read.tensors);
  require(found.size() == expected.size());
  for (const auto& [name, x] : expected) {
    const auto& y = found.at(name);
    require(x.dtype == y.dtype && x.shape == y.shape && std::ranges::equal(x.data, y.data));
  }
}

void check_index(std::string_view text) {
  std::set<std::string> all;
  for (const auto& [file, names] : parse_sharded_index(text)) {
    const auto path = (std::filesystem::path("/folder") / file).lexically_normal().string();
    require(path.starts_with("/folder/"));
    require(!names.empty());
    for (const auto& name : names) require(all.insert(name).second);
  }
}

// A std::runtime_error is the one way to refuse.
template <class Check>
void run(const Check& check) {
  try {
    check();
  } catch (const std::runtime_error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  run([&] { check_file(std::as_bytes(std::span(data, size))); });
  run([&] { check_index({reinterpret_cast<const char*>(data), size}); });
  return 0;
}
