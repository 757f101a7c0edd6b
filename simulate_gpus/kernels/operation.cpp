// SPDX-License-Identifier: MIT
#include "kernels/operation.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/cpu_gaps.hpp"
#include "kernels/float32_operations.hpp"

namespace simulate_gpus {

namespace {

constexpr std::array<std::string_view, 8> k_bound_to_sizes = {
    "_convert_weight_to_int4pack", "_int_mm",    "_scaled_grouped_mm",
    "_scaled_grouped_mm_v2",       "_scaled_mm", "_scaled_mm_v2",
    "_weight_int4pack_mm",         "isin"};

c10::OperatorHandle host_operation(const c10::OperatorHandle& operation) {
  const std::string& name = operation.schema().name();
  const auto own = c10::Dispatcher::singleton().findSchema(
      {k_own_namespace + name.substr(name.find("::")), operation.schema().overload_name()});
  return own.value_or(operation);
}

}  // namespace

Operation::Operation(const c10::OperatorHandle& operation, c10::DispatchKey key)
    : handle(operation),
      host(host_operation(operation)),
      host_key(key),
      is_index(is_index_operation(schema())),
      is_of_lists(schema().name().starts_with("aten::_foreach_")),
      is_in_float32(is_computed_in_float32(schema())),
      is_bound_to_sizes(std::ranges::count(k_bound_to_sizes, base_name(schema())) > 0),
      is_selection(base_name(schema()) == "masked_select"),
      gap(find_gap(schema())),
      wait_(Wait::never) {
  if (gap != nullptr && gap->is_of_sparse && key == c10::DispatchKey::CPU) gap = nullptr;
  const std::string& name = schema().name();
  for (std::size_t i = 0; i < schema().arguments().size(); ++i) {
    writes.push_back(writes_argument(schema(), i));
    writes_any |= writes.back();
    if (schema().arguments()[i].name() == "generator") generators.push_back(i);
  }
  for (const c10::Argument& result : schema().returns())
    returned.push_back(returned_argument(schema(), result));
  if (name == "aten::repeat_interleave") {
    wait_ = Wait::without_size;  // of its output
  } else if (!is_index &&        // for masks it calls nonzero
             (key == c10::DispatchKey::SparseCPU || key == c10::DispatchKey::SparseCsrCPU ||
              name.starts_with("aten::_to_sparse") ||
              operation.hasTag(at::Tag::data_dependent_output) ||
              operation.hasTag(at::Tag::dynamic_output_shape))) {
    wait_ = Wait::always;
  }
}

const Operation& Operation::of(const c10::OperatorHandle& handle, c10::DispatchKey host_key) {
  static auto* const all =
      new std::map<std::pair<const c10::FunctionSchema*, c10::DispatchKey>, Operation>;
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  return all->try_emplace({&handle.schema(), host_key}, handle, host_key).first->second;
}

const Operation& Operation::of(const char* name, const char* overload) {
  return of(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
}

}  // namespace simulate_gpus
