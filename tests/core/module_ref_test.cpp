// SPDX-License-Identifier: MIT
#include <use_gpu/module_ref.hpp>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <use_gpu/errors.hpp>

#include "support.hpp"

namespace use_gpu {
namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() { linear = register_module("linear", torch::nn::Linear(3, 1)); }
  const torch::nn::Module* self() { return &ModuleRef(*this).get(); }
  torch::nn::Linear linear = nullptr;
};
TORCH_MODULE(Net);

static_assert(std::is_convertible_v<torch::nn::Module&, ModuleRef>);
static_assert(std::is_convertible_v<NetImpl&, ModuleRef>);
static_assert(std::is_convertible_v<Net&, ModuleRef>);
static_assert(std::is_convertible_v<const Net&, ModuleRef>);
static_assert(std::is_convertible_v<Net, ModuleRef>);
static_assert(std::is_convertible_v<torch::nn::Sequential&, ModuleRef>);
static_assert(std::is_convertible_v<std::shared_ptr<NetImpl>, ModuleRef>);
static_assert(std::is_convertible_v<std::shared_ptr<torch::nn::Module>, ModuleRef>);
static_assert(std::is_convertible_v<std::unique_ptr<NetImpl>&, ModuleRef>);
static_assert(std::is_convertible_v<NetImpl*, ModuleRef>);
static_assert(std::is_convertible_v<const NetImpl&, ConstModuleRef>);
static_assert(std::is_convertible_v<std::shared_ptr<const NetImpl>, ConstModuleRef>);
static_assert(std::is_convertible_v<const Net&, ConstModuleRef>);
static_assert(!std::is_convertible_v<const torch::nn::Module&, ModuleRef>,
              "would change a const module");
static_assert(!std::is_convertible_v<std::shared_ptr<const NetImpl>, ModuleRef>);
static_assert(!std::is_convertible_v<at::Tensor&, ModuleRef>);
static_assert(!std::is_convertible_v<int, ModuleRef>);

TEST(ModuleRef, RefersToTheModuleItself) {
  Net holder;
  const Net& const_holder = holder;
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
  const Net empty = nullptr;
  const std::shared_ptr<NetImpl> null;
  for (const ModuleRef& net : {ModuleRef(empty), ModuleRef(null)}) {
    EXPECT_TRUE(test::has(test::error_of<ArgumentError>([&] { (void)net.get(); }), "nullptr"));
  }
  test::error_of<ArgumentError>([&] { (void)ConstModuleRef(empty).get(); });
}

}  // namespace
}  // namespace use_gpu
