// SPDX-License-Identifier: MIT
#include <use_gpu/network.hpp>

#include <torch/nn/module.h>
#include <use_gpu/device.hpp>

#include <algorithm>
#include <ostream>
#include <unordered_set>
#include <utility>

#include "core/copies/bulk_copy.hpp"
#include "core/copies/value_scope.hpp"
#include "core/device_check.hpp"
#include "core/messages/log_message.hpp"
#include "core/messages/tensor_summary.hpp"
#include "core/module_tensors/named_tensors.hpp"
#include "gpu_info/message.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

// The parameters and buffers, tied ones once, each followed by its gradient if it has one; and their
// names, which need not be different.
std::vector<std::pair<std::string, at::Tensor>> with_gradients(const torch::nn::Module& net) {
  std::vector<std::pair<std::string, at::Tensor>> all;
  std::unordered_set<at::TensorImpl*> seen;
  for (const auto& tensors : {net.named_parameters(), net.named_buffers()}) {
    for (const auto& named : tensors) {
      const auto& x = named.value();
      if (!x.defined() || !seen.insert(x.unsafeGetTensorImpl()).second) continue;
      all.emplace_back(named.key(), x);
      if (x.grad().defined()) all.emplace_back("the gradient of " + named.key(), x.grad());
    }
  }
  return all;
}

}  // namespace

void place(ModuleRef net, c10::Device device, std::optional<at::ScalarType> dtype) {
  torch::nn::Module& module = net.get();
  device = detail::present_device(device);
  if (dtype && !c10::isFloatingType(*dtype)) {
    throw ArgumentError("place: " + std::string(c10::getDtypeNames(*dtype).first) +
                        " is not a floating point dtype; integers keep theirs.");
  }
  const auto all = with_gradients(module);
  if (all.empty() && module.children().empty()) {
    detail::log_message(LogLevel::warning,
                        "place(" + detail::clipped(module.name(), 60) +
                            "): nothing registered: was register_module forgotten?");
  }
  const detail::NewTensorScope scope;  // for modules that override to()

  // First the copies: they can fail (no memory, no kernel), but change nothing.
  detail::Pairs copies, moves;  // moves: new data, and whose it is to be
  for (const auto& [name, x] : all) {
    if (device.is_meta() && !x.is_meta()) {
      throw ArgumentError("place: " + name + " is on " + x.device().str() +
                          ", and LibTorch moves no parameter to meta, which has no values. Make "
                          "the network there: "
                          "use_gpu::DefaultDeviceGuard scope(c10::Device(\"meta\")).");
    }
    const auto new_dtype = dtype && x.is_floating_point() ? *dtype : x.scalar_type();
    if (!same_device(x.device(), device) || new_dtype != x.scalar_type())
      moves.add(detail::data_on(device, x, new_dtype, copies), x);
  }
  detail::bulk_copy(copies.values, copies.targets);
  detail::swap_data(moves, [&] {
    module.to(device);
    // Module::to is virtual; overrides may move tensors elsewhere or replace them.
    for (const auto& [name, x] : with_gradients(module)) {
      if (same_device(x.device(), device)) continue;
      throw DeviceError("place: " + name + " went to " + x.device().str() + " instead of " +
                        device.str() + ": does a module override to()?");
    }
  });
}

std::vector<c10::Device> Placement::devices() const {
  std::vector<c10::Device> devices;
  for (const auto& x : tensors_) {
    if (std::ranges::count(devices, x.device) == 0) devices.push_back(x.device);
  }
  return devices;
}

c10::Device Placement::single_device() const {
  if (tensors_.empty()) {
    throw ArgumentError(
        "placement: the network has no parameters and no buffers, so it is on no device. Was "
        "register_module forgotten?");
  }
  const c10::Device first = tensors_.front().device;
  std::string strays;
  for (const auto& x : tensors_) {
    if (x.device != first)
      strays += (strays.empty() ? "" : ", ") + x.name + " on " + x.device.str();
  }
  if (strays.empty()) return first;
  throw DeviceMismatch("placement: the network is on several devices: " + tensors_.front().name +
                       " on " + first.str() + ", but " + strays +
                       ". use_gpu::place(net, device) puts all of it on one.");
}

Placement placement(ConstModuleRef net) {
  std::vector<PlacedTensor> tensors;
  for (const bool is_buffer : {false, true}) {
    for (const auto& item : is_buffer ? net.get().named_buffers() : net.get().named_parameters()) {
      const at::Tensor& x = item.value();
      tensors.push_back({item.key(), is_buffer, x.scalar_type(), x.sizes().vec(), x.device(),
                         detail::bytes_of(x)});
    }
  }
  return Placement(std::move(tensors));
}

std::ostream& operator<<(std::ostream& out, const Placement& placement) {
  detail::TextTable table{{"name", "kind", "dtype", "shape", "device", "bytes"}};
  for (const auto& x : placement.tensors()) {
    table.push_back({x.name, x.is_buffer ? "buffer" : "parameter",
                     std::string(c10::getDtypeNames(x.dtype).first),
                     c10::str(at::IntArrayRef(x.shape)), x.device.str(), std::to_string(x.bytes)});
  }
  return detail::print_table(out, table);
}

}  // namespace use_gpu
