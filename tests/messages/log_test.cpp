// SPDX-License-Identifier: MIT
#include <use_gpu/log.hpp>

#include <array>
#include <thread>
#include <vector>

#include "support.hpp"

namespace use_gpu {
namespace {

using test::has;

constexpr std::array k_levels{LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error};

// What is written to stderr while one message of each level is logged.
std::string logged() {
  testing::internal::CaptureStderr();
  for (const auto level : k_levels) {
    log_message(level, "level" + std::to_string(static_cast<int>(level)));
  }
  return testing::internal::GetCapturedStderr();
}

// First of all tests: nobody has set a level yet.
TEST(Log, WritesWarningsAndErrorsToStderrAtFirst) {
  const auto text = logged();
  EXPECT_EQ(text, "[use_gpu] [warning] level2\n[use_gpu] [error] level3\n");
}

TEST(Log, WritesNothingBelowTheLevel) {
  for (const auto least :
       {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error, LogLevel::off}) {
    set_log_level(least);
    const auto text = logged();
    for (const auto level : k_levels) {
      const auto name = "level" + std::to_string(static_cast<int>(level));
      EXPECT_EQ(static_cast<bool>(has(text, name)), level >= least);
      EXPECT_EQ(log_enabled(level), level >= least);
    }
  }
  EXPECT_FALSE(log_enabled(LogLevel::off));
  set_log_level(LogLevel::warning);
}

TEST(Log, DoesNotReadBracesInAMessage) {
  testing::internal::CaptureStderr();
  log_message(LogLevel::error, "{} {0} {:d} %s");
  EXPECT_TRUE(has(testing::internal::GetCapturedStderr(), "{} {0} {:d} %s"));
}

TEST(Log, TellsAtDebugThatItFellBackToTheCpu) {
  set_log_level(LogLevel::debug);
  testing::internal::CaptureStderr();
  (void)try_gpu(100);
  EXPECT_TRUE(has(testing::internal::GetCapturedStderr(), "try_gpu(100)"));
  set_log_level(LogLevel::warning);
}

TEST(Log, IsWrittenToByManyThreads) {
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 50; ++i) log_message(LogLevel::warning, "line");
    });
  }
  for (auto& thread : threads) thread.join();
  std::string expected;
  for (int i = 0; i < 200; ++i) expected += "[use_gpu] [warning] line\n";
  EXPECT_EQ(testing::internal::GetCapturedStderr(), expected);
}

}  // namespace
}  // namespace use_gpu
