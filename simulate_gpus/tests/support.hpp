// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <string>

inline const torch::Device k_gpu(torch::kCUDA, 0), k_second_gpu(torch::kCUDA, 1);

// The text of the c10::Error that `action` throws.
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

inline testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << part << "\" is not in \"" << text << "\"";
}
