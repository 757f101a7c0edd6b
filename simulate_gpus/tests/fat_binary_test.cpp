// SPDX-License-Identifier: MIT
//
// Damaged fat binaries: each is read as something or refused, and nothing beyond its bytes is touched.
#include "runtime/fat_binary.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "modules/decompress.hpp"

namespace {

using simulate_gpus::read_fat_binary;

std::string fat_binary(const std::string& name) {
  std::ifstream file(std::string(OWN_KERNELS) + '/' + name, std::ios::binary);
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

// The first image as text; empty if it is damaged.
std::string decompressed(const simulate_gpus::CodeImage& image) {
  if (!image.is_compressed) return {image.stored.begin(), image.stored.end()};
  std::string text(std::min(image.plain_bytes, std::size_t{1} << 16), '\0');
  const long written =
      simulate_gpus_decompress(image.stored.data(), image.stored.size(), text.data(), text.size());
  text.resize(static_cast<std::size_t>(std::max(written, 0L)));
  return text;
}

TEST(FatBinary, HasTheSamePtxInEachCompression) {
  std::vector<std::string> texts;
  for (const char* const name : {"plain.fatbin", "speed.fatbin", "size.fatbin"}) {
    const std::string bytes = fat_binary(name);
    const auto images = read_fat_binary(bytes.data(), bytes.size());
    ASSERT_TRUE(images) << name;
    ASSERT_EQ(images->size(), 1U) << name;
    EXPECT_TRUE(images->front().is_ptx);
    EXPECT_EQ(images->front().capability, 75);
    std::string text = decompressed(images->front());
    text.resize(text.find_last_not_of('\0') + 1);
    texts.push_back(text);
  }
  EXPECT_NE(texts[0].find(".entry reversed"), std::string::npos);
  EXPECT_EQ(texts[1], texts[0]);
  EXPECT_EQ(texts[2], texts[0]);
}

TEST(FatBinary, SurvivesDamage) {
  std::mt19937 random(1);
  int num_refused = 0, num_read = 0;
  for (const char* const name : {"plain.fatbin", "speed.fatbin", "size.fatbin"}) {
    const std::string whole = fat_binary(name);
    for (int mutation = 0; mutation < 1000; ++mutation) {
      const std::size_t size =
          mutation % 4 == 0 ? random() % whole.size() : whole.size();  // some are cut
      const auto bytes = std::make_unique<char[]>(size);  // so that a sanitizer sees its end
      std::copy_n(whole.data(), size, bytes.get());
      const std::size_t most = mutation % 2 == 0 ? size : std::min<std::size_t>(size, 100);
      for (int change = 0; change < 3 && most > 0; ++change)
        bytes[random() % most] = static_cast<char>(random());
      const auto images = read_fat_binary(bytes.get(), size);
      if (!images) {
        ++num_refused;
        continue;
      }
      ++num_read;
      for (const auto& image : *images) {
        const char* const begin = image.stored.data();
        ASSERT_GE(begin, bytes.get());
        ASSERT_LE(begin + image.stored.size(), bytes.get() + size);
        EXPECT_LE(decompressed(image).size(), std::size_t{1} << 16);
      }
    }
  }
  EXPECT_GT(num_refused, 100);
  EXPECT_GT(num_read, 100);
}

}  // namespace
