// SPDX-License-Identifier: MIT
#include <use_gpu/parameters.hpp>

#include <torch/nn/module.h>
#include <use_gpu/transfers.hpp>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "copies/bulk_copy.hpp"
#include "copies/flat_buffers.hpp"
#include "copies/memory_view.hpp"
#include "messages/message.hpp"
#include "network_tensors/named_tensors.hpp"
#include "network_tensors/parameter_differences.hpp"
#include "tensor_files/tensor_file_io.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

namespace fs = std::filesystem;

// Whether both would write the same. NaNs are equal if their bits are.
bool have_same_values(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype) {
  if (a.is_same(b)) return true;
  if (a.device() != b.device()) return false;
  const auto bytes = [&](const at::Tensor& x) {
    return detail::flatten({x.to(dtype)}).view(at::kByte);
  };
  return bytes(a).equal(bytes(b));
}

// Whether bulk_copy needs no more of the value than its bytes.
bool is_copied_as_bytes(const at::Tensor& value, const at::Tensor& target) {
  return detail::trouble_with(target).empty() && value.sizes() == target.sizes() &&
         detail::are_alike(value, target);
}

// What is to be written into a network. Everything is checked before the first tensor is written.
class PendingWrites {
 public:
  explicit PendingWrites(const torch::nn::Module& net) : known_(detail::named_tensors_of(net)) {}

  [[nodiscard]] const detail::NamedTensors& known() const { return known_; }

  /// A reason for which nothing may be written.
  void refuse(std::string difference) { differences_.push_back(std::move(difference)); }

  /// The value of that name.
  void add(const std::string& name, const at::Tensor& source, bool may_convert = false) {
    if (!known_.contains(name)) return refuse(name + " is not in the network");
    const auto& target = known_.at(name);
    const auto difference = detail::difference(target, source, may_convert);
    if (!difference.empty()) return refuse(name + ' ' + difference);
    const auto [first, is_first] = written_.try_emplace(target.unsafeGetTensorImpl(), name, source);
    const auto& [first_name, first_source] = first->second;
    if (is_first) {
      targets_.push_back(target);
      sources_.push_back(source);
    } else if (!have_same_values(first_source, source, target.scalar_type())) {
      refuse(name + " is tied to " + first_name + "; give both one tensor");
    }
  }

  /// Writes in place; or ParameterError, which begins with `what`.
  void run(const std::string& what) {
    detail::throw_if_any(what, std::move(differences_));
    // A value may be another parameter of this network, overwritten before it is read.
    std::unordered_set<const void*> storages;
    for (const auto& target : targets_) storages.insert(target.storage().unsafeGetStorageImpl());
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      auto& source = sources_[i];
      const bool shared = storages.contains(source.storage().unsafeGetStorageImpl());
      if (shared && !source.is_same(targets_[i])) source = source.clone();
    }
    detail::bulk_copy(sources_, targets_);
  }

 private:
  detail::NamedTensors known_;
  detail::Differences differences_;
  std::vector<at::Tensor> targets_;
  std::vector<at::Tensor> sources_;
  // The first name and value of each target.
  std::unordered_map<at::TensorImpl*, std::pair<std::string, at::Tensor>> written_;
};

}  // namespace

std::map<std::string, at::Tensor> read_parameters(ConstModuleRef net) {
  const AllowTransfers certain;
  // The caller may change the copies, in inference mode or not.
  const c10::InferenceMode no_inference_mode(false);
  const at::NoGradGuard no_grad;
  const auto all = detail::named_tensors_of(net.get());
  auto values = detail::on_host(all, "read_parameters");
  std::unordered_map<at::TensorImpl*, at::Tensor> copies;
  for (auto& [name, value] : values) {
    // A contiguous CPU tensor still shares the network's memory.
    if (!value.is_alias_of(all.at(name))) continue;
    auto& copy = copies[value.unsafeGetTensorImpl()];
    if (!copy.defined()) copy = value.clone();
    value = copy;
  }
  return values;
}

void write_parameters(ModuleRef net, const std::map<std::string, at::Tensor>& values) {
  const AllowTransfers certain;
  // In inference mode tensors that were made in it can be written too.
  const c10::InferenceMode inference;
  PendingWrites writes(net.get());
  for (const auto& [name, value] : values) writes.add(name, value);
  writes.run("write_parameters: the values do not fit the network");
}

void save_parameters(ConstModuleRef net, const fs::path& file) {
  const AllowTransfers certain;
  const c10::InferenceMode inference;
  const auto all = detail::named_tensors_of(net.get());
  detail::write_tensor_file("save_parameters", detail::on_host(all, "save_parameters"), file);
}

LoadReport load_parameters(ModuleRef net, const fs::path& file, const LoadOptions& options) {
  PendingWrites writes(net.get());
  const detail::TensorFileReader reader("load_parameters", file);
  std::map<std::string, const detail::StoredTensor*> stored_as;  // by the network's names
  for (const auto& stored : reader.tensors()) {
    const auto name = options.rename ? options.rename(stored.name) : stored.name;
    if (options.rename && name.empty()) continue;
    const auto [first, is_first] = stored_as.emplace(name, &stored);
    if (!is_first)
      writes.refuse(first->second->name + " and " + stored.name + " are both renamed to " + name);
  }
  // Not around the caller's code.
  const AllowTransfers certain;
  const c10::InferenceMode inference;
  LoadReport report;
  std::unordered_set<const at::TensorImpl*> loaded;
  for (const auto& [name, stored] : stored_as) {
    const auto found = writes.known().find(name);
    if (found == writes.known().end()) {
      report.unexpected.push_back(stored->name);
      const bool is_renamed = name != stored->name;
      if (!options.allow_unexpected)
        writes.refuse(name + (is_renamed ? " (" + stored->name + " in the file)" : "") +
                      " is not in the network");
      continue;
    }
    const auto& target = found->second;
    auto value = reader.value_of(*stored);
    if (!is_copied_as_bytes(value, target)) value = detail::aligned(value);
    writes.add(name, value, options.convert_dtype);
    report.loaded.push_back(name);
    if (value.scalar_type() != target.scalar_type()) report.converted.push_back(name);
    loaded.insert(target.unsafeGetTensorImpl());
  }
  for (const auto& [name, target] : writes.known()) {
    if (loaded.contains(target.unsafeGetTensorImpl())) continue;
    report.missing.push_back(name);
    if (!options.allow_missing) writes.refuse(name + " is missing");
  }
  std::sort(report.unexpected.begin(), report.unexpected.end());
  writes.run("load_parameters: " + file.string() +
             " does not fit the network (build the one that was saved)");
  return report;
}

}  // namespace use_gpu
