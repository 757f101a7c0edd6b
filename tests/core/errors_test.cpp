// SPDX-License-Identifier: MIT
#include <use_gpu/errors.hpp>

#include "support.hpp"

namespace use_gpu {
namespace {

template <class Error>
class AnyError : public testing::Test {};
using Errors =
    testing::Types<ArgumentError, DeviceError, DeviceMismatch, ParameterError, TransferForbidden>;
TYPED_TEST_SUITE(AnyError, Errors);

TYPED_TEST(AnyError, IsCaughtWithLibTorchsErrorsAndAsAStandardException) {
  EXPECT_THROW(throw TypeParam("why"), c10::Error);
  EXPECT_THROW(throw TypeParam("why"), std::exception);
}

TYPED_TEST(AnyError, SaysItsMessageWithoutABacktrace) {
  EXPECT_STREQ(TypeParam("why").what(), "why");
}

TYPED_TEST(AnyError, IsNeverLongerThan400Characters) {
  const std::string text = TypeParam(std::string(1 << 20, 'x')).what();
  EXPECT_EQ(text, std::string(264, 'x') + "..." + std::string(133, 'x'));
  EXPECT_EQ(std::string(TypeParam(std::string(400, 'x')).what()), std::string(400, 'x'));
}

TEST(ParameterErrorTest, ListsAllDifferencesHoweverMany) {
  const std::vector<std::string> differences(1000, std::string(100, 'd'));
  EXPECT_EQ(ParameterError("1000 differences", differences).differences(), differences);
  EXPECT_TRUE(ParameterError("none").differences().empty());
}

}  // namespace
}  // namespace use_gpu
