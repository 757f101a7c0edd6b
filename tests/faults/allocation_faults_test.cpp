// SPDX-License-Identifier: MIT
//
// The state after failed allocations. Each action runs with its first allocation failing, then its
// second, and so on until none is left; once only that one fails, and once all later ones fail too,
// so that the clean-up has no memory. Under AddressSanitizer it is each third one, unless TEST_SEED is set.
#include "allocation_fault.hpp"

#include <use_gpu/log.hpp>

#include <cstdlib>
#include <iostream>

#include "fault_actions.hpp"

namespace use_gpu {
namespace {

using test::Action;
using test::fault;
using test::World;

TEST(SetLogLevel, MakesTheLogWhenThereIsMemoryAgain) {
  bool happened = true;
  int at = 0;
  while (happened) {
    fault().plant(++at, /*for_good=*/true);
    try {
      set_log_level(LogLevel::debug);
      fault().lift();
      happened = fault().happened();
    } catch (const std::bad_alloc&) {
      fault().lift();
      EXPECT_EQ(fault().kept(), 0U) << "allocation " << at;
    }
    fault().forget_kept();
  }
  EXPECT_GT(at, 1);
}

#ifdef __has_feature
constexpr bool k_is_slow = __has_feature(address_sanitizer);
#else
constexpr bool k_is_slow = false;
#endif

class EachAllocationFails : public testing::TestWithParam<Action> {};

TEST_P(EachAllocationFails, AndNothingHasChanged) {
  const Action& action = GetParam();
  const auto files = test::saved_files();
  testing::internal::CaptureStderr();  // what is logged
  World untroubled(files, action.pushed);
  const auto usual_outcome = outcome_of(action, untroubled);
  const auto usual_state = untroubled.state();
  const int step = k_is_slow && std::getenv("TEST_SEED") == nullptr ? 3 : 1;
  int failed = 0;
  for (const bool for_good : {false, true}) {
    bool happened = true;
    for (int at = 1; happened && !HasFailure(); at += step) {
      SCOPED_TRACE((for_good ? "all from allocation " : "allocation ") + std::to_string(at));
      {
        World world(files, action.pushed);
        const auto before = world.state();
        fault().plant(at, for_good);
        auto outcome = outcome_of(action, world);
        fault().lift();
        happened = fault().happened();
        failed += happened ? 1 : 0;
        if (outcome == typeid(std::bad_alloc).name()) {
          EXPECT_EQ(world.state(), before);
          outcome = outcome_of(action, world);
        }
        // If that memory was not needed, and after a retry, all is done.
        EXPECT_EQ(outcome, usual_outcome);
        EXPECT_EQ(world.state(), usual_state);
        EXPECT_TRUE(world.has_kept_the_numbers());
      }
      EXPECT_EQ(fault().kept(), 0U) << "allocations were not given back";
      fault().forget_kept();
    }
  }
  testing::internal::GetCapturedStderr();
  std::cout << failed << " allocations failed\n";
  EXPECT_EQ(failed > 0, action.allocates);
}

INSTANTIATE_TEST_SUITE_P(Of, EachAllocationFails, testing::ValuesIn(test::k_actions),
                         test::test_name);

}  // namespace
}  // namespace use_gpu
