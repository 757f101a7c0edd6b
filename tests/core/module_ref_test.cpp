// SPDX-License-Identifier: MIT
#include <use_gpu/module_ref.hpp>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <use_gpu/errors.hpp>

#include "support.hpp"

namespace use_gpu {
namespace {

struct HeldNetImpl : torch::nn::Module {
  HeldNetImpl() { linear = register_module("linear", torch::nn::Linear(3, 1)); }
  const torch::nn::Module* self() { return &ModuleRef(*this).get(); }
  torch::nn::Linear linear = nullptr;
};
TORCH_MODULE(HeldNet);

static_assert(std::is_convertible_v<torch::nn::Module&, ModuleRef>);
static_assert(std::is_convertible_v<HeldNetImpl&, ModuleRef>);
static_assert(std::is_convertible_v<HeldNet&, ModuleRef>);
static_assert(std::is_convertible_v<const HeldNet&, ModuleRef>);
static_assert(std::is_convertible_v<HeldNet, ModuleRef>);
static_assert(std::is_convertible_v<torch::nn::Sequential&, ModuleRef>);
static_assert(std::is_convertible_v<std::shared_ptr<HeldNetImpl>, ModuleRef>);
static_assert(std::is_convertible_v<std::shared_ptr<torch::nn::Module>, ModuleRef>);
static_assert(std::is_convertible_v<std::unique_ptr<HeldNetImpl>&, ModuleRef>);
static_assert(std::is_convertible_v<HeldNetImpl*, ModuleRef>);
static_assert(std::is_convertible_v<const HeldNetImpl&, ConstModuleRef>);
static_assert(std::is_convertible_v<std::shared_ptr<const HeldNetImpl>, ConstModuleRef>);
static_assert(std::is_convertible_v<const HeldNet&, ConstModuleRef>);
static_assert(!std::is_convertible_v<const torch::nn::Module&, ModuleRef>,
              "would change a const module");
static_assert(!std::is_convertible_v<std::shared_ptr<const HeldNetImpl>, ModuleRef>);
static_assert(!std::is_convertible_v<at::Tensor&, ModuleRef>);
static_assert(!std::is_convertible_v<int, ModuleRef>);

TEST(ModuleRef, RefersToTheModuleItself) {
  HeldNet holder;
  const HeldNet& const_holder = holder;
  std::shared_ptr<torch::nn::Module> pointer = holder.ptr();
  const torch::nn::Module* const module = holder.ptr().get();
  EXPECT_EQ(&ModuleRef(holder).get(), module);
  EXPECT_EQ(&ModuleRef(const_holder).get(), module);
  EXPECT_EQ(&ModuleRef(pointer).get(), module);
  EXPECT_EQ(&ModuleRef(*holder).get(), module);
  EXPECT_EQ(&ConstModuleRef(holder).get(), module);
  EXPECT_EQ(&ConstModuleRef(std::as_const(*holder)).get(), module);
  EXPECT_EQ(holder->self(), module);
}

TEST(ModuleRef, TakesASequentialForTheModuleThatItIs) {
  torch::nn::Sequential net(torch::nn::Linear(3, 1));
  EXPECT_EQ(&ModuleRef(net).get(), net.ptr().get());
  EXPECT_EQ(&ModuleRef(*net).get(), net.ptr().get());
}

TEST(ModuleRef, RefusesEmptyHoldersAndNullPointers) {
  const HeldNet empty = nullptr;
  const std::shared_ptr<HeldNetImpl> null;
  for (const ModuleRef& net : {ModuleRef(empty), ModuleRef(null)}) {
    EXPECT_TRUE(test::has(test::error_of<ArgumentError>([&] { (void)net.get(); }), "nullptr"));
  }
  test::error_of<ArgumentError>([&] { (void)ConstModuleRef(empty).get(); });
}

}  // namespace
}  // namespace use_gpu
