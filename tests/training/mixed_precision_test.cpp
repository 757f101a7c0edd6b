// SPDX-License-Identifier: MIT
//
// Python.* compare with what Python's torch.autocast and GradScaler did (mixed_precision.py).
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <use_gpu/device.hpp>
#include <use_gpu/mixed_precision.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/parallel.hpp>
#include <use_gpu/tensor_file.hpp>
#include <use_gpu/transfers.hpp>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <thread>

#include "networks.hpp"
#include "simulated_runtime.hpp"
#include "support.hpp"

namespace use_gpu {
namespace {

using test::error_of;
using test::has;

constexpr float k_inf = std::numeric_limits<float>::infinity();

// What a product of float32 gives on that device now.
at::ScalarType product_dtype(c10::Device device) {
  const auto x = torch::ones({2, 2}, device);
  return torch::mm(x, x).scalar_type();
}

TEST(AutocastGuardTest, ComputesInTheDtypeOfTheDeviceOrTheOneThatIsGiven) {
  for (const auto device : {cpu(), try_gpu()}) {
    EXPECT_EQ(product_dtype(device), at::kFloat);
    {
      const AutocastGuard scope(device);
      EXPECT_EQ(product_dtype(device), device.is_cuda() ? at::kHalf : at::kBFloat16);
      const auto x = torch::ones({2}, device);
      EXPECT_EQ(x.to(at::kHalf).exp().scalar_type(),
                device.is_cuda() ? at::kFloat : at::kHalf);  // CUDA's list alone has exp
    }
    for (const auto dtype : {at::kHalf, at::kBFloat16}) {
      const AutocastGuard scope(device, dtype);
      EXPECT_EQ(product_dtype(device), dtype);
    }
    EXPECT_EQ(product_dtype(device), at::kFloat);
  }
}

TEST(AutocastGuardTest, NestsAndRestoresOnExceptions) {
  const auto device = try_gpu();
  const AutocastGuard outer(device, at::kBFloat16);
  try {
    const AutocastGuard inner(device, at::kHalf);
    EXPECT_EQ(product_dtype(device), at::kHalf);
    const AutocastGuard off(device, {}, /*enabled=*/false);
    EXPECT_EQ(product_dtype(device), at::kFloat);
    throw std::runtime_error("on purpose");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(product_dtype(device), at::kBFloat16);
  const AutocastGuard same(device);
  EXPECT_EQ(product_dtype(device), at::kBFloat16) << "the outer scope's dtype, as in Python";
}

TEST(AutocastGuardTest, EndsInAnyOrder) {
  for (const auto device : {cpu(), try_gpu()}) {
    auto outer = std::make_unique<AutocastGuard>(device, at::kHalf);
    auto middle = std::make_unique<AutocastGuard>(device, std::nullopt, /*enabled=*/false);
    auto inner = std::make_unique<AutocastGuard>(device, at::kBFloat16);
    middle.reset();
    EXPECT_EQ(product_dtype(device), at::kBFloat16);
    outer.reset();
    EXPECT_EQ(product_dtype(device), at::kBFloat16);
    inner.reset();
    EXPECT_EQ(product_dtype(device), at::kFloat);
    at::autocast::increment_nesting();
    EXPECT_EQ(at::autocast::decrement_nesting(), 0);
  }
}

TEST(AutocastGuardTest, ChangesNothingInAnotherThreadThatEndsIt) {
  const auto device = try_gpu();
  std::thread([&] {
    auto scope = std::make_unique<AutocastGuard>(device, at::kBFloat16);
    testing::internal::CaptureStderr();
    std::thread([&] {
      const AutocastGuard own(device, at::kHalf);
      scope.reset();
      EXPECT_EQ(product_dtype(device), at::kHalf);
    }).join();
    EXPECT_TRUE(has(testing::internal::GetCapturedStderr(), "[warning] AutocastGuard"));
    EXPECT_EQ(product_dtype(device), at::kBFloat16) << "until this thread ends";
  }).join();
  EXPECT_EQ(product_dtype(device), at::kFloat);
}

TEST(AutocastGuardTest, RefusesOtherDtypesAndDevices) {
  EXPECT_TRUE(has(error_of<ArgumentError>([] { const AutocastGuard x(cpu(), at::kDouble); }),
                  "float16 or bfloat16"));
  EXPECT_TRUE(
      has(error_of<ArgumentError>([] { const AutocastGuard x(c10::Device("meta")); }), "meta"));
  EXPECT_EQ(product_dtype(cpu()), at::kFloat);
}

// How often a weight is cast while it lives; in all threads.
class Casts {
 public:
  Casts()
      : handle_(at::addGlobalCallback(
            at::RecordFunctionCallback(count).scopes({at::RecordScope::FUNCTION}))) {
    counted = 0;
  }
  ~Casts() { at::removeCallback(handle_); }
  Casts(const Casts&) = delete;
  Casts& operator=(const Casts&) = delete;
  [[nodiscard]] static int since() { return counted.exchange(0); }

 private:
  static std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& f) {
    if (std::string_view(f.name()) == "aten::_to_copy") ++counted;
    return nullptr;
  }
  static inline std::atomic<int> counted = 0;
  at::CallbackHandle handle_;
};

TEST(AutocastGuardTest, CastsAWeightOnceUntilTheOutermostScopeEnds) {
  const auto device = try_gpu();
  torch::nn::Linear net(2, 2);
  place(net, device);
  const auto x = torch::ones({2, 2}, device);
  // torch::nn::Linear would turn its weight first, and what was turned is not kept.
  const auto forward = [&] { return torch::linear(x, net->weight, net->bias); };
  const Casts casts;
  {
    const AutocastGuard outer(device);
    forward();
    EXPECT_EQ(casts.since(), 3) << "weight, bias and x";
    {
      const AutocastGuard inner(device);
      forward();
      EXPECT_EQ(casts.since(), 1) << "x alone";
    }
    parallel_on({device, device}, [&](c10::Device where, int) {
      const AutocastGuard of_worker(where);
      forward();
    });
    EXPECT_EQ(casts.since(), 2) << "x in each worker";
    forward();
    EXPECT_EQ(casts.since(), 1) << "the workers' scopes have kept what was cast";
  }
  const AutocastGuard another(device);
  forward();
  EXPECT_EQ(casts.since(), 3);
}

TEST(AutocastGuardTest, IsInheritedByWorkersAndByTheBackwardPass) {
  const auto device = try_gpu();
  torch::nn::Linear net(4, 4);
  place(net, device);
  at::ScalarType seen = at::kFloat;
  const AutocastGuard scope(device, at::kBFloat16);
  parallel_on({device}, [&](c10::Device where, int) { seen = product_dtype(where); });
  EXPECT_EQ(seen, at::kBFloat16);
  auto y = net(torch::ones({2, 4}, device));
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  y.register_hook([&](const at::Tensor& gradient) { seen = product_dtype(gradient.device()); });
  seen = at::kFloat;
  y.sum().backward();
  EXPECT_EQ(seen, at::kBFloat16);
  EXPECT_EQ(net->weight.grad().scalar_type(), at::kFloat);
}

// A parameter on each device, whose gradients are `gradient`, times the scale.
struct Training {
  explicit Training(std::vector<c10::Device> devices, float gradient = 1) : slope(gradient) {
    for (const auto device : devices)
      parameters.push_back(torch::ones({3}, torch::device(device).requires_grad(true)));
  }
  void backward(GradScaler& scaler) {
    for (auto& p : parameters) {
      p.mutable_grad() = at::Tensor();
      scaler.scale((p * slope).sum()).backward();
    }
  }
  float slope;
  std::vector<at::Tensor> parameters = {};
};

std::vector<c10::Device> one_of_each() {
  std::vector<c10::Device> devices{cpu()};
  for (const auto gpu : try_all_gpus())
    if (!gpu.is_cpu() && devices.size() < 3) devices.push_back(gpu);
  return devices;
}

TEST(GradScalerTest, StepsWithUnscaledGradients) {
  Training training(one_of_each(), 2);
  torch::optim::SGD sgd(training.parameters, 0.25);
  GradScaler scaler;
  training.backward(scaler);
  EXPECT_EQ(training.parameters[0].grad()[0].item<float>(), 2 * 65536);
  EXPECT_TRUE(scaler.step(sgd));
  scaler.update();
  for (const auto& p : training.parameters) {
    EXPECT_EQ(p[0].item<float>(), 0.5);
    EXPECT_EQ(p.grad()[0].item<float>(), 2);
  }
  EXPECT_EQ(scaler.scale_factor(), 65536);
  EXPECT_EQ(scaler.state().growth_tracker, 1);
}

TEST(GradScalerTest, LeavesAStepOutWhereAGradientOfAnyDeviceIsNotFinite) {
  for (const float bad : {k_inf, -k_inf, std::nanf("")}) {
    const auto devices = one_of_each();
    for (std::size_t where = 0; where < devices.size(); ++where) {
      Training training(devices);
      torch::optim::SGD sgd(training.parameters, 0.25);
      GradScaler scaler;
      training.backward(scaler);
      training.parameters[where].mutable_grad()[1] = bad;
      EXPECT_FALSE(scaler.step(sgd));
      scaler.update();
      for (const auto& p : training.parameters) EXPECT_EQ(p[0].item<float>(), 1);
      EXPECT_EQ(scaler.scale_factor(), 32768);
      EXPECT_EQ(scaler.state().growth_tracker, 0);
    }
  }
}

TEST(GradScalerTest, UnscalesOnceBeforeClipping) {
  Training training({try_gpu()}, 10);
  torch::optim::SGD sgd(training.parameters, 1);
  GradScaler scaler;
  training.backward(scaler);
  scaler.unscale(sgd);
  EXPECT_EQ(training.parameters[0].grad()[0].item<float>(), 10);
  EXPECT_TRUE(has(error_of<ArgumentError>([&] { scaler.unscale(sgd); }), "unscaled already"));
  torch::nn::utils::clip_grad_norm_(training.parameters, 1);
  EXPECT_TRUE(scaler.step(sgd));
  EXPECT_NEAR(training.parameters[0].grad().norm().item<float>(), 1, 1e-5);
  EXPECT_TRUE(has(error_of<ArgumentError>([&] { scaler.step(sgd); }), "twice"));
  scaler.update();
  EXPECT_TRUE(has(error_of<ArgumentError>([&] { scaler.update(); }), "step() first"));
  training.backward(scaler);
  training.parameters[0].mutable_grad()[0] = k_inf;
  scaler.unscale(sgd);
  scaler.update();  // without step(): what unscale() found still counts
  EXPECT_EQ(scaler.scale_factor(), 32768);
}

// LibTorch has no kernel for complex gradients, on which the second group therefore fails.
TEST(GradScalerTest, DividesNoGradientTwiceWhereAnotherDevicesKernelFails) {
  const auto first = torch::ones({2}, torch::requires_grad());
  const auto second =
      torch::ones({2}, torch::device(try_gpu()).dtype(at::kComplexFloat).requires_grad(true));
  torch::optim::SGD sgd({first, second}, 1);
  GradScaler scaler({.scale = 4});
  first.mutable_grad() = torch::full({2}, 8.F);
  second.mutable_grad() = torch::ones_like(second);
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_THROW(scaler.unscale(sgd), c10::Error);
    EXPECT_THROW(scaler.step(sgd), c10::Error);
    EXPECT_EQ(first.grad()[0].item<float>(), 2);
    EXPECT_EQ(first[0].item<float>(), 1);
  }
  second.mutable_grad() = at::Tensor();
  scaler.unscale(sgd);
  EXPECT_TRUE(scaler.step(sgd));
  EXPECT_EQ(first.grad()[0].item<float>(), 2);
  EXPECT_EQ(first[0].item<float>(), -1);
}

TEST(GradScalerTest, TakesSeveralOptimizers) {
  Training training({try_gpu(), try_gpu(), cpu()});
  torch::optim::SGD first({training.parameters[0]}, 0.5), second({training.parameters[1]}, 0.5),
      without({torch::ones({1}, torch::requires_grad())}, 0.5);
  GradScaler scaler;
  training.backward(scaler);
  training.parameters[1].mutable_grad()[2] = k_inf;
  EXPECT_TRUE(scaler.step(first));
  EXPECT_FALSE(scaler.step(second));
  EXPECT_TRUE(has(error_of<ArgumentError>([&] { scaler.step(without); }), "has a gradient"));
  scaler.update();
  EXPECT_EQ(scaler.scale_factor(), 32768);
  EXPECT_EQ(training.parameters[0][0].item<float>(), 0.5);
  EXPECT_EQ(training.parameters[1][0].item<float>(), 1);
}

TEST(GradScalerTest, TakesSparseAndMissingGradientsAndRefusesFloat16) {
  const auto device = try_gpu();
  const auto table = torch::ones({4, 2}, torch::device(device).requires_grad(true));
  const auto unused = torch::ones({2}, torch::device(device).requires_grad(true));
  torch::optim::SGD sgd({table, unused}, 1);
  GradScaler scaler({.scale = 4});
  const auto backward = [&](float slope) {
    const auto rows = torch::tensor({1, 1, 3}, device);
    table.mutable_grad() = at::Tensor();
    const auto picked = torch::embedding(table, rows, -1, false, /*sparse=*/true);
    scaler.scale(picked.sum() * slope).backward();
  };
  backward(1);
  EXPECT_TRUE(table.grad().is_sparse());
  EXPECT_TRUE(scaler.step(sgd));
  EXPECT_EQ(table[1][0].item<float>(), -1);
  EXPECT_EQ(table[3][0].item<float>(), 0);
  EXPECT_EQ(table[0][0].item<float>(), 1);
  scaler.update();
  backward(k_inf);
  EXPECT_FALSE(scaler.step(sgd));
  scaler.update();

  const auto half = torch::ones({2}, torch::device(device).dtype(at::kHalf).requires_grad(true));
  torch::optim::SGD other({table, half}, 1);
  backward(1);
  half.mutable_grad() = torch::ones_like(half);
  const auto before = table.grad().to_dense();
  EXPECT_TRUE(has(error_of<ArgumentError>([&] { scaler.step(other); }), "float16"));
  EXPECT_TRUE(table.grad().to_dense().equal(before));
}

TEST(GradScalerTest, UnscalesATiedParameterOnce) {
  const auto p = torch::ones({3}, torch::device(try_gpu()).requires_grad(true));
  torch::optim::SGD sgd({p, p}, 0.5);  // as LibTorch's parameters() has it
  GradScaler scaler;
  scaler.scale(p.sum()).backward();
  scaler.unscale(sgd);
  EXPECT_EQ(p.grad()[0].item<float>(), 1);
}

TEST(GradScalerTest, ForgetsABegunStepWhenItGetsAState) {
  Training training({try_gpu()});
  torch::optim::SGD sgd(training.parameters, 0.5);
  GradScaler scaler;
  scaler.unscale(sgd);  // too early: there is no gradient
  training.backward(scaler);
  scaler.unscale(sgd);
  scaler.set_state({1024, 5000});
  training.backward(scaler);
  EXPECT_TRUE(scaler.step(sgd));
  EXPECT_EQ(training.parameters[0][0].item<float>(), 0.5);
  scaler.update();
  EXPECT_EQ(scaler.scale_factor(), 2048);
}

TEST(GradScalerTest, DoesNothingWhereItIsNotEnabled) {
  Training training({try_gpu()});
  torch::optim::SGD sgd(training.parameters, 0.5);
  GradScaler scaler({.enabled = false});
  training.backward(scaler);
  EXPECT_EQ(training.parameters[0].grad()[0].item<float>(), 1);
  scaler.unscale(sgd);
  EXPECT_TRUE(scaler.step(sgd));
  scaler.update();
  EXPECT_EQ(scaler.scale_factor(), 1);
  EXPECT_EQ(training.parameters[0][0].item<float>(), 0.5);
}

TEST(GradScalerTest, GoesOnFromAState) {
  GradScaler scaler({.scale = 8, .growth_interval = 3});
  scaler.set_state({16, 2});
  Training training({try_gpu()});
  torch::optim::SGD sgd(training.parameters, 0.5);
  training.backward(scaler);
  scaler.step(sgd);
  scaler.update();
  EXPECT_EQ(scaler.state().scale, 32);
  EXPECT_EQ(scaler.state().growth_tracker, 0);
  for (const GradScalerState wrong :
       {GradScalerState{0, 0}, {1, -1}, {std::nan(""), 0}, {1, 1L << 40}})
    EXPECT_TRUE(has(error_of<ArgumentError>([&] { scaler.set_state(wrong); }), "has to be"));
  EXPECT_EQ(scaler.state().scale, 32);
  EXPECT_TRUE(has(error_of<ArgumentError>([] { const GradScaler x({.growth_factor = 1}); }),
                  "growth_factor"));
  torch::optim::LBFGS lbfgs(training.parameters);
  EXPECT_TRUE(has(error_of<ArgumentError>([&] { scaler.step(lbfgs); }), "closure"));
}

TEST(GradScalerTest, WaitsOnceForEachDevice) {
  if (!test::simulated()) GTEST_SKIP() << "needs simulated GPUs, which count";
  const auto devices = one_of_each();
  Training training(devices);
  torch::optim::SGD sgd(training.parameters, 0.5);
  GradScaler scaler;
  const auto waits = [] {
    std::int64_t all = 0;
    for (const auto* row : {"device synchronizations", "stream synchronizations",
                            "event synchronizations", "host to device copies"})
      all += test::runtime_count(row);
    return all;
  };
  for (int step = 0; step < 3; ++step) {
    const auto before = waits();
    training.backward(scaler);
    scaler.step(sgd);
    scaler.update();
    EXPECT_EQ(waits() - before, std::ssize(devices) - 1) << "step " << step;
  }
}

TEST(GradScalerTest, IsNoHiddenTransfer) {
  Training training({try_gpu()});
  torch::optim::SGD sgd(training.parameters, 0.5);
  GradScaler scaler;
  const TransferGuard guard;
  training.backward(scaler);
  scaler.step(sgd);
  scaler.update();
}

// Where mixed_precision.py has written what it saw; the tests are skipped without.
std::string folder() {
  const char* const value = std::getenv("FOLDER");
  return value == nullptr ? "" : value;
}

TEST(Python, ChoosesTheSameScalesInAThousandSteps) {
  if (folder().empty()) GTEST_SKIP() << "run by mixed_precision.py";
  for (const std::string plan : {"injected", "overflowing"}) {
    auto seen = load_tensors(folder() + '/' + plan + ".safetensors");
    const auto interval = seen.at("growth_interval").item<std::int64_t>();
    GradScaler scaler({.growth_interval = interval});
    std::vector<at::Tensor> parameters;
    for (int i = 0; seen.contains("start." + std::to_string(i)); ++i) {
      const auto& start = seen.at("start." + std::to_string(i));
      const auto gpus = num_gpus();
      parameters.push_back(start.to(gpus > 0 ? gpu(i % gpus) : cpu()).set_requires_grad(true));
    }
    torch::optim::SGD sgd(parameters, 0.001);
    const auto steps = seen.at("scales").size(0);
    for (std::int64_t step = 0; step < steps; ++step) {
      sgd.zero_grad();
      for (auto& p : parameters) scaler.scale(50 * (p * p).sum()).backward();
      const auto which = seen.at("which")[step].item<std::int64_t>();
      if (which >= 0) {
        parameters[static_cast<std::size_t>(which)].mutable_grad()[0] =
            seen.at("what")[step].item<float>();
      }
      ASSERT_EQ(scaler.step(sgd), !seen.at("skipped")[step].item<bool>()) << "step " << step;
      scaler.update();
      ASSERT_EQ(scaler.scale_factor(), seen.at("scales")[step].item<double>()) << "step " << step;
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(parameters[i].detach().cpu().equal(seen.at("end." + std::to_string(i))));
    }
  }
}

// The dtypes of the tensors in it.
std::vector<std::string> dtypes_of(const c10::IValue& value) {
  if (value.isTensor()) return {std::string(c10::toString(value.toTensor().scalar_type()))};
  std::vector<std::string> all;
  const auto add = [&](const auto& elements) {
    for (const c10::IValue& element : elements) {
      for (auto& name : dtypes_of(element)) all.push_back(std::move(name));
    }
  };
  if (value.isTuple()) add(value.toTupleRef().elements());
  if (value.isList()) add(value.toListRef());
  return all;
}

// What an operation of that name gives, by whichever of its overloads takes the arguments.
c10::IValue call(const std::string& name, const std::vector<c10::IValue>& arguments,
                 const torch::jit::Kwargs& named) {
  std::string reasons;
  for (const auto& operation : torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(name))) {
    torch::jit::Stack stack = arguments;
    auto by_name = named;
    std::size_t by_place = 0;
    for (const auto& argument : operation->schema().arguments()) {
      const auto found = by_name.find(argument.name());
      auto* value = found == by_name.end() ? nullptr : &found->second;
      if (!argument.kwarg_only() && by_place++ < stack.size()) value = &stack[by_place - 1];
      if (value && value->isInt() && argument.type()->str().starts_with("int[]"))
        *value = c10::List<std::int64_t>({value->toInt()});  // dim=1 is dim=[1]
    }
    if (stack.size() > by_place) continue;
    try {
      operation->schema().checkAndNormalizeInputs(stack, by_name);
    } catch (const std::exception& error) {
      reasons += std::string(error.what()).substr(0, 200) + '\n';
      continue;
    }
    operation->getOperation()(stack);
    if (stack.size() == 1) return stack.front();
    return c10::ivalue::Tuple::create(stack);
  }
  throw std::runtime_error("no overload of " + name + " takes these arguments:\n" + reasons);
}

TEST(Python, GivesTheSameDtypeForEachOperationOfItsLists) {
  if (folder().empty()) GTEST_SKIP() << "run by mixed_precision.py";
  std::ifstream in(folder() + "/operations", std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
  const auto operations = torch::jit::pickle_load(bytes);
  int seen = 0;
  for (const auto& operation : operations.toTupleRef().elements()) {
    const auto& parts = operation.toTupleRef().elements();
    const auto name = parts[0].toStringRef(), dtype = parts[1].toStringRef();
    torch::jit::Kwargs named;
    for (const auto& item : parts[3].toTupleRef().elements()) {
      const auto& pair = item.toTupleRef().elements();
      named.emplace(pair[0].toStringRef(), pair[1]);
    }
    std::vector<c10::IValue> arguments;
    for (const auto& x : parts[2].toTupleRef().elements()) arguments.push_back(x);
    std::vector<std::string> expected;
    for (const auto& x : parts[4].toTupleRef().elements()) expected.push_back(x.toStringRef());
    const AutocastGuard scope(try_gpu(), dtype == "Half" ? at::kHalf : at::kBFloat16);
    EXPECT_EQ(dtypes_of(call(name, arguments, named)), expected) << name << " in " << dtype;
    ++seen;
  }
  std::cout << seen << " operations\n";
  EXPECT_GT(seen, 100);
}

}  // namespace
}  // namespace use_gpu
