// SPDX-License-Identifier: MIT
#include <use_gpu/network.hpp>

#include <ATen/DeviceAccelerator.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <use_gpu/default_device.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/log.hpp>
#include <use_gpu/memory.hpp>
#include <use_gpu/parameters.hpp>

#include "networks.hpp"
#include "support.hpp"

namespace use_gpu {
namespace {

using test::error_of;
using test::has;
using test::Net;
using test::printed;
using test::small_net;

// One step of training; throws where a gradient and its parameter are on different devices.
void train(torch::nn::Sequential& net, torch::optim::Optimizer& optimizer, c10::Device device) {
  net->forward(torch::ones({5, 3}, device)).sum().backward();
  optimizer.step();
}

void expect_all_on(const torch::nn::Module& net, c10::Device device) {
  for (const auto& x : net.parameters()) {
    EXPECT_TRUE(same_device(x.device(), device));
    if (x.grad().defined()) {
      EXPECT_TRUE(same_device(x.grad().device(), device));
    }
  }
  for (const auto& x : net.buffers()) EXPECT_TRUE(same_device(x.device(), device));
}

// What must not change when place() fails: every tensor's memory, device and values.
struct Snapshot {
  explicit Snapshot(const torch::nn::Module& net) {
    auto tensors = net.parameters();
    for (const auto& x : net.parameters()) {
      if (x.grad().defined()) tensors.push_back(x.grad());
    }
    for (const auto& x : net.buffers()) tensors.push_back(x);
    for (const auto& x : tensors)
      all.emplace_back(x.unsafeGetTensorImpl(), x.storage().data(), x.device().str());
  }
  std::vector<std::tuple<at::TensorImpl*, const void*, std::string>> all;
};

TEST(Place, MovesWhatWasMadeInInferenceMode) {
  auto net = [] {
    const c10::InferenceMode inference;
    return small_net();
  }();
  const auto before = read_parameters(net);
  place(net, try_gpu());
  EXPECT_EQ(placement(net).single_device(), try_gpu());
  for (const auto& [name, x] : read_parameters(net)) EXPECT_TRUE(x.equal(before.at(name))) << name;
  const c10::InferenceMode inference;
  EXPECT_EQ(net->forward(torch::ones({2, 3}, try_gpu())).device(), try_gpu());
}

TEST(Place, MovesParametersBuffersAndGradientsAndKeepsTheirIdentity) {
  for (const auto device : try_all_gpus()) {
    auto net = small_net();
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.5));
    net->forward(torch::ones({5, 3})).sum().backward();
    const auto parameters = net->parameters();
    const auto gradient = parameters[0].grad();
    place(net, device);
    expect_all_on(*net, device);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(parameters[i].is_same(net->parameters()[i]));
      EXPECT_TRUE(parameters[i].requires_grad());
      EXPECT_TRUE(parameters[i].is_leaf());
    }
    EXPECT_TRUE(gradient.is_same(net->parameters()[0].grad()));
    train(net, optimizer, device);
    place(net, device);
    train(net, optimizer, device);
  }
}

TEST(Place, LeavesNoGradientBehindAsModuleToDoes) {
  USE_GPU_TEST_NEEDS(1);
  auto net = small_net();
  net->forward(torch::ones({5, 3})).sum().backward();
  net->to(gpu());
  EXPECT_TRUE(net->parameters()[0].grad().is_cpu()) << "LibTorch now moves gradients";
  const auto loss = net->forward(torch::ones({5, 3}, gpu())).sum();
  EXPECT_THROW(loss.backward(), c10::Error);
  place(net, gpu());
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  train(net, optimizer, gpu());
}

TEST(Place, ConvertsWhatIsFloatingPoint) {
  for (const auto from : {cpu(), try_gpu(0)}) {
    for (const auto to : {cpu(), try_gpu(0), try_gpu(1)}) {
      auto net = small_net();
      net->register_parameter("complex", torch::ones({2}, torch::kComplexFloat),
                              /*requires_grad=*/false);
      net->register_buffer("mask", torch::tensor({true}));
      place(net, from);
      net->forward(torch::ones({5, 3}, from)).sum().backward();
      const auto weight = net->named_parameters()["0.weight"];
      const auto gradient = weight.grad();
      const auto before = read_parameters(net);
      place(net, to, torch::kDouble);
      expect_all_on(*net, to);
      EXPECT_TRUE(weight.is_same(net->named_parameters()["0.weight"]));
      EXPECT_TRUE(gradient.is_same(weight.grad()));
      EXPECT_EQ(gradient.scalar_type(), torch::kDouble);
      for (const auto& [name, x] : read_parameters(net)) {
        const auto& old = before.at(name);
        const auto dtype = old.is_floating_point() ? torch::kDouble : old.scalar_type();
        EXPECT_TRUE(test::same_bits(x, old.to(dtype))) << name;
      }
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      net->forward(torch::ones({5, 3}, torch::TensorOptions(to).dtype(torch::kDouble)))
          .sum()
          .backward();
      optimizer.step();
    }
  }
}

TEST(Place, ConvertsWhereTheTensorsAre) {
  auto net = small_net();
  place(net, try_gpu());
  const auto* memory = net->parameters()[0].const_data_ptr();
  place(net, try_gpu(), torch::kFloat);
  EXPECT_EQ(net->parameters()[0].const_data_ptr(), memory) << "it has that dtype";
  place(net, try_gpu(), torch::kHalf);
  EXPECT_EQ(net->parameters()[0].scalar_type(), torch::kHalf);
  EXPECT_EQ(net->named_buffers()["1.num_batches_tracked"].scalar_type(), torch::kLong);
  place(net, try_gpu());
  EXPECT_EQ(net->parameters()[0].scalar_type(), torch::kHalf) << "no dtype was asked for";
}

TEST(Place, RefusesADtypeThatIsNotFloatingPoint) {
  auto net = small_net();
  for (const auto dtype : {torch::kLong, torch::kBool, torch::kComplexFloat}) {
    EXPECT_TRUE(has(error_of<ArgumentError>([&] { place(net, try_gpu(), dtype); }),
                    "is not a floating point dtype"));
  }
  EXPECT_TRUE(net->parameters()[0].is_cpu());
}

TEST(Place, ChangesNothingWhereADtypeCannotBeConvertedTo) {
  auto net = small_net();
  const Snapshot before(*net);
  EXPECT_THROW(place(net, cpu(), torch::kFloat4_e2m1fn_x2), c10::Error);
  EXPECT_EQ(before.all, Snapshot(*net).all);
}

TEST(Place, KeepsTheValues) {
  USE_GPU_TEST_NEEDS(2);
  auto net = small_net();
  std::vector<at::Tensor> before;
  for (const auto& x : net->parameters()) before.push_back(x.detach().clone());
  for (const auto device : {gpu(0), gpu(1), cpu()}) place(net, device);
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(before[i].equal(net->parameters()[i]));
}

TEST(Place, CopiesNothingThatIsThereAlready) {
  for (const auto device : try_all_gpus()) {
    auto net = small_net();
    place(net, device);
    const Snapshot before(*net);
    place(net, device);
    EXPECT_EQ(before.all, Snapshot(*net).all);
  }
  auto net = small_net();
  const Snapshot before(*net);
  place(net, c10::Device("cpu:0"));
  EXPECT_EQ(before.all, Snapshot(*net).all);
}

TEST(Place, TakesAGpuWithoutIndexForTheCurrentOne) {
  USE_GPU_TEST_NEEDS(2);
  const c10::DeviceGuard guard(gpu(1));
  auto net = small_net();
  place(net, c10::Device(gpu().type()));
  EXPECT_EQ(placement(net).single_device(), gpu(1));
}

TEST(Place, KeepsTiedParametersTied) {
  Net net;
  const auto weight = net.register_parameter("encoder", torch::ones({2, 2}));
  net.register_parameter("decoder", weight);
  place(net, try_gpu());
  EXPECT_TRUE(net.named_parameters()["encoder"].is_same(net.named_parameters()["decoder"]));
  EXPECT_TRUE(same_device(weight.device(), try_gpu()));
}

TEST(Place, TakesTensorsOfEveryKind) {
  Net net;
  net.register_parameter("empty", torch::empty({0, 3}));
  net.register_parameter("scalar", torch::tensor(1.f));
  net.register_parameter("transposed", torch::arange(6.).view({2, 3}).t());
  net.register_parameter("frozen", torch::ones({2}), /*requires_grad=*/false);
  net.register_parameter("bf16", torch::ones({2}, torch::kBFloat16));
  net.register_parameter("complex", torch::ones({2}, torch::kComplexFloat));
  net.register_parameter("undefined", at::Tensor(), /*requires_grad=*/false);
  net.register_buffer("mask", torch::ones({2}, torch::kBool));
  net.register_buffer("count", torch::ones({}, torch::kInt64));
  net.register_buffer("sparse", torch::eye(3).to_sparse());
  EXPECT_EQ(placement(net).tensors().back().bytes, 3 * 4U + 6 * 8U) << "values and indices";
  place(net, try_gpu());
  expect_all_on(net, try_gpu());
  EXPECT_EQ(net.named_parameters()["transposed"].strides(), (std::vector<std::int64_t>{1, 3}));
  EXPECT_FALSE(net.named_parameters()["frozen"].requires_grad());
  place(net, cpu());
  EXPECT_TRUE(net.named_parameters()["transposed"].equal(torch::arange(6.).view({2, 3}).t()));
}

TEST(Place, WorksInInferenceModeWithoutMakingTheNetworkReadOnly) {
  auto net = small_net();
  {
    const c10::InferenceMode inference;
    place(net, try_gpu());
  }
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  train(net, optimizer, try_gpu());  // writes parameters and batch norm's buffers
}

TEST(Place, MovesAParameterAndABufferOfOneNameAndUndoesBoth) {
  struct Failing : Net {
    void to(c10::Device device, bool non_blocking) override {
      torch::nn::Module::to(device, non_blocking);
      if (fails) throw std::runtime_error("no");
    }
    bool fails = false;
  } net;
  net.register_parameter("both", torch::ones({2}));
  net.register_buffer("both", torch::zeros({3}));
  for (const auto device : {try_gpu(), cpu()}) {
    place(net, device);
    expect_all_on(net, device);
    EXPECT_EQ(placement(net).tensors().size(), 2U);
  }
  net.fails = true;
  const Snapshot before(net);
  EXPECT_THROW(place(net, try_gpu()), std::runtime_error);
  EXPECT_EQ(Snapshot(net).all, before.all);
}

TEST(Place, AcceptsHoldersModulesAndPointers) {
  torch::nn::Linear holder(3, 1);
  place(holder, try_gpu());
  place(*holder, try_gpu());
  place(holder.ptr(), try_gpu());
  place(std::shared_ptr<torch::nn::Module>(holder.ptr()), try_gpu());
  const auto& const_module = *holder;
  EXPECT_TRUE(same_device(placement(const_module).single_device(), try_gpu()));
}

TEST(Place, RefusesADeviceThatIsNotThereAndChangesNothing) {
  auto net = small_net();
  const Snapshot before(*net);
  const auto text = error_of<DeviceError>([&] { place(net, test::absent_gpu()); });
  EXPECT_TRUE(has(text, test::absent_gpu().str()));
  EXPECT_EQ(before.all, Snapshot(*net).all);
}

TEST(Place, RefusesMetaAndSaysHowANetworkGetsThere) {
  torch::nn::Linear net(3, 1);
  const auto text = error_of<ArgumentError>([&] { place(net, c10::Device("meta")); });
  EXPECT_TRUE(has(text, " is on cpu, "));
  EXPECT_TRUE(has(text, "DefaultDeviceGuard scope(c10::Device(\"meta\"))"));
  EXPECT_TRUE(placement(net).single_device().is_cpu());
  const DefaultDeviceGuard scope(c10::Device("meta"));
  torch::nn::Linear there(3, 1);
  place(there, c10::Device("meta"), torch::kHalf);
  EXPECT_TRUE(there->weight.is_meta() && there->weight.scalar_type() == torch::kHalf);
}

TEST(Place, ChangesNothingWhenATensorHalfWayCannotBeMoved) {
  USE_GPU_TEST_NEEDS(1);
  const auto too_large = torch::ones({1}).expand({std::int64_t{1} << 50});
  const auto without_values = torch::ones({2}, torch::kMeta);
  for (const auto& bad : {too_large, without_values}) {
    Net net;
    net.register_module("first", torch::nn::Linear(3, 4));
    net.register_buffer("bad", bad);
    net.register_buffer("last", torch::ones({2}));
    const Snapshot before(net);
    const auto current = test::current_gpu();
    EXPECT_THROW(place(net, gpu(num_gpus() - 1)), c10::Error);
    EXPECT_EQ(before.all, Snapshot(net).all);
    EXPECT_EQ(current, test::current_gpu());
  }
}

// A module with a tensor that it did not register, which it moves by itself.
struct OverridesToImpl : torch::nn::Module {
  OverridesToImpl() { linear = register_module("linear", torch::nn::Linear(3, 1)); }
  void to(c10::Device device, bool non_blocking) override {
    if (fails) throw std::runtime_error("not today");
    Module::to(device, non_blocking);
    unregistered = unregistered.to(device, non_blocking);
    if (goes_elsewhere) linear->to(torch::kCPU);
    if (leaves_gradient) linear->weight.mutable_grad() = linear->weight.grad().cpu();
  }
  torch::nn::Linear linear = nullptr;
  at::Tensor unregistered = torch::ones({2});
  bool fails = false;
  bool goes_elsewhere = false;
  bool leaves_gradient = false;
};

TEST(Place, NeedsMemoryForBothCopiesAndLittleMore) {
  USE_GPU_TEST_NEEDS(1);
  torch::nn::Sequential net;
  for (int i = 0; i < 64; ++i) net->push_back(torch::nn::Linear(512, 512));
  place(net, gpu());
  std::uint64_t bytes = 0;
  for (const auto& x : net->parameters()) bytes += x.nbytes();
  at::accelerator::emptyCache();
  at::accelerator::resetPeakStats(0);
  // With what LibTorch keeps for cuBLAS, which earlier tests have used.
  const auto before = memory_report(gpu()).allocated_bytes;
  place(net, gpu(), torch::kDouble);
  const auto copy = 2 * bytes, peak = memory_report(gpu()).peak_allocated_bytes;
  EXPECT_GE(peak, before + copy);
  EXPECT_LE(peak, before + copy + (32 << 20));
  EXPECT_LE(memory_report(gpu()).allocated_bytes, before - bytes + copy + (1 << 20));
}

TEST(Place, CallsToOfModulesThatOverrideIt) {
  OverridesToImpl net;
  place(net, try_gpu());
  EXPECT_TRUE(same_device(net.unregistered.device(), try_gpu()));
}

TEST(Place, ChangesNothingWhenAnOverriddenToFails) {
  OverridesToImpl net;
  net.linear->forward(torch::ones({5, 3})).sum().backward();
  net.fails = true;
  const Snapshot before(net);
  EXPECT_THROW(place(net, try_gpu()), std::runtime_error);
  EXPECT_EQ(before.all, Snapshot(net).all);
}

TEST(Place, ChecksAfterwardsThatAllIsThere) {
  USE_GPU_TEST_NEEDS(1);
  OverridesToImpl net;
  net.goes_elsewhere = true;
  EXPECT_TRUE(has(error_of<DeviceError>([&] { place(net, gpu()); }), "override to()"));
  expect_all_on(net, cpu());
}

TEST(Place, ChecksAfterwardsThatTheGradientsAreThere) {
  USE_GPU_TEST_NEEDS(1);
  OverridesToImpl net;
  net.linear->forward(torch::ones({5, 3})).sum().backward();
  net.leaves_gradient = true;
  EXPECT_TRUE(has(error_of<DeviceError>([&] { place(net, gpu()); }),
                  "the gradient of linear.weight went to cpu instead of cuda:0"));
  EXPECT_TRUE(net.linear->weight.device().is_cpu());
}

TEST(Place, WarnsThatNothingIsRegistered) {
  Net forgotten;
  testing::internal::CaptureStderr();
  place(forgotten, try_gpu());
  EXPECT_TRUE(has(testing::internal::GetCapturedStderr(),
                  "nothing registered: was register_module forgotten?"));
  testing::internal::CaptureStderr();
  auto net = small_net();
  place(net, try_gpu());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Place, RefusesAnEmptyHolder) {
  const torch::nn::Linear empty = nullptr;
  error_of<ArgumentError>([&] { place(empty, cpu()); });
  error_of<ArgumentError>([&] { (void)placement(empty); });
}

TEST(PlacementTest, ListsParametersThenBuffers) {
  auto net = small_net();
  place(net, try_gpu());
  const auto where = placement(net);
  ASSERT_EQ(where.tensors().size(), 9U);
  const auto& weight = where.tensors()[0];
  EXPECT_EQ(weight.name, "0.weight");
  EXPECT_FALSE(weight.is_buffer);
  EXPECT_EQ(weight.dtype, at::kFloat);
  EXPECT_EQ(weight.shape, (std::vector<std::int64_t>{4, 3}));
  EXPECT_TRUE(same_device(weight.device, try_gpu()));
  EXPECT_EQ(weight.bytes, 48U);
  const auto& batches = where.tensors()[8];
  EXPECT_EQ(batches.name, "1.num_batches_tracked");
  EXPECT_TRUE(batches.is_buffer);
  EXPECT_EQ(batches.dtype, at::kLong);
  EXPECT_EQ(where.devices(), (std::vector<c10::Device>{weight.device}));
  EXPECT_EQ(where.single_device(), weight.device);
}

TEST(PlacementTest, NamesTheStrays) {
  USE_GPU_TEST_NEEDS(1);
  auto net = small_net();
  place(net->ptr(2), gpu());
  const auto where = placement(net);
  EXPECT_EQ(where.devices(), (std::vector<c10::Device>{cpu(), gpu()}));
  const auto text = error_of<DeviceMismatch>([&] { (void)where.single_device(); });
  EXPECT_TRUE(has(text, "0.weight on cpu"));
  EXPECT_TRUE(has(text, "2.weight on " + gpu().str() + ", 2.bias on " + gpu().str()));
  EXPECT_TRUE(has(text, "use_gpu::place"));
}

TEST(PlacementTest, NamesNoMoreStraysThanFit) {
  USE_GPU_TEST_NEEDS(1);
  Net net;
  net.register_parameter("first", torch::ones({1}));
  for (int i = 0; i < 100; ++i) {
    net.register_parameter(std::string(30, 'p') + std::to_string(i), torch::ones({1}, gpu()));
  }
  const auto text = error_of<DeviceMismatch>([&] { (void)placement(net).single_device(); });
  EXPECT_TRUE(has(text, "use_gpu::place"));
}

TEST(PlacementTest, IsEmptyForANetworkWithNothingRegistered) {
  const Net net;
  const auto where = placement(net);
  EXPECT_TRUE(where.tensors().empty());
  EXPECT_TRUE(where.devices().empty());
  EXPECT_TRUE(
      has(error_of<ArgumentError>([&] { (void)where.single_device(); }), "register_module"));
}

TEST(PlacementTest, OutlivesItsRowsInALoop) {
  std::string names;
  for (const auto& x : placement(torch::nn::Linear(3, 1)).tensors()) names += x.name + ' ';
  EXPECT_EQ(names, "weight bias ");
}

TEST(PlacementTest, PrintsATable) {
  torch::nn::Sequential net(torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(4).affine(false)),
                            torch::nn::Linear(4, 1));
  EXPECT_EQ(printed(placement(net)),
            "name                   kind       dtype    shape   device  bytes\n"
            "1.weight               parameter  float32  [1, 4]  cpu        16\n"
            "1.bias                 parameter  float32  [1]     cpu         4\n"
            "0.running_mean         buffer     float32  [4]     cpu        16\n"
            "0.running_var          buffer     float32  [4]     cpu        16\n"
            "0.num_batches_tracked  buffer     int64    []      cpu         8\n");
}

}  // namespace
}  // namespace use_gpu
