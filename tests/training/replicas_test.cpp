// SPDX-License-Identifier: MIT
#include <use_gpu/replicas.hpp>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <use_gpu/default_device.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/parallel.hpp>
#include <use_gpu/parameters.hpp>
#include <use_gpu/transfers.hpp>

#include <limits>
#include <memory>

#include "networks.hpp"
#include "support.hpp"

namespace use_gpu {
namespace {

using test::error_of;
using test::has;
using test::Net;
using test::same_bits;
using test::small_net;
using torch::nn::Sequential;
using torch::optim::Optimizer;

using NetPointer = std::shared_ptr<Net>;

// One entry for each GPU, but at least two: of the only GPU, or of the CPU.
std::vector<c10::Device> several_devices() {
  auto devices = try_all_gpus();
  if (devices.size() < 2) devices.resize(2, devices.front());
  return devices;
}

// A network with one parameter for each shape.
NetPointer net_of(const std::vector<std::vector<std::int64_t>>& shapes,
                  torch::Dtype dtype = torch::kFloat) {
  auto net = std::make_shared<Net>();
  for (std::size_t i = 0; i < shapes.size(); ++i)
    net->register_parameter("p" + std::to_string(i), torch::rand(shapes[i], dtype));
  return net;
}

NetPointer many_small() { return net_of(std::vector<std::vector<std::int64_t>>(1000, {2, 3})); }

void expect_equal_parameters(ConstModuleRef a, ConstModuleRef b) {
  const auto values = read_parameters(a);
  const auto others = read_parameters(b);
  ASSERT_EQ(values.size(), others.size());
  for (const auto& [name, x] : values) EXPECT_TRUE(same_bits(x, others.at(name))) << name;
}

// Gradients that are easy to check: p.grad() = value.
void set_gradient(const torch::nn::Module& net, const std::string& name, const at::Tensor& value) {
  auto parameter = net.named_parameters()[name];
  parameter.mutable_grad() = value.to(parameter.device()).clone();
}

at::Tensor gradient_of(const torch::nn::Module& net, const std::string& name) {
  const auto gradient = net.named_parameters()[name].grad();
  return gradient.defined() ? gradient.cpu() : gradient;
}

TEST(Mirror, GivesEachDeviceTheValuesOfTheFirst) {
  const auto devices = several_devices();
  const auto nets = mirror(devices, small_net);
  static_assert(std::is_same_v<decltype(nets), const std::vector<Sequential>>);
  ASSERT_EQ(nets.size(), devices.size());
  for (std::size_t i = 0; i < nets.size(); ++i) {
    EXPECT_EQ(placement(nets[i]).single_device(), devices[i]);
    expect_equal_parameters(nets[0], nets[i]);
    if (i == 0) continue;
    EXPECT_NE(nets[0].ptr(), nets[i].ptr());
    EXPECT_FALSE(nets[0]->parameters()[0].is_alias_of(nets[i]->parameters()[0]));
  }
}

TEST(Mirror, TakesTheFirstAsItWasMade) {
  for (const auto made_on : {cpu(), try_gpu(0), try_gpu(1)}) {
    std::vector<at::Tensor> made;
    const auto nets = mirror(several_devices(), [&] {
      auto net = small_net();
      made.push_back(net->parameters()[0].detach().clone());
      place(net, made_on);
      return net;
    });
    for (const auto& net : nets) EXPECT_TRUE(same_bits(net->parameters()[0], made[0]));
    EXPECT_FALSE(same_bits(made[0], made[1]));
  }
}

TEST(Mirror, CopiesBuffersRequiresGradAndTrainingModes) {
  int calls = 0;
  const auto nets = mirror(several_devices(), [&] {
    auto net = small_net();
    if (calls++ > 0) return net;
    net->forward(torch::rand({8, 3}));  // moves the statistics
    net->eval();
    net->ptr(1)->train();
    net->parameters()[2].set_requires_grad(false);
    return net;
  });
  for (const auto& net : nets) {
    EXPECT_EQ(net->named_buffers()["1.num_batches_tracked"].item<int>(), 1);
    EXPECT_TRUE(same_bits(net->named_buffers()["1.running_mean"],
                          nets[0]->named_buffers()["1.running_mean"]));
    EXPECT_FALSE(net->is_training());
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(net->ptr(i)->is_training(), i == 1);
    for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(net->parameters()[i].requires_grad(), i != 2);
  }
}

TEST(Mirror, KeepsTiedParametersTiedAndTensorsOfEveryKind) {
  const auto nets = mirror(several_devices(), [] {
    auto net = std::make_shared<Net>();
    const auto weight = net->register_parameter("encoder", torch::rand({2, 2}));
    net->register_parameter("decoder", weight);
    net->register_parameter("transposed", torch::rand({2, 3}).t());
    net->register_parameter("empty", torch::empty({0, 3}));
    net->register_parameter("scalar", torch::rand({}));
    net->register_parameter("undefined", at::Tensor(), /*requires_grad=*/false);
    net->register_buffer("expanded", torch::rand({1, 2}).expand({3, 2}));
    net->register_buffer("mask", torch::rand({5}) > 0.5);
    net->register_buffer("conjugate", torch::rand({2}, torch::kComplexFloat).conj());
    return net;
  });
  for (const auto& net : nets) {
    expect_equal_parameters(nets[0], net);
    const auto parameters = net->named_parameters();
    EXPECT_TRUE(parameters["encoder"].is_same(parameters["decoder"]));
    EXPECT_EQ(parameters["transposed"].strides(), (std::vector<std::int64_t>{1, 3}));
  }
}

TEST(Mirror, WorksInEveryModeAndScope) {
  const auto train = [](const std::vector<Sequential>& nets) {
    for (const auto& net : nets) {
      EXPECT_TRUE(net->parameters()[0].requires_grad());
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      auto handle = net;
      const auto device = net->parameters()[0].device();
      handle->forward(torch::ones({5, 3}, device)).sum().backward();
      optimizer.step();
    }
  };
  const auto devices = several_devices();
  std::vector<Sequential> nets;
  {
    const c10::InferenceMode inference;
    nets = mirror(devices, small_net);
  }
  train(nets);
  {
    const at::NoGradGuard no_grad;
    nets = mirror(devices, [] {
      auto net = small_net();
      net->parameters()[0].fill_(2);  // which autograd would refuse
      return net;
    });
  }
  train(nets);
  {
    const TransferGuard guard;
    nets = mirror(devices, small_net);
  }
  train(nets);
}

TEST(Mirror, TakesFewTransfersForManyParameters) {
  USE_GPU_TEST_NEEDS(2);
  const auto devices = try_all_gpus();
  const TransferLedger ledger;
  const auto nets = mirror(devices, many_small);
  EXPECT_EQ(ledger.count(TransferDirection::host_to_device).copies, num_gpus());
  EXPECT_EQ(ledger.count(TransferDirection::host_to_device).bytes, num_gpus() * 1000 * 24);
  EXPECT_EQ(ledger.count(TransferDirection::device_to_host).copies, 0);
  EXPECT_EQ(ledger.count(TransferDirection::device_to_device).copies, 0);
  expect_equal_parameters(nets.front(), nets.back());
}

TEST(Mirror, AcceptsHoldersAndPointersOfAnyModule) {
  const std::vector<c10::Device> both{cpu(), cpu()};
  const std::vector<torch::nn::Linear> linears =
      mirror(both, [] { return torch::nn::Linear(3, 1); });
  const std::vector<std::shared_ptr<torch::nn::Module>> modules =
      mirror(both, []() -> std::shared_ptr<torch::nn::Module> { return net_of({{2}}); });
  expect_equal_parameters(linears[0], linears[1]);
  expect_equal_parameters(modules[0], modules[1]);
  EXPECT_EQ(mirror({cpu()}, small_net).size(), 1U);
  static_assert(!ModuleHandle<torch::nn::LinearImpl>);
}

TEST(Mirror, SaysWhatIsNotAlikeAndMovesNothing) {
  struct Case {
    std::function<void(Net&)> change;
    std::string difference;
  };
  const auto linear = [] { return torch::nn::Linear(2, 2).ptr(); };
  const std::vector<Case> cases{
      {[](Net& net) { net.register_parameter("extra", torch::ones({1})); },
       "extra is missing in replica 0, but float32[1] in replica 1"},
      {[](Net& net) { net.unregister_module("child"); },
       "child.weight is float32[2, 2] in replica 0, but missing in replica 1"},
      {[](Net& net) { net.register_module("mode", torch::nn::Dropout()); },
       "mode (a module) is missing in replica 0, but present in replica 1"},
      {[&](Net& net) { net.replace_module("child", torch::nn::Linear(2, 3).ptr()); },
       "child.weight is float32[2, 2] in replica 0, but float32[3, 2] in replica 1"},
      {[&](Net& net) {
         net.replace_module("child", linear());
         net.named_children()["child"]->to(torch::kDouble);
       },
       "child.bias is float32[2] in replica 0, but float64[2] in replica 1"},
      {[](Net& net) {
         net.unregister_module("child");
         const auto child = net.register_module("child", torch::nn::Linear(2, 2));
         net.register_parameter("tied", child->weight);
       },
       "tied is float32[2, 2] in replica 0, but float32[2, 2] tied to child.weight in replica 1"},
      {[](Net& net) { net.register_buffer("meta", torch::ones({1}, torch::kMeta)); },
       "meta is without values (meta) in replica 1"},
      {[](Net& net) { net.register_buffer("sparse", torch::eye(2).to_sparse()); },
       "sparse is not dense in replica 1"},
  };
  const std::vector<c10::Device> devices{try_gpu(), try_gpu()};
  for (const auto& other : cases) {
    std::vector<NetPointer> made;
    const auto make = [&] {
      auto net = std::make_shared<Net>();
      net->register_module("child", linear());
      const bool last = !made.empty();
      if (other.difference.starts_with("tied") && !last)
        net->register_parameter("tied", torch::ones({2, 2}));
      if (last) other.change(*net);
      made.push_back(net);
      return net;
    };
    try {
      (void)mirror(devices, make);
      ADD_FAILURE() << "nothing was thrown: " << other.difference;
    } catch (const ParameterError& error) {
      const auto& all = error.differences();
      EXPECT_NE(std::find(all.begin(), all.end(), other.difference), all.end()) << error.what();
      EXPECT_LE(std::string(error.what()).size(), 400U);
    }
    for (const auto& x : made[0]->parameters()) EXPECT_TRUE(x.is_cpu());
  }
}

TEST(Mirror, RefusesWhatCanNeverWork) {
  EXPECT_TRUE(has(error_of<ArgumentError>([] { (void)mirror({}, small_net); }), "no devices"));
  error_of<ArgumentError>([] { (void)mirror({cpu()}, [] { return Sequential(nullptr); }); });
  error_of<ArgumentError>([] { (void)mirror({cpu()}, [] { return NetPointer(); }); });
  const auto one = small_net();
  EXPECT_TRUE(has(error_of<ArgumentError>([&] {
                    (void)mirror({cpu(), cpu()}, [&] { return one; });
                  }),
                  "replica 0 and replica 1 are the same module"));
  int calls = 0;
  error_of<DeviceError>([&] {
    (void)mirror({cpu(), test::absent_gpu()}, [&] {
      ++calls;
      return small_net();
    });
  });
  EXPECT_EQ(calls, 0);
}

TEST(AverageGradients, WritesTheMeanInPlace) {
  const auto devices = several_devices();
  const auto nets = mirror(devices, [] { return net_of({{2, 3}, {}, {0}, {5}}); });
  std::vector<at::Tensor> gradients;
  float mean = 0;
  for (std::size_t i = 0; i < nets.size(); ++i) {
    const auto value = static_cast<float>(1U << i);
    mean += value / static_cast<float>(nets.size());
    for (const auto& x : nets[i]->named_parameters()) {
      set_gradient(*nets[i], x.key(), torch::full_like(x.value(), value));
      gradients.push_back(x.value().grad());
    }
  }
  average_gradients(nets);
  std::size_t k = 0;
  for (const auto& net : nets) {
    for (const auto& x : net->named_parameters()) {
      EXPECT_TRUE(x.value().grad().is_same(gradients[k++]));
      EXPECT_EQ(x.value().grad().device(), x.value().device());
      EXPECT_FALSE(x.value().grad().requires_grad());
      EXPECT_TRUE(torch::allclose(x.value().grad().cpu(), torch::full(x.value().sizes(), mean)));
      EXPECT_TRUE(same_bits(x.value().grad(), nets[0]->named_parameters()[x.key()].grad()));
    }
  }
}

TEST(AverageGradients, CountsAnUndefinedOneAsZerosUnlessAllAre) {
  const auto nets = mirror({try_gpu(0), try_gpu(1)}, [] { return net_of({{2}, {2}, {2}}); });
  set_gradient(*nets[1], "p0", torch::full({2}, 3.F));
  set_gradient(*nets[0], "p2", torch::full({2}, 5.F));
  set_gradient(*nets[1], "p2", torch::full({2}, 6.F));
  average_gradients(nets);
  for (const auto& net : nets) {
    EXPECT_TRUE(gradient_of(*net, "p0").equal(torch::full({2}, 1.5F)));
    EXPECT_FALSE(gradient_of(*net, "p1").defined());
    EXPECT_TRUE(gradient_of(*net, "p2").equal(torch::full({2}, 5.5F)));
  }
  // What was defined here must take part in the next backward pass as any other.
  (nets[0]->parameters()[0] * 2).sum().backward();
  EXPECT_TRUE(gradient_of(*nets[0], "p0").equal(torch::full({2}, 3.5F)));
}

TEST(AverageGradients, LeavesFrozenParametersAndBuffersAlone) {
  const auto nets = mirror({try_gpu(0), try_gpu(1)}, [] {
    auto net = net_of({{2}, {2}});
    net->register_buffer("statistics", torch::zeros({2}));
    net->named_parameters()["p1"].set_requires_grad(false);
    return net;
  });
  for (std::size_t i = 0; i < 2; ++i) {
    const auto value = torch::full({2}, static_cast<float>(i));
    set_gradient(*nets[i], "p0", value);
    set_gradient(*nets[i], "p1", value);
    nets[i]->buffers()[0].copy_(value);
  }
  average_gradients(nets);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto value = torch::full({2}, static_cast<float>(i));
    EXPECT_TRUE(gradient_of(*nets[i], "p0").equal(torch::full({2}, 0.5F)));
    EXPECT_TRUE(gradient_of(*nets[i], "p1").equal(value));
    EXPECT_TRUE(nets[i]->buffers()[0].cpu().equal(value));
  }
}

TEST(AverageGradients, CountsTiedParametersOnce) {
  const auto nets = mirror({try_gpu(0), try_gpu(1)}, [] {
    auto net = std::make_shared<Net>();
    const auto weight = net->register_parameter("encoder", torch::ones({2}));
    net->register_parameter("decoder", weight);
    return net;
  });
  set_gradient(*nets[0], "encoder", torch::full({2}, 1.F));
  set_gradient(*nets[1], "encoder", torch::full({2}, 4.F));
  average_gradients(nets);
  for (const auto& net : nets)
    EXPECT_TRUE(gradient_of(*net, "decoder").equal(torch::full({2}, 2.5F)));
}

TEST(AverageGradients, LetsInfAndNanTravelAndOverflowsNoHalf) {
  const auto inf = std::numeric_limits<float>::infinity();
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  const auto nets = mirror(several_devices(), [] { return net_of({{4}}, torch::kHalf); });
  for (const auto& net : nets)
    set_gradient(*net, "p0", torch::tensor({60000.F, 1.F, 1.F, 0.F}).to(torch::kHalf));
  set_gradient(*nets[1], "p0", torch::tensor({60000.F, inf, nan, -0.F}).to(torch::kHalf));
  average_gradients(nets);
  for (const auto& net : nets) {
    const auto mean = gradient_of(*net, "p0");
    EXPECT_EQ(mean.scalar_type(), torch::kHalf);
    EXPECT_EQ(mean[0].item<float>(), 60000.F);
    EXPECT_EQ(mean[1].item<float>(), inf);
    EXPECT_TRUE(mean[2].isnan().item<bool>());
    EXPECT_TRUE(same_bits(mean, gradient_of(*nets[0], "p0")));
  }
}

TEST(AverageGradients, IsIndependentOfTheDefaultDevice) {
  const auto nets = mirror(several_devices(), [] { return net_of({{4}, {2, 2}}); });
  for (const auto& net : nets) {
    set_gradient(*net, "p0", torch::ones({4}));
    set_gradient(*net, "p1", torch::ones({2, 2}));
  }
  for (const auto device : try_all_gpus()) {
    const DefaultDeviceGuard scope(device);
    average_gradients(nets);
    EXPECT_TRUE(gradient_of(*nets[0], "p0").cpu().equal(torch::ones({4}, cpu())));
  }
}

TEST(AverageGradients, TakesFewTransfersForManyParameters) {
  USE_GPU_TEST_NEEDS(2);
  const auto nets = mirror(try_all_gpus(), [] {
    auto net = many_small();
    net->register_parameter("wide", torch::ones({3}, torch::kDouble));
    return net;
  });
  for (const auto& net : nets) {
    for (const auto& x : net->parameters()) x.mutable_grad() = torch::ones_like(x);
  }
  const TransferGuard guard;
  const TransferLedger ledger;
  average_gradients(nets);
  const auto there_and_back = std::int64_t{2} * (num_gpus() - 1);
  const auto copies = ledger.count(TransferDirection::device_to_device).copies;
  if (num_gpus() == 2) {
    EXPECT_EQ(copies, 2 * there_and_back) << "two dtypes";
  } else {  // each device reduces its part
    EXPECT_LE(copies, 2 * there_and_back * num_gpus());
  }
  EXPECT_EQ(ledger.count(TransferDirection::device_to_device).bytes,
            there_and_back * (24'000 + 24));
  EXPECT_EQ(ledger.count(TransferDirection::host_to_device).copies, 0);
  EXPECT_EQ(ledger.count(TransferDirection::device_to_host).copies, 0);
  EXPECT_EQ(ledger.item_reads(), 0);
}

TEST(AverageGradients, ChangesNothingForASingleReplica) {
  const auto nets = mirror({try_gpu()}, [] { return net_of({{2}, {2}}); });
  const auto x = nets[0]->parameters()[0];
  x.mutable_grad() = torch::ones_like(x);
  const auto version = x.grad()._version();
  average_gradients(nets);
  EXPECT_EQ(x.grad()._version(), version);
  EXPECT_FALSE(nets[0]->parameters()[1].grad().defined());
}

TEST(AverageGradients, ChangesNothingWhereItRefuses) {
  const auto refused = [&](const NetPointer& first, const NetPointer& second) {
    set_gradient(*first, "p0", torch::full({2, 2}, 1.F));
    set_gradient(*second, "p0", torch::full({2, 2}, 2.F));
    const auto text = error_of<ParameterError>([&] {
      average_gradients(std::vector<NetPointer>{first, second});
    });
    EXPECT_TRUE(gradient_of(*first, "p0").equal(torch::full({2, 2}, 1.F)));
    EXPECT_TRUE(gradient_of(*second, "p0").equal(torch::full({2, 2}, 2.F)));
    if (first->parameters().size() > 1) {
      EXPECT_FALSE(gradient_of(*first, "p1").defined());
    }
    return text;
  };
  const auto net = net_of({{2, 2}, {3}});
  EXPECT_TRUE(has(refused(net, net_of({{2, 2}})),
                  "p1 is float32[3] in replica 0, but missing or frozen in replica 1"));
  EXPECT_TRUE(has(refused(net_of({{2, 2}}), net), "p1 is missing or frozen in replica 0"));
  EXPECT_TRUE(has(refused(net, net_of({{2, 2}, {4}})),
                  "p1 is float32[3] in replica 0, but float32[4] in replica 1"));
  const auto frozen = net_of({{2, 2}, {3}});
  frozen->parameters()[1].set_requires_grad(false);
  EXPECT_TRUE(has(refused(net, frozen),
                  "p1 is float32[3] in replica 0, but missing or frozen in replica 1"));
  const auto sparse = net_of({{2, 2}, {3}});
  sparse->parameters()[1].mutable_grad() = torch::ones({3}).to_sparse();
  EXPECT_TRUE(has(refused(net, sparse), "p1's gradient in replica 1 is float32[3] Sparse"));
}

TEST(AverageGradients, RefusesWhatCanNeverWork) {
  const auto average = [](const std::vector<NetPointer>& nets) {
    return error_of<ArgumentError>([&] { average_gradients(nets); });
  };
  const auto net = net_of({{2}});
  EXPECT_TRUE(has(average({}), "there are no replicas"));
  EXPECT_TRUE(has(average({net, nullptr}), "The network is empty"));
  EXPECT_TRUE(has(average({net, net_of({{2}}), net}), "replica 0 and replica 2 are the same"));
}

TEST(AverageGradients, RefusesAReplicaOnSeveralDevices) {
  USE_GPU_TEST_NEEDS(1);
  const auto nets = mirror(
      {cpu(), cpu()}, [] { return Sequential(torch::nn::Linear(3, 1), torch::nn::Linear(1, 1)); });
  place(nets[1]->ptr(1), gpu());
  for (const auto& net : nets) {
    for (const auto& x : net->parameters()) x.mutable_grad() = torch::ones_like(x);
  }
  const auto text = error_of<DeviceMismatch>([&] { average_gradients(nets); });
  EXPECT_TRUE(has(text, "replica 1 is on several devices: 1.bias"));
}

// Training that is the same everywhere but for the way the gradients are summed.
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(const Sequential&)>;

std::unique_ptr<Optimizer> sgd(const Sequential& net) {
  return std::make_unique<torch::optim::SGD>(net->parameters(),
                                             torch::optim::SGDOptions(0.05).momentum(0.9));
}

std::unique_ptr<Optimizer> adam(const Sequential& net) {
  return std::make_unique<torch::optim::Adam>(net->parameters(), torch::optim::AdamOptions(0.01));
}

void backward(Sequential net, const at::Tensor& x, const at::Tensor& y) {
  (net->forward(x) - y).square().mean().backward();
}

TEST(AverageGradients, KeepsReplicasEqualToTheBitAndNearOneNetworkWithTheWholeBatch) {
  const auto devices = several_devices();
  const auto count = static_cast<std::int64_t>(devices.size());
  for (const MakeOptimizer& make_optimizer : {MakeOptimizer(sgd), MakeOptimizer(adam)}) {
    torch::manual_seed(1);
    const auto make = [] {  // in double precision, for the comparison below
      Sequential net(torch::nn::Linear(5, 16), torch::nn::Linear(16, 2));
      net->to(torch::kDouble);
      return net;
    };
    const auto nets = mirror(devices, make);
    const auto whole = make();
    write_parameters(whole, read_parameters(nets[0]));
    std::vector<std::unique_ptr<Optimizer>> optimizers;
    for (const auto& net : nets) optimizers.push_back(make_optimizer(net));
    const auto whole_optimizer = make_optimizer(whole);
    for (int step = 0; step < 100; ++step) {
      const auto x = torch::rand({4 * count, 5}, torch::kDouble);
      const auto y = torch::rand({4 * count, 2}, torch::kDouble);
      parallel_on(devices, [&](c10::Device device, int entry) {
        const auto i = static_cast<std::size_t>(entry);
        optimizers[i]->zero_grad();
        backward(nets[i], x.chunk(count)[i].to(device), y.chunk(count)[i].to(device));
      });
      average_gradients(nets);
      for (const auto& optimizer : optimizers) optimizer->step();
      whole_optimizer->zero_grad();
      backward(whole, x, y);
      whole_optimizer->step();
    }
    for (const auto& net : nets) expect_equal_parameters(nets[0], net);
    // The same sums in another order: each step's gradients differ by some units in the last place
    // (1e-16), which 100 steps may multiply; a wrong mean differs by more than 1e-2.
    const auto one = read_parameters(whole);
    for (const auto& [name, x] : read_parameters(nets[0]))
      EXPECT_TRUE(torch::allclose(x, one.at(name), /*rtol=*/1e-9, /*atol=*/1e-9)) << name;
  }
}

// The gradients of the mean loss over all rows: by one network, and by replicas with a part each.
void expect_the_whole_batchs(const std::vector<std::int64_t>& rows, at::ScalarType dtype) {
  const auto all = torch::tensor(rows).sum().item<std::int64_t>();
  const auto x = torch::rand({all, 5}, dtype), y = torch::rand({all, 2}, dtype);
  std::vector<c10::Device> devices;
  for (std::size_t i = 0; i < rows.size(); ++i) devices.push_back(try_gpu(static_cast<int>(i)));
  const auto make = [&] {
    Sequential net(torch::nn::Linear(5, 16), torch::nn::Linear(16, 2));
    net->to(dtype);
    return net;
  };
  const auto nets = mirror(devices, make);
  const auto whole = make();
  write_parameters(whole, nets[0]->named_parameters());
  backward(whole, x, y);
  const auto xs = x.split_with_sizes(rows), ys = y.split_with_sizes(rows);
  for (std::size_t i = 0; i < rows.size(); ++i)
    backward(nets[i], xs[i].to(devices[i]), ys[i].to(devices[i]));  // nan for 0 rows
  average_gradients(nets, rows);
  for (const auto& net : nets) {
    for (const auto& p : whole->named_parameters()) {
      const auto mean = gradient_of(*net, p.key());
      EXPECT_TRUE(mean.allclose(p.value().grad(), 1e-6, 1e-6)) << p.key();
      EXPECT_TRUE(same_bits(mean, gradient_of(*nets[0], p.key())));
    }
  }
}

TEST(AverageGradientsByRows, GivesTheWholeBatchsGradient) {
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    expect_the_whole_batchs({4, 4}, dtype);
    expect_the_whole_batchs({7, 2}, dtype);
    expect_the_whole_batchs({1, 100}, dtype);
    expect_the_whole_batchs({0, 3}, dtype);
    expect_the_whole_batchs({1, 0}, dtype);
    expect_the_whole_batchs({5, 0, 1, 2}, dtype);
    expect_the_whole_batchs({9}, dtype);
  }
}

TEST(AverageGradientsByRows, EqualsThePlainMeanForEqualRows) {
  const auto nets = mirror({try_gpu(0), try_gpu(1)}, [] {
    return net_of({{50}, {3}}, torch::kHalf);
  });
  std::vector<at::Tensor> before, plain;
  for (const auto& net : nets) {
    for (const auto& p : net->parameters()) {
      before.push_back(torch::rand_like(p));
      p.mutable_grad() = before.back().clone();
    }
  }
  average_gradients(nets);
  for (const auto& p : nets[0]->parameters()) plain.push_back(p.grad().clone());
  std::size_t k = 0;
  for (const auto& net : nets) {
    for (const auto& p : net->parameters()) p.mutable_grad() = before[k++];
  }
  average_gradients(nets, {8, 8});
  k = 0;
  for (const auto& p : nets[1]->parameters()) EXPECT_TRUE(same_bits(p.grad(), plain[k++]));
}

TEST(AverageGradientsByRows, RefusesWrongNumbersAndChangesNothing) {
  const auto nets = mirror({cpu(), cpu()}, [] { return net_of({{2}}); });
  for (const auto& net : nets) set_gradient(*net, "p0", torch::full({2}, 3.F));
  nets[1]->parameters()[0].mutable_grad().zero_();
  const auto text_of = [&](const std::vector<std::int64_t>& rows) {
    return error_of<ArgumentError>([&] { average_gradients(nets, rows); });
  };
  EXPECT_TRUE(has(text_of({1}), "2 replicas, but 1 numbers of rows"));
  EXPECT_TRUE(has(text_of({}), "2 replicas, but 0"));
  EXPECT_TRUE(has(text_of({2, -1}), "replica 1 has -1 rows"));
  EXPECT_TRUE(has(text_of({0, 0}), "all parts have 0 rows"));
  EXPECT_TRUE(gradient_of(*nets[0], "p0").equal(torch::full({2}, 3.F)));
}

TEST(CopyBuffers, MakesStatisticsEqual) {
  for (const int from : {0, 1}) {
    const auto nets = mirror(several_devices(), small_net);
    std::vector<at::Tensor> parameters;
    for (auto net : nets) {
      parameters.push_back(net->parameters()[0].detach().cpu().clone());
      for (std::size_t batch = 0; batch < parameters.size(); ++batch)  // moves the statistics
        net->forward(torch::rand({8, 3}).to(net->parameters()[0].device()));
    }
    const auto buffers = nets[0]->buffers();
    const auto expected =
        nets.at(static_cast<std::size_t>(from))->named_buffers()["1.running_mean"].cpu().clone();
    copy_buffers(nets, from);
    for (std::size_t i = 0; i < nets.size(); ++i) {
      EXPECT_TRUE(same_bits(nets[i]->named_buffers()["1.running_mean"], expected));
      EXPECT_EQ(nets[i]->named_buffers()["1.num_batches_tracked"].item<int>(), from + 1);
      EXPECT_TRUE(same_bits(nets[i]->parameters()[0], parameters[i]));
      EXPECT_EQ(placement(nets[i]).single_device(), several_devices()[i]);
    }
    for (std::size_t k = 0; k < buffers.size(); ++k)
      EXPECT_TRUE(nets[0]->buffers()[k].is_same(buffers[k]));
  }
}

TEST(CopyBuffers, TakesOneTransferForEachDtype) {
  USE_GPU_TEST_NEEDS(2);
  const auto nets = mirror({gpu(0), gpu(1)}, [] {
    auto net = std::make_shared<Net>();
    for (int i = 0; i < 100; ++i)
      net->register_buffer("b" + std::to_string(i), torch::rand({i + 1}));
    return net;
  });
  const TransferGuard guard;
  const TransferLedger ledger;
  copy_buffers(nets);
  EXPECT_EQ(ledger.count(TransferDirection::device_to_device).copies, 1);
}

TEST(CopyBuffers, RefusesWhatCannotBeCopied) {
  const auto with_buffer = [](const at::Tensor& x) {
    auto net = std::make_shared<Net>();
    net->register_buffer("statistics", x);
    return net;
  };
  using Nets = std::vector<NetPointer>;
  const auto first = with_buffer(torch::ones({2}));
  error_of<ArgumentError>([&] { copy_buffers(Nets{}); });
  error_of<ArgumentError>([&] { copy_buffers(Nets{first, first}); });
  for (const int from : {-1, 2}) {
    EXPECT_TRUE(has(error_of<ArgumentError>([&] {
                      copy_buffers(Nets{first, with_buffer(torch::zeros({2}))}, from);
                    }),
                    "there is no replica " + std::to_string(from)));
  }
  EXPECT_TRUE(has(error_of<ParameterError>([&] {
                    copy_buffers(Nets{first, net_of({{2}})});
                  }),
                  "statistics is float32[2] in replica 0, but missing in replica 1"));
  EXPECT_TRUE(has(error_of<ParameterError>([&] {
                    copy_buffers(Nets{first, with_buffer(torch::ones({2}).to_sparse())});
                  }),
                  "statistics is not dense in replica 1"));
  EXPECT_TRUE(has(error_of<ParameterError>([&] {
                    copy_buffers(Nets{with_buffer(torch::zeros(1).expand(2)), first}, /*from=*/1);
                  }),
                  "statistics overlaps itself (by expand()?) in replica 0"));
  EXPECT_TRUE(first->buffers()[0].equal(torch::ones({2})));
}

}  // namespace
}  // namespace use_gpu
