// SPDX-License-Identifier: MIT
#include <use_gpu/device_scope.hpp>

#include <utility>

#include "device_check.hpp"
#include "dispatch_scope.hpp"

namespace use_gpu {

DeviceScope::DeviceScope(c10::Device device) {
  auto state = DispatchState::current();
  state.factory_device = present_device(device);
  scope_ = std::make_unique<DispatchScope>(std::move(state));
}

DeviceScope::~DeviceScope() = default;

}  // namespace use_gpu
