// SPDX-License-Identifier: MIT
//
// The only source that includes spdlog; it includes no LibTorch, because the fmt of Debian's spdlog
// and LibTorch's own fmt conflict in one source.
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

#include "core/messages/log_message.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  using enum spdlog::level::level_enum;
  constexpr spdlog::level::level_enum k_levels[] = {debug, info, warn, err, off};
  return k_levels[static_cast<int>(level)];
}

// A logger of our own, not in spdlog's registry, so that it cannot clash with the user's. Never
// destroyed: objects that outlive main() may still log.
spdlog::logger& logger() {
  static auto* const instance = [] {
    auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    auto made = std::make_unique<spdlog::logger>("use_gpu", std::move(sink));
    made->set_pattern("[%n] [%^%l%$] %v");
    made->set_level(spdlog::level::warn);
    return made.release();
  }();
  return *instance;
}

}  // namespace

void set_log_level(LogLevel level) { logger().set_level(to_spdlog(level)); }

}  // namespace use_gpu

namespace use_gpu::detail {

void log_message(LogLevel level, std::string_view text) noexcept try {
  logger().log(to_spdlog(level), spdlog::string_view_t(text.data(), text.size()));
} catch (...) {  // a log that cannot be written must not end the program
}

}  // namespace use_gpu::detail
