// SPDX-License-Identifier: MIT
#include "rehearsal.hpp"

#include <cuda_runtime_api.h>

#include "errors.hpp"

namespace simulate_gpus {
namespace {

thread_local bool is_rehearsal = false, has_come_to_work = false;
thread_local std::vector<Given>* noted = nullptr;
thread_local cudaError_t error_before = cudaSuccess;

}  // namespace

void note_given(const Given& given) {
  if (noted != nullptr) noted->push_back(given);
}

cudaError_t refuse_in_rehearsal() {
  if (!is_rehearsal) return cudaSuccess;
  has_come_to_work = true;
  return fail(cudaErrorNotSupported, "a rehearsal ends here");
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

void simulate_gpus::begin_rehearsal(std::vector<Given>* given) {
  is_rehearsal = true;
  has_come_to_work = false;
  noted = given;
  error_before = exchange_last_error(cudaSuccess);
}

bool simulate_gpus::end_rehearsal() {
  is_rehearsal = false;
  noted = nullptr;
  exchange_last_error(error_before);
  return has_come_to_work;
}

bool simulate_gpus::rehearses() { return is_rehearsal; }
