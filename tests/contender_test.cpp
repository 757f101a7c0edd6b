// SPDX-License-Identifier: MIT
#include "measuring/contender.hpp"

#include <ATen/Context.h>
#include <ATen/Functions.h>

#include <cmath>
#include <cstdlib>

#include "measuring/matmul.hpp"
#include "support.hpp"

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

TEST(Machine, NamesTheGpusThatTheProgramCanUse) {
  const auto text = machine();
  EXPECT_EQ(test::has(text, "; no GPU; LibTorch"), num_gpus() == 0) << text;
  EXPECT_EQ(test::has(text, "Simulated GPU"), test::simulated()) << text;
}

// CTest runs it once more with TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1, which changes the default.
TEST(MatmulTest, DecidesOnTf32ItselfWhateverTheEnvironmentSays) {
  USE_GPU_TEST_NEEDS(1);
  const Matmul matmul(4, gpu(), k_float32);
  EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
  (void)Matmul(4, gpu(), k_tf32).product();
  EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
}

TEST(SpeedUp, IsTheRatioOfTheMediansWhereBothHaveOne) {
  const Figure slow{true, Seconds{3, 2, 4}}, fast{true, Seconds{2, 1, 3}};
  EXPECT_EQ(speed_up(slow, fast), "1.50x");
  EXPECT_EQ(speed_up(slow, {}), "");
  EXPECT_EQ(text_of({true, {}}), "right (simulated)");
}

class MatmulOfEachPrecision : public testing::TestWithParam<Precision> {};

TEST_P(MatmulOfEachPrecision, AcceptsItsProductInEverySize) {
  for (const std::int64_t n : {1, 2, 3, 5, 16, 100, 512}) {
    const Matmul matmul(n, try_gpu(), GetParam());
    EXPECT_TRUE(matmul.is_right(matmul.product())) << n;
    EXPECT_TRUE(matmul.is_right(matmul.product(/*times=*/3))) << n;
  }
}

TEST_P(MatmulOfEachPrecision, RefusesWhatIsNotItsProduct) {
  const Matmul matmul(100, try_gpu(), GetParam());
  const auto product = matmul.product();
  auto one_wrong = product.clone(), one_missing = product.clone();
  one_wrong[99][7].add_(1);
  one_missing[3][4].fill_(std::nan(""));
  EXPECT_FALSE(matmul.is_right(product.add(1)));
  EXPECT_FALSE(matmul.is_right(product.t()));
  EXPECT_FALSE(matmul.is_right(at::zeros_like(product)));
  EXPECT_FALSE(matmul.is_right(matmul.b().mm(matmul.a())));
  EXPECT_FALSE(matmul.is_right(one_wrong));
  EXPECT_FALSE(matmul.is_right(one_missing));
}

INSTANTIATE_TEST_SUITE_P(, MatmulOfEachPrecision, testing::Values(k_float32, k_tf32, k_bf16),
                         [](const auto& precision) { return precision.param.name; });

TEST(CheckOf, HoldsEachResultAgainstItsOwnMatrices) {
  const Matmul a(10, try_gpu(), k_float32), b(10, try_gpu(), k_float32);
  const auto is_right = check_of({a, b});
  EXPECT_TRUE(is_right({a.product(), b.product()}));
  EXPECT_FALSE(is_right({b.product(), a.product()}));
  EXPECT_FALSE(is_right({a.product()}));
}

}  // namespace
}  // namespace use_gpu
