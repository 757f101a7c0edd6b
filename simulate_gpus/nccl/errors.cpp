// SPDX-License-Identifier: MIT
#include "nccl/errors.hpp"

#include <mutex>

namespace simulate_gpus::nccl {
namespace {

struct Last {
  std::mutex mutex;
  std::string reason;
};

// Never destroyed: c10d's watchdog asks while the process ends.
Last& last() {
  static auto* const last = new Last;
  return *last;
}

}  // namespace

int refuse_in_nccl(int code, const std::string& reason) {
  const std::scoped_lock lock(last().mutex);
  last().reason = reason;
  return code;
}

std::string last_refusal() {
  const std::scoped_lock lock(last().mutex);
  return last().reason;
}

}  // namespace simulate_gpus::nccl
