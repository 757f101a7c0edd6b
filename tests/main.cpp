// SPDX-License-Identifier: MIT
//
// main() of every test program. A program has the tests of a whole room; --only=device,network runs those of
// device_test.cpp and network_test.cpp. With --gpus=2 it fails where LibTorch does not find as many, instead of skipping
// most of its tests.
#include <gtest/gtest.h>
#include <use_gpu/device.hpp>

#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>

namespace {

// The tests of that source, as a filter of Google Test.
std::string tests_of(const std::string& source) {
  std::string filter;
  const auto& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const auto& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const auto& test = *suite.GetTestInfo(j);
      if (!std::string_view(test.file()).ends_with('/' + source)) continue;
      filter += std::string(suite.name()) + '.' + test.name() + ':';
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int gpus = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--only=")) {
      std::istringstream nouns{std::string(argument.substr(7))};
      std::string filter;
      for (std::string noun; std::getline(nouns, noun, ',');) {
        const std::string tests = tests_of(noun + "_test.cpp");
        if (tests.empty()) {
          std::cerr << "no test is in " << noun << "_test.cpp\n";
          return 2;
        }
        filter += tests;
      }
      if (testing::GTEST_FLAG(filter) == "*") testing::GTEST_FLAG(filter) = filter;
    } else if (argument.starts_with("--gpus=")) {
      gpus = std::atoi(argv[i] + 7);
    }
  }
  std::cout << "GPUs: " << use_gpu::num_gpus() << '\n';
  if (use_gpu::num_gpus() < gpus) {
    std::cerr << "--gpus=" << gpus << ": LibTorch finds fewer\n";
    return 2;
  }
  return RUN_ALL_TESTS();
}
