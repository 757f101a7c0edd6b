// SPDX-License-Identifier: MIT
#include "modules/decompress.hpp"

#include <climits>
#include <cstdint>
#include <cstring>

#ifdef SIMULATE_GPUS_WITH_LZ4
#include <lz4.h>
#endif
#ifdef SIMULATE_GPUS_WITH_ZSTD
#include <zstd.h>
#endif

namespace {

constexpr std::uint32_t k_zstd_magic = 0xFD2FB528;

bool is_zstd(const char* from, std::size_t bytes) {
  std::uint32_t magic = 0;
  if (bytes >= sizeof magic) std::memcpy(&magic, from, sizeof magic);
  return magic == k_zstd_magic;
}

long decompress_zstd([[maybe_unused]] const char* from, [[maybe_unused]] std::size_t bytes,
                     [[maybe_unused]] char* to, [[maybe_unused]] std::size_t most) {
#ifdef SIMULATE_GPUS_WITH_ZSTD
  const std::size_t written = ZSTD_decompress(to, most, from, bytes);
  return ZSTD_isError(written) ? 0 : static_cast<long>(written);
#else
  return -2;
#endif
}

long decompress_lz4([[maybe_unused]] const char* from, [[maybe_unused]] std::size_t bytes,
                    [[maybe_unused]] char* to, [[maybe_unused]] std::size_t most) {
#ifdef SIMULATE_GPUS_WITH_LZ4
  if (bytes > INT_MAX || most > INT_MAX) return 0;
  const int written =
      LZ4_decompress_safe(from, to, static_cast<int>(bytes), static_cast<int>(most));
  return written > 0 ? written : 0;
#else
  return -1;
#endif
}

}  // namespace

long simulate_gpus_decompress(const char* from, std::size_t bytes, char* to, std::size_t most) {
  return is_zstd(from, bytes) ? decompress_zstd(from, bytes, to, most)
                              : decompress_lz4(from, bytes, to, most);
}
