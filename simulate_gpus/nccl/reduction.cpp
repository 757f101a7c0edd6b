// SPDX-License-Identifier: MIT
#include "nccl/reduction.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

namespace simulated_nccl {
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

// Calls `use` with a value of that dtype.
void with_type(ncclDataType_t type, const auto& use) {
  switch (type) {
    case ncclInt8:
      return use(std::int8_t());
    case ncclUint8:
      return use(std::uint8_t());
    case ncclInt32:
      return use(std::int32_t());
    case ncclUint32:
      return use(std::uint32_t());
    case ncclInt64:
      return use(std::int64_t());
    case ncclUint64:
      return use(std::uint64_t());
    case ncclFloat16:
      return use(__half());
    case ncclFloat32:
      return use(float());
    case ncclFloat64:
      return use(double());
    case ncclBfloat16:
      return use(__nv_bfloat16());
    case ncclFloat8e4m3:
      return use(__nv_fp8_e4m3());
    default:
      return use(__nv_fp8_e5m2());
  }
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
          call, ranks, read, result, [](auto a, auto b) { return b > a ? b : a; }, rounded);
    case ncclMin:
      return reduce_as<T, Ordered>(
          call, ranks, read, result, [](auto a, auto b) { return b < a ? b : a; }, rounded);
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

}  // namespace simulated_nccl
