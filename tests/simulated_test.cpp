// SPDX-License-Identifier: MIT
//
// The simulated GPUs themselves: what LibTorch does on a GPU it does on them.
#include <use_gpu/simulated.hpp>

#include <c10/core/Event.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <use_gpu/errors.hpp>
#include <use_gpu/tensor.hpp>

#include <cstdio>
#include <sstream>

#include "support.hpp"

namespace use_gpu {
namespace {

using test::error_of;
using test::has;
using test::simulated;

#define NEEDS_SIMULATED(count)                                          \
  if (!simulated()) GTEST_SKIP() << "needs simulated GPUs, found none"; \
  USE_GPU_TEST_NEEDS(count)

torch::Tensor on_cpu(const torch::Tensor& x) { return to_device(x, cpu()); }

TEST(SimulateGpus, MakesThatManyOncePerProcess) {
  if (num_gpus() > 0) GTEST_SKIP() << "needs a process without GPUs, found " << num_gpus();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        simulate_gpus(3);
        const bool right = num_gpus() == 3 && try_gpu(2).str() == "sim:2" && try_gpu(3).is_cpu();
        error_of<ArgumentError>([] { simulate_gpus(3); });
        std::_Exit(right && !testing::Test::HasFailure() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(SimulateGpus, RefusesNumbersOutsideOneToSixteenAndASecondCall) {
  for (const int count : {0, -1, 17, 1 << 30}) {
    EXPECT_TRUE(has(error_of<ArgumentError>([&] { simulate_gpus(count); }), "1 to 16"));
  }
  if (!simulated()) return;
  EXPECT_TRUE(has(error_of<ArgumentError>([] { simulate_gpus(2); }), "already"));
}

// Runs this program again with that value in the environment; its exit status and all it printed.
std::pair<int, std::string> run_with(const std::string& value) {
  const std::string command = "USE_GPU_SIMULATED_GPUS='" + value + "' /proc/" +
                              std::to_string(getpid()) + "/exe --gtest_filter=NoTest.AtAll 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  std::string output;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) output += static_cast<char>(c);
  return {WEXITSTATUS(pclose(pipe)), output};
}

TEST(SimulatedGpusVariable, EndsTheProgramWithOneLineIfItIsNoNumberFromZeroToSixteen) {
  for (const char* value : {"-1", "abc", "17", "2x", " 2", "1e1", "99999999999999999999", "+2"}) {
    EXPECT_EQ(run_with(value),
              std::pair(2, "use_gpu: USE_GPU_SIMULATED_GPUS is \"" + std::string(value) +
                               "\", but must be a number of GPUs from 0 to 16\n"));
  }
}

TEST(SimulatedGpusVariable, GivesThatManyGpus) {
  for (const int count : {0, 1, 2, 16}) {
    const auto [status, output] = run_with(std::to_string(count));
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(has(output, "GPUs: " + std::to_string(count) + "\n"));
  }
}

TEST(SimulatedGpu, CreatesTensorsOnItself) {
  NEEDS_SIMULATED(1);
  const c10::Device last = gpu(num_gpus() - 1);
  EXPECT_EQ(torch::ones({2, 3}, last).device(), last);
  EXPECT_EQ(torch::arange(5, last).device(), last);
  EXPECT_TRUE(on_cpu(torch::eye(3, last)).equal(torch::eye(3)));
  EXPECT_TRUE(on_cpu(torch::full({2}, 3.5, last)).equal(torch::full({2}, 3.5)));
  EXPECT_EQ(torch::empty_strided({2, 3}, {1, 2}, last).strides(),
            (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(
      torch::empty({2, 3, 4, 5}, torch::TensorOptions(last), torch::MemoryFormat::ChannelsLast)
          .stride(1),
      1);
  EXPECT_THROW(torch::empty({2}, torch::TensorOptions(last).pinned_memory(true)), c10::Error);
}

TEST(SimulatedGpu, IsRefusedWhereItIsNotThere) {
  NEEDS_SIMULATED(1);
  const auto before = test::current_gpu();
  EXPECT_THROW(torch::ones({2}, gpu(num_gpus())), c10::Error);
  EXPECT_EQ(before, test::current_gpu());
}

TEST(SimulatedGpu, ComputesWhatTheCpuComputes) {
  NEEDS_SIMULATED(1);
  torch::manual_seed(0);
  const auto a = torch::rand({4, 4});
  const auto b = torch::rand({4, 4});
  const auto x = to_device(a, gpu());
  const auto y = to_device(b, gpu());
  EXPECT_TRUE(on_cpu(x + y).equal(a + b));
  EXPECT_TRUE(on_cpu(torch::matmul(x, y)).equal(torch::matmul(a, b)));
  EXPECT_TRUE(on_cpu(torch::cat({x, y})).equal(torch::cat({a, b})));
  EXPECT_TRUE(on_cpu(x.index({x > 0.5})).equal(a.index({a > 0.5})));
  EXPECT_TRUE(on_cpu(x.index({torch::tensor({0, 2})})).equal(a.index({torch::tensor({0, 2})})));
  EXPECT_TRUE(on_cpu((x > 0.5).nonzero()).equal((a > 0.5).nonzero()));
  EXPECT_TRUE(on_cpu(std::get<0>(x.sort())).equal(std::get<0>(a.sort())));
  EXPECT_EQ(x.sum().item<float>(), a.sum().item<float>());
  EXPECT_TRUE(x.equal(to_device(a, gpu())));
  EXPECT_TRUE(on_cpu(x.to(torch::kDouble)).equal(a.to(torch::kDouble)));
}

TEST(SimulatedGpu, ViewsShareMemory) {
  NEEDS_SIMULATED(1);
  auto x = torch::zeros({2, 6}, gpu());
  x.view({3, 4})[2].fill_(1);
  x.t()[0].fill_(2);
  x.slice(1, 4, 6).add_(5);
  EXPECT_TRUE(on_cpu(x).equal(
      torch::tensor({{2.f, 0.f, 0.f, 0.f, 5.f, 5.f}, {2.f, 0.f, 1.f, 1.f, 6.f, 6.f}})));
  EXPECT_TRUE(x.is_alias_of(x.view({12})));
}

TEST(SimulatedGpu, ResizesInPlace) {
  NEEDS_SIMULATED(2);
  auto x = torch::ones({2}, gpu(1));
  x.resize_({100}).fill_(3);
  EXPECT_EQ(x.device(), gpu(1));
  EXPECT_EQ(x.sum().item<float>(), 300);
  x.set_(x.storage(), 10, {2, 2}, {2, 1});
  EXPECT_EQ(x.sum().item<float>(), 12);
}

TEST(SimulatedGpu, CopiesConjugatedAndNegatedViews) {
  NEEDS_SIMULATED(2);
  const auto z = torch::view_as_complex(torch::tensor({{1.f, 2.f}, {3.f, -4.f}}));
  const auto there = to_device(z, gpu(0));
  EXPECT_TRUE(on_cpu(there.conj()).equal(z.conj()));
  EXPECT_TRUE(on_cpu(to_device(there.conj(), gpu(1))).equal(z.conj()));
  EXPECT_TRUE(on_cpu(torch::imag(there.conj())).equal(torch::imag(z.conj())));
}

TEST(SimulatedGpu, RefusesOperandsOfOtherDevices) {
  NEEDS_SIMULATED(2);
  auto x = torch::ones({2, 2}, gpu(0));
  const auto y = torch::ones({2, 2}, gpu(1));
  const auto host = torch::ones({2, 2});
  for (const auto& other : {y, host}) {
    EXPECT_THROW(x + other, c10::Error);
    EXPECT_THROW(other + x, c10::Error);
    EXPECT_THROW(x.mul_(other), c10::Error);
    EXPECT_THROW(torch::matmul(x, other), c10::Error);
    EXPECT_THROW(torch::cat({x, other}), c10::Error);
    EXPECT_THROW(torch::where(x > 0, x, other), c10::Error);
  }
  EXPECT_THROW(x.index({torch::tensor({0}, gpu(1))}), c10::Error);
  EXPECT_EQ((x + torch::tensor(1.f)).sum().item<float>(), 8) << "a CPU number is allowed";
  EXPECT_TRUE(on_cpu(x).equal(host));
}

TEST(SimulatedGpu, TrainsAConvolutionalNetworkAsTheCpuDoes) {
  NEEDS_SIMULATED(1);
  namespace nn = torch::nn;
  const auto make = [] {
    torch::manual_seed(0);
    return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 2, 3).padding(1)), nn::BatchNorm2d(2),
                          nn::ReLU(), nn::MaxPool2d(2), nn::ConvTranspose2d(2, 2, 2), nn::Flatten(),
                          nn::Linear(50, 5), nn::LogSoftmax(1));
  };
  const auto train = [&](c10::Device device) {
    auto net = make();
    net->to(device);
    torch::optim::Adam optimizer(net->parameters(), 1e-2);
    const auto x = torch::linspace(0, 1, 6 * 64).view({6, 1, 8, 8}).to(device);
    const auto y = torch::arange(6).remainder(5).to(device);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      torch::nll_loss(net->forward(x), y).backward();
      optimizer.step();
    }
    std::vector<torch::Tensor> parameters;
    for (const auto& p : net->parameters()) parameters.push_back(on_cpu(p.detach()));
    return parameters;
  };
  const auto expected = train(cpu());
  const auto found = train(gpu());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(torch::allclose(expected[i], found[i]));
}

TEST(SimulatedGpu, ComputesLossesWithoutAWarning) {
  NEEDS_SIMULATED(1);
  const auto x = torch::ones({4, 1}, torch::TensorOptions(gpu()).requires_grad(true));
  const auto y = torch::zeros({4, 1}, gpu());
  testing::internal::CaptureStderr();
  EXPECT_EQ(torch::mse_loss(x, y).item<float>(), 1);
  EXPECT_EQ(torch::smooth_l1_loss(x, y).item<float>(), 0.5);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(SimulatedGpu, CarriesGradientsAcrossDevices) {
  NEEDS_SIMULATED(2);
  const auto w = torch::ones({2, 2}, torch::TensorOptions(gpu(0)).requires_grad(true));
  const auto z = (w * 3).to(gpu(1));
  (z * z).sum().backward();
  EXPECT_EQ(w.grad().device(), gpu(0));
  EXPECT_TRUE(on_cpu(w.grad()).equal(torch::full({2, 2}, 18.f)));
}

TEST(SimulatedGpu, DrawsTheRandomNumbersOfTheSeed) {
  NEEDS_SIMULATED(1);
  torch::manual_seed(7);
  const auto expected = torch::rand({4});
  torch::manual_seed(7);
  EXPECT_TRUE(on_cpu(torch::rand({4}, gpu())).equal(expected));
}

TEST(SimulatedGpu, DrawsFromItsOwnGenerators) {
  NEEDS_SIMULATED(1);
  auto generator = at::globalContext().defaultGenerator(gpu());
  EXPECT_EQ(generator.device(), gpu());
  generator.set_current_seed(7);
  const auto state = generator.get_state();
  const auto first = torch::empty({4}, gpu()).uniform_(0, 1, generator);
  const auto second = torch::empty({4}, gpu()).uniform_(0, 1, generator);
  EXPECT_FALSE(first.equal(second));
  generator.set_state(state);
  EXPECT_TRUE(first.equal(torch::empty({4}, gpu()).uniform_(0, 1, generator.clone())));
}

TEST(SimulatedGpu, SavesAndLoads) {
  NEEDS_SIMULATED(2);
  std::stringstream file;
  torch::save(torch::ones({2, 3}, gpu(0)), file);
  torch::Tensor x;
  torch::load(x, file, gpu(1));
  EXPECT_EQ(x.device(), gpu(1));
  EXPECT_TRUE(on_cpu(x).equal(torch::ones({2, 3})));
}

TEST(SimulatedGpu, CountsItsMemoryAndRunsOutOfIt) {
  NEEDS_SIMULATED(1);
  const auto before = device_memory(gpu())->free_bytes;
  {
    const auto x = torch::empty({1000}, torch::TensorOptions(gpu()).dtype(torch::kByte));
    EXPECT_EQ(device_memory(gpu())->free_bytes, before - 1000);
    const auto total = static_cast<std::int64_t>(device_memory(gpu())->total_bytes);
    EXPECT_THROW(torch::empty({total}, torch::TensorOptions(gpu()).dtype(torch::kByte)),
                 c10::OutOfMemoryError);
  }
  EXPECT_EQ(device_memory(gpu())->free_bytes, before);
}

TEST(SimulatedGpu, WorksWithStreamsAndEvents) {
  NEEDS_SIMULATED(1);
  const c10::impl::VirtualGuardImpl guard(gpu().type());
  const auto stream = guard.getStream(gpu());
  EXPECT_EQ(stream.device(), gpu());
  EXPECT_TRUE(stream.query());
  stream.synchronize();
  c10::Event event(gpu().type());
  event.record(stream);
  EXPECT_TRUE(event.query());
  event.synchronize();
}

// Pinned memory that an asynchronous copy is under way to.
struct Copied {
  torch::Tensor value = torch::full({3}, 7., gpu());
  torch::Tensor pinned = torch::empty({3}, torch::TensorOptions().pinned_memory(true));
  Copied() { pinned.copy_(value, /*non_blocking=*/true); }
  [[nodiscard]] bool arrived() const { return pinned.eq(7).all().item<bool>(); }
};

TEST(SimulatedStreams, PostponeAsynchronousCopiesUntilSomebodyWaits) {
  NEEDS_SIMULATED(1);
  const c10::impl::VirtualGuardImpl streams(gpu().type());
  const auto stream = streams.getStream(gpu());
  const auto waits = std::vector<std::function<void(const Copied&)>>{
      [](const Copied&) { synchronize(gpu()); },
      [&](const Copied&) { stream.synchronize(); },
      [](const Copied& copied) { static_cast<void>(copied.value.sum().item<float>()); },
      [](const Copied& copied) { static_cast<void>(copied.value.cpu()); },
      [](const Copied&) { static_cast<void>(torch::ones({}).to(gpu())); },
      [&](const Copied&) {
        c10::Event event(gpu().type());
        event.record(stream);
        event.synchronize();
      },
      [&](const Copied&) {  // another stream waits for this one, the host for the other
        const auto other = streams.getNewStream(gpu());
        c10::Event event(gpu().type());
        event.record(stream);
        event.block(other);
        other.synchronize();
      },
      [&](const Copied&) {
        while (!stream.query()) continue;
      }};
  for (const auto& wait : waits) {
    Copied copied;
    EXPECT_TRUE(copied.pinned.is_pinned());
    EXPECT_FALSE(copied.arrived());
    copied.value.fill_(8);  // after the copy in its stream, so without effect on it
    EXPECT_FALSE(copied.arrived());
    wait(copied);
    EXPECT_TRUE(copied.arrived());
  }
}

TEST(SimulatedStreams, AreWaitedForOneByOne) {
  NEEDS_SIMULATED(1);
  const c10::impl::VirtualGuardImpl streams(gpu().type());
  c10::Event before(gpu().type());
  before.record(streams.getStream(gpu()));
  const Copied copied;
  before.synchronize();
  EXPECT_TRUE(before.query());
  streams.getNewStream(gpu()).synchronize();
  if (num_gpus() > 1) synchronize(gpu(1));
  EXPECT_FALSE(copied.arrived());
  EXPECT_FALSE(streams.getStream(gpu()).query());
  synchronize(gpu());
  EXPECT_TRUE(streams.getStream(gpu()).query());
}

TEST(SimulatedStreams, PostponeNothingThatIsAskedForAtOnce) {
  NEEDS_SIMULATED(1);
  const auto value = torch::full({3}, 7., gpu());
  auto ordinary = torch::zeros({3});
  ordinary.copy_(value, /*non_blocking=*/true);
  EXPECT_TRUE(ordinary.eq(7).all().item<bool>());
  EXPECT_FALSE(ordinary.is_pinned());
  auto pinned = torch::zeros({3}).pin_memory();
  pinned.copy_(value);
  EXPECT_TRUE(pinned.eq(7).all().item<bool>());
}

}  // namespace
}  // namespace use_gpu
