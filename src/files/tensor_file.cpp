// SPDX-License-Identifier: MIT
#include <use_gpu/tensor_file.hpp>

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <utility>

#include "core/copies/each_copy.hpp"
#include "core/copies/flat_buffers.hpp"
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
    {"BOOL", at::kBool},  {"F16", at::kHalf},         {"F4", at::kFloat4_e2m1fn_x2},
    {"U8", at::kByte},    {"BF16", at::kBFloat16},    {"F8_E5M2", at::kFloat8_e5m2},
    {"I8", at::kChar},    {"F32", at::kFloat},        {"F8_E4M3", at::kFloat8_e4m3fn},
    {"I16", at::kShort},  {"F64", at::kDouble},       {"F8_E8M0", at::kFloat8_e8m0fnu},
    {"U16", at::kUInt16}, {"C64", at::kComplexFloat}, {"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz},
    {"I32", at::kInt},    {"I64", at::kLong},         {"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz},
    {"U32", at::kUInt32}, {"U64", at::kUInt64},
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
    // Elsewhere its size is all that counts.
    const void* const begin = x.is_cpu() ? x.const_data_ptr() : nullptr;
    const std::span data(static_cast<const std::byte*>(begin), x.nbytes());
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
    return at::for_blob(data, shape).deleter([owner](void*) {}).options(dtype).make_tensor();
  }
  throw std::runtime_error(stored.name + " is " + stored.dtype + ", which LibTorch does not have");
}

std::string file_text(const char* function, const fs::path& file, const std::string& text) {
  const auto name = file.empty() ? "an empty file name" : file.string();
  // Names of tensors may contain control characters.
  return printable(std::string(function) + ": " + name + ": " + text);
}

// What `work` gives; its std::runtime_error becomes a FileError with function and file.
auto about(const char* function, const fs::path& file, const auto& work) try {
  return work();
} catch (const std::runtime_error& error) {
  throw FileError(file_text(function, file, error.what()), file);
}

bool is_index(const fs::path& file) { return file.string().ends_with(".json"); }

// Sends a file's bytes to tensors on a GPU: each is read once, into a block of memory, which is pinned for
// CUDA. A block travels as a whole, and is taken apart on the GPU by few kernels if it is of several.
class Upload {
 public:
  Upload(c10::Device gpu, const MappedFile& file) : file_(file) {
    constexpr std::size_t k_block_bytes = std::size_t{8} << 20;
    const auto size = static_cast<std::int64_t>(std::min(file.bytes.size(), k_block_bytes));
    block_ = at::empty({size}, at::device(at::kCPU).dtype(at::kByte).pinned_memory(gpu.is_cuda()));
    arrived_ = at::empty({size}, at::device(gpu).dtype(at::kByte));
  }

  /// Fills the target, which is contiguous, at the latest when the last block is sent.
  void send(std::span<const std::byte> bytes, const at::Tensor& target, const CheckPiece& check) {
    for (std::int64_t begin = 0; begin < std::ssize(bytes);) {
      const auto size = std::min(std::ssize(bytes) - begin, block_.numel() - filled_);
      file_.read({bytes.begin() + begin, bytes.begin() + begin + size},
                 static_cast<std::byte*>(block_.mutable_data_ptr()) + filled_, check);
      parts_.add(memory_view(arrived_, filled_, at::kByte, {size}, {1}),
                 memory_view(target, begin, at::kByte, {size}, {1}));
      begin += size;
      filled_ += size;
      if (filled_ == block_.numel()) send_block();
    }
  }

  void send_block() {
    const auto values = block_.narrow(0, 0, filled_);
    if (parts_.targets.size() == 1) {
      parts_.targets.front().copy_(values);
    } else {
      arrived_.narrow(0, 0, filled_).copy_(values);
      each_copy(parts_.values, parts_.targets)();
    }
    parts_ = {};
    filled_ = 0;
  }

 private:
  const MappedFile& file_;
  at::Tensor block_;
  at::Tensor arrived_;  // a block, on the GPU
  Pairs parts_;         // of it, and of the targets
  std::int64_t filled_ = 0;
};

// A file's tensors, of which those that are wanted, or all, are new on the device if there is one; others
// lie in the file's memory. Logs a warning where its checksums are in doubt.
NamedTensors tensors_in(const char* function, const fs::path& file, Checked checked,
                        std::optional<c10::Device> device,
                        const std::set<std::string>* wanted = nullptr) {
  const auto mapped = map_file(file, /*may_be_written=*/checked == Checked::header);
  NamedTensors tensors;
  std::optional<Upload> upload;
  if (device && !is_always_there(*device)) upload.emplace(*device, mapped);
  ReadValues read;
  if (checked == Checked::all)
    read = [&](const StoredTensor& x, const CheckPiece& check) {
      if (!device || (wanted && !wanted->contains(x.name))) return check(x.data);
      const auto target = at::empty_like(to_tensor(x, nullptr), at::device(*device));
      tensors.emplace(x.name, target);
      if (upload) return upload->send(x.data, target, check);
      if (target.is_meta()) return check(x.data);
      mapped.read(x.data, static_cast<std::byte*>(target.mutable_data_ptr()), check);
    };
  const auto parsed = parse_safetensors(mapped.bytes, read);
  if (upload) upload->send_block();
  if (!parsed.doubt.empty())
    log_message(LogLevel::warning, file_text(function, file, parsed.doubt) +
                                       ". Another program wrote the file, so it was loaded.");
  for (const auto& x : parsed.tensors) tensors.emplace(x.name, to_tensor(x, mapped.memory));
  return tensors;
}

// Those that an index lists.
NamedTensors listed_tensors(const char* function, const fs::path& file, Checked checked,
                            std::optional<c10::Device> device) {
  NamedTensors tensors;
  const auto index = map_file(file);
  const auto* text = reinterpret_cast<const char*>(index.bytes.data());
  for (const auto& [shard, names] : parse_sharded_index({text, index.bytes.size()})) {
    try {
      auto all = tensors_in(function, file.parent_path() / shard, checked, device, &names);
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

NamedTensors read_tensor_file(const char* function, const fs::path& file, Checked checked,
                              std::optional<c10::Device> device) {
  return about(function, file, [&] {
    if (is_index(file)) return listed_tensors(function, file, checked, device);
    return tensors_in(function, file, checked, device);
  });
}

at::Tensor aligned(const at::Tensor& x) {
  if (reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % x.itemsize() == 0) return x;
  auto copy = at::empty_like(x);
  std::memcpy(copy.mutable_data_ptr(), x.const_data_ptr(), x.nbytes());
  return copy;
}

void write_tensor_file(const char* function, const NamedTensors& values, const fs::path& file) {
  const ValueScope scope;
  check_readable(values, function);
  about(function, file, [&] {
    if (is_index(file))
      throw std::runtime_error("a name that ends in .json is an index's; choose .safetensors");
  });
  constexpr std::size_t k_most_bytes = std::size_t{32} << 20;
  std::vector<StoredTensor> stored;
  std::string start;
  try {
    for (const auto& [name, x] : values) stored.push_back(to_stored(name, x));
    sort_for_file(stored);
    start = file_start(stored);
  } catch (const std::runtime_error& error) {
    throw ParameterError(file_text(function, file, error.what()));
  }
  about(function, file, [&] {
    write_atomically(file, [&](const WriteAt& write) {
      auto place = start.size();
      for (auto first = stored.begin(), end = first; first != stored.end();) {
        NamedTensors together;  // on the host: as many as fit in 32 MB, or one that is larger
        for (std::size_t bytes = 0; end != stored.end(); ++end) {
          bytes += end->data.size();
          if (bytes > k_most_bytes && !together.empty()) break;
          together.emplace(end->name, values.at(end->name));
        }
        const auto host_values = on_host(together);
        for (; first != end; ++first) {
          const auto data = to_stored(first->name, host_values.at(first->name)).data;
          first->checksum = checksum_of(data);
          write(place, data);
          place += data.size();
        }
      }
      start = file_start(stored);
      write(0, std::as_bytes(std::span(start)));
    });
  });
}

}  // namespace use_gpu::detail

namespace USE_GPU_EXPORT use_gpu {

std::map<std::string, at::Tensor> load_tensors(const std::filesystem::path& file,
                                               c10::Device device) {
  const detail::NewTensorScope scope;
  return detail::read_tensor_file("load_tensors", file, detail::Checked::all,
                                  detail::present_device(device));
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
