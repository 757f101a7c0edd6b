// SPDX-License-Identifier: MIT
//
// The libFuzzer target of the safetensors reader, run by scripts/fuzz. All bytes are either
// refused, or give tensors that lie inside of them and survive a round trip through a new file.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>

#include "tensor_files/safetensors.hpp"

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

// A file of one part, in memory.
std::vector<std::byte> joined(const SafetensorsParts& parts) {
  const auto header = std::as_bytes(std::span(parts.header));
  std::vector<std::byte> file(header.begin(), header.end());
  for (const auto part : parts.data) file.insert(file.end(), part.begin(), part.end());
  return file;
}

void check(std::span<const std::byte> file) {
  const auto tensors = parse_safetensors(file);
  std::size_t bytes = 0;
  for (const auto& x : tensors) {
    require(x.data.empty() || (x.data.data() >= file.data() &&
                               x.data.data() + x.data.size() <= file.data() + file.size()));
    bytes += x.data.size();
  }
  require(bytes <= file.size());
  const auto again = joined(make_safetensors(tensors));
  const auto expected = by_name(tensors);
  const auto found = by_name(parse_safetensors(again));
  require(found.size() == expected.size());
  for (const auto& [name, x] : expected) {
    const auto& y = found.at(name);
    require(x.dtype == y.dtype && x.shape == y.shape && std::ranges::equal(x.data, y.data));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    check(std::as_bytes(std::span(data, size)));
  } catch (const std::runtime_error&) {
    // The one way to refuse a file.
  }
  return 0;
}
