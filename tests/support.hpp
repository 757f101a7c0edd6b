// SPDX-License-Identifier: MIT
//
// What the tests share. Each noun's tests run with 0, 1, 2 and 8 GPUs, so a test says how many it
// needs.
#pragma once

#include <c10/core/DeviceGuard.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <use_gpu/device.hpp>
#include <use_gpu/gpu_info.hpp>

#include <optional>
#include <sstream>
#include <string>
#include <typeinfo>

/// Skips a test, with a message, if there are too few GPUs.
#define USE_GPU_TEST_NEEDS(count)                                                  \
  if (use_gpu::num_gpus() < (count)) {                                             \
    GTEST_SKIP() << "needs " << (count) << " GPUs, found " << use_gpu::num_gpus(); \
  }                                                                                \
  static_assert(true)

namespace use_gpu::test {

/// The current GPU of this thread; nothing where there is none.
inline std::optional<c10::Device> current_gpu() {
  if (num_gpus() == 0) return std::nullopt;
  return c10::impl::VirtualGuardImpl(gpu().type()).getDevice();
}

/// Whether the GPUs are simulated ones; false where there are none.
inline bool simulated() {
  return num_gpus() > 0 && query_gpus().gpus.front().name.starts_with("Simulated GPU");
}

/// What operator<< writes.
std::string printed(const auto& x) {
  std::ostringstream text;
  text << x;
  return text.str();
}

/// A GPU that is not there.
inline c10::Device absent_gpu() { return gpu(127); }

/// The dispatch key of the library's kernels.
constexpr auto k_library_key = c10::DispatchKey::DeferredInit;

/// The text of the error that `action` throws. It must be exactly an Error, of at most 400
/// characters, without a backtrace, and leave the current device as it was; or else the test fails.
template <class Error, class Action>
std::string error_of(const Action& action) {
  const auto before = current_gpu();
  try {
    action();
  } catch (const c10::Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(typeid(error), typeid(Error)) << text;
    EXPECT_LE(text.size(), 400U) << text;
    EXPECT_EQ(text, error.what_without_backtrace());
    EXPECT_EQ(before, current_gpu()) << text;
    return text;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

/// Whether `text` contains `part`; for EXPECT_TRUE, which then shows both.
inline testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << part << "\" is not in \"" << text << "\"";
}

}  // namespace use_gpu::test
