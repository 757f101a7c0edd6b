// SPDX-License-Identifier: MIT
#include "timing/timing.hpp"

#include <ATen/Context.h>
#include <ATen/Functions.h>

#include <cmath>
#include <cstdlib>

#include "support.hpp"
#include "timing/products.hpp"

namespace use_gpu {
namespace {

using Tensors = std::vector<at::Tensor>;

// Its result is `value` from the start, and `later` from its third run on.
Contender contender_of(const std::string& name, float value, float later) {
  const auto device = try_gpu();
  return {name,
          {device},
          [=, runs = 0]() mutable {
            return Tensors{at::full({1}, ++runs < 3 ? value : later, at::device(device))};
          },
          [](const Tensors& results) { return results.front().item<float>() == 1; }};
}

struct Plant {
  explicit Plant(const char* name) { ::setenv("USE_GPU_PLANT_WRONG_RESULT", name, 1); }
  ~Plant() { ::unsetenv("USE_GPU_PLANT_WRONG_RESULT"); }
  Plant(const Plant&) = delete;
  Plant& operator=(const Plant&) = delete;
};

TEST(Measure, TellsNoFigureWhereTheFirstOrTheLastResultWasWrong) {
  const auto figures = measure(
      {contender_of("right", 1, 1), contender_of("never", 2, 2), contender_of("not at last", 1, 2)},
      /*seconds=*/0);
  ASSERT_EQ(figures.size(), 3U);
  EXPECT_TRUE(figures[0].is_right);
  EXPECT_FALSE(figures[1].is_right);
  EXPECT_FALSE(figures[2].is_right);
  EXPECT_EQ(text_of(figures[1]), "WRONG RESULT");
}

TEST(Measure, TellsNoFigureOfAPlantedWrongResult) {
  const Plant plant("planted");
  const auto figures = measure({contender_of("right", 1, 1), contender_of("planted", 1, 1)}, 0);
  EXPECT_TRUE(figures[0].is_right);
  EXPECT_FALSE(figures[1].is_right);
}

TEST(Measure, WarmsUpAndThenRunsThemInTurn) {
  std::string order;
  const auto note = [&](const std::string& name) {
    return Contender{name,
                     {},
                     [&order, name] { return order += name, Tensors{}; },
                     [](const Tensors&) { return true; }};
  };
  (void)measure({note("a"), note("b")}, /*seconds=*/0);
  EXPECT_EQ(order, "abababab");
}

TEST(Measure, GivesTheMedianBetweenTheLeastAndTheMostButTimesNoSimulatedGpu) {
  const auto figure = measure({contender_of("right", 1, 1)}, /*seconds=*/0).front();
  ASSERT_TRUE(figure.is_right);
  ASSERT_EQ(figure.time.has_value(), !test::simulated());
  if (!figure.time) return;
  EXPECT_GT(figure.time->least, 0);
  EXPECT_LE(figure.time->least, figure.time->median);
  EXPECT_LE(figure.time->median, figure.time->most);
}

TEST(RunContender, WaitsForItsDevices) {
  USE_GPU_TEST_NEEDS(1);
  const auto source = at::ones({1000}, at::device(gpu()));
  const auto target = at::zeros({1000}, at::TensorOptions().pinned_memory(true));
  const Contender contender = {
      "copy", {gpu()}, [&] { return Tensors{target.copy_(source, /*non_blocking=*/true)}; }, {}};
  EXPECT_EQ(run(contender).front().sum().item<float>(), 1000);
}

TEST(TextOf, HasAUnitThatFitsAndNoExponents) {
  EXPECT_EQ(text_of({true, Seconds{1.234e-6, 1e-6, 1.234e-3}}), "1.23 us (1.00 to 1234)");
  EXPECT_EQ(text_of({true, Seconds{0.0123, 0.012, 0.5}}), "12.3 ms (12.0 to 500)");
  EXPECT_EQ(text_of({true, Seconds{2, 1.5, 10.25}}), "2.00 s (1.50 to 10.2)");
}

TEST(Label, SaysSoOfSimulatedGpus) {
  EXPECT_EQ(label(cpu()), "cpu");
  for (int i = 0; i < num_gpus(); ++i)
    EXPECT_EQ(label(gpu(i)), gpu(i).str() + (test::simulated() ? " SIMULATED" : ""));
}

TEST(IsSimulated, AsksForTheVariableThatSimulateGpusSets) {
  USE_GPU_TEST_NEEDS(1);
  const char* before = std::getenv("SIMULATE_GPUS");
  const std::string kept = before == nullptr ? "" : before;
  for (const std::string value : {"", "2"}) {
    ::setenv("SIMULATE_GPUS", value.c_str(), 1);
    EXPECT_EQ(is_simulated(gpu()), !value.empty());
    EXPECT_FALSE(is_simulated(cpu()));
  }
  ::setenv("SIMULATE_GPUS", kept.c_str(), 1);
}

TEST(Machine, NamesTheGpusThatTheProgramCanUse) {
  const auto text = machine();
  const auto count = std::to_string(num_gpus());
  EXPECT_EQ(test::has(text, "; " + count + " x Simulated GPU, CUDA"),
            test::simulated() && num_gpus() > 1)
      << text;
  EXPECT_EQ(test::has(text, "; no GPU; LibTorch"), num_gpus() == 0) << text;
  EXPECT_EQ(test::has(text, "Simulated GPU"), test::simulated()) << text;
}

// CTest runs it once more with TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1, which changes the default.
TEST(Tf32GuardTest, DecidesOnTf32WhateverTheEnvironmentSays) {
  USE_GPU_TEST_NEEDS(1);
  const auto float32 = random_factors(4, gpu(), k_float32);
  for (const bool is_tf32 : {false, true}) {
    EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
    const Tf32Guard guard(is_tf32);
    EXPECT_EQ(at::globalContext().allowTF32CuBLAS(), is_tf32);
  }
  EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
}

TEST(SpeedUp, IsTheRatioOfTheMediansWhereBothHaveOne) {
  const Figure slow{true, Seconds{3, 2, 4}}, fast{true, Seconds{2, 1, 3}};
  EXPECT_EQ(speed_up(slow, fast), "1.50x");
  EXPECT_EQ(speed_up(slow, {}), "");
  EXPECT_EQ(text_of({true, {}}), "right (simulated)");
}

at::Tensor product_of(const Factors& factors) {
  const Tf32Guard tf32(factors.precision.is_tf32);
  return factors.a.mm(factors.b);
}

class ProductOfEachPrecision : public testing::TestWithParam<Precision> {};

TEST_P(ProductOfEachPrecision, IsAcceptedInEverySize) {
  for (const std::int64_t n : {1, 2, 3, 5, 16, 100, 512}) {
    const auto factors = random_factors(n, try_gpu(), GetParam());
    EXPECT_TRUE(is_product(factors, product_of(factors))) << n;
  }
}

TEST_P(ProductOfEachPrecision, IsRefusedIfItIsAnother) {
  const auto factors = random_factors(100, try_gpu(), GetParam());
  const auto product = product_of(factors);
  auto one_wrong = product.clone(), one_missing = product.clone();
  one_wrong[99][7].add_(1);
  one_missing[3][4].fill_(std::nan(""));
  EXPECT_FALSE(is_product(factors, product.add(1)));
  EXPECT_FALSE(is_product(factors, product.t()));
  EXPECT_FALSE(is_product(factors, at::zeros_like(product)));
  EXPECT_FALSE(is_product(factors, factors.b.mm(factors.a)));
  EXPECT_FALSE(is_product(factors, one_wrong));
  EXPECT_FALSE(is_product(factors, one_missing));
}

INSTANTIATE_TEST_SUITE_P(, ProductOfEachPrecision, testing::Values(k_float32, k_tf32, k_bf16),
                         [](const auto& precision) { return precision.param.name; });

TEST(CheckOf, HoldsEachResultAgainstItsOwnFactors) {
  const auto a = random_factors(10, try_gpu(), k_float32),
             b = random_factors(10, try_gpu(), k_float32);
  const auto are_right = check_of({a, b});
  EXPECT_TRUE(are_right({product_of(a), product_of(b)}));
  EXPECT_FALSE(are_right({product_of(b), product_of(a)}));
  EXPECT_FALSE(are_right({product_of(a)}));
}

}  // namespace
}  // namespace use_gpu
