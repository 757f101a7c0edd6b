// SPDX-License-Identifier: MIT
//
// What LibTorch's device-generic code asks a backend: is it there, which device is current, where
// do random numbers come from, how is a storage resized. Random numbers are drawn by the CPU's
// kernels.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>

#include <utility>
#include <vector>

#include "backend.hpp"

namespace use_gpu::simulated {
namespace {

// The generator of one simulated GPU: a CPU generator under another device's name.
struct Generator final : c10::GeneratorImpl {
  explicit Generator(c10::Device device, at::Generator host = at::detail::createCPUGenerator())
      : c10::GeneratorImpl(device, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        host_(std::move(host)) {}

  void set_current_seed(std::uint64_t seed) override { host_.set_current_seed(seed); }
  std::uint64_t current_seed() const override { return host_.current_seed(); }
  std::uint64_t seed() override { return host_.seed(); }
  void set_offset(std::uint64_t offset) override { host_.set_offset(offset); }
  std::uint64_t get_offset() const override { return host_.get_offset(); }
  void set_state(const c10::TensorImpl& state) override {
    host_.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return host_.unsafeGetGeneratorImpl()->get_state();
  }
  Generator* clone_impl() const override { return new Generator(device(), host_.clone()); }

  at::Generator host_;
};

const at::Generator& default_generator(c10::DeviceIndex index) {
  static const auto* const all = [] {
    auto* generators = new std::vector<at::Generator>;
    for (int i = 0; i < k_most_devices; ++i) {
      generators->push_back(at::make_generator<Generator>(device(i)));
    }
    return generators;
  }();
  return all->at(static_cast<std::size_t>(index < 0 ? current_device().index() : index));
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }

  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  c10::DeviceIndex getCurrentDevice() const override { return current_device().index(); }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    set_current_device(device(index));
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const auto before = current_device().index();
    set_current_device(device(index));
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<Generator>(index < 0 ? current_device() : device(index));
  }

  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    const c10::DeviceGuard on_its_device(storage.device());
    at::native::resize_bytes_cpu(storage.unsafeGetStorageImpl(), bytes);
  }
};

}  // namespace

void register_hooks() {
  static auto* const hooks = new Hooks;
  at::RegisterPrivateUse1HooksInterface(hooks);
}

at::Generator host_generator(const at::Generator& generator) {
  return generator.get<Generator>()->host_;
}

}  // namespace use_gpu::simulated
