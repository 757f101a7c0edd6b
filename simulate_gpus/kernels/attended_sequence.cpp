// SPDX-License-Identifier: MIT
#include "kernels/attended_sequence.hpp"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "kernels/random.hpp"

namespace simulate_gpus {
namespace {

using at::Tensor;

constexpr std::int64_t k_pairs_of_block = std::int64_t{1} << 22;

Tensor as_wide_numbers(const Tensor& x) { return x.to(at::toOpMathType(x.scalar_type())); }

}  // namespace

AttendedSequence::AttendedSequence(const Attention& attention, std::int64_t index)
    : of_(attention), index_(index) {
  if (of_.starts_q) {
    std::tie(first_query_, queries_) = range(*of_.starts_q);
    std::tie(first_key_, keys_) = range(*of_.starts_k);
  } else {
    queries_ = of_.query.size(1);
    keys_ = of_.key.size(1);
  }
  if (of_.lengths_k) keys_ = (*of_.lengths_k)[index].item().toLong();
  query = as_wide_numbers(queries_of(of_.query));
  key = with_all_heads(keys_of(of_.key));
  value = with_all_heads(keys_of(of_.value));
}

Tensor AttendedSequence::queries_of(const Tensor& x) const {
  return part(x, first_query_, queries_);
}

Tensor AttendedSequence::keys_of(const Tensor& x) const { return part(x, first_key_, keys_); }

Tensor AttendedSequence::row_of(const Tensor& logsumexp) const {
  return of_.row == 0 ? logsumexp[0].narrow(1, first_query_, queries_)
                      : logsumexp[index_].narrow(1, 0, queries_);
}

Tensor AttendedSequence::with_own_heads(const Tensor& x, std::int64_t heads) {
  if (x.size(0) == heads) return x;
  return x.view({heads, x.size(0) / heads, x.size(1), x.size(2)}).sum(1);
}

void AttendedSequence::for_each_block(
    const std::function<void(std::int64_t, std::int64_t)>& visit) const {
  const std::int64_t pairs = std::max<std::int64_t>(1, query.size(0) * keys_);
  const std::int64_t most = std::max<std::int64_t>(1, k_pairs_of_block / pairs);
  for (std::int64_t first = 0; first < queries_; first += most)
    visit(first, std::min(most, queries_ - first));
}

Tensor AttendedSequence::scores(std::int64_t first, std::int64_t rows) const {
  Tensor x = at::matmul(query.narrow(1, first, rows), key.transpose(1, 2)).mul_(of_.scale);
  if (of_.bias) x.add_((*of_.bias)[index_].narrow(1, first, rows));
  if (of_.before == Attention::k_endless && of_.after == Attention::k_endless) return x;
  const Tensor places = at::arange(first, first + rows, at::kLong).unsqueeze(1) +
                        (of_.from_end ? keys_ - queries_ : 0);
  const Tensor distance = at::arange(keys_, at::kLong) - places;
  return x.masked_fill_((distance < -of_.before).logical_or_(distance > of_.after),
                        -std::numeric_limits<double>::infinity());
}

Tensor AttendedSequence::kept(std::int64_t first, std::int64_t rows) const {
  Tensor numbers = at::empty({query.size(0), rows, keys_}, at::kFloat);
  const NumberedRandom random(of_.seed->item<std::int64_t>(), of_.offset->item<std::int64_t>());
  const std::int64_t heads = query.size(0);
  float* const to = numbers.mutable_data_ptr<float>();
  at::parallel_for(0, heads * rows, /*grain_size=*/64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = (index_ * heads + i / rows) * of_.most_queries + first + i % rows;
      random.write(row * of_.most_keys, keys_, to + i * keys_);
    }
  });
  const double share = 1 - of_.dropout;
  return (numbers > static_cast<float>(of_.dropout))
      .to(query.scalar_type())
      .mul_(share > 0 ? 1 / share : 0);
}

std::pair<std::int64_t, std::int64_t> AttendedSequence::range(const Tensor& starts) const {
  const auto begin = starts[index_].item().toLong();
  return {begin, starts[index_ + 1].item().toLong() - begin};
}

Tensor AttendedSequence::part(const Tensor& x, std::int64_t first, std::int64_t count) const {
  return x[of_.starts_q ? 0 : index_].narrow(0, first, count).transpose(0, 1);
}

Tensor AttendedSequence::with_all_heads(const Tensor& x) const {
  return as_wide_numbers(x).repeat_interleave(query.size(0) / x.size(0), 0);
}

}  // namespace simulate_gpus
