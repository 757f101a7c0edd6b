// SPDX-License-Identifier: MIT
#include "nccl/errors.hpp"

namespace simulated_nccl {
namespace {

thread_local std::string last;

}  // namespace

int refuse_in_nccl(int code, const std::string& reason) {
  last = reason;
  return code;
}

const std::string& last_refusal() { return last; }

}  // namespace simulated_nccl
