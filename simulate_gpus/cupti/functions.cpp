// SPDX-License-Identifier: MIT
#include "cupti/functions.hpp"

#include <algorithm>
#include <iterator>
#include <unordered_map>

namespace simulate_gpus::cupti {
namespace {

// Made by CMake from CUPTI's headers, in the order of the numbers.
constexpr Function k_functions[] = {
#include "cupti_callbacks.inc"
};

// Without _v7000, which newer versions of a function have too; but cudaStreamGetCaptureInfo_v2 is a name.
std::string_view called_as(std::string_view name) {
  constexpr std::size_t k_digits = 4;
  const auto place = name.rfind("_v");
  const bool is_version = place != std::string_view::npos && name.size() - place - 2 >= k_digits;
  return is_version ? name.substr(0, place) : name;
}

}  // namespace

const Function* find_function(std::string_view called) {
  // Of several versions the last one counts, which is the newest.
  static const auto* const by_name = [] {
    auto* const made = new std::unordered_map<std::string_view, const Function*>;
    for (const Function& function : k_functions) (*made)[called_as(function.name)] = &function;
    return made;
  }();
  const auto found = by_name->find(called);
  return found == by_name->end() ? nullptr : found->second;
}

}  // namespace simulate_gpus::cupti

using namespace simulate_gpus::cupti;

extern "C" {

CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, std::uint32_t id, const char** name) {
  if (name == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const auto* const found = std::ranges::find_if(k_functions, [&](const Function& function) {
    return function.domain == domain && function.id == id;
  });
  if (found == std::end(k_functions)) return CUPTI_ERROR_INVALID_PARAMETER;
  *name = found->name;
  return CUPTI_SUCCESS;
}
}
