// SPDX-License-Identifier: MIT
#include <use_gpu/tensor_file.hpp>

#include <ATen/ATen.h>

#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "core/copies/bulk_copy.hpp"
#include "core/copies/value_scope.hpp"
#include "core/device_check.hpp"
#include "core/messages/log_message.hpp"
#include "files/disk_file.hpp"
#include "files/tensor_file_io.hpp"
#include "gpu_info/message.hpp"

namespace use_gpu::detail {
namespace {

namespace fs = std::filesystem;

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

StoredTensor to_stored(const std::string& name, const at::Tensor& x) {
  for (const auto& [dtype_name, dtype] : k_dtypes) {
    if (dtype != x.scalar_type()) continue;
    if (is_packed(dtype) && x.dim() == 0)
      throw std::runtime_error(
          name + " is F4 of zero dimensions, but the format counts the two numbers of its byte");
    auto shape = x.sizes().vec();
    if (is_packed(dtype)) shape.back() *= 2;
    const std::span data(static_cast<const std::byte*>(x.const_data_ptr()), x.nbytes());
    return {name, dtype_name, std::move(shape), data};
  }
  throw std::runtime_error(name + " is " + std::string(c10::getDtypeNames(x.scalar_type()).first) +
                           ", which the safetensors format does not have");
}

// `owner`: what keeps its memory.
at::Tensor to_tensor(const StoredTensor& stored, const std::shared_ptr<void>& owner) {
  for (const auto& [dtype_name, dtype] : k_dtypes) {
    if (stored.dtype != dtype_name) continue;
    auto shape = stored.shape;
    if (is_packed(dtype) && (shape.empty() || shape.back() % 2 != 0))
      throw std::runtime_error(
          stored.name + " is F4 of an odd last size, but LibTorch holds two numbers in a byte");
    if (is_packed(dtype)) shape.back() /= 2;
    // from_blob takes a non-const pointer.
    auto* data = const_cast<std::byte*>(stored.data.data());
    return at::from_blob(
        data, shape, [owner](void*) {}, dtype);
  }
  throw std::runtime_error(stored.name + " is " + stored.dtype + ", which LibTorch does not have");
}

std::string file_text(const char* function, const fs::path& file, const std::string& text) {
  const auto name = file.empty() ? "an empty file name" : file.string();
  // Names of tensors may contain control characters.
  return printable(std::string(function) + ": " + name + ": " + text);
}

// What `work` gives; its std::runtime_error becomes a FileError with function and file.
template <class Work>
auto about(const char* function, const fs::path& file, const Work& work) {
  try {
    return work();
  } catch (const std::runtime_error& error) {
    throw FileError(file_text(function, file, error.what()), file);
  }
}

bool is_index(const fs::path& file) { return file.string().ends_with(".json"); }

// A file's tensors; logs a warning where its checksums are in doubt.
NamedTensors tensors_in(const char* function, const fs::path& file, Checked checked) {
  const auto mapped = map_file(file, /*may_be_written=*/checked == Checked::header);
  const auto parsed = parse_safetensors(mapped.bytes, checked);
  if (!parsed.doubt.empty())
    log_message(LogLevel::warning, file_text(function, file, parsed.doubt) +
                                       ". Another program wrote the file, so it was loaded.");
  NamedTensors tensors;
  for (const auto& x : parsed.tensors) tensors.emplace(x.name, to_tensor(x, mapped.memory));
  return tensors;
}

// Those that an index lists.
NamedTensors listed_tensors(const char* function, const fs::path& file, Checked checked) {
  NamedTensors tensors;
  const auto index = map_file(file);
  const auto* text = reinterpret_cast<const char*>(index.bytes.data());
  for (const auto& [shard, names] : parse_sharded_index({text, index.bytes.size()})) {
    try {
      auto all = tensors_in(function, file.parent_path() / shard, checked);
      for (const auto& name : names) {
        if (tensors.insert(all.extract(name)).inserted) continue;
        throw std::runtime_error("it lacks " + in_quotes(name) + ", which the index says is there");
      }
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(in_quotes(shard) + ": " + error.what());
    }
  }
  return tensors;
}

}  // namespace

NamedTensors read_tensor_file(const char* function, const fs::path& file, Checked checked) {
  const auto read = is_index(file) ? listed_tensors : tensors_in;
  return about(function, file, [&] { return read(function, file, checked); });
}

at::Tensor aligned(const at::Tensor& x) {
  if (reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % x.itemsize() == 0) return x;
  auto copy = at::empty_like(x);
  std::memcpy(copy.mutable_data_ptr(), x.const_data_ptr(), x.nbytes());
  return copy;
}

void write_tensor_file(const char* function, const NamedTensors& values, const fs::path& file) {
  const ValueScope scope;
  const auto host_values = on_host(values, function);
  about(function, file, [&] {
    if (is_index(file))
      throw std::runtime_error("a name that ends in .json is an index's; choose .safetensors");
  });
  SafetensorsParts parts;
  try {
    std::vector<StoredTensor> stored;
    for (const auto& [name, x] : host_values) stored.push_back(to_stored(name, x));
    parts = make_safetensors(std::move(stored));
  } catch (const std::runtime_error& error) {
    throw ParameterError(file_text(function, file, error.what()));
  }
  parts.data.insert(parts.data.begin(), std::as_bytes(std::span(parts.header)));
  about(function, file, [&] { write_atomically(file, parts.data); });
}

}  // namespace use_gpu::detail

namespace USE_GPU_EXPORT use_gpu {

std::map<std::string, at::Tensor> load_tensors(const std::filesystem::path& file,
                                               c10::Device device) {
  const detail::NewTensorScope scope;
  const auto present = detail::present_device(device);
  auto tensors = detail::read_tensor_file("load_tensors", file);
  detail::Pairs copies;
  for (auto& [name, x] : tensors) {
    copies.add(x, at::empty(x.sizes(), x.options().device(present)));
    x = copies.targets.back();
  }
  if (!present.is_meta()) detail::bulk_copy(copies.values, copies.targets);
  return tensors;
}

std::map<std::string, at::Tensor> map_tensors(const std::filesystem::path& file) {
  const detail::NewTensorScope scope;
  auto tensors = detail::read_tensor_file("map_tensors", file, detail::Checked::header);
  for (auto& [name, x] : tensors) x = detail::aligned(x);
  return tensors;
}

void save_tensors(const std::map<std::string, at::Tensor>& tensors,
                  const std::filesystem::path& file) {
  detail::write_tensor_file("save_tensors", tensors, file);
}

}  // namespace use_gpu
