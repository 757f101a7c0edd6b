// SPDX-License-Identifier: MIT
//
// Programs that link PTX themselves: what cuLinkComplete gives is PTX again.
#include <cuda.h>

#include <string>
#include <vector>

#include "driver/modules.hpp"

using namespace simulate_gpus;

struct CUlinkState_st {
  std::vector<std::string> texts;
  std::string linked;
};

namespace {

CUresult add_text(CUlinkState state, CUjitInputType type, std::string text) {
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (type != CU_JIT_INPUT_PTX)
    return static_cast<CUresult>(refuse_in_driver(
        CUDA_ERROR_NOT_SUPPORTED,
        "cuLinkAddData of anything but PTX is not offered by simulated GPUs: give it PTX"));
  text.resize(text.find_last_not_of('\0') + 1);
  state->texts.push_back(std::move(text));
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuLinkCreate(unsigned, CUjit_option*, void**, CUlinkState* state) {
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = new CUlinkState_st;
  return CUDA_SUCCESS;
}

CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void* data, std::size_t bytes,
                       const char*, unsigned, CUjit_option*, void**) {
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_text(state, type, std::string(static_cast<const char*>(data), bytes));
}

CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char* name, unsigned,
                       CUjit_option*, void**) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult added = CUDA_SUCCESS;
  const CUresult failed =
      attempt_in_driver([&] { added = add_text(state, type, bytes_of_file(name)); });
  return failed != CUDA_SUCCESS ? failed : added;
}

CUresult cuLinkComplete(CUlinkState state, void** image, std::size_t* bytes) {
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (image == nullptr || state->texts.empty()) return CUDA_ERROR_INVALID_VALUE;
  return attempt_in_driver([&] {
    state->linked = linked_text(state->texts);
    *image = state->linked.data();
    if (bytes) *bytes = state->linked.size() + 1;
  });
}

CUresult cuLinkDestroy(CUlinkState state) {
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  delete state;
  return CUDA_SUCCESS;
}
}
