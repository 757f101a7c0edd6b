// SPDX-License-Identifier: MIT
#include "tensor_files/tensor_file_io.hpp"

#include <use_gpu/errors.hpp>
#include <use_gpu/log.hpp>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <utility>

#include "messages/message.hpp"
#include "tensor_files/atomic_file.hpp"
#include "tensor_files/sharded_index.hpp"
#include "tensor_files/tensor_conversion.hpp"

namespace use_gpu::detail {
namespace {

namespace fs = std::filesystem;

std::string file_text(const char* function, const fs::path& file, const std::string& text) {
  const auto name = file.empty() ? "an empty file name" : clipped(file.string(), 120);
  // Names of tensors may contain control characters.
  return printable(std::string(function) + ": " + name + ": " + text);
}

[[noreturn]] void throw_file_error(const char* function, const fs::path& file,
                                   const std::string& cause) {
  throw ParameterError(file_text(function, file, cause));
}

bool is_index(const fs::path& file) { return file.string().ends_with(".json"); }

// Those of the shard's tensors that the index has there.
std::vector<StoredTensor> listed(std::vector<StoredTensor> tensors,
                                 const std::set<std::string>& names) {
  std::erase_if(tensors, [&](const StoredTensor& x) { return !names.contains(x.name); });
  if (tensors.size() == names.size()) return tensors;
  auto missing = names;
  for (const auto& x : tensors) missing.erase(x.name);
  throw std::runtime_error("it lacks " + in_quotes(*missing.begin()) +
                           ", which the index says is there");
}

}  // namespace

TensorFileReader::TensorFileReader(const char* function, fs::path file)
    : function_(function), file_(std::move(file)) {
  try {
    open();
  } catch (const std::runtime_error& error) {
    throw_file_error(function_, file_, error.what());
  }
}

void TensorFileReader::open() {
  if (!is_index(file_)) {
    tensors_ = read(file_);
    return;
  }
  const MappedFile index(file_);
  const auto* text = reinterpret_cast<const char*>(index.bytes().data());
  for (const auto& [shard, names] : parse_sharded_index({text, index.bytes().size()})) {
    try {
      for (auto& x : listed(read(file_.parent_path() / shard), names))
        tensors_.push_back(std::move(x));
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(in_quotes(shard) + ": " + error.what());
    }
  }
}

std::vector<StoredTensor> TensorFileReader::read(const fs::path& file) {
  auto parsed = parse_safetensors(opened_.emplace_back(file).bytes());
  if (!parsed.doubt.empty()) {
    log_message(LogLevel::warning, file_text(function_, file, parsed.doubt) +
                                       ". Another program wrote the file, so it was loaded.");
  }
  return std::move(parsed.tensors);
}

at::Tensor TensorFileReader::value_of(const StoredTensor& stored) const {
  try {
    return to_tensor(stored);
  } catch (const std::runtime_error& error) {
    throw_file_error(function_, file_, error.what());
  }
}

void write_tensor_file(const char* function, const std::map<std::string, at::Tensor>& values,
                       const fs::path& file) {
  try {
    if (is_index(file))
      throw std::runtime_error("a name that ends in .json is an index's; choose .safetensors");
    std::vector<StoredTensor> stored;
    for (const auto& [name, value] : values) stored.push_back(to_stored(name, value));
    auto parts = make_safetensors(std::move(stored));
    parts.data.insert(parts.data.begin(), std::as_bytes(std::span(parts.header)));
    write_atomically(file, parts.data);
  } catch (const std::runtime_error& error) {
    throw_file_error(function, file, error.what());
  }
}

}  // namespace use_gpu::detail
