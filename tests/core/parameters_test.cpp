// SPDX-License-Identifier: MIT
#include <use_gpu/parameters.hpp>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <use_gpu/errors.hpp>
#include <use_gpu/memory.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/tensor.hpp>

#include "networks.hpp"
#include "support.hpp"

namespace use_gpu {
namespace {

using test::error_of;
using test::expect_same;
using test::fill_with_zeros;
using test::has;
using test::Net;
using test::register_all_kinds;
using test::same_bits;
using test::small_net;
using test::snapshot;
using Values = std::map<std::string, at::Tensor>;

TEST(ReadParameters, CopiesParametersAndBuffersToTheHost) {
  for (const auto device : try_all_gpus()) {
    auto net = small_net();
    place(net, device);
    const auto values = read_parameters(net);
    expect_same(snapshot(*net), values);
    for (const auto& [name, value] : values) {
      EXPECT_TRUE(value.is_cpu() && value.is_contiguous() && !value.requires_grad()) << name;
      EXPECT_EQ(value.storage().nbytes(), value.nbytes()) << name << " shares memory with others";
    }
    values.at("0.weight").fill_(7);
    EXPECT_NE(net->parameters()[0].sum().item<float>(), 84) << "it is a copy";
  }
}

TEST(ReadParameters, TakesTensorsOfEveryKind) {
  Net net;
  register_all_kinds(net);
  const auto expected = snapshot(net);
  place(net, try_gpu());
  const auto values = read_parameters(net);
  EXPECT_FALSE(values.contains("undefined"));
  expect_same(expected, values);
}

TEST(ReadParameters, KeepsTiedOnesTied) {
  Net net;
  const auto weight = net.register_parameter("encoder", torch::ones({2, 2}));
  net.register_parameter("decoder", weight);
  place(net, try_gpu());
  auto values = read_parameters(net);
  EXPECT_TRUE(values.at("encoder").is_same(values.at("decoder")));
  values.at("encoder").fill_(3);
  write_parameters(net, values);
  EXPECT_EQ(weight.sum().item<float>(), 12);
}

TEST(ReadParameters, GivesTensorsThatMayBeChangedAfterInferenceMode) {
  auto net = small_net();
  place(net, try_gpu());
  const auto values = [&] {
    const c10::InferenceMode inference;
    return read_parameters(net);
  }();
  for (const auto& [name, value] : values) EXPECT_FALSE(value.is_inference()) << name;
}

TEST(ReadParameters, RefusesTensorsWithoutPlainValues) {
  Net net;
  net.register_buffer("nothing", torch::ones({2}, torch::kMeta));
  net.register_buffer("sparse", torch::ones({2, 2}).to_sparse());
  net.register_buffer("plain", torch::ones({2}));
  try {
    (void)read_parameters(net);
    FAIL();
  } catch (const ParameterError& error) {
    EXPECT_EQ(error.differences(), (std::vector<std::string>{"nothing is without values (meta)",
                                                             "sparse is not dense"}));
  }
  error_of<ParameterError>([&] { (void)read_parameters(net); });
  error_of<ParameterError>([&] { write_parameters(net, {{"sparse", torch::ones({2, 2})}}); });
}

TEST(WriteParameters, WritesInPlace) {
  for (const auto device : try_all_gpus()) {
    auto net = small_net();
    place(net, device);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.5));
    const auto weight = net->parameters()[0];
    const auto* memory = weight.const_data_ptr();
    auto values = read_parameters(net);
    values.at("0.weight").fill_(2);
    values.at("1.num_batches_tracked").fill_(5);
    write_parameters(net, values);
    expect_same(values, snapshot(*net));
    EXPECT_TRUE(weight.is_same(net->parameters()[0]));
    EXPECT_EQ(weight.const_data_ptr(), memory);
    EXPECT_TRUE(weight.requires_grad() && weight.is_leaf() && same_device(weight.device(), device));
    net->forward(torch::ones({5, 3}, device)).sum().backward();
    optimizer.step();
    EXPECT_FALSE(same_bits(values.at("2.bias"), snapshot(*net).at("2.bias"))) << "training goes on";
  }
}

TEST(WriteParameters, LeavesOtherNamesAlone) {
  auto net = small_net();
  place(net, try_gpu());
  auto expected = snapshot(*net);
  expected.at("2.bias") = torch::full({1}, 9.F);
  write_parameters(net, {{"2.bias", torch::full({1}, 9.F)}});
  expect_same(expected, snapshot(*net));
  write_parameters(net, {});
}

TEST(WriteParameters, TakesTensorsOfEveryKind) {
  Net net;
  register_all_kinds(net);
  place(net, try_gpu());
  const auto values = read_parameters(net);
  const auto strides = net.named_parameters()["transposed"].strides().vec();
  fill_with_zeros(net);
  write_parameters(net, values);
  expect_same(values, snapshot(net));
  EXPECT_EQ(net.named_parameters()["transposed"].strides(), strides);
  EXPECT_FALSE(net.named_parameters()["frozen"].requires_grad());
}

TEST(WriteParameters, TakesValuesFromAnyDevice) {
  auto net = small_net();
  place(net, try_gpu());
  for (const auto device : {cpu(), try_gpu(0), try_gpu(1)}) {
    const auto value = torch::full({4, 3}, 1.F + static_cast<float>(device.index()), device);
    write_parameters(net, {{"0.weight", value}});
    EXPECT_TRUE(same_bits(to_device(value, cpu()), snapshot(*net).at("0.weight")));
  }
  place(net, cpu());
  write_parameters(net, {{"0.weight", torch::full({4, 3}, 8.F, try_gpu())}});
  EXPECT_EQ(net->parameters()[0].sum().item<float>(), 96);
}

TEST(WriteParameters, TakesTheNetworksOwnTensorsForValues) {
  Net net;
  const auto a = net.register_parameter("a", torch::zeros({2}, try_gpu()));
  const auto b = net.register_parameter("b", torch::ones({2}, try_gpu()));
  write_parameters(net, {{"a", b}, {"b", a}});
  EXPECT_EQ(a.sum().item<float>(), 2);
  EXPECT_EQ(b.sum().item<float>(), 0);
}

TEST(WriteParameters, TellsAutogradThatTheValuesChanged) {
  Net net;  // one that is alone with its dtype, and two that travel together
  const auto alone = net.register_parameter(
      "alone", torch::ones({2}, torch::TensorOptions(try_gpu()).dtype(torch::kDouble)));
  const auto one = net.register_parameter("one", torch::ones({2}, try_gpu()));
  const auto two = net.register_parameter("two", torch::ones({2}, try_gpu()));
  const auto values = read_parameters(net);
  for (const auto& w : {alone, one, two}) {
    const auto loss = (w * w).sum();
    write_parameters(net, values);
    EXPECT_THROW(loss.backward(), c10::Error) << "w is no longer what the loss was computed from";
  }
}

TEST(WriteParameters, WorksInAndAfterInferenceMode) {
  Net net;
  {
    const c10::InferenceMode inference;
    net.register_buffer("made_inside", torch::zeros({2}, try_gpu()));
  }
  net.register_buffer("made_outside", torch::zeros({2}, try_gpu()));
  const auto values = Values{{"made_inside", torch::ones({2})}, {"made_outside", torch::ones({2})}};
  write_parameters(net, values);
  expect_same(values, snapshot(net));
  const c10::InferenceMode inference;
  write_parameters(net, read_parameters(net));
}

TEST(WriteParameters, ListsAllDifferencesAndWritesNothing) {
  auto net = small_net();
  place(net, try_gpu());
  const auto before = snapshot(*net);
  const auto write = [&] {
    write_parameters(net, {{"0.weight", torch::ones({3, 4})},
                           {"0.bias", torch::ones({4}, torch::kDouble)},
                           {"1.weight", at::Tensor()},
                           {"2.bias", torch::ones({1})},
                           {"9.nobody", torch::ones({1})}});
  };
  const auto text = error_of<ParameterError>(write);
  EXPECT_TRUE(has(
      text,
      "0.bias is float32[4] in the network, but float64[4] was given; 0.weight is float32[4, 3] "));
  EXPECT_TRUE(has(text, "and 1 more"));
  try {
    write();
  } catch (const ParameterError& error) {
    ASSERT_EQ(error.differences().size(), 4U);
    EXPECT_EQ(error.differences()[2], "1.weight was given an undefined tensor");
    EXPECT_EQ(error.differences()[3], "9.nobody is not in the network");
  }
  expect_same(before, snapshot(*net));
}

TEST(WriteParameters, RefusesDifferentValuesForTiedNames) {
  Net net;
  const auto weight = net.register_parameter("encoder", torch::zeros({2}, try_gpu()));
  net.register_parameter("decoder", weight);
  const auto nan = torch::full({2}, std::numeric_limits<float>::quiet_NaN());
  write_parameters(net, {{"encoder", nan}, {"decoder", nan.clone()}});
  const auto text = error_of<ParameterError>([&] {
    write_parameters(net, {{"encoder", torch::ones({2})}, {"decoder", torch::zeros({2})}});
  });
  EXPECT_TRUE(has(text, "encoder is tied to decoder; give both one tensor"));
}

TEST(WriteParameters, RefusesATensorThatOverlapsItself) {
  Net net;
  net.register_buffer("a", torch::zeros({2}));
  net.register_buffer("expanded", torch::zeros({1}).expand({4}));
  EXPECT_TRUE(
      has(error_of<ParameterError>([&] {
            write_parameters(net, {{"a", torch::ones({2})}, {"expanded", torch::ones({4})}});
          }),
          "expanded overlaps itself"));
  EXPECT_EQ(net.buffers()[0].sum().item<float>(), 0);
}

TEST(WriteParameters, ChangesNothingWhenTheDeviceRunsOutOfMemory) {
  if (!test::simulated()) GTEST_SKIP() << "needs simulated GPUs: it fills the memory of one";
  Net net;
  net.register_buffer("a", torch::zeros({2}, gpu()));
  // With gaps, so that its values cannot be sent straight to where they belong.
  const auto big = torch::zeros({1024, 2048}, gpu());
  net.register_buffer("b", big.slice(1, 0, 2048, 2));
  std::vector<at::Tensor> fillers;  // smaller and smaller ones, also into what LibTorch has cached
  const auto bytes = torch::TensorOptions(gpu()).dtype(torch::kByte);
  for (auto size = static_cast<std::int64_t>(*memory_report(gpu()).free_bytes); size >= 1 << 20;) {
    try {
      fillers.push_back(torch::empty({size}, bytes));
    } catch (const c10::OutOfMemoryError&) {
      size /= 2;
    }
  }
  EXPECT_THROW(write_parameters(net, {{"a", torch::ones({2})}, {"b", torch::ones({1024, 1024})}}),
               c10::Error);
  EXPECT_EQ(net.buffers()[0].sum().item<float>(), 0);
}

TEST(Parameters, RefuseABufferOfAParametersName) {
  Net net;
  net.register_parameter("both", torch::ones({2}));
  net.register_buffer("both", torch::zeros({3}));
  const auto part = "both is a parameter and a buffer";
  EXPECT_TRUE(has(error_of<ParameterError>([&] { (void)read_parameters(net); }), part));
  EXPECT_TRUE(has(error_of<ParameterError>([&] { write_parameters(net, {}); }), part));
}

TEST(Parameters, RefuseAnEmptyHolder) {
  const torch::nn::Linear empty = nullptr;
  error_of<ArgumentError>([&] { (void)read_parameters(empty); });
  error_of<ArgumentError>([&] { write_parameters(empty, {}); });
}

}  // namespace
}  // namespace use_gpu
