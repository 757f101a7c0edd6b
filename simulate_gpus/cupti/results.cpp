// SPDX-License-Identifier: MIT
//
// The version of CUPTI that programs find, and the names of its results.
#include <cupti.h>

#include <algorithm>
#include <iterator>

namespace simulate_gpus::cupti {
namespace {

struct Result {
  CUptiResult code;
  const char* name;
};

#define SIMULATE_GPUS_RESULT(name) \
  { name, #name }
constexpr Result k_results[] = {
#include "cupti_results.inc"  // made by CMake from CUPTI's header
};

}  // namespace
}  // namespace simulate_gpus::cupti

using namespace simulate_gpus::cupti;

extern "C" {

CUptiResult cuptiGetVersion(std::uint32_t* version) {
  if (version == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult code, const char** text) {
  if (text == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const auto* const found = std::ranges::find(k_results, code, &Result::code);
  if (found == std::end(k_results)) return CUPTI_ERROR_INVALID_PARAMETER;
  *text = found->name;
  return CUPTI_SUCCESS;
}
}
