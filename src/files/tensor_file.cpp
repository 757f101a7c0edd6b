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
#include "core/module_tensors/named_tensors.hpp"
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

// `owners`: what keeps its memory.
at::Tensor to_tensor(const StoredTensor& stored, const std::vector<MappedFile>& owners) {
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
        data, shape, [owners](void*) {}, at::TensorOptions(dtype).device(at::kCPU));
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

}  // namespace

TensorFileReader::TensorFileReader(const char* function, fs::path file, Checked checked)
    : function_(function), checked_(checked), file_(std::move(file)) {
  about(function_, file_, [&] { tensors_ = is_index(file_) ? read_shards() : read(file_); });
}

std::vector<StoredTensor> TensorFileReader::read_shards() {
  std::vector<StoredTensor> tensors;
  const auto index = map_file(file_);
  const auto* text = reinterpret_cast<const char*>(index.bytes.data());
  for (auto& [shard, names] : parse_sharded_index({text, index.bytes.size()})) {
    try {
      for (auto& x : read(file_.parent_path() / shard))
        if (names.erase(x.name) > 0) tensors.push_back(std::move(x));
      if (!names.empty())
        throw std::runtime_error("it lacks " + in_quotes(*names.begin()) +
                                 ", which the index says is there");
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(in_quotes(shard) + ": " + error.what());
    }
  }
  return tensors;
}

std::vector<StoredTensor> TensorFileReader::read(const fs::path& file) {
  const bool may_be_written = checked_ == Checked::header;
  auto parsed =
      parse_safetensors(opened_.emplace_back(map_file(file, may_be_written)).bytes, checked_);
  if (!parsed.doubt.empty())
    log_message(LogLevel::warning, file_text(function_, file, parsed.doubt) +
                                       ". Another program wrote the file, so it was loaded.");
  return std::move(parsed.tensors);
}

at::Tensor TensorFileReader::value_of(const StoredTensor& stored) const {
  return about(function_, file_, [&] { return to_tensor(stored, opened_); });
}

at::Tensor aligned(const at::Tensor& x) {
  if (reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % x.itemsize() == 0) return x;
  auto copy = at::empty_like(x);
  std::memcpy(copy.mutable_data_ptr(), x.const_data_ptr(), x.nbytes());
  return copy;
}

void write_tensor_file(const char* function, const std::map<std::string, at::Tensor>& values,
                       const fs::path& file) {
  about(function, file, [&] {
    if (is_index(file))
      throw std::runtime_error("a name that ends in .json is an index's; choose .safetensors");
  });
  SafetensorsParts parts;
  try {
    std::vector<StoredTensor> stored;
    for (const auto& [name, value] : values) stored.push_back(to_stored(name, value));
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
  const detail::TensorFileReader reader("load_tensors", file);
  std::map<std::string, at::Tensor> tensors;
  std::vector<at::Tensor> values;
  std::vector<at::Tensor> targets;
  for (const auto& stored : reader.tensors()) {
    const auto& value = values.emplace_back(reader.value_of(stored));
    targets.push_back(at::empty(value.sizes(), value.options().device(present)));
    tensors.emplace(stored.name, targets.back());
  }
  if (!present.is_meta()) detail::bulk_copy(values, targets);
  return tensors;
}

std::map<std::string, at::Tensor> map_tensors(const std::filesystem::path& file) {
  const detail::NewTensorScope scope;
  const detail::TensorFileReader reader("map_tensors", file, detail::Checked::header);
  std::map<std::string, at::Tensor> tensors;
  for (const auto& stored : reader.tensors())
    tensors.emplace(stored.name, detail::aligned(reader.value_of(stored)));
  return tensors;
}

void save_tensors(const std::map<std::string, at::Tensor>& tensors,
                  const std::filesystem::path& file) {
  const detail::ValueScope scope;
  detail::write_tensor_file("save_tensors", detail::on_host(tensors, "save_tensors"), file);
}

}  // namespace use_gpu
