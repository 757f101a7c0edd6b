// SPDX-License-Identifier: MIT
#include "nccl/reduction.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <vector>

namespace simulate_gpus::nccl {
namespace {

constexpr std::uint64_t k_chunk = 1 << 14;  // elements at a time: they stay in the cache

// In which a dtype is added and multiplied, and in which compared.
template <class T>
struct Arithmetic {
  using Sum = float;
  using Ordered = float;
};
template <class T>
requires std::is_integral_v<T>
struct Arithmetic<T> {
  using Sum = std::make_unsigned_t<T>;
  using Ordered = T;
};
template <>
struct Arithmetic<double> {
  using Sum = double;
  using Ordered = double;
};

// In the order of ncclDataType_t.
using Types =
    std::tuple<std::int8_t, std::uint8_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t,
               __half, float, double, __nv_bfloat16, __nv_fp8_e4m3, __nv_fp8_e5m2>;
static_assert(std::tuple_size_v<Types> == ncclNumTypes);

// Calls `use` with a value of that dtype.
void with_type(ncclDataType_t type, const auto& use) {
  int place = 0;
  std::apply([&](auto... value) { ((place++ == type ? use(value) : void()), ...); }, Types());
}

// The average of integers is a division of integers, as in NCCL.
template <class T>
T divided(typename Arithmetic<T>::Sum sum, int ranks) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<T>(sum) / static_cast<T>(ranks));
  } else {
    return T(sum / static_cast<typename Arithmetic<T>::Sum>(ranks));
  }
}

// Reduces in numbers of that kind, chunk by chunk.
template <class T, class Number>
void reduce_as(const Call& call, int ranks, const ReadPart& read, T* result, const auto& combine,
               const auto& finish) {
  std::vector<T> part(std::min(call.count, k_chunk));
  std::vector<Number> reduced(part.size());
  for (std::uint64_t begin = 0; begin < call.count; begin += k_chunk) {
    const std::uint64_t count = std::min(k_chunk, call.count - begin);
    for (int rank = 0; rank < ranks; ++rank) {
      read(rank, begin * sizeof(T), part.data(), count * sizeof(T));
      for (std::uint64_t i = 0; i < count; ++i) {
        const auto value = static_cast<Number>(part[i]);
        reduced[i] = rank == 0 ? value : static_cast<Number>(combine(reduced[i], value));
      }
    }
    for (std::uint64_t i = 0; i < count; ++i) result[begin + i] = finish(reduced[i]);
  }
}

// Of a number and a NaN the number is the greater, and the smaller, as in NCCL.
template <class T>
void reduce_elements(const Call& call, int ranks, const ReadPart& read, T* result) {
  using Sum = typename Arithmetic<T>::Sum;
  using Ordered = typename Arithmetic<T>::Ordered;
  const auto rounded = [](auto value) { return static_cast<T>(value); };
  switch (call.reduction) {
    case ncclProd:
      return reduce_as<T, Sum>(call, ranks, read, result, std::multiplies<>(), rounded);
    case ncclMax:
      return reduce_as<T, Ordered>(
          call, ranks, read, result, [](auto a, auto b) { return b > a || a != a ? b : a; },
          rounded);
    case ncclMin:
      return reduce_as<T, Ordered>(
          call, ranks, read, result, [](auto a, auto b) { return b < a || a != a ? b : a; },
          rounded);
    case ncclAvg:
      return reduce_as<T, Sum>(call, ranks, read, result, std::plus<>(),
                               [=](Sum sum) { return divided<T>(sum, ranks); });
    default:  // also of elements that were multiplied before
      return reduce_as<T, Sum>(call, ranks, read, result, std::plus<>(), rounded);
  }
}

}  // namespace

void reduce(const Call& call, int ranks, const ReadPart& read, void* result) {
  with_type(call.type, [&](auto value) {
    reduce_elements(call, ranks, read, static_cast<decltype(value)*>(result));
  });
}

void multiply(ncclDataType_t type, void* elements, std::uint64_t count, const void* scalar) {
  with_type(type, [&](auto value) {
    using T = decltype(value);
    using Sum = typename Arithmetic<T>::Sum;
    std::memcpy(static_cast<void*>(&value), scalar, sizeof value);
    for (auto* element = static_cast<T*>(elements); count > 0; --count, ++element)
      *element =
          static_cast<T>(static_cast<Sum>(static_cast<Sum>(*element) * static_cast<Sum>(value)));
  });
}

}  // namespace simulate_gpus::nccl
