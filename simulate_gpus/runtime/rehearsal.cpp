// SPDX-License-Identifier: MIT
#include "rehearsal.hpp"

#include <cuda_runtime_api.h>

#include "errors.hpp"
#include "interface.hpp"

namespace simulated_cuda {
namespace {

thread_local bool rehearses = false, has_come_to_work = false;

}  // namespace

cudaError_t refuse_in_rehearsal() {
  if (!rehearses) return cudaSuccess;
  has_come_to_work = true;
  return fail(cudaErrorNotSupported, "a rehearsal ends here");
}

}  // namespace simulated_cuda

using namespace simulated_cuda;

void simulated_cuda_begin_rehearsal() {
  rehearses = true;
  has_come_to_work = false;
}

bool simulated_cuda_end_rehearsal() {
  rehearses = false;
  if (has_come_to_work) cudaGetLastError();
  return has_come_to_work;
}

bool simulated_cuda_rehearses() { return rehearses; }
