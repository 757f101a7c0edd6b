// SPDX-License-Identifier: MIT
//
// What the functions of the room core transfer, as a ledger counts it.
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/types.h>
#include <use_gpu/batch.hpp>
#include <use_gpu/default_device.hpp>
#include <use_gpu/log.hpp>
#include <use_gpu/parallel.hpp>
#include <use_gpu/tensor.hpp>
#include <use_gpu/transfers.hpp>

#include <atomic>

#include "core/copies/bulk_copy.hpp"
#include "simulated_runtime.hpp"
#include "support.hpp"

namespace use_gpu {
namespace {

using detail::bulk_copy;
using test::error_of;
using Tensors = std::vector<at::Tensor>;

at::Tensor number(float value) { return torch::full({2}, value); }

TEST(Batch, IsNotCopiedWhereItIsThere) {
  const std::vector<at::Tensor> batch{number(1).to(try_gpu()), at::Tensor()};
  const TransferGuard guard;
  const auto moved = to_device(batch, try_gpu());
  EXPECT_TRUE(moved[0].is_same(batch[0]));
  EXPECT_FALSE(moved[1].defined());
}

TEST(Batch, IsMovedExplicitlyAndOnce) {
  USE_GPU_TEST_NEEDS(1);
  const auto x = number(1);
  const TransferGuard guard;
  const TransferLedger ledger;
  static_cast<void>(to_device(std::vector{x, x, number(2)}, gpu()));
  EXPECT_EQ(ledger.count(TransferDirection::host_to_device).copies, 2);
}

TEST(SplitBatch, CopiesEachRowOnceOrNotAtAll) {
  const auto x = number(1);
  EXPECT_TRUE(split_batch(x, {cpu(), cpu()})[1].is_alias_of(x));
  USE_GPU_TEST_NEEDS(1);
  const TransferGuard guard;
  const TransferLedger ledger;
  static_cast<void>(split_batch(std::vector{x, x}, {gpu(), cpu()}));
  EXPECT_EQ(ledger.count(TransferDirection::host_to_device).bytes, 4);
}

TEST(BulkCopy, SendsALargeTensorAlone) {
  USE_GPU_TEST_NEEDS(1);
  const auto large = torch::arange(std::int64_t{25} << 20, torch::kInt);  // 100 MB
  const auto on_gpu = torch::empty_like(large, large.options().device(gpu()));
  const TransferLedger ledger;
  bulk_copy({large}, {on_gpu});
  EXPECT_EQ(ledger.count(TransferDirection::host_to_device).copies, 1);
  const auto back = torch::empty_like(large);
  bulk_copy({on_gpu}, {back});
  EXPECT_EQ(ledger.count(TransferDirection::device_to_host).copies, 1);
  EXPECT_TRUE(back.equal(large));
}

TEST(BulkCopy, SendsPinnedMemoryFromWhereItIs) {
  USE_GPU_TEST_NEEDS(1);
  if (!test::simulated() || test::is_dry_run()) GTEST_SKIP() << "needs simulated GPUs";
  const auto pinned = torch::rand({25, 1 << 20}).pin_memory();
  const auto target = torch::empty_like(pinned, pinned.options().device(gpu()));
  const auto allocations = test::runtime_count("pinned allocations");
  const TransferLedger ledger;
  bulk_copy({pinned}, {target});
  EXPECT_EQ(ledger.count(TransferDirection::host_to_device).copies, 1);
  EXPECT_EQ(test::runtime_count("pinned allocations"), allocations);
  EXPECT_TRUE(target.cpu().equal(pinned));
}

TEST(BulkCopy, PutsSmallTensorsOfEveryDtypeIntoOneTransfer) {
  USE_GPU_TEST_NEEDS(2);
  Tensors values;
  Tensors targets;
  const auto add = [&](const at::Tensor& value, const at::Tensor& target) {
    values.push_back(value);
    targets.push_back(target);
  };
  for (int i = 0; i < 100; ++i)
    add(torch::full({i, 2}, i),
        torch::zeros({2, i}, torch::TensorOptions(gpu(i % 2)).dtype(torch::kLong)).t());
  add(torch::full({3}, 7.F, gpu(1)), torch::zeros({3}, gpu(1)));
  add(torch::full({3}, 8.F), torch::zeros({3}, gpu(1)));
  add(torch::full({3}, 9.F), torch::zeros({3}));
  {
    const TransferLedger ledger;
    bulk_copy(values, targets);
    EXPECT_EQ(ledger.count(TransferDirection::host_to_device).copies, 2);
    EXPECT_EQ(ledger.count(TransferDirection::device_to_device).copies, 0);
  }
  {
    const TransferLedger ledger;
    bulk_copy(targets, values);
    EXPECT_EQ(ledger.count(TransferDirection::device_to_host).copies, 2);
  }
  for (std::size_t i = 0; i < targets.size(); ++i)
    EXPECT_TRUE(targets[i].to(cpu()).equal(values[i].to(cpu()))) << i;
}

TEST(DefaultDeviceGuard, MakesANetworkOnTheGpuWithoutATransferAndWithTheSeedsValues) {
  const auto make = [] {
    torch::manual_seed(0);
    return torch::nn::Sequential(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4),
                                 torch::nn::Conv2d(1, 2, 3));
  };
  auto expected = make();
  for (const auto device : try_all_gpus()) {
    const DefaultDeviceGuard scope(device);
    const TransferGuard guard;
    TransferLedger ledger;
    auto net = make();
    EXPECT_TRUE(ledger.empty());
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
      const auto parameter = net->parameters()[i];
      EXPECT_TRUE(same_device(parameter.device(), device));
      EXPECT_TRUE(parameter.requires_grad());
      if (!device.is_cuda()) {  // CUDA draws its random numbers otherwise
        EXPECT_TRUE(to_device(parameter, cpu()).equal(expected->parameters()[i]));
      }
    }
    for (const auto& buffer : net->buffers()) {
      EXPECT_TRUE(same_device(buffer.device(), device));
    }
  }
}

TEST(DefaultDeviceGuard, TrainsWhatItMade) {
  const DefaultDeviceGuard scope(try_gpu());
  torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4),
                            torch::nn::Dropout());
  torch::optim::Adam optimizer(net->parameters());
  const TransferGuard guard({OnTransfer::forbid, OnTransfer::allow, OnTransfer::forbid});
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    net->forward(torch::rand({5, 3})).sum().backward();
    optimizer.step();
  }
  EXPECT_TRUE(same_device(net->parameters()[0].device(), try_gpu()));
}

TEST(ParallelOn, TakesOverGuardsAndLedgers) {
  USE_GPU_TEST_NEEDS(1);
  std::vector<c10::Device> devices;
  for (int i = 0; i < 8; ++i) devices.push_back(gpu(i % num_gpus()));
  const TransferLedger ledger;
  parallel_on(devices, [](c10::Device device, int) {
    for (int i = 0; i < 100; ++i) (void)torch::ones({2}).to(device);
  });
  EXPECT_EQ(ledger.count(TransferDirection::host_to_device).copies, 800);
  EXPECT_EQ(ledger.count(TransferDirection::host_to_device).bytes, 6400);
  {
    const TransferGuard guard;
    std::atomic<int> refused = 0;
    parallel_on(devices, [&](c10::Device device, int) {
      try {
        (void)torch::ones({2}).to(device);
      } catch (const TransferForbidden&) {
        ++refused;
      }
      const AllowTransfers certain;
      (void)torch::ones({2}).to(device);
    });
    EXPECT_EQ(refused, 8);
    set_log_level(LogLevel::off);
    error_of<TransferForbidden>([&] {
      parallel_on(devices, [](c10::Device device, int) { (void)torch::ones({2}).to(device); });
    });
    set_log_level(LogLevel::warning);
  }
  EXPECT_EQ(ledger.count(TransferDirection::host_to_device).copies, 808);
}

}  // namespace
}  // namespace use_gpu
