// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <torch/types.h>
#include <use_gpu/detail/each_tensor.hpp>

#include <array>

namespace use_gpu::detail {
namespace {

using torch::Tensor;

int number(const Tensor& x) { return x.item<int>(); }

// Adds ten, and remembers what it was given.
struct AddTen {
  std::vector<int> seen = {};

  Tensor operator()(const Tensor& x) {
    seen.push_back(number(x));
    return x + 10;
  }
};

TEST(WithEachTensor, ReplacesTensorsInNestedContainersInTheirOrder) {
  const auto x = [](int value) { return torch::tensor(value); };
  const std::map<std::string, std::vector<std::pair<Tensor, int>>> nested = {
      {"a", {{x(1), 5}, {x(2), 6}}}, {"b", {{x(3), 7}}}};
  AddTen visit;
  const auto found = with_each_tensor(nested, visit);
  EXPECT_EQ(visit.seen, (std::vector{1, 2, 3}));
  EXPECT_EQ(number(found.at("a")[1].first), 12);
  EXPECT_EQ(found.at("a")[1].second, 6);
  EXPECT_EQ(number(found.at("b")[0].first), 13);
  EXPECT_EQ(number(nested.at("b")[0].first), 3);  // as it was

  const auto array = with_each_tensor(std::array{x(4), x(5)}, visit);
  EXPECT_EQ(number(array[1]), 15);
  const auto hashed = with_each_tensor(std::unordered_map<int, Tensor>{{8, x(6)}}, visit);
  EXPECT_EQ(number(hashed.at(8)), 16);
}

TEST(WithEachTensor, LeavesWhatIsAbsentOrPlain) {
  AddTen visit;
  const std::tuple absent{Tensor(), std::optional<Tensor>(), std::string("text"), 2.5};
  const auto found = with_each_tensor(absent, visit);
  EXPECT_TRUE(visit.seen.empty());
  EXPECT_FALSE(std::get<0>(found).defined());
  EXPECT_FALSE(std::get<1>(found).has_value());
  EXPECT_EQ(std::get<2>(found), "text");
  EXPECT_EQ(std::get<3>(found), 2.5);
}

struct Unknown {
  int value;
};

TEST(WithEachTensor, GivesAnUnknownTypeToAVisitThatTakesIt) {
  AddTen takes_tensors_alone;
  EXPECT_EQ(with_each_tensor(std::vector{Unknown{1}}, takes_tensors_alone)[0].value, 1);
  struct TakesBoth : AddTen {
    using AddTen::operator();
    Unknown operator()(const Unknown& x) { return {x.value + 20}; }
  } takes_both;
  EXPECT_EQ(with_each_tensor(std::vector{Unknown{1}}, takes_both)[0].value, 21);
}

}  // namespace
}  // namespace use_gpu::detail
