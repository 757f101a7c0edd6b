// SPDX-License-Identifier: MIT
#include "core/messages/error_text.hpp"

#include <c10/util/Exception.h>

#include <functional>
#include <stdexcept>

#include "support.hpp"

namespace use_gpu::detail {
namespace {

std::string cause_of(const std::string& message) {
  return error_cause(std::runtime_error(message));
}

TEST(ErrorText, HasNoBacktrace) {
  try {
    TORCH_CHECK(false, "two\nlines");
  } catch (const c10::Error& error) {
    EXPECT_EQ(error_text(error), "two\nlines");
  }
  EXPECT_EQ(error_text(std::runtime_error("why")), "why");
}

TEST(CurrentErrorText, TakesWhateverWasThrown) {
  const std::pair<std::function<void()>, const char*> throwing[] = {
      {[] { throw std::runtime_error("why"); }, "why"},
      {[] { throw 7; }, "an exception that is no std::exception"}};
  for (const auto& [action, text] : throwing) {
    try {
      action();
    } catch (...) {
      EXPECT_EQ(current_error_text(), text);
    }
  }
}

TEST(ErrorCause, IsTheFirstLineWithoutItsSourceLocation) {
  EXPECT_EQ(cause_of("CUDA error: out of memory\nCompile with ..."), "CUDA error: out of memory");
  EXPECT_EQ(cause_of("[/torch/TCPStore.cpp:123] connect() failed. "), "connect() failed");
  EXPECT_EQ(cause_of("[only this]"), "[only this]");
  EXPECT_EQ(cause_of(""), "");
  EXPECT_EQ(cause_of(std::string(1000, 'x')).size(), 150U);
}

TEST(ErrorCause, EndsAfterAWholeSentence) {
  EXPECT_EQ(
      cause_of("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of "
               "139.80 GiB of which 119.63 MiB is free. Including non-PyTorch memory, this "
               "process has 17179869184.00 GiB memory in use. Of the allocated memory ..."),
      "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.80 "
      "GiB of which 119.63 MiB is free");
  EXPECT_TRUE(cause_of("Short. " + std::string(1000, 'x')).ends_with("x..."))
      << "too little is left";
}

TEST(ErrorCause, IsNcclsOwnDetailOfItsErrors) {
  const std::string by_libtorch =
      "NCCL error in: /torch/csrc/distributed/c10d/NCCLUtils.cpp:94, unhandled system error (run "
      "with NCCL_DEBUG=INFO for details), NCCL version 2.28.9\n"
      "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or "
      "device "
      "error. \nLast error:\n";
  EXPECT_EQ(cause_of(by_libtorch + "Error while creating shared memory segment /dev/shm/nccl-Xy "
                                   "(size 9637888), error: No space left on device (28)\n"),
            "NCCL: Error while creating shared memory segment /dev/shm/nccl-Xy (size 9637888), "
            "error: No space left on device (28)");
  EXPECT_TRUE(cause_of(by_libtorch).starts_with("unhandled system error")) << "it had no detail";
}

}  // namespace
}  // namespace use_gpu::detail
