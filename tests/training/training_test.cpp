// SPDX-License-Identifier: MIT
#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <unistd.h>
#include <use_gpu/device.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/parameter_file.hpp>
#include <use_gpu/parameters.hpp>
#include <use_gpu/tensor_file.hpp>
#include <use_gpu/training.hpp>
#include <use_gpu/transfers.hpp>

#include <algorithm>
#include <cstdlib>

#include "networks.hpp"
#include "scratch_folder.hpp"
#include "support.hpp"

namespace use_gpu {
namespace {

using test::error_of;
using test::has;
using test::ScratchFolder;
namespace optim = torch::optim;

struct DropoutNetImpl : torch::nn::Module {
  explicit DropoutNetImpl(double dropout = 0) : drop(dropout) {
    register_module("first", first);
    register_module("norm", norm);
    register_module("drop", drop);
    register_module("last", last);
  }
  at::Tensor forward(const at::Tensor& x) { return last(drop(torch::tanh(norm(first(x))))); }
  torch::nn::Linear first{4, 8}, last{8, 2};
  torch::nn::BatchNorm1d norm{8};
  torch::nn::Dropout drop;
};
TORCH_MODULE(DropoutNet);

using OwnedOptimizer = std::unique_ptr<optim::Optimizer>;

// Weights and biases in two groups.
std::vector<optim::OptimizerParamGroup> two_groups(const DropoutNet& net) {
  std::vector<at::Tensor> weights, others;
  for (const auto& p : net->parameters()) (p.dim() == 2 ? weights : others).push_back(p);
  return {optim::OptimizerParamGroup(weights), optim::OptimizerParamGroup(others)};
}

const std::map<std::string, OwnedOptimizer (*)(const DropoutNet& net)> k_optimizers{
    {"Adagrad",
     [](const DropoutNet& net) -> OwnedOptimizer {
       return std::make_unique<optim::Adagrad>(two_groups(net), optim::AdagradOptions(0.1));
     }},
    {"Adam",
     [](const DropoutNet& net) -> OwnedOptimizer {
       return std::make_unique<optim::Adam>(two_groups(net), optim::AdamOptions(0.05));
     }},
    {"AdamWithMaxima",
     [](const DropoutNet& net) -> OwnedOptimizer {
       return std::make_unique<optim::Adam>(net->parameters(),
                                            optim::AdamOptions(0.05).amsgrad(true));
     }},
    {"AdamW",
     [](const DropoutNet& net) -> OwnedOptimizer {
       return std::make_unique<optim::AdamW>(two_groups(net), optim::AdamWOptions(0.05));
     }},
    {"LBFGS",
     [](const DropoutNet& net) -> OwnedOptimizer {
       return std::make_unique<optim::LBFGS>(net->parameters(),
                                             optim::LBFGSOptions(0.1).max_iter(3).history_size(4));
     }},
    {"LBFGSWithLineSearch",
     [](const DropoutNet& net) -> OwnedOptimizer {
       return std::make_unique<optim::LBFGS>(
           net->parameters(), optim::LBFGSOptions(0.5).max_iter(3).line_search_fn("strong_wolfe"));
     }},
    {"RMSprop",
     [](const DropoutNet& net) -> OwnedOptimizer {
       return std::make_unique<optim::RMSprop>(
           two_groups(net), optim::RMSpropOptions(0.01).momentum(0.5).centered(true));
     }},
    {"SGD",
     [](const DropoutNet& net) -> OwnedOptimizer {
       return std::make_unique<optim::SGD>(two_groups(net), optim::SGDOptions(0.1));
     }},
    {"SGDWithMomentum", [](const DropoutNet& net) -> OwnedOptimizer {
       return std::make_unique<optim::SGD>(two_groups(net), optim::SGDOptions(0.1).momentum(0.9));
     }}};

// The same batch for each number of a step, on any device.
at::Tensor batch(std::int64_t step) {
  return torch::sin(torch::arange(24, torch::kFloat) + static_cast<double>(step)).view({6, 4});
}

void train(DropoutNet& net, optim::Optimizer& optimizer, std::int64_t from, std::int64_t to) {
  for (auto step = from; step < to; ++step) {
    const auto x = batch(step).to(net->first->weight.options());
    optimizer.step([&] {
      optimizer.zero_grad();
      auto loss = (net(x) - x.narrow(1, 0, 2)).square().mean();
      loss.backward();
      return loss;
    });
  }
}

void expect_close(const DropoutNet& a, const DropoutNet& b) {
  const auto values = read_parameters(a), others = read_parameters(b);
  for (const auto& [name, x] : values)
    EXPECT_TRUE(x.allclose(others.at(name), 1e-5, 1e-5)) << name << '\n' << x << others.at(name);
}

DropoutNet seeded_net(double dropout = 0, std::uint64_t seed = 1) {
  torch::manual_seed(seed);
  return DropoutNet(dropout);
}

// To compare two kinds of devices. Of a gradient that cancels, as that of a bias in front of a norm, only rounding is
// left, and an optimizer that divides by its size makes a step of it: in float64 that step is small.
DropoutNet seeded_double_net(std::uint64_t seed = 1) {
  auto net = seeded_net(0, seed);
  net->to(torch::kDouble);
  return net;
}

// What the next steps depend on beside the network.
std::map<std::string, at::Tensor> content_of(const DropoutNet& net,
                                             const optim::Optimizer& optimizer) {
  const ScratchFolder folder;
  save_training(net, optimizer, {}, folder / "x");
  return load_tensors(folder / "x");
}

class Optimizers : public testing::TestWithParam<std::string> {
 protected:
  static OwnedOptimizer make(const DropoutNet& net) { return k_optimizers.at(GetParam())(net); }
};

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& [name, make] : k_optimizers) all.push_back(name);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Of, Optimizers, testing::ValuesIn(names()),
                         [](const auto& one) { return one.param; });

TEST_P(Optimizers, FollowTheirNetworkToAnotherDeviceAndBack) {
  USE_GPU_TEST_NEEDS(1);
  for (const std::int64_t before : {0, 3}) {
    auto net = seeded_double_net(), stays = seeded_double_net();
    const auto optimizer = make(net), reference = make(stays);
    train(net, *optimizer, 0, before);
    train(stays, *reference, 0, before);
    for (const auto device : {gpu(0), gpu(num_gpus() - 1), cpu()}) {
      place(net, device);
      place(*optimizer);
      train(net, *optimizer, 5, 7);
      train(stays, *reference, 5, 7);
    }
    expect_close(net, stays);
  }
}

// What the process that goes on is told.
std::string told(const char* what) {
  const char* const value = std::getenv(what);
  return value == nullptr ? "" : value;
}

void set(const char* what, const std::string& value) { ::setenv(what, value.c_str(), 1); }

// In a process of its own: loads, trains on, and writes what came out.
TEST(Child, GoesOn) {
  if (told("CHILD_FILE").empty()) GTEST_SKIP() << "run by another test";
  auto net = seeded_net(0.3, /*seed=*/77);
  place(net, c10::Device(told("CHILD_DEVICE")));
  const auto optimizer = k_optimizers.at(told("CHILD_OPTIMIZER"))(net);
  const auto state = load_training(net, *optimizer, told("CHILD_FILE"));
  EXPECT_EQ(state.step, 5);
  EXPECT_EQ(state.scaler->scale, 1024);
  EXPECT_EQ(state.scaler->growth_tracker, 7);
  train(net, *optimizer, state.step, 10);
  save_training(net, *optimizer, {}, told("CHILD_FILE") + ".after");
}

TEST_P(Optimizers, GoOnInAnotherProcessToTheSameBits) {
  const ScratchFolder folder;
  const auto from = try_gpu(), to = num_gpus() > 1 ? gpu(1) : try_gpu();
  {
    auto net = seeded_net(0.3);
    place(net, from);
    const auto optimizer = make(net);
    optimizer->param_groups().front().options().set_lr(0.03);
    train(net, *optimizer, 0, 5);
    const auto file = (folder / "training.safetensors").string();
    save_training(net, *optimizer, {.step = 5, .scaler = GradScalerState{1024, 7}}, file);
    train(net, *optimizer, 5, 10);
    save_training(net, *optimizer, {}, file + ".expected");

    set("CHILD_FILE", file);
    set("CHILD_DEVICE", to.str());
    set("CHILD_OPTIMIZER", GetParam());
    const auto self = std::filesystem::read_symlink("/proc/self/exe").string();
    const int status = std::system((self + " --gtest_filter=Child.GoesOn >&2").c_str());
    ::unsetenv("CHILD_FILE");
    ASSERT_EQ(status, 0);
    test::expect_same(load_tensors(file + ".expected"), load_tensors(file + ".after"));
  }
}

TEST_P(Optimizers, GoOnOnAnotherKindOfDevice) {
  USE_GPU_TEST_NEEDS(1);
  const ScratchFolder folder;
  for (const auto& [from, to] : {std::pair{cpu(), gpu()}, std::pair{gpu(), cpu()}}) {
    auto net = seeded_double_net(), other = seeded_double_net(2);
    place(net, from);
    place(other, to);
    const auto optimizer = make(net), its = make(other);
    train(net, *optimizer, 0, 5);
    save_training(net, *optimizer, {.step = 5}, folder / "x");
    EXPECT_FALSE(load_training(other, *its, folder / "x").scaler);
    auto saved = content_of(net, *optimizer), loaded = content_of(other, *its);
    for (auto* all : {&saved, &loaded})
      std::erase_if(*all, [](const auto& x) { return x.first.starts_with("generator.cuda"); });
    test::expect_same(saved, loaded);
    train(net, *optimizer, 5, 8);
    train(other, *its, 5, 8);
    expect_close(net, other);
  }
}

TEST_P(Optimizers, AreLoadedBeforeAndAfterTheirFirstStep) {
  const ScratchFolder folder;
  auto net = seeded_net(), other = seeded_net(0, 2);
  const auto optimizer = make(net), its = make(other);
  save_training(net, *optimizer, {}, folder / "x");
  const auto expected = content_of(net, *optimizer);
  train(other, *its, 0, 3);  // its state goes
  load_training(other, *its, folder / "x");
  test::expect_same(expected, content_of(other, *its));
}

TEST(LoadTraining, ListsAllDifferencesAndChangesNothing) {
  const ScratchFolder folder;
  auto net = seeded_net();
  optim::Adam adam(two_groups(net), 0.1);
  train(net, adam, 0, 2);
  save_training(net, adam, {.step = 2}, folder / "x");
  const auto refused = [&](DropoutNet& other, optim::Optimizer& optimizer) {
    const auto before = content_of(other, optimizer);
    std::vector<std::string> differences;
    try {
      load_training(other, optimizer, folder / "x");
      ADD_FAILURE() << "nothing was thrown";
    } catch (const ParameterError& error) {
      EXPECT_LE(std::string(error.what()).size(), 400U);
      EXPECT_TRUE(has(error.what(), (folder / "x").string()));
      differences = error.differences();
    }
    test::expect_same(before, content_of(other, optimizer));
    std::string all;
    for (const auto& x : differences) all += x + '\n';
    return all;
  };
  auto other = seeded_net(0, 3);
  optim::SGD sgd(two_groups(other), optim::SGDOptions(0.1).momentum(0.9));
  train(other, sgd, 0, 2);
  EXPECT_TRUE(has(refused(other, sgd), "the optimizer is SGD, in the file Adam"));

  optim::Adam one_group(other->parameters(), 0.1);
  const auto of_groups = refused(other, one_group);
  EXPECT_TRUE(has(of_groups, "group 0 has other parameters in the file"));
  EXPECT_TRUE(has(of_groups, "optimizer.1.lr is not expected"));

  auto larger = seeded_net();
  larger->replace_module("last", larger->last = torch::nn::Linear(8, 3));
  larger->register_buffer("more", torch::ones({1}));
  optim::Adam its(two_groups(larger), 0.1);
  const auto of_network = refused(larger, its);
  for (const auto* part :
       {"last.weight is float32[3, 8] in the network", "last.bias is", "more is missing",
        "optimizer.0.1.exp_avg is float32[2, 8], its parameter float32[3, 8]"})
    EXPECT_TRUE(has(of_network, part));

  save_parameters(net, folder / "x");
  EXPECT_TRUE(has(refused(net, adam), "step is missing"));
  save_tensors({{"generator.cpu", torch::zeros({5}, at::kByte)}}, folder / "x");
  EXPECT_TRUE(has(refused(net, adam), "generator.cpu is not the state"));
}

TEST(LoadTraining, RestoresOptionsAndGenerators) {
  const ScratchFolder folder;
  auto net = seeded_net();
  place(net, try_gpu());
  optim::LBFGS lbfgs(net->parameters(), optim::LBFGSOptions(0.5).line_search_fn("strong_wolfe"));
  lbfgs.param_groups()[0].options().set_lr(0.25);
  save_training(net, lbfgs, {.step = -1}, folder / "x");
  const auto expected = torch::rand({3}), on_device = torch::rand({3}, try_gpu());
  optim::LBFGS other(net->parameters(), optim::LBFGSOptions(1).max_eval(3));
  EXPECT_EQ(load_training(net, other, folder / "x").step, -1);
  EXPECT_TRUE(torch::rand({3}).equal(expected));
  EXPECT_TRUE(torch::rand({3}, try_gpu()).equal(on_device));
  const auto& options = static_cast<optim::LBFGSOptions&>(other.param_groups()[0].options());
  EXPECT_EQ(options.lr(), 0.25);
  EXPECT_EQ(options.line_search_fn(), "strong_wolfe");
  EXPECT_EQ(options.max_eval(), 25);
}

TEST(SaveTraining, NeedsFewTransfers) {
  USE_GPU_TEST_NEEDS(1);
  const ScratchFolder folder;
  torch::nn::Module net;
  for (int i = 0; i < 300; ++i)
    net.register_parameter("p" + std::to_string(i), torch::ones({4, 4})).mutable_grad() =
        torch::ones({4, 4});
  place(net, gpu());
  optim::Adam adam(net.parameters(), 0.1);
  adam.step();
  const auto copies = [](const auto& work) {
    const TransferLedger ledger;
    work();
    return ledger.count(TransferDirection::host_to_device).copies +
           ledger.count(TransferDirection::device_to_host).copies;
  };
  EXPECT_LE(copies([&] { save_training(net, adam, {}, folder / "x"); }), 2);
  EXPECT_LE(copies([&] { load_training(net, adam, folder / "x"); }), 2);
  const auto moved = copies([&] {
    place(net, cpu());
    place(adam);
  });
  EXPECT_LE(moved, 4);
  EXPECT_TRUE(net.parameters()[7][0][0].is_cpu());
}

struct OwnOptimizer : optim::Optimizer {
  explicit OwnOptimizer(std::vector<at::Tensor> parameters)
      : Optimizer(std::move(parameters), std::make_unique<optim::SGDOptions>(0.1)) {}
  at::Tensor step(LossClosure) override { return {}; }
};

struct OwnAdam : optim::Adam {
  using Adam::Adam;
};

TEST(Training, RefusesAParameterThatIsNotInTheNetwork) {
  const ScratchFolder folder;
  auto net = seeded_net();
  auto parameters = net->parameters();
  optim::SGD whole(parameters, 0.1);
  save_training(net, whole, {}, folder / "x");
  parameters.push_back(torch::ones({3}, torch::requires_grad()));
  optim::SGD more(parameters, 0.1);
  for (const auto& action : {std::function([&] { save_training(net, more, {}, folder / "y"); }),
                             std::function([&] { load_training(net, more, folder / "x"); })})
    EXPECT_TRUE(
        has(error_of<ParameterError>(action), "float32[3] on cpu, that is not in the network"));
}

TEST(Training, IsNoHiddenTransfer) {
  const ScratchFolder folder;
  auto net = seeded_net();
  optim::Adam adam(net->parameters(), 0.1);
  train(net, adam, 0, 1);
  const TransferGuard guard;
  place(net, try_gpu());
  place(adam);
  save_training(net, adam, {}, folder / "x");
  load_training(net, adam, folder / "x");
}

TEST(LoadTraining, RefusesAStateWithoutItsTensors) {
  const ScratchFolder folder;
  auto net = seeded_net();
  optim::Adam adam(net->parameters(), 0.1);
  train(net, adam, 0, 1);
  save_training(net, adam, {}, folder / "x");
  auto all = load_tensors(folder / "x");
  all.erase("optimizer.0.0.exp_avg");
  all.erase("generator.cpu");
  save_tensors(all, folder / "x");
  const auto text = error_of<ParameterError>([&] { load_training(net, adam, folder / "x"); });
  EXPECT_TRUE(has(text, "optimizer.0.0.exp_avg is missing"));
  EXPECT_TRUE(has(text, "generator.cpu is missing"));
}

TEST(Training, RefusesAnOptimizerThatIsNotLibTorchs) {
  auto net = seeded_net();
  OwnAdam own_adam(net->parameters());
  EXPECT_TRUE(has(error_of<ArgumentError>([&] { place(own_adam); }), "place: this optimizer"));
  OwnOptimizer own(net->parameters());
  EXPECT_TRUE(has(error_of<ArgumentError>([&] { place(own); }), "place: this optimizer"));
  EXPECT_TRUE(has(error_of<ArgumentError>([&] { save_training(net, own, {}, "x"); }), "Adagrad"));
  EXPECT_TRUE(has(error_of<ArgumentError>([&] { load_training(net, own, "x"); }), "LBFGS"));
}

}  // namespace
}  // namespace use_gpu
