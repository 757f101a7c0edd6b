// SPDX-License-Identifier: MIT
#include <use_gpu/batch.hpp>

#include <torch/data/example.h>
#include <torch/ordered_dict.h>
#include <torch/types.h>
#include <use_gpu/device.hpp>
#include <use_gpu/errors.hpp>

#include <memory>

#include "support.hpp"

namespace mine {

struct Sentence {
  at::Tensor words;
  int length;
};

Sentence to_device(const Sentence& x, c10::Device device) {
  return {use_gpu::to_device(x.words, device), x.length};
}

}  // namespace mine

namespace use_gpu {
namespace {

using test::error_of;

enum class Split { train, test };

at::Tensor number(float value) { return torch::full({2}, value); }

bool is(const at::Tensor& x, float value, c10::Device device) {
  return same_device(x.device(), device) && x.sum().item<float>() == 2 * value;
}

TEST(Batch, OfEveryKindIsMoved) {
  for (const auto device : {cpu(), try_gpu(0), try_gpu(1)}) {
    const std::vector<at::Tensor> list{number(1), number(2)};
    EXPECT_TRUE(is(to_device(list, device).at(1), 2, device));
    const std::array<at::Tensor, 2> array{number(1), number(2)};
    EXPECT_TRUE(is(to_device(array, device)[1], 2, device));
    const std::map<std::string, at::Tensor> map{{"a", number(1)}, {"b", number(2)}};
    EXPECT_TRUE(is(to_device(map, device).at("b"), 2, device));
    const std::pair<at::Tensor, int> pair{number(1), 7};
    EXPECT_TRUE(is(to_device(pair, device).first, 1, device));
    EXPECT_EQ(to_device(pair, device).second, 7);
    const std::tuple<int, at::Tensor, std::string> tuple{3, number(1), "text"};
    EXPECT_TRUE(is(std::get<1>(to_device(tuple, device)), 1, device));
    EXPECT_EQ(std::get<2>(to_device(tuple, device)), "text");
    const std::optional<at::Tensor> some(number(1)), none;
    EXPECT_TRUE(is(*to_device(some, device), 1, device));
    EXPECT_FALSE(to_device(none, device));
    const std::unordered_map<int, at::Tensor> hashed{{1, number(1)}, {2, number(2)}};
    EXPECT_TRUE(is(to_device(hashed, device).at(2), 2, device));
    const torch::OrderedDict<std::string, at::Tensor> dict{{"b", number(1)}, {"a", number(2)}};
    EXPECT_TRUE(is(to_device(dict, device)["a"], 2, device));
    EXPECT_EQ(to_device(dict, device).keys(), dict.keys());
    const torch::data::Example<> example(number(1), number(2));
    EXPECT_TRUE(is(to_device(example, device).data, 1, device));
    EXPECT_TRUE(is(to_device(example, device).target, 2, device));
    const torch::data::TensorExample input(number(1));
    EXPECT_TRUE(is(to_device(input, device).data, 1, device));
    EXPECT_TRUE(is(to_device(number(5), device), 5, device));
  }
}

TEST(Batch, MayBeNested) {
  using Inner = std::map<int, std::vector<std::optional<at::Tensor>>>;
  using Outer =
      std::vector<torch::data::Example<std::tuple<Inner, Split>, std::array<at::Tensor, 1>>>;
  const Inner inner{{1, {number(1), std::nullopt}}, {2, {}}};
  const Outer batch{{{inner, Split::test}, {number(2)}}};
  const auto moved = to_device(batch, try_gpu());
  const auto& [tensors, split] = moved.at(0).data;
  EXPECT_TRUE(is(tensors.at(1).at(0).value(), 1, try_gpu()));
  EXPECT_FALSE(tensors.at(1).at(1));
  EXPECT_TRUE(tensors.at(2).empty());
  EXPECT_EQ(split, Split::test);
  EXPECT_TRUE(is(moved.at(0).target[0], 2, try_gpu()));
}

TEST(Batch, OfATypeWithItsOwnOverloadIsMovedByIt) {
  const std::vector<mine::Sentence> batch{{number(1), 5}};
  const auto moved = to_device(batch, try_gpu());
  EXPECT_TRUE(is(moved.at(0).words, 1, try_gpu()));
  EXPECT_EQ(moved.at(0).length, 5);
}

TEST(Batch, KeepsOneTensorOne) {
  const auto x = number(1);
  const auto moved = to_device(std::vector{x, number(2), x}, try_gpu());
  EXPECT_TRUE(moved[0].is_same(moved[2]));
  EXPECT_FALSE(moved[0].is_same(moved[1]));
}

TEST(Batch, IsRecordedByAutograd) {
  const auto x = number(1).requires_grad_();
  to_device(std::pair{x, 1}, try_gpu()).first.sum().backward();
  EXPECT_EQ(x.grad().sum().item<float>(), 2);
}

TEST(Batch, NeedsADeviceThatIsThere) {
  error_of<DeviceError>([] { (void)to_device(std::vector{number(1)}, test::absent_gpu()); });
}

TEST(SplitBatch, GivesEachDeviceItsRows) {
  const std::vector<c10::Device> devices{cpu(), try_gpu(0), try_gpu(1)};
  for (const std::int64_t rows : {0, 1, 2, 3, 7, 12}) {
    const torch::data::Example<> batch(torch::rand({rows, 2}), torch::arange(rows));
    const auto parts = split_batch(batch, devices);
    const auto expected = batch.data.tensor_split(3);
    ASSERT_EQ(parts.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(parts[i].data.cpu().equal(expected[i])) << rows;
      EXPECT_TRUE(parts[i].target.cpu().equal(batch.target.tensor_split(3)[i])) << rows;
      EXPECT_TRUE(same_device(parts[i].data.device(), devices[i]));
    }
  }
}

TEST(SplitBatch, DividesTheTensorsOfANestedBatchAndCopiesTheRest) {
  using Batch = std::tuple<std::map<std::string, at::Tensor>, std::vector<at::Tensor>, std::string>;
  const auto x = torch::arange(10.F);
  const Batch batch{{{"x", x}}, {x, at::Tensor()}, "text"};
  const auto parts = split_batch(batch, {try_gpu(0), try_gpu(1)});
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& [map, list, text] = parts[i];
    EXPECT_TRUE(map.at("x").cpu().equal(x.chunk(2)[i]));
    EXPECT_TRUE(list[0].is_same(map.at("x")));
    EXPECT_FALSE(list[1].defined());
    EXPECT_EQ(text, "text");
  }
}

TEST(SplitBatch, IsRecordedByAutograd) {
  const auto x = number(1).requires_grad_();
  for (const auto& part : split_batch(x, {try_gpu(), cpu()})) part.sum().backward();
  EXPECT_EQ(x.grad().sum().item<float>(), 2);
}

TEST(SplitBatch, RefusesWhatHasNoRows) {
  const auto text_of = [](const std::vector<at::Tensor>& batch,
                          const std::vector<c10::Device>& devices) {
    return error_of<ArgumentError>([&] { (void)split_batch(batch, devices); });
  };
  EXPECT_TRUE(test::has(text_of({number(1)}, {}), "no devices"));
  EXPECT_TRUE(test::has(text_of({}, {cpu()}), "no tensor"));
  EXPECT_TRUE(test::has(text_of({number(1), torch::ones({})}, {cpu()}), "without dimensions"));
  EXPECT_TRUE(test::has(text_of({number(1), torch::ones({3, 4})}, {cpu()}),
                        "tensors of 2 rows and one of 3, float32[3, 4] on cpu"));
  error_of<DeviceError>([] { (void)split_batch(number(1), {cpu(), test::absent_gpu()}); });
}

}  // namespace
}  // namespace use_gpu
