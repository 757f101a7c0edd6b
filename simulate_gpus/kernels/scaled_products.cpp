// SPDX-License-Identifier: MIT
//
// Products of float8 with scales, also in groups, and of weights of four bits. LibTorch's own kernels refuse what a GPU refuses
// (rehearsal.hpp); a sum is float32's, as on a GPU, and rounded once.
#include <ATen/ATen.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/own_kernels.hpp"
#include "kernels/registration.hpp"

namespace simulate_gpus {
namespace {

using at::Tensor;

// A call's arguments by their names, which stay where versions of LibTorch add some.
class Call {
 public:
  Call(const c10::OperatorHandle& operation, torch::jit::Stack* stack)
      : schema_(operation.schema()), values_(torch::jit::pop(*stack, schema_.arguments().size())) {}

  [[nodiscard]] const c10::IValue* find(const char* name) const {
    const auto index = schema_.argumentIndexWithName(name);
    return index && !values_[static_cast<std::size_t>(*index)].isNone()
               ? &values_[static_cast<std::size_t>(*index)]
               : nullptr;
  }
  [[nodiscard]] Tensor tensor(const char* name) const {
    const c10::IValue* value = find(name);
    return value == nullptr ? Tensor() : value->toTensor();
  }
  // The second version of an operation has lists, of one tensor for what this GPU can do.
  [[nodiscard]] Tensor scale(const char* name) const {
    const c10::IValue& value = *find(name);
    return (value.isTensorList() ? value.toTensorVector().front() : value.toTensor())
        .to(at::kFloat);
  }
  [[nodiscard]] std::optional<std::int64_t> recipe(const char* name) const {
    const c10::IValue* value = find(name);
    return value == nullptr ? std::nullopt : std::optional(value->toIntVector().front());
  }
  [[nodiscard]] std::optional<at::ScalarType> out_dtype() const {
    const c10::IValue* value = find("out_dtype");
    return value == nullptr ? std::nullopt : std::optional(value->toScalarType());
  }

 private:
  const c10::FunctionSchema& schema_;
  torch::jit::Stack values_;
};

// cuBLAS has no product with such a result.
void check_result(at::ScalarType a, at::ScalarType b, at::ScalarType result, bool has_many_scales) {
  const bool is_wide = result == at::kFloat || result == at::kHalf || result == at::kBFloat16;
  const bool is_narrow =
      result == at::kFloat8_e4m3fn || (result == at::kFloat8_e5m2 && (a == result || b == result));
  if (is_wide || (is_narrow && !has_many_scales)) return;
  TORCH_CHECK(false, "CUDA error: CUBLAS_STATUS_", is_narrow ? "INVALID_VALUE" : "NOT_SUPPORTED",
              " when calling `cublasLtMatmulAlgoGetHeuristic( ltHandle, computeDesc.descriptor(), "
              "Adesc.descriptor(), Bdesc.descriptor(), Cdesc.descriptor(), Ddesc.descriptor(), "
              "preference.descriptor(), 1, &heuristicResult, &returnedResult)`");
}

// Scales of blocks of 128, one for each of `length` elements; one for each, or for all, as it is.
Tensor spread(const Tensor& scale, std::int64_t dim, std::int64_t length) {
  if (scale.size(dim) == length || scale.size(dim) == 1) return scale;
  return scale.repeat_interleave(128, dim).narrow(dim, 0, length);
}

Tensor scaled(const Tensor& matrix, const Tensor& scale) {
  if (scale.numel() == 1) return matrix * scale.reshape({});
  return matrix * spread(spread(scale, 0, matrix.size(0)), 1, matrix.size(1));
}

Tensor scaled_sum(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b) {
  const Tensor left = a.to(at::kFloat), right = b.to(at::kFloat);
  const bool has_blocks =
      (scale_a.numel() > 1 && scale_a.size(1) > 1) ||
      (scale_b.numel() > 1 && (scale_b.size(0) > 1 || scale_b.size(1) < b.size(1)));
  if (has_blocks) return at::mm(scaled(left, scale_a), scaled(right, scale_b));
  const Tensor sum = at::mm(left, right);
  return scaled(scaled(sum, scale_a), scale_b);
}

// A GPU gives the largest number of a float8 for all that are larger.
Tensor rounded(const Tensor& sum, at::ScalarType dtype) {
  if (!at::isFloat8Type(dtype)) return sum.to(dtype);
  const double largest = dtype == at::kFloat8_e4m3fn ? 448 : 57344;
  return sum.clamp(-largest, largest).to(dtype);
}

// The second version takes the scales of b's rows, or of the blocks of its columns, by columns. Its recipes are torch's ScalingType.
constexpr std::int64_t k_rows = 1, k_blocks_of_128 = 4, k_squares_of_128 = 5;

// scale_result has no effect on a GPU.
void scaled_product(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  const Call call(operation, stack);
  const Tensor a = call.tensor("self"), b = call.tensor("mat2"), bias = call.tensor("bias"),
               out = call.tensor("out");
  Tensor scale_a = call.scale("scale_a"), scale_b = call.scale("scale_b");
  const auto recipe_a = call.recipe("recipe_a"), recipe_b = call.recipe("recipe_b");
  if (recipe_a == k_rows) scale_a = scale_a.reshape({-1, 1});
  if (recipe_b == k_rows) scale_b = scale_b.reshape({1, -1});
  if (recipe_a == k_squares_of_128) scale_a = scale_a.t();
  if (recipe_b == k_blocks_of_128) scale_b = scale_b.t();
  const at::ScalarType dtype =
      call.out_dtype().value_or(out.defined() ? out.scalar_type() : a.scalar_type());
  check_result(a.scalar_type(), b.scalar_type(), dtype, scale_a.numel() > 1 || scale_b.numel() > 1);
  Tensor sum = a.size(1) == 0 ? at::zeros({a.size(0), b.size(1)})  // whatever the scales are
                              : scaled_sum(a, b, scale_a, scale_b);
  if (bias.defined()) sum = sum + bias.to(at::kFloat);
  Tensor result = rounded(sum, dtype);
  stack->emplace_back(out.defined() ? out.resize_(result.sizes()).copy_(result)
                                    : std::move(result));
}

// Rows of whole 16 bytes, which a GPU's copies need.
Tensor padded_empty(std::vector<std::int64_t> sizes, const at::TensorOptions& options) {
  const std::int64_t unit = 16 / static_cast<std::int64_t>(options.dtype().itemsize());
  const std::int64_t row = (sizes.back() + unit - 1) / unit * unit;
  std::vector<std::int64_t> strides{row, 1};
  if (sizes.size() == 3) strides.insert(strides.begin(), sizes[1] * row);
  return at::empty_strided(sizes, strides, options);
}

// The groups are a dimension, or parts of the one whose ends `offs` has: a's rows, b's columns, or what is summed.
void scaled_groups(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  const Call call(operation, stack);
  const Tensor a = call.tensor("self"), b = call.tensor("mat2"), ends = call.tensor("offs");
  const Tensor scale_a = call.scale("scale_a"), scale_b = call.scale("scale_b");
  const bool is_a_whole = a.dim() == 2, is_b_whole = b.dim() == 2;
  const bool sums_parts = is_a_whole && is_b_whole;
  const std::int64_t groups = ends.defined() ? ends.size(0) : a.size(0);
  const std::int64_t rows = a.size(-2), columns = b.size(-1);
  const auto options = a.options().dtype(call.out_dtype().value_or(at::kBFloat16));
  Tensor result = is_a_whole == is_b_whole ? padded_empty({groups, rows, columns}, options)
                                           : padded_empty({rows, columns}, options);
  std::int64_t begin = 0;
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int64_t end = ends.defined() ? ends[group].item<std::int64_t>() : 0;
    const auto part = [&](const Tensor& whole, std::int64_t dim) {
      return whole.slice(dim, begin, end);
    };
    // Of what is summed in parts, each group has scales of its own for all rows.
    const auto scales = [&](const Tensor& scale, bool is_whole, std::int64_t length) {
      if (!is_whole) return scale[group];
      return sums_parts ? scale.slice(0, group * length, (group + 1) * length) : part(scale, 0);
    };
    const Tensor left = !is_a_whole ? a[group] : part(a, sums_parts ? 1 : 0);
    const Tensor right = !is_b_whole ? b[group] : part(b, sums_parts ? 0 : 1);
    const Tensor sum = scaled_sum(left, right, scales(scale_a, is_a_whole, rows).reshape({-1, 1}),
                                  scales(scale_b, is_b_whole, columns).reshape({1, -1}));
    (is_a_whole == is_b_whole ? result[group] : part(result, is_a_whole ? 0 : 1)).copy_(sum);
    begin = end;
  }
  stack->emplace_back(std::move(result));
}

// Weights of four bits lie as the lanes of a warp take them (ATen/native/cuda/int4mm.cu): eight to an int32. Of the dimensions of
// a matrix [n, k], cut into these, the packed one has others first.
constexpr std::int64_t k_rows_of_tile = 8, k_columns_of_tile = 16;
std::vector<std::int64_t> sizes_by_rows(std::int64_t n, std::int64_t k, std::int64_t tiles) {
  return {
      n / k_rows_of_tile, k_rows_of_tile, k / (tiles * k_columns_of_tile), tiles / 2, 2, 2, 4, 2};
}
constexpr std::array<std::int64_t, 8> k_to_lanes = {0, 2, 1, 6, 3, 7, 4, 5};
constexpr std::array<std::int64_t, 8> k_to_rows = {0, 2, 1, 4, 6, 7, 3, 5};

Tensor shifts() { return at::arange(0, 32, 4, at::kLong); }

Tensor pack_four_bits(const Tensor& bytes, std::int64_t tiles) {
  const Tensor values = at::stack({bytes.bitwise_right_shift(4), bytes.bitwise_and(15)}, -1)
                            .reshape({bytes.size(0), -1})
                            .to(at::kLong);
  const std::int64_t beyond = (k_rows_of_tile - values.size(0) % k_rows_of_tile) % k_rows_of_tile;
  const Tensor whole = at::constant_pad_nd(values, {0, 0, 0, beyond});
  const auto sizes = sizes_by_rows(whole.size(0), whole.size(1), tiles);
  return whole.view(sizes)
      .permute(k_to_lanes)
      .reshape({sizes[0], sizes[2], 32, tiles / 2, 8})
      .bitwise_left_shift(shifts())
      .sum(-1)
      .to(at::kInt);
}

Tensor product_of_four_bits(const Tensor& x, const Tensor& packed, std::int64_t group,
                            const Tensor& scales_and_zeros) {
  const std::int64_t n = packed.size(0) * k_rows_of_tile, tiles = packed.size(3) * 2;
  const auto by_rows = sizes_by_rows(n, x.size(1), tiles);
  std::vector<std::int64_t> by_lanes;
  for (const std::int64_t dim : k_to_lanes)
    by_lanes.push_back(by_rows[static_cast<std::size_t>(dim)]);
  const Tensor values = packed.to(at::kLong)
                            .unsqueeze(-1)
                            .bitwise_right_shift(shifts())
                            .bitwise_and(15)
                            .reshape(by_lanes)
                            .permute(k_to_rows)
                            .reshape({n, x.size(1)});
  const Tensor of_groups =
      scales_and_zeros.to(at::kFloat).repeat_interleave(group, 0);  // [k, n, 2]
  const Tensor weights =
      ((values.t() - 8) * of_groups.select(2, 0) + of_groups.select(2, 1)).to(x.scalar_type());
  return at::mm(x.to(at::kFloat), weights.to(at::kFloat)).to(x.scalar_type());
}

}  // namespace

void add_scaled_products(torch::Library& library) {
  using torch::CppFunction;
  for (const char* name : {"_scaled_mm", "_scaled_mm.out", "_scaled_mm_v2", "_scaled_mm_v2.out"})
    add_at_once(library, name, CppFunction::makeFromBoxedFunction<&scaled_product>());
  for (const char* name : {"_scaled_grouped_mm", "_scaled_grouped_mm_v2"})
    add_at_once(library, name, CppFunction::makeFromBoxedFunction<&scaled_groups>());
  add_at_once(library, "_convert_weight_to_int4pack", CppFunction(TORCH_FN(pack_four_bits)));
  add_at_once(library, "_weight_int4pack_mm", CppFunction(TORCH_FN(product_of_four_bits)));
}

}  // namespace simulate_gpus
