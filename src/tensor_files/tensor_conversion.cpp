// SPDX-License-Identifier: MIT
#include "tensor_files/tensor_conversion.hpp"

#include <ATen/ops/from_blob.h>

#include <array>
#include <stdexcept>
#include <utility>

#include "messages/message.hpp"

namespace use_gpu::detail {
namespace {

constexpr std::array<std::pair<const char*, at::ScalarType>, 20> k_dtypes{{
    {"BOOL", at::kBool},
    {"F4", at::kFloat4_e2m1fn_x2},
    {"U8", at::kByte},
    {"I8", at::kChar},
    {"F8_E5M2", at::kFloat8_e5m2},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E8M0", at::kFloat8_e8m0fnu},
    {"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz},
    {"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz},
    {"I16", at::kShort},
    {"U16", at::kUInt16},
    {"F16", at::kHalf},
    {"BF16", at::kBFloat16},
    {"I32", at::kInt},
    {"U32", at::kUInt32},
    {"F32", at::kFloat},
    {"C64", at::kComplexFloat},
    {"F64", at::kDouble},
    {"I64", at::kLong},
    {"U64", at::kUInt64},
}};

// LibTorch counts the bytes of its packed type, each with two numbers; the format counts the
// numbers.
bool is_packed(at::ScalarType dtype) { return dtype == at::kFloat4_e2m1fn_x2; }

at::Tensor bytes_at(void* data, std::size_t size) {
  return at::from_blob(data, {static_cast<std::int64_t>(size)},
                       at::TensorOptions(at::kByte).device(at::kCPU));
}

}  // namespace

StoredTensor to_stored(const std::string& name, const at::Tensor& x) {
  for (const auto& [dtype_name, dtype] : k_dtypes) {
    if (dtype != x.scalar_type()) continue;
    if (is_packed(dtype) && x.dim() == 0)
      throw std::runtime_error(
          clipped(name, 100) +
          " is F4 of zero dimensions, but the format counts the two numbers of its byte");
    auto shape = x.sizes().vec();
    if (is_packed(dtype)) shape.back() *= 2;
    return {name,
            dtype_name,
            std::move(shape),
            {static_cast<const std::byte*>(x.const_data_ptr()), x.nbytes()}};
  }
  throw std::runtime_error(clipped(name, 100) + " is " +
                           std::string(c10::getDtypeNames(x.scalar_type()).first) +
                           ", which the safetensors format does not have");
}

at::Tensor to_tensor(const StoredTensor& stored) {
  for (const auto& [dtype_name, dtype] : k_dtypes) {
    if (stored.dtype != dtype_name) continue;
    auto shape = stored.shape;
    if (is_packed(dtype) && (shape.empty() || shape.back() % 2 != 0))
      throw std::runtime_error(
          clipped(stored.name, 100) +
          " is F4 of an odd last size, but LibTorch holds two numbers in a byte");
    if (is_packed(dtype)) shape.back() /= 2;
    // from_blob takes a non-const pointer.
    auto* data = const_cast<std::byte*>(stored.data.data());
    return bytes_at(data, stored.data.size()).view(dtype).view(shape);
  }
  throw std::runtime_error(clipped(stored.name, 100) + " is " + stored.dtype +
                           ", which LibTorch does not have");
}

at::Tensor aligned(const at::Tensor& x) {
  auto* const data = const_cast<void*>(x.const_data_ptr());
  if (reinterpret_cast<std::uintptr_t>(data) % x.itemsize() == 0) return x;
  return bytes_at(data, x.nbytes()).clone().view(x.scalar_type()).view(x.sizes());
}

}  // namespace use_gpu::detail
