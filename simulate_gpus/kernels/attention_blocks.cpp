// SPDX-License-Identifier: MIT
#include "kernels/attention_blocks.hpp"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attended_sequence.hpp"
#include "kernels/compute.hpp"
#include "kernels/own_kernels.hpp"
#include "kernels/random.hpp"

namespace simulate_gpus {
namespace {

using at::Tensor;
using torch::jit::Stack;

constexpr double k_infinity = std::numeric_limits<double>::infinity();

const std::string k_arguments =
    "Tensor query, Tensor key, Tensor value, Tensor? bias, Tensor? starts_q, Tensor? starts_k, "
    "Tensor? lengths_k, int most_queries, int most_keys, float dropout, Tensor? seed, "
    "Tensor? offset, int before, int after, bool from_end, float scale, int row, bool "
    "keeps_strides";

Stack packed(const Attention& a) {
  return {a.query,     a.key,          a.value,     a.bias,    a.starts_q, a.starts_k,
          a.lengths_k, a.most_queries, a.most_keys, a.dropout, a.seed,     a.offset,
          a.before,    a.after,        a.from_end,  a.scale,   a.row,      a.keeps_strides};
}

Attention unpacked(const Stack& x) {
  const auto tensor = [&](std::size_t i) { return x[i].toOptional<Tensor>(); };
  return {x[0].toTensor(),  x[1].toTensor(), x[2].toTensor(), tensor(3),     tensor(4),
          tensor(5),        tensor(6),       x[7].toInt(),    x[8].toInt(),  x[9].toDouble(),
          tensor(10),       tensor(11),      x[12].toInt(),   x[13].toInt(), x[14].toBool(),
          x[15].toDouble(), x[16].toInt(),   x[17].toBool()};
}

std::int64_t rounded_up(std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; }

std::int64_t number_of_sequences(const Attention& attention) {
  return attention.starts_q ? attention.starts_q->size(0) - 1 : attention.query.size(0);
}

// A result's tensor; zeros where no sequence is.
Tensor made_for(const Attention& attention, const Tensor& like, std::int64_t width) {
  if (attention.keeps_strides && width == like.size(-1)) return at::zeros_like(like);
  auto sizes = like.sizes().vec();
  sizes.back() = width;
  return at::zeros(sizes, like.options());
}

// exp(scores - logsumexp); 0 in rows of a query that sees no key.
Tensor weights_of(const Tensor& scores, const Tensor& logsumexp) {
  return (scores - logsumexp.unsqueeze(-1)).exp_();
}

Tensor logsumexp_of(const Tensor& scores) {
  const Tensor x = scores.logsumexp(-1);
  return x.masked_fill(x == -k_infinity, k_infinity);
}

// As flash attention has it: rows and columns of a multiple of 128.
void write_mask(const Tensor& mask, const Tensor& scores, const Tensor& kept) {
  const Tensor most = scores.size(-1) ? scores.amax(-1, true) : scores;
  mask.copy_((scores - most).exp_().nan_to_num_(0).copysign(kept - 0.5));
}

void attend_on_host(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
  const bool wants_mask = torch::jit::pop(*stack).toBool();
  const Attention a = unpacked(*stack);
  const std::int64_t sequences = number_of_sequences(a), heads = a.query.size(2);
  const auto wide = a.query.options().dtype(at::toOpMathType(a.query.scalar_type()));
  const Tensor output = made_for(a, a.query, a.value.size(3));
  const Tensor logsumexp =
      at::full({a.row == 0 ? 1 : sequences, heads,
                a.row == 0 ? a.query.size(1) : rounded_up(a.most_queries, a.row)},
               k_infinity, wide);
  Tensor mask = at::empty({0}, a.query.options());
  if (wants_mask) {
    mask =
        at::zeros({sequences, heads, rounded_up(a.most_queries, 128), rounded_up(a.most_keys, 128)},
                  a.query.options());
  }
  for (std::int64_t s = 0; s < sequences; ++s) {
    const AttendedSequence sequence(a, s);
    sequence.for_each_block([&](std::int64_t first, std::int64_t rows) {
      const Tensor scores = sequence.scores(first, rows), row = logsumexp_of(scores);
      sequence.row_of(logsumexp).narrow(1, first, rows).copy_(row);
      Tensor weights = weights_of(scores, row);
      if (a.dropout > 0) {
        const Tensor kept = sequence.kept(first, rows);
        weights.mul_(kept);
        if (wants_mask) {
          write_mask(mask[s].narrow(1, first, rows).narrow(2, 0, kept.size(2)), scores, kept);
        }
      }
      sequence.queries_of(output).narrow(1, first, rows).copy_(at::matmul(weights, sequence.value));
    });
  }
  const Tensor state = at::zeros({2}, at::kUInt64);
  if (a.seed) {
    auto* const numbers = state.mutable_data_ptr<std::uint64_t>();
    numbers[0] = static_cast<std::uint64_t>(a.seed->item<std::int64_t>());
    numbers[1] = static_cast<std::uint64_t>(a.offset->item<std::int64_t>());
  }
  *stack = {output, logsumexp, mask, state};
}

// Rows of a multiple of 16.
Tensor made_for_bias(const Tensor& bias) {
  auto sizes = bias.sizes().vec();
  sizes.back() = rounded_up(sizes.back(), 16);
  return at::zeros(sizes, bias.options()).narrow(-1, 0, bias.size(-1));
}

void attend_backward_on_host(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
  const bool wants_bias = torch::jit::pop(*stack).toBool();
  const Tensor logsumexp = torch::jit::pop(*stack).toTensor();
  const Tensor output = torch::jit::pop(*stack).toTensor();
  const Tensor grad = torch::jit::pop(*stack).toTensor();
  const Attention a = unpacked(*stack);
  const Tensor of_query = made_for(a, a.query, a.query.size(3)),
               of_key = made_for(a, a.key, a.key.size(3)),
               of_value = made_for(a, a.value, a.value.size(3));
  const Tensor of_bias = wants_bias && a.bias ? made_for_bias(*a.bias) : Tensor();
  // By the output and the logsumexp that are given, as CUDA's kernel: they may be those of more keys
  // than there are here, of which other GPUs have the rest.
  for (std::int64_t s = 0; s < number_of_sequences(a); ++s) {
    const AttendedSequence sequence(a, s);
    const auto wide = sequence.query.scalar_type();
    const Tensor grads = sequence.queries_of(grad).to(wide),
                 sums = (grads * sequence.queries_of(output).to(wide)).sum(-1, true);
    const Tensor row = sequence.row_of(logsumexp);
    Tensor keys = at::zeros_like(sequence.key), values = at::zeros_like(sequence.value);
    sequence.for_each_block([&](std::int64_t first, std::int64_t rows) {
      const auto block = [&](const Tensor& x) { return x.narrow(1, first, rows); };
      const Tensor weights = weights_of(sequence.scores(first, rows), block(row).to(wide));
      Tensor of_weights = at::matmul(block(grads), sequence.value.transpose(1, 2)), used = weights;
      if (a.dropout > 0) {
        const Tensor kept = sequence.kept(first, rows);
        of_weights.mul_(kept);
        used = weights * kept;
      }
      values.add_(at::matmul(used.transpose(1, 2), block(grads)));
      const Tensor of_scores = of_weights.sub_(block(sums)).mul_(weights);
      block(sequence.queries_of(of_query)).copy_(at::matmul(of_scores, sequence.key).mul_(a.scale));
      keys.add_(at::matmul(of_scores.transpose(1, 2), block(sequence.query)), a.scale);
      if (of_bias.defined()) block(of_bias[s]).copy_(of_scores);
    });
    sequence.keys_of(of_key).copy_(sequence.with_own_heads(keys, a.key.size(2)));
    sequence.keys_of(of_value).copy_(sequence.with_own_heads(values, a.value.size(2)));
  }
  *stack = {of_query, of_key, of_value, of_bias};
}

void fill_on_host(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
  const Tensor numbers = (*stack)[0].toTensor();
  const Tensor made = at::empty(numbers.sizes(), at::kFloat);
  NumberedRandom((*stack)[1].toInt(), (*stack)[2].toInt())
      .write(0, made.numel(), made.mutable_data_ptr<float>());
  numbers.copy_(made);
  *stack = {numbers};
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor, Tensor> attend(const Attention& attention, bool wants_mask) {
  Stack stack = packed(attention);
  stack.emplace_back(wants_mask);
  const Stack results = compute("simulate_gpus::attend", std::move(stack));
  return {results[0].toTensor(), results[1].toTensor(), results[2].toTensor(),
          results[3].toTensor()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> attend_backward(const Attention& attention,
                                                           const Tensor& grad, const Tensor& output,
                                                           const Tensor& logsumexp,
                                                           bool wants_bias) {
  Stack stack = packed(attention);
  torch::jit::push(stack, grad, output, logsumexp, wants_bias);
  const Stack results = compute("simulate_gpus::attend_backward", std::move(stack));
  return {results[0].toTensor(), results[1].toTensor(), results[2].toTensor(),
          results[3].toTensor()};
}

Tensor& fill_dropout_numbers(Tensor& numbers, std::int64_t seed, std::int64_t offset) {
  compute("simulate_gpus::fill_dropout_numbers_", {numbers, seed, offset});
  return numbers;
}

void add_attention_blocks() {
  // Never destroyed: what is registered stays until the end of the process.
  static auto* const libraries = new std::deque<torch::Library>;
  const auto add = [](torch::Library::Kind kind,
                      std::optional<c10::DispatchKey> key) -> torch::Library& {
    return libraries->emplace_back(kind, "simulate_gpus", key, __FILE__, __LINE__);
  };
  torch::Library& schemas = add(torch::Library::FRAGMENT, std::nullopt);
  const std::string four = "(Tensor, Tensor, Tensor, Tensor)";
  schemas.def(("attend(" + k_arguments + ", bool wants_mask) -> " + four).c_str());
  schemas.def(("attend_backward(" + k_arguments +
               ", Tensor grad, Tensor output, Tensor logsumexp, bool wants_bias) -> " + four)
                  .c_str());
  schemas.def("fill_dropout_numbers_(Tensor(a!) numbers, int seed, int offset) -> Tensor(a!)");
  using torch::CppFunction;
  torch::Library& host = add(torch::Library::IMPL, c10::DispatchKey::CPU);
  host.impl("attend", CppFunction::makeFromBoxedFunction<&attend_on_host>());
  host.impl("attend_backward", CppFunction::makeFromBoxedFunction<&attend_backward_on_host>());
  host.impl("fill_dropout_numbers_", CppFunction::makeFromBoxedFunction<&fill_on_host>());
  // By which a seed on the host is seen to be no operand on another device.
  torch::Library& gpu = add(torch::Library::IMPL, c10::DispatchKey::CUDA);
  for (const char* name : {"attend", "attend_backward", "fill_dropout_numbers_"})
    gpu.impl(name, CppFunction::makeFromBoxedFunctor(
                       std::make_unique<ComputingKernel>(c10::DispatchKey::CPU)));
}

}  // namespace simulate_gpus
