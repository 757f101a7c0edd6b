// SPDX-License-Identifier: MIT
//
// What the simulated NVML's functions are made of.
#pragma once

#define NVML_NO_UNVERSIONED_FUNC_DEFS  // each name is the exported one
#include <nvml.h>

#include <string>

namespace simulate_gpus::nvml {

/// The number of a card, in the order of NVML. A handle is never read.
int card_of(nvmlDevice_t handle);

/// The device of a card in this process; -1 if it is hidden.
int device_of(nvmlDevice_t handle);

/// Of a card for players NVML tells less than of one for a data center.
bool is_geforce();

nvmlReturn_t write_text(const std::string& text, char* buffer, unsigned size);

template <class Value>
nvmlReturn_t write_value(Value value, Value* place) {
  *place = value;
  return NVML_SUCCESS;
}

}  // namespace simulate_gpus::nvml
