// SPDX-License-Identifier: MIT
//
// What LibTorch gives to cuDNN: recurrent layers and ctc_loss, with the CPU's values and cuDNN's refusals.
#include <ATen/autocast_mode.h>
#include <ATen/core/Reduction.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/rnn.h>

#include <string>
#include <tuple>
#include <vector>

#include "support.hpp"

namespace {

using torch::Tensor;
using Tensors = std::vector<Tensor>;

enum class Kind { lstm, gru, tanh, relu };
constexpr std::int64_t k_layers = 2, k_sequences = 3, k_width = 5, k_hidden = 4;

// Input, states and weights of two layers in both directions.
Tensors operands(Kind kind) {
  const std::int64_t gates = kind == Kind::lstm ? 4 : kind == Kind::gru ? 3 : 1;
  Tensors made = {torch::randn({6, k_sequences, k_width})};
  for (int state = 0; state < 2; ++state)
    made.push_back(torch::randn({2 * k_layers, k_sequences, k_hidden}));
  for (const std::int64_t width : {k_width, k_width, 2 * k_hidden, 2 * k_hidden}) {
    made.insert(made.end(), {torch::randn({gates * k_hidden, width}),
                             torch::randn({gates * k_hidden, k_hidden}),
                             torch::randn({gates * k_hidden}), torch::randn({gates * k_hidden})});
  }
  return made;
}

// Output and states. The input may be of packed sequences, as many at each step as the lengths say.
Tensors layers(Kind kind, const Tensors& x, const Tensor& lengths = {}, double dropout = 0,
               bool train = true) {
  const Tensors weights(x.begin() + 3, x.end());
  const auto with = [&](const auto& layer, const auto& states) {
    return lengths.defined() ? layer(x[0].flatten(0, 1).narrow(0, 0, 12), lengths, states, weights,
                                     /*has_biases=*/true, k_layers, dropout, train,
                                     /*bidirectional=*/true)
                             : layer(x[0], states, weights, /*has_biases=*/true, k_layers, dropout,
                                     train, /*bidirectional=*/true, /*batch_first=*/false);
  };
  if (kind == Kind::lstm) {
    const auto [output, hidden, cell] =
        with([](const auto&... y) { return at::lstm(y...); }, Tensors{x[1], x[2]});
    return {output, hidden, cell};
  }
  const auto [output, hidden] =
      kind == Kind::gru    ? with([](const auto&... y) { return at::gru(y...); }, x[1])
      : kind == Kind::tanh ? with([](const auto&... y) { return at::rnn_tanh(y...); }, x[1])
                           : with([](const auto&... y) { return at::rnn_relu(y...); }, x[1]);
  return {output, hidden};
}

Tensors on_gpu(const Tensors& operands, torch::Dtype dtype = torch::kFloat) {
  Tensors there;
  for (const Tensor& x : operands) there.push_back(x.to(k_gpu, dtype).detach().requires_grad_());
  return there;
}

// The results, and the gradients of the sum of their squares by the operands.
Tensors with_gradients(Tensors results, const Tensors& operands) {
  Tensor sum = torch::zeros({}, results[0].options());
  for (const Tensor& x : results) sum = sum + x.square().sum();
  for (Tensor& x : torch::autograd::grad({sum}, operands, {}, std::nullopt, false,
                                         /*allow_unused=*/true))
    results.push_back(x);
  return results;
}

void expect_close(const Tensors& found, const Tensors& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].defined(), expected[i].defined()) << i;
    if (!found[i].defined()) continue;  // the cell state where there is none
    EXPECT_TRUE(found[i]
                    .cpu()
                    .to(torch::kDouble)
                    .allclose(expected[i].cpu().to(torch::kDouble), tolerance, tolerance))
        << i;
  }
}

TEST(Recurrent, HasTheCpusValues) {
  const Tensor lengths = torch::tensor({3, 3, 2, 2, 1, 1}, torch::kLong);
  for (const Kind kind : {Kind::lstm, Kind::gru, Kind::tanh, Kind::relu}) {
    for (const Tensor& packed : {Tensor(), lengths}) {
      Tensors x = operands(kind);
      for (Tensor& operand : x) operand = operand.to(torch::kDouble).requires_grad_();
      const Tensors expected = with_gradients(layers(kind, x, packed), x);
      for (const auto dtype : {torch::kDouble, torch::kFloat}) {
        const Tensors y = on_gpu(x, dtype), results = layers(kind, y, packed);
        EXPECT_EQ(results[0].grad_fn()->name(), "CudnnRnnBackward0");
        expect_close(with_gradients(results, y), expected, dtype == torch::kFloat ? 1e-3 : 1e-9);
      }
      const torch::NoGradGuard no_grad;  // in 16 bits gradients of squares are too coarse
      expect_close(layers(kind, on_gpu(x, torch::kHalf), packed), layers(kind, x, packed), 0.1);
    }
  }
}

TEST(Recurrent, RefusesWhatCudnnRefuses) {
  const Tensors x = on_gpu(operands(Kind::lstm));
  const auto with = [&](std::size_t place, const Tensor& operand) {
    Tensors changed = x;
    changed[place] = operand;
    return error_of([&] { layers(Kind::lstm, changed); });
  };
  EXPECT_TRUE(has(with(1, x[1].cpu()),
                  "Input and hidden tensors are not at the same device, found input tensor at "
                  "cuda:0 and hidden tensor at cpu"));
  EXPECT_TRUE(has(with(3, x[3].to(torch::kHalf)), "are not the same dtype"));
  EXPECT_EQ(with(0, torch::rand({6, k_sequences, 7}, k_gpu)),
            "Expected weight size [16, 7], got [16, 5]");
  EXPECT_EQ(with(6, torch::rand({1}, k_gpu)), "Expected bias size [16], got [1]");
  EXPECT_EQ(error_of([&] {
              layers(Kind::lstm, {x[0], x[1], x[2]});
            }),
            "rnn: expected weights of at least one layer");
  EXPECT_EQ(error_of([&] {
              layers(Kind::lstm, x, torch::tensor({3, 2, 1}, torch::kLong));
            }),
            "rnn: the batch sizes are of 6 steps, the input has 12");
  EXPECT_EQ(with(1, torch::rand_like(x[1]).transpose(0, 1).contiguous().transpose(0, 1)),
            "rnn: hx is not contiguous");
  EXPECT_EQ(with(2, torch::rand_like(x[1]).transpose(0, 1).contiguous().transpose(0, 1)),
            "rnn: cx is not contiguous");
  EXPECT_EQ(with(1, x[1].narrow(1, 0, 2).contiguous()),
            "Expected hidden size [4, 3, 4], got [4, 2, 4]");
  const Tensor evaluated = layers(Kind::lstm, x, {}, 0, /*train=*/false)[0].sum();
  EXPECT_EQ(error_of([&] { evaluated.backward(); }),
            "cudnn RNN backward can only be called in training mode");
  const Tensor sum = layers(Kind::lstm, x)[0].square().sum();
  const Tensor slope =
      torch::autograd::grad({sum}, {x[0]}, {}, std::nullopt, /*create_graph=*/true)[0].sum();
  EXPECT_TRUE(has(error_of([&] { slope.backward(); }), "Double backwards is not supported"));
}

TEST(Recurrent, DropsBetweenLayersByTheSeed) {
  const Tensors x = on_gpu(operands(Kind::gru));
  const auto by_seed = [&](std::uint64_t seed) {
    torch::cuda::manual_seed(seed);
    return layers(Kind::gru, x, {}, /*dropout=*/0.5);
  };
  const Tensors once = by_seed(1), again = by_seed(1), other = by_seed(2);
  EXPECT_EQ(once[0].grad_fn()->name(), "CudnnRnnBackward0");
  for (std::size_t i = 0; i < once.size(); ++i) {
    EXPECT_EQ(once[i].sizes(), layers(Kind::gru, x)[i].sizes());
    EXPECT_TRUE(once[i].equal(again[i]));
    EXPECT_FALSE(once[i].equal(other[i]));
  }
  const auto evaluated = [&](double dropout) {
    return layers(Kind::gru, x, {}, dropout, /*train=*/false)[0];
  };
  EXPECT_TRUE(evaluated(0.5).equal(evaluated(0)));
}

TEST(Recurrent, IsComputedInFloat16ByAutocast) {
  const Tensors x = on_gpu(operands(Kind::lstm));
  at::autocast::set_autocast_enabled(torch::kCUDA, true);
  const Tensor output = layers(Kind::lstm, x)[0];
  Tensors zeros;
  for (const Tensor& operand : x) zeros.push_back(operand.detach().clone());
  for (const std::size_t state : {1U, 2U}) zeros[state].zero_();
  layers(Kind::lstm, zeros);
  for (Tensor& operand : zeros) operand.zero_();  // weights are cast anew
  EXPECT_EQ(layers(Kind::lstm, zeros)[0].abs().max().item<float>(), 0);
  at::autocast::set_autocast_enabled(torch::kCUDA, false);
  at::autocast::clear_cache();
  EXPECT_EQ(output.scalar_type(), torch::kHalf);
  EXPECT_EQ(output.grad_fn()->name(), "CudnnRnnBackward0");
  EXPECT_TRUE(output.to(torch::kFloat).allclose(layers(Kind::lstm, x)[0], 0.1, 0.1));
  output.sum().backward();
  for (const Tensor& operand : x) EXPECT_EQ(operand.grad().scalar_type(), torch::kFloat);
}

TEST(Recurrent, IsReplayed) {
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  const Tensors x = on_gpu(operands(Kind::gru));
  const auto run = [&] { return with_gradients(layers(Kind::gru, x), x); };
  run();
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  const Tensors replayed = run();
  graph.capture_end();
  {
    const torch::NoGradGuard no_grad;
    x[0].add_(1);
  }
  graph.replay();
  expect_close(replayed, run(), 1e-6);
}

TEST(Recurrent, IsDifferentiatedInInferenceMode) {
  const Tensors x = on_gpu(operands(Kind::lstm));
  const Tensor sum = layers(Kind::lstm, x)[0].sum();
  const auto gradients = [&] { return torch::autograd::grad({sum}, x, {}, /*retain_graph=*/true); };
  const Tensors expected = gradients();
  const c10::InferenceMode inference;
  expect_close(gradients(), expected, 0);
}

TEST(Recurrent, KeepsFlattenedWeights) {
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(k_width, k_hidden).num_layers(2));
  lstm->to(k_gpu);
  const Tensors weights = lstm->parameters();
  for (const Tensor& weight : weights) EXPECT_TRUE(weight.is_alias_of(weights[0]));
  struct : c10::WarningHandler {
    void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }
    std::vector<std::string> texts;
  } warnings;
  const c10::WarningUtils::WarningHandlerGuard listened(&warnings);
  const Tensor x = torch::randn({6, k_sequences, k_width}, k_gpu);
  lstm->forward(x);
  EXPECT_EQ(warnings.texts, std::vector<std::string>());
  Tensors apart = on_gpu(operands(Kind::lstm));
  layers(Kind::lstm, apart);
  ASSERT_EQ(warnings.texts.size(), 1U);
  EXPECT_TRUE(has(warnings.texts[0], "not part of single contiguous chunk of memory"));
}

TEST(CtcLoss, HasTheCpusValuesAndIsDeterministic) {
  const std::vector<std::int64_t> lengths = {10, 10, 10}, target_lengths = {4, 3, 2};
  const Tensor targets = torch::randint(1, 6, {9}, torch::kInt),
               scores = torch::randn({10, 3, 6}).log_softmax(2);
  const auto loss_of = [&](Tensor x) {
    const Tensor loss = torch::ctc_loss(x.requires_grad_(), targets, lengths, target_lengths,
                                        /*blank=*/0, at::Reduction::None);
    return Tensors{loss, torch::autograd::grad({loss.sum()}, {x})[0]};
  };
  const Tensors expected = loss_of(scores.to(torch::kDouble));
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  const Tensors found = loss_of(scores.to(k_gpu));
  at::globalContext().setDeterministicAlgorithms(false, false);
  EXPECT_EQ(found[0].grad_fn()->name(), "CudnnCtcLossBackward0");
  expect_close(found, expected, 1e-4);
}

}  // namespace
