// SPDX-License-Identifier: MIT
//
// A handle of cuSPARSE needs a GPU; the library would print that there is none. LibTorch's own sparse products, which ask for one,
// are rehearsed up to here (kernels/rehearsal.hpp).

extern "C" {

int cusparseCreate(void** /*handle*/) {
  constexpr int k_not_initialized = 1;  // CUSPARSE_STATUS_NOT_INITIALIZED
  return k_not_initialized;
}

}  // extern "C"
