// SPDX-License-Identifier: MIT
#include <use_gpu/parameter_file.hpp>

#include <algorithm>
#include <unordered_set>

#include "core/copies/flat_buffers.hpp"
#include "core/copies/value_scope.hpp"
#include "core/module_tensors/pending_writes.hpp"
#include "files/tensor_file_io.hpp"

namespace USE_GPU_EXPORT use_gpu {

namespace fs = std::filesystem;

void save_parameters(ConstModuleRef net, const fs::path& file) {
  detail::write_tensor_file("save_parameters", detail::named_tensors_of(net.get()), file);
}

LoadReport load_parameters(ModuleRef net, const fs::path& file, const LoadOptions& options) {
  detail::PendingWrites pending{detail::named_tensors_of(net.get()), /*may_be_expanded=*/true};
  const auto values = detail::read_tensor_file("load_parameters", file);
  std::map<std::string, std::string> stored_as;  // the file's names by the network's
  for (const auto& [stored, value] : values) {
    const auto name = options.rename ? options.rename(stored) : stored;
    if (options.rename && name.empty()) continue;
    const auto [first, is_first] = stored_as.emplace(name, stored);
    if (!is_first)
      pending.refuse(first->second + " and " + stored + " are both renamed to " + name);
  }
  // Not around the caller's code.
  const detail::ValueScope scope;
  LoadReport report;
  std::unordered_set<const at::TensorImpl*> loaded;
  for (const auto& [name, stored] : stored_as) {
    const auto found = pending.known.find(name);
    if (found == pending.known.end()) {
      report.unexpected.push_back(stored);
      const auto in_file = name == stored ? "" : " (" + stored + " in the file)";
      if (!options.allow_unexpected) pending.refuse(name + in_file + " is not in the network");
      continue;
    }
    const auto& target = found->second;
    auto value = values.at(stored);
    // Of a value that is not converted bulk_copy needs no more than its bytes.
    if (!detail::trouble_with(target).empty() || value.sizes() != target.sizes() ||
        !detail::are_alike(value, target))
      value = detail::aligned(value);
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
