// SPDX-License-Identifier: MIT
#include <use_gpu/default_device.hpp>

#include <ATen/ThreadLocalState.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <torch/data/samplers/random.h>
#include <torch/fft.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/rnn.h>
#include <torch/optim/adam.h>
#include <torch/types.h>
#include <use_gpu/errors.hpp>
#include <use_gpu/tensor.hpp>

#include <map>
#include <set>
#include <thread>

#include "simulated_runtime.hpp"
#include "support.hpp"

namespace use_gpu {
namespace {

using test::error_of;

TEST(DefaultDeviceGuard, IsWhereTensorsAreCreatedThatNameNoDevice) {
  for (const auto device : try_all_gpus()) {
    const DefaultDeviceGuard scope(device);
    for (const auto& x :
         {torch::ones({2, 3}), torch::zeros({2}, torch::kDouble), torch::full({2}, 3.0),
          torch::rand({2}), torch::randn({2}), torch::randint(5, {2}), torch::randperm(4),
          torch::arange(5), torch::linspace(0, 1, 3), torch::logspace(0, 1, 3), torch::eye(3),
          torch::empty({2}), torch::empty_strided({2}, {1}), torch::scalar_tensor(3),
          torch::hann_window(4), torch::tril_indices(3, 3), torch::fft::fftfreq(4)}) {
      EXPECT_TRUE(same_device(x.device(), device)) << describe(x);
    }
  }
}

// A factory that a new LibTorch adds makes this fail: list it in default_device.cpp, or here.
TEST(DefaultDeviceGuard, ReachesEveryFactoryOfLibTorch) {
  const std::set<std::string> exceptions = {"aten::from_file", "aten::_cudnn_init_dropout_state",
                                            "aten::_make_dep_token"};
  auto& dispatcher = c10::Dispatcher::singleton();
  int factories = 0;
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || name.getNamespace().value_or("") != "aten") continue;
    bool takes_device = false;
    bool takes_tensor = false;
    for (const auto& argument : op->schema().arguments()) {
      takes_device = takes_device || argument.name() == "device";
      takes_tensor = takes_tensor || test::has(argument.type()->annotation_str(), "Tensor");
    }
    if (!takes_device || takes_tensor || exceptions.contains(c10::toString(name))) continue;
    ++factories;
    EXPECT_TRUE(op->hasKernelForDispatchKey(test::k_library_key)) << op->schema();
  }
  EXPECT_GE(factories, 45);
}

// Does on the CPU what the CUDA kernel of attention does: it makes the seed of its dropout on the
// host, where backward reads it.
void attention(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  torch::jit::drop(*stack, op.schema().arguments().size());
  for (int i = 0; i < 4; ++i) stack->emplace_back(at::scalar_tensor(7, at::kLong));
}
TORCH_LIBRARY_IMPL(aten, CPU, m) {
  m.impl("_scaled_dot_product_efficient_attention",
         torch::CppFunction::makeFromBoxedFunction<&attention>());
}

TEST(DefaultDeviceGuard, DoesNotReachTheInsideOfAttention) {
  const auto x = torch::ones({1, 1, 2, 4});
  for (const auto device : try_all_gpus()) {
    const DefaultDeviceGuard scope(device);
    const auto results = at::_scaled_dot_product_efficient_attention(
        x, x, x, /*attn_bias=*/{}, /*compute_log_sumexp=*/true, /*dropout_p=*/0.5);
    EXPECT_TRUE(std::get<2>(results).is_cpu());
    EXPECT_TRUE(same_device(torch::scalar_tensor(7).device(), device));
  }
}

// Operators make tensors without a device, and read them on the host.
TEST(DefaultDeviceGuard, ReachesNoFactoryThatAnotherOperatorCalls) {
  using Inputs = torch::TensorList;
  using Call = at::Tensor (*)(Inputs);
  const std::map<std::string, Call> calls{
      {"repeat",
       [](Inputs x) {
         return x[0].repeat({2, 1});
       }},
      {"tile",
       [](Inputs x) {
         return x[0].tile({2, 1});
       }},
      {"kron", [](Inputs x) { return torch::kron(x[0], x[0]); }},
      {"combinations", [](Inputs x) { return torch::combinations(x[0].flatten()); }},
      {"instance_norm",
       [](Inputs x) { return torch::instance_norm(x[1], {}, {}, {}, {}, true, 0.1, 1e-5, false); }},
      {"instance_norm of statistics",
       [](Inputs x) {
         const auto mean = torch::zeros_like(x[0][0]), deviation = torch::ones_like(x[0][0]);
         return torch::instance_norm(x[1], {}, {}, mean, deviation, true, 0.1, 1e-5, false);
       }},
      {"repeat_interleave", [](Inputs x) { return x[0].repeat_interleave(2, 0); }},
      {"index of a mask", [](Inputs x) { return x[0].index({x[0] > 0.5}); }},
      {"block_diag",
       [](Inputs x) {
         return torch::block_diag({x[0], x[0]});
       }},
      {"quantile", [](Inputs x) { return x[0].quantile(0.5); }},
      {"cumsum", [](Inputs x) { return x[0].cumsum(0).flip(0); }},
      {"pinv", [](Inputs x) { return torch::linalg_pinv(x[0]); }},
      {"stft",
       [](Inputs x) {
         return torch::abs(torch::stft(x[0].flatten(), 4, 2, 4, x[0][0].repeat({2}).slice(0, 0, 4),
                                       true, "reflect", false, true, true));
       }},
      {"bincount", [](Inputs x) { return (x[0].flatten() * 5).to(at::kLong).bincount(); }},
      {"interpolate",
       [](Inputs x) {
         return at::upsample_bicubic2d(x[1], {8, 8}, false);
       }},
      {"ctc_loss", [](Inputs x) {
         const auto targets = torch::ones({1, 2}, x[0].options().dtype(at::kLong));
         return torch::ctc_loss(x[1][0].log_softmax(2), targets, at::IntArrayRef{4},
                                at::IntArrayRef{2});
       }}};
  torch::manual_seed(3);
  const auto a = torch::rand({3, 3}), b = torch::rand({1, 4, 1, 3});
  for (const auto& [name, call] : calls) {
    const bool is_ctc = name == "ctc_loss";
    const std::vector<at::Tensor> host{a, is_ctc ? b : b.view({1, 3, 2, 2})};
    const auto expected = call(host);
    for (const auto device : try_all_gpus()) {
      const DefaultDeviceGuard outer(device), scope(device);
      for (const auto where : {cpu(), device}) {
        const auto found = call({to_device(host[0], where), to_device(host[1], where)});
        EXPECT_TRUE(same_device(found.device(), where)) << name;
        EXPECT_TRUE(torch::allclose(found.cpu(), expected, 1e-4, 1e-5)) << name << " on " << where;
        EXPECT_TRUE(same_device(torch::ones({1}).device(), device)) << name;
      }
    }
  }
}

TEST(DefaultDeviceGuard, ReachesFactoriesInAPartOfTheProgramThatAProfilerSees) {
  const DefaultDeviceGuard scope(try_gpu());
  RECORD_FUNCTION("a part of the program", std::vector<c10::IValue>());
  EXPECT_TRUE(same_device(torch::ones({1}).device(), try_gpu()));
  EXPECT_THROW(torch::ones({2}).view({3}), c10::Error);
  EXPECT_TRUE(same_device(torch::ones({1}).device(), try_gpu())) << "after an error";
}

TEST(DefaultDeviceGuard, IsInheritedWithTheThreadsState) {
  USE_GPU_TEST_NEEDS(2);
  const DefaultDeviceGuard scope(gpu(1));
  const at::ThreadLocalState state;
  std::thread([&] {
    {
      const at::ThreadLocalStateGuard as_the_caller(state);
      EXPECT_EQ(torch::ones({1}).device(), gpu(1));
      { const DefaultDeviceGuard inner(gpu(0)); }
      EXPECT_EQ(torch::ones({1}).device(), gpu(1));
      EXPECT_TRUE(torch::ones({1}, cpu()).repeat({2}).is_cpu());
    }
    EXPECT_TRUE(torch::ones({1}).is_cpu());
  }).join();
}

TEST(DefaultDeviceGuard, LetsLibTorchRefuseWhatItMustHaveOnTheHost) {
  USE_GPU_TEST_NEEDS(1);
  const DefaultDeviceGuard scope(gpu());
  // Its lengths; as with Python's default device.
  EXPECT_THROW(torch::nn::utils::rnn::pack_sequence({torch::rand({3, 2}), torch::rand({2, 2})}),
               c10::Error);
}

// It makes its indices on the GPU, and reads them as host memory.
TEST(DefaultDeviceGuardDeathTest, IsNotForDataLoaders) {
  if (!test::simulated()) GTEST_SKIP() << "a real GPU's memory may be anywhere";
  USE_GPU_TEST_NEEDS(1);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const DefaultDeviceGuard scope(gpu());
        (void)torch::data::samplers::RandomSampler(4).next(2);
      },
      "");
}

TEST(DefaultDeviceGuard, YieldsToADeviceThatIsNamed) {
  USE_GPU_TEST_NEEDS(2);
  const DefaultDeviceGuard scope(gpu(1));
  EXPECT_TRUE(torch::ones({2}, torch::kCPU).is_cpu());
  EXPECT_EQ(torch::ones({2}, gpu(0)).device(), gpu(0));
  const auto host = torch::ones({2}, torch::kCPU);
  EXPECT_TRUE(torch::ones_like(host).is_cpu());
  EXPECT_TRUE((host + 1).clone().is_cpu());
}

TEST(DefaultDeviceGuard, LeavesAloneWhatNamesTheCpuItself) {
  USE_GPU_TEST_NEEDS(1);
  const DefaultDeviceGuard scope(gpu());
  float values[] = {1, 2};
  EXPECT_TRUE(torch::tensor({1, 2, 3}).is_cpu());
  EXPECT_TRUE(torch::from_blob(values, {2}).is_cpu());
}

template <class Value>
void expect_values_on_the_host(Value one, Value two) {
  const Value values[] = {one, two};
  for (const auto& x : {at::tensor(at::ArrayRef<Value>(values)), at::tensor({one, two}),
                        at::tensor(at::ArrayRef<Value>(values), at::kDouble)}) {
    ASSERT_TRUE(x.is_cpu());
    EXPECT_EQ(x[1].template item<double>(), 2) << x.dtype();
  }
  EXPECT_TRUE(at::tensor(one).is_cpu());
  EXPECT_EQ(at::tensor({one, two}, at::device(gpu())).device(), gpu());
}

// It fills its result from the host, where it would otherwise find a GPU's memory.
TEST(DefaultDeviceGuard, LeavesAtTensorOnTheHostWithEachTypeOfItsValues) {
  USE_GPU_TEST_NEEDS(1);
  const DefaultDeviceGuard scope(gpu());
  expect_values_on_the_host<std::uint8_t>(1, 2);
  expect_values_on_the_host<std::int8_t>(1, 2);
  expect_values_on_the_host<std::int16_t>(1, 2);
  expect_values_on_the_host<int>(1, 2);
  expect_values_on_the_host<std::int64_t>(1, 2);
  expect_values_on_the_host<float>(1, 2);
  expect_values_on_the_host<double>(1, 2);
  EXPECT_TRUE(at::tensor({c10::complex<float>(1, 2)}).is_cpu());
  EXPECT_TRUE(at::tensor({c10::complex<double>(1, 2)}).is_cpu());
  EXPECT_EQ(at::empty({2}, at::kFloat).device(), gpu());
}

TEST(DefaultDeviceGuard, Nests) {
  USE_GPU_TEST_NEEDS(2);
  const DefaultDeviceGuard outer(gpu(1));
  {
    const DefaultDeviceGuard inner(gpu(0));
    EXPECT_EQ(torch::ones({2}).device(), gpu(0));
    const DefaultDeviceGuard innermost(cpu());
    EXPECT_TRUE(torch::ones({2}).is_cpu());
  }
  EXPECT_EQ(torch::ones({2}).device(), gpu(1));
}

TEST(DefaultDeviceGuard, EndsWithItsBracesAlsoByAnException) {
  EXPECT_THROW(
      {
        const DefaultDeviceGuard scope(try_gpu());
        throw std::runtime_error("any");
      },
      std::runtime_error);
  EXPECT_TRUE(torch::ones({2}).is_cpu());
}

TEST(DefaultDeviceGuard, IsThisThreadsAlone) {
  const DefaultDeviceGuard scope(try_gpu());
  std::thread([] { EXPECT_TRUE(torch::ones({2}).is_cpu()); }).join();
}

TEST(DefaultDeviceGuard, RefusesADeviceThatIsNotThere) {
  error_of<DeviceError>([] { const DefaultDeviceGuard scope(test::absent_gpu()); });
  EXPECT_TRUE(torch::ones({2}).is_cpu());
}

}  // namespace
}  // namespace use_gpu
