// SPDX-License-Identifier: MIT
#include <use_gpu/tensor.hpp>

#include <torch/csrc/autograd/grad_mode.h>
#include <torch/types.h>
#include <use_gpu/errors.hpp>

#include <limits>
#include <sstream>

#include "support.hpp"

// The names must not clash with LibTorch's for those who use both namespaces.
namespace both_namespaces {
using namespace torch;
using namespace use_gpu;
Tensor sum(const Tensor& x, const Tensor& y) { return checked_add(x, y); }
Tensor moved(const Tensor& x) { return to_device(x, try_gpu()); }
}  // namespace both_namespaces

namespace use_gpu {
namespace {

using test::error_of;
using test::has;
using test::printed;

// Tensors of every kind that a user may bring, on the CPU.
std::vector<at::Tensor> tensors_of_all_kinds() {
  std::vector<at::Tensor> all;
  for (const auto dtype : {torch::kFloat32, torch::kFloat64, torch::kFloat16, torch::kBFloat16,
                           torch::kInt8, torch::kUInt8, torch::kInt16, torch::kInt32, torch::kInt64,
                           torch::kBool, torch::kComplexFloat, torch::kComplexDouble}) {
    all.push_back(torch::ones({2, 3}, dtype));
  }
  all.push_back(torch::tensor(1.5));                     // zero dimensions
  all.push_back(torch::empty({0, 3}));                   // no elements
  all.push_back(torch::arange(6.).view({2, 3}).t());     // not contiguous
  all.push_back(torch::ones({1, 3}).expand({4, 3}));     // overlapping
  all.push_back(torch::arange(12.).slice(0, 1, 11, 3));  // strided, with an offset
  all.push_back(torch::ones({2, 3}, torch::kComplexFloat).mul(c10::complex<float>(1, 2)).conj());
  all.push_back(torch::ones({2, 3}, torch::requires_grad()));
  return all;
}

// Every device that there is, the CPU among them.
std::vector<c10::Device> all_devices() {
  auto devices = try_all_gpus();
  if (num_gpus() > 0) devices.push_back(cpu());
  return devices;
}

TEST(ToDevice, GivesTheTensorItselfWhereItAlreadyIs) {
  for (const auto device : all_devices()) {
    const auto x = torch::ones({2, 3}, device);
    EXPECT_TRUE(to_device(x, device).is_same(x));
  }
}

TEST(ToDevice, TakesCpu0ForTheCpuWhereLibTorchCopies) {
  const auto x = torch::ones({2, 3});
  EXPECT_FALSE(x.to(c10::Device("cpu:0")).is_same(x)) << "LibTorch no longer copies";
  EXPECT_TRUE(to_device(x, c10::Device("cpu:0")).is_same(x));
}

TEST(ToDevice, TakesAGpuWithoutIndexForTheCurrentOne) {
  USE_GPU_TEST_NEEDS(2);
  const c10::DeviceGuard guard(gpu(1));
  const c10::Device current(gpu().type());
  const auto x = torch::ones({2, 3}, gpu(1));
  EXPECT_TRUE(to_device(x, current).is_same(x));
  EXPECT_EQ(to_device(torch::ones({2, 3}), current).device(), gpu(1));
}

TEST(ToDevice, MovesTensorsOfEveryKindBetweenAllDevices) {
  for (const auto& x : tensors_of_all_kinds()) {
    for (const auto from : all_devices()) {
      for (const auto to : all_devices()) {
        const auto moved = to_device(to_device(x, from), to);
        EXPECT_TRUE(same_device(moved.device(), to));
        EXPECT_EQ(moved.scalar_type(), x.scalar_type());
        EXPECT_TRUE(to_device(moved, cpu()).equal(x)) << describe(x) << " " << from << " " << to;
      }
    }
  }
}

TEST(ToDevice, IsKnownToAutograd) {
  const auto x = torch::ones({2, 3}, torch::requires_grad());
  to_device(x * 2, try_gpu()).sum().backward();
  EXPECT_TRUE(x.grad().equal(torch::full({2, 3}, 2.f)));
  EXPECT_TRUE(x.grad().is_cpu());
}

TEST(ToDevice, MovesSparseTensors) {
  const auto x = torch::eye(3).to_sparse();
  EXPECT_TRUE(to_device(x, cpu()).is_same(x));
  EXPECT_TRUE(to_device(to_device(x, try_gpu()), cpu()).to_dense().equal(torch::eye(3)));
}

TEST(CopyTo, GivesNewMemoryOnEveryDevice) {
  for (const auto& x : tensors_of_all_kinds()) {
    for (const auto from : all_devices()) {
      for (const auto to : all_devices()) {
        const auto source = to_device(x, from);
        const auto copy = copy_to(source, to);
        EXPECT_TRUE(same_device(copy.device(), to));
        EXPECT_FALSE(copy.is_same(source));
        if (x.numel() > 0) {
          EXPECT_NE(copy.data_ptr(), source.data_ptr());
        }
        EXPECT_TRUE(to_device(copy, cpu()).equal(x)) << describe(x) << " " << from << " " << to;
      }
    }
  }
}

TEST(MovingATensor, RefusesUndefinedTensorsAndDevicesThatAreNotThere) {
  const at::Tensor undefined;
  const auto x = torch::ones({2, 3});
  EXPECT_TRUE(
      has(error_of<ArgumentError>([&] { (void)to_device(undefined, cpu()); }), "undefined"));
  EXPECT_TRUE(has(error_of<ArgumentError>([&] { (void)copy_to(undefined, cpu()); }), "undefined"));
  for (const auto device : {test::absent_gpu(), gpu(num_gpus())}) {
    EXPECT_TRUE(has(error_of<DeviceError>([&] { (void)to_device(x, device); }), device.str()));
    EXPECT_TRUE(has(error_of<DeviceError>([&] { (void)copy_to(x, device); }), device.str()));
  }
  EXPECT_TRUE(x.equal(torch::ones({2, 3})));
}

TEST(CheckedAdd, AddsWhereTheOperandsAre) {
  for (const auto device : all_devices()) {
    const auto x = torch::arange(6., device).view({2, 3});
    const auto sum = checked_add(x, torch::ones({3}, device));
    EXPECT_EQ(sum.device(), x.device());
    EXPECT_TRUE(to_device(sum, cpu()).equal(torch::arange(1., 7.).view({2, 3})));
  }
}

TEST(CheckedAdd, AddsAsLibTorchDoes) {
  const auto i = torch::ones({2}, torch::kInt32);
  EXPECT_EQ(checked_add(i, torch::ones({2}, torch::kDouble)).scalar_type(), torch::kDouble);
  EXPECT_EQ(checked_add(torch::ones({4, 1}), torch::ones({3})).sizes(),
            (std::vector<std::int64_t>{4, 3}));
  const auto x = torch::ones({2}, torch::requires_grad());
  EXPECT_TRUE(checked_add(x, x).requires_grad());
  EXPECT_TRUE(both_namespaces::sum(i, i).equal(torch::full({2}, 2, torch::kInt32)));
}

TEST(CheckedAdd, TakesACpuNumberOnEveryDevice) {
  const auto number = torch::tensor(2.f);
  for (const auto device : all_devices()) {
    const auto x = torch::ones({2, 3}, device);
    EXPECT_EQ(checked_add(x, number).device(), x.device());
    EXPECT_EQ(checked_add(number, x).device(), x.device());
  }
}

TEST(CheckedAdd, NamesOperationOperandsShapesDevicesAndTheFix) {
  USE_GPU_TEST_NEEDS(1);
  const auto x = torch::ones({2, 3}, gpu());
  const auto y = torch::ones({3}, num_gpus() > 1 ? gpu(1) : cpu());
  const auto text = error_of<DeviceMismatch>([&] { (void)checked_add(x, y); });
  EXPECT_EQ(text, "checked_add: x is float32[2, 3] on " + x.device().str() +
                      ", y is float32[3] on " + y.device().str() +
                      ". Both must be on one device; move one, for example with "
                      "use_gpu::to_device(y, x.device()).");
}

TEST(CheckedAdd, RefusesANumberOfAnotherGpu) {
  USE_GPU_TEST_NEEDS(2);
  error_of<DeviceMismatch>(
      [] { (void)checked_add(torch::ones({2}, gpu(0)), torch::tensor(2.f, gpu(1))); });
  error_of<DeviceMismatch>([] { (void)checked_add(torch::ones({2}), torch::tensor(2.f, gpu(1))); });
}

TEST(CheckedAdd, RefusesUndefinedTensors) {
  const at::Tensor undefined;
  const auto x = torch::ones({2});
  EXPECT_TRUE(
      has(error_of<ArgumentError>([&] { (void)checked_add(undefined, x); }), "x is an undefined"));
  EXPECT_TRUE(
      has(error_of<ArgumentError>([&] { (void)checked_add(x, undefined); }), "y is an undefined"));
}

TEST(CheckSameDevice, AcceptsAnythingOnOneDevice) {
  check_same_device("nothing", {});
  const auto x = torch::ones({2}, try_gpu());
  check_same_device("attention", {{"query", x}, {"scale", torch::tensor(1.f)}, {"key", x}});
}

TEST(CheckSameDevice, NamesTheFirstTwoThatDisagree) {
  USE_GPU_TEST_NEEDS(1);
  const auto x = torch::ones({2}, gpu());
  const auto host = torch::ones({2});
  const auto text = error_of<DeviceMismatch>([&] {
    check_same_device("attention",
                      {{"scale", torch::tensor(1.f)}, {"query", x}, {"key", x}, {"mask", host}});
  });
  EXPECT_TRUE(has(text, "attention: query is float32[2] on " + x.device().str() +
                            ", mask is float32[2] on cpu"));
  EXPECT_TRUE(has(text, "use_gpu::to_device(mask, query.device())"));
}

TEST(CheckSameDevice, KeepsTheFixInSightWhateverTheNamesAndShapes) {
  USE_GPU_TEST_NEEDS(1);
  const std::vector<std::int64_t> shape(60, 1);
  const std::string name(1000, 'n');
  const auto text = error_of<DeviceMismatch>([&] {
    check_same_device(
        name,
        {{name, torch::ones(shape, torch::kComplexDouble)},
         {name, torch::ones(shape, torch::TensorOptions(gpu()).dtype(torch::kComplexDouble))}});
  });
  EXPECT_TRUE(has(text, " on cpu"));
  EXPECT_TRUE(has(text, " on " + gpu().str()));
  EXPECT_TRUE(has(text, "use_gpu::to_device("));
  EXPECT_TRUE(has(text, ".device())"));
}

TEST(CheckSameDevice, NamesAnUndefinedOperand) {
  EXPECT_TRUE(has(error_of<ArgumentError>([] {
                    check_same_device("attention", {{"query", {}}});
                  }),
                  "attention: query is an undefined tensor"));
}

TEST(Describe, GivesDtypeShapeAndDevice) {
  EXPECT_EQ(describe(torch::ones({2, 3})), "float32[2, 3] on cpu");
  EXPECT_EQ(describe(torch::ones({0, 3}, torch::kInt64)), "int64[0, 3] on cpu");
  EXPECT_EQ(describe(torch::tensor(true)), "bool[] on cpu");
  EXPECT_EQ(describe(torch::ones({1}, torch::kBFloat16)), "bfloat16[1] on cpu");
  EXPECT_EQ(describe(torch::ones({1}, torch::kComplexFloat)), "complex64[1] on cpu");
  EXPECT_EQ(describe(torch::eye(3).to_sparse()), "float32[3, 3] Sparse on cpu");
  EXPECT_EQ(describe(torch::ones({2}, torch::kMeta)), "float32[2] on meta");
  EXPECT_EQ(describe({}), "undefined tensor");
  EXPECT_EQ(describe(torch::_nested_tensor_from_tensor_list({torch::ones({2}), torch::ones({3})})),
            "float32[nested] on cpu");
  for (int i = 0; i < num_gpus(); ++i) {
    EXPECT_EQ(describe(torch::ones({2, 3}, gpu(i))), "float32[2, 3] on " + gpu(i).str());
  }
}

TEST(Show, PrintsTheValuesThenWhereTheyLive) {
  for (const auto device : all_devices()) {
    EXPECT_EQ(printed(show(torch::ones({2, 3}, device))),
              " 1  1  1\n 1  1  1\nfloat32[2, 3] on " + c10::Device(device).str());
  }
}

TEST(Show, PrintsTensorsOfEveryKind) {
  for (const auto& x : tensors_of_all_kinds()) {
    const auto text = printed(show(to_device(x, try_gpu())));
    EXPECT_TRUE(has(text, describe(to_device(x, try_gpu()))));
    EXPECT_FALSE(has(text, "CPU")) << text;
  }
  EXPECT_TRUE(has(printed(show(torch::eye(2).to_sparse())), "float32[2, 2] Sparse on cpu"));
  EXPECT_TRUE(has(printed(show(torch::ones({2}, torch::kMeta))), "float32[2] on meta"));
  EXPECT_EQ(printed(show({})), "undefined tensor");
}

TEST(Show, PrintsNanAndInfinity) {
  const auto text = printed(show(torch::tensor(
      {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})));
  EXPECT_TRUE(has(text, "nan"));
  EXPECT_TRUE(has(text, "inf"));
}

TEST(Show, LeavesTheStreamsFormatAlone) {
  std::ostringstream text;
  text << show(torch::rand({2})) << ' ' << 1.23456789;
  EXPECT_TRUE(has(text.str(), " 1.23457"));
}

TEST(TensorVerbs, WorkInInferenceModeAndWithoutGradients) {
  const c10::InferenceMode inference;
  const auto x = torch::ones({2, 3});
  const auto y = to_device(x, try_gpu());
  EXPECT_TRUE(
      to_device(checked_add(y, copy_to(y, try_gpu())), cpu()).equal(torch::full({2, 3}, 2.f)));
  EXPECT_EQ(both_namespaces::moved(x).device(), y.device());
}

}  // namespace
}  // namespace use_gpu
