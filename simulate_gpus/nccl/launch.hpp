// SPDX-License-Identifier: MIT
//
// From the functions of NCCL to the streams.
#pragma once

#include <vector>

#include "nccl/operation.hpp"

namespace simulate_gpus::nccl {

/// Makes a device the current one while it lives.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

/// Gives the operations of a group to their streams; to the graph, where a stream is captured. In
/// each stream all give their parts before the first takes, and none waits for another one.
void launch(std::vector<Operation> group);

}  // namespace simulate_gpus::nccl
