// SPDX-License-Identifier: MIT
#include "core/module_tensors/parameter_differences.hpp"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <unordered_map>

#include "core/copies/flat_buffers.hpp"
#include "core/messages/tensor_summary.hpp"
#include "gpu_info/message.hpp"

namespace use_gpu::detail {
namespace {

// Whether the values, integers on the CPU, are the same as ones of that dtype.
bool stay_equal(const at::Tensor& values, at::ScalarType dtype) {
  if (values.numel() == 0) return true;
  const auto converted = values.to(dtype);
  if (!have_same_bits(converted.to(values.scalar_type()), values)) return false;
  const bool was_signed = c10::isSignedType(values.scalar_type());
  if (was_signed == c10::isSignedType(dtype)) return true;
  return (was_signed ? values : converted).min().item<std::int64_t>() >= 0;
}

bool can_convert(at::ScalarType from, at::ScalarType to) try {
  if (!c10::canCast(from, to)) return false;
  (void)at::empty({1}, at::TensorOptions(from).device(at::kCPU)).to(to);
  return true;
} catch (const c10::Error&) {  // LibTorch lacks that conversion
  return false;
}

}  // namespace

std::string trouble_with(const at::Tensor& x) {
  if (!x.defined()) return "undefined";
  if (x.layout() != c10::kStrided || x.is_nested()) return "not dense";
  if (x.is_meta()) return "without values (meta)";
  if (x.is_quantized()) return "quantized";
  return {};
}

std::string difference(const at::Tensor& target, const at::Tensor& value, bool may_convert) {
  if (!value.defined()) return "was given an undefined tensor";
  for (const auto& x : {target, value}) {
    if (const auto trouble = trouble_with(x); !trouble.empty()) return "is " + trouble;
  }
  const auto from = value.scalar_type();
  const auto to = target.scalar_type();
  const auto both = [&](const std::string& before_value, const std::string& after_value) {
    return "is " + dtype_and_shape(target) + " in the network, " + before_value +
           dtype_and_shape(value) + after_value;
  };
  if (target.sizes() != value.sizes() || (from != to && !may_convert))
    return both("but ", " was given");
  if (from != to && !can_convert(from, to)) return both("to which ", " cannot be converted");
  if (from != to && c10::isIntegralType(from, /*includeBool=*/false) &&
      c10::isIntegralType(to, /*includeBool=*/false) && !stay_equal(value, to))
    return both("which cannot hold all the integers of ", "");
  if (at::has_internal_overlap(target) == at::MemOverlap::Yes)
    return "overlaps itself (by expand()?)";
  return {};
}

void throw_if_any(const std::string& what, Differences differences) {
  constexpr std::size_t k_shown_bytes = 180;
  if (differences.empty()) return;
  auto text = clipped(differences.front(), k_shown_bytes);
  std::size_t shown = 1;
  while (shown < differences.size() && text.size() + differences[shown].size() <= k_shown_bytes)
    text += "; " + differences[shown++];
  if (shown < differences.size())
    text += "; and " + std::to_string(differences.size() - shown) + " more in differences()";
  throw ParameterError(printable(what + ": " + text), std::move(differences));
}

std::string replica_name(std::size_t index) { return "replica " + std::to_string(index); }

Facts facts_of(const NamedTensors& all) {
  std::unordered_map<const at::TensorImpl*, std::string> first_names;
  Facts facts;
  for (const auto& [name, x] : all) {
    auto& fact = facts.emplace_back(name, "present").second;
    if (!x.defined()) continue;
    const auto& first = first_names.try_emplace(x.unsafeGetTensorImpl(), name).first->second;
    fact = dtype_and_shape(x) + (first == name ? "" : " tied to " + first);
  }
  return facts;
}

Differences differences_between(const std::vector<Facts>& networks, const std::string& where,
                                const std::string& missing) {
  Differences differences;
  const auto& first = networks.front();
  for (std::size_t i = 1; i < networks.size(); ++i) {
    const auto& other = networks[i];
    const auto known = differences.size();
    const auto compare = [&](const std::string& name, const std::string& a, const std::string& b) {
      if (a == b) return;
      differences.push_back(name + " is " + a + where + "0, but " + b + where + std::to_string(i));
    };
    std::map<std::string, std::string> rest(other.begin(), other.end());
    for (const auto& [name, fact] : first) {
      const auto found = rest.extract(name);
      compare(name, fact, found.empty() ? missing : found.mapped());
    }
    for (const auto& [name, fact] : rest) compare(name, missing, fact);
    if (differences.size() > known) continue;
    const auto [here, there] = std::ranges::mismatch(first, other);
    if (here != first.end()) compare("the first one in another place", here->first, there->first);
  }
  return differences;
}

Differences differences_between(const std::vector<NamedTensors>& replicas,
                                const std::string& missing) {
  std::vector<Facts> networks;
  for (const auto& all : replicas) networks.push_back(facts_of(all));
  return differences_between(networks, " in replica ", missing);
}

}  // namespace use_gpu::detail
