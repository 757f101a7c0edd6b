// SPDX-License-Identifier: MIT
#include <use_gpu/parameters.hpp>

#include <use_gpu/transfers.hpp>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "copies/bulk_copy.hpp"
#include "copies/each_copy.hpp"
#include "copies/flat_buffers.hpp"
#include "network_tensors/named_tensors.hpp"
#include "network_tensors/parameter_differences.hpp"
#include "tensor_files/tensor_file_io.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

namespace fs = std::filesystem;

// Whether both would write the same. NaNs are equal if their bits are.
bool have_same_values(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype) {
  if (a.is_same(b)) return true;
  return a.device() == b.device() && detail::have_same_bits(a.to(dtype), b.to(dtype));
}

// What is to be written into a network. Everything is checked before the first tensor is written.
struct PendingWrites {
  detail::NamedTensors known;  // the network's
  detail::Differences differences = {};
  detail::Pairs writes = {};
  // The first name and value of each target.
  std::unordered_map<at::TensorImpl*, std::pair<std::string, at::Tensor>> written = {};

  /// A reason for which nothing may be written.
  void refuse(std::string difference) { differences.push_back(std::move(difference)); }

  /// The value of that name.
  void add(const std::string& name, const at::Tensor& source, bool may_convert = false) {
    if (!known.contains(name)) return refuse(name + " is not in the network");
    const auto& target = known.at(name);
    const auto difference = detail::difference(target, source, may_convert);
    if (!difference.empty()) return refuse(name + ' ' + difference);
    const auto [first, is_first] = written.try_emplace(target.unsafeGetTensorImpl(), name, source);
    const auto& [first_name, first_source] = first->second;
    if (is_first) {
      writes.add(source, target);
    } else if (!have_same_values(first_source, source, target.scalar_type())) {
      refuse(name + " is tied to " + first_name + "; give both one tensor");
    }
  }

  /// Writes in place; or ParameterError, which begins with `what`.
  void run(const std::string& what) {
    detail::throw_if_any(what, std::move(differences));
    auto& [values, targets] = writes;
    // A value may be another parameter of this network, overwritten before it is read.
    std::unordered_set<const void*> storages;
    for (const auto& target : targets) storages.insert(target.storage().unsafeGetStorageImpl());
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const bool shared = storages.contains(values[i].storage().unsafeGetStorageImpl());
      if (shared && !values[i].is_same(targets[i])) values[i] = values[i].clone();
    }
    detail::bulk_copy(values, targets);
  }
};

}  // namespace

std::map<std::string, at::Tensor> read_parameters(ConstModuleRef net) {
  const AllowTransfers certain;
  // The caller may change the copies, in inference mode or not.
  const c10::InferenceMode no_inference_mode(false);
  return detail::on_host(detail::named_tensors_of(net.get()), "read_parameters",
                         /*may_share=*/false);
}

void write_parameters(ModuleRef net, const std::map<std::string, at::Tensor>& values) {
  const AllowTransfers certain;
  // In inference mode tensors that were made in it can be written too.
  const c10::InferenceMode inference;
  PendingWrites pending{detail::named_tensors_of(net.get())};
  for (const auto& [name, value] : values) pending.add(name, value);
  pending.run("write_parameters: the values do not fit the network");
}

void save_parameters(ConstModuleRef net, const fs::path& file) {
  const AllowTransfers certain;
  const c10::InferenceMode inference;
  const auto all = detail::named_tensors_of(net.get());
  detail::write_tensor_file("save_parameters", detail::on_host(all, "save_parameters"), file);
}

LoadReport load_parameters(ModuleRef net, const fs::path& file, const LoadOptions& options) {
  PendingWrites pending{detail::named_tensors_of(net.get())};
  const detail::TensorFileReader reader("load_parameters", file);
  std::map<std::string, const detail::StoredTensor*> stored_as;  // by the network's names
  for (const auto& stored : reader.tensors()) {
    const auto name = options.rename ? options.rename(stored.name) : stored.name;
    if (options.rename && name.empty()) continue;
    const auto [first, is_first] = stored_as.emplace(name, &stored);
    if (!is_first)
      pending.refuse(first->second->name + " and " + stored.name + " are both renamed to " + name);
  }
  // Not around the caller's code.
  const AllowTransfers certain;
  const c10::InferenceMode inference;
  LoadReport report;
  std::unordered_set<const at::TensorImpl*> loaded;
  for (const auto& [name, stored] : stored_as) {
    const auto found = pending.known.find(name);
    if (found == pending.known.end()) {
      report.unexpected.push_back(stored->name);
      const auto in_file = name == stored->name ? "" : " (" + stored->name + " in the file)";
      if (!options.allow_unexpected) pending.refuse(name + in_file + " is not in the network");
      continue;
    }
    const auto& target = found->second;
    auto value = reader.value_of(*stored);
    // Of a value that is not converted bulk_copy needs no more than its bytes.
    const bool is_copied_as_bytes = detail::trouble_with(target).empty() &&
                                    value.sizes() == target.sizes() &&
                                    detail::are_alike(value, target);
    if (!is_copied_as_bytes) value = detail::aligned(value);
    pending.add(name, value, options.convert_dtype);
    report.loaded.push_back(name);
    if (value.scalar_type() != target.scalar_type()) report.converted.push_back(name);
    loaded.insert(target.unsafeGetTensorImpl());
  }
  for (const auto& [name, target] : pending.known) {
    if (loaded.contains(target.unsafeGetTensorImpl())) continue;
    report.missing.push_back(name);
    if (!options.allow_missing) pending.refuse(name + " is missing");
  }
  std::sort(report.unexpected.begin(), report.unexpected.end());
  pending.run("load_parameters: " + file.string() +
              " does not fit the network (build the one that was saved)");
  return report;
}

}  // namespace use_gpu
