// SPDX-License-Identifier: MIT
#include "core/module_tensors/pending_writes.hpp"

#include <unordered_set>

#include "core/copies/bulk_copy.hpp"
#include "core/copies/flat_buffers.hpp"

namespace use_gpu::detail {
namespace {

// Whether both would write the same. NaNs are equal if their bits are.
bool have_same_values(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype) {
  if (a.is_same(b)) return true;
  return a.device() == b.device() && have_same_bits(a.to(dtype), b.to(dtype));
}

// Of an expanded tensor the part that it repeats, and of its value too, if that repeats it as well.
void unexpand(at::Tensor& target, at::Tensor& value) {
  if (!trouble_with(target).empty() || !trouble_with(value).empty()) return;
  if (target.sizes() != value.sizes()) return;
  auto part = target, part_of_value = value;
  for (std::int64_t i = 0; i < target.dim(); ++i) {
    if (target.stride(i) != 0 || target.size(i) < 2) continue;
    part = part.narrow(i, 0, 1);
    part_of_value = part_of_value.narrow(i, 0, 1);
  }
  if (part.is_same(target) || !have_same_bits(part_of_value.expand_as(value), value)) return;
  target = std::move(part);
  value = part_of_value.contiguous();
}

}  // namespace

void PendingWrites::add(const std::string& name, at::Tensor source, bool may_convert) {
  if (!known.contains(name)) return refuse(name + " is not in the network");
  auto target = known.at(name);
  if (may_be_expanded) unexpand(target, source);
  const auto why = difference(target, source, may_convert);
  if (!why.empty()) return refuse(name + ' ' + why);
  const auto [first, is_first] =
      written.try_emplace(known.at(name).unsafeGetTensorImpl(), name, source);
  const auto& [first_name, first_source] = first->second;
  if (is_first) {
    writes.add(source, target);
  } else if (!have_same_values(first_source, source, target.scalar_type())) {
    refuse(name + " is tied to " + first_name + "; give both one tensor");
  }
}

void PendingWrites::run(const std::string& what) {
  throw_if_any(what, std::move(differences));
  auto& [values, targets] = writes;
  // A value may be another parameter of this network, overwritten before it is read.
  std::unordered_set<const void*> storages;
  for (const auto& target : targets) storages.insert(target.storage().unsafeGetStorageImpl());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const bool shared = storages.contains(values[i].storage().unsafeGetStorageImpl());
    if (shared && !values[i].is_same(targets[i])) values[i] = values[i].clone();
  }
  bulk_copy(values, targets);
}

}  // namespace use_gpu::detail
