// SPDX-License-Identifier: MIT
//
// LibTorch's own users of NCCL in C++: with a GPU for each thread, for each process (started by
// torchrun), and with all of them in one thread.
#include <gtest/gtest.h>
#include <torch/csrc/cuda/nccl.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/parallel/data_parallel.h>
#include <torch/types.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

at::Device gpu(std::size_t index) { return {at::kCUDA, static_cast<c10::DeviceIndex>(index)}; }

// What a rank of so many does with the others.
void use_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
  const auto device = gpu(static_cast<std::size_t>(rank));
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = std::chrono::seconds(60);
  const auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
  std::vector<at::Tensor> x{torch::full({1000}, rank + 1, device)};
  group->allreduce(x)->wait();
  EXPECT_TRUE(x[0].eq(size * (size + 1) / 2).all().item<bool>()) << x[0];

  std::vector<at::Tensor> from_last{torch::full({3}, rank, device)};
  group->broadcast(from_last, {.rootRank = size - 1})->wait();
  EXPECT_TRUE(from_last[0].eq(size - 1).all().item<bool>()) << from_last[0];

  std::vector<at::Tensor> own{torch::full({2}, rank, device)};
  std::vector<std::vector<at::Tensor>> all(1);
  for (int other = 0; other < size; ++other) all[0].push_back(torch::empty_like(own[0]));
  group->allgather(all, own)->wait();
  EXPECT_TRUE(torch::cat(all[0]).cpu().equal(torch::arange(size).repeat_interleave(2))) << all[0];

  std::vector<at::Tensor> sent{torch::full({4}, rank, device)},
      received{torch::empty_like(sent[0])};
  group->startCoalescing();
  group->send(sent, (rank + 1) % size, 0);
  group->recv(received, (rank + size - 1) % size, 0);
  group->endCoalescing()->wait();
  EXPECT_TRUE(received[0].eq((rank + size - 1) % size).all().item<bool>()) << received[0];
  group->shutdown();
}

TEST(Threads, HaveAProcessGroupWithAGpuEach) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&store, rank] { EXPECT_NO_THROW(use_group(store, rank, 2)); });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Processes, HaveAProcessGroupWithAGpuEach) {
  const auto number = [](const char* variable) {
    const char* const value = std::getenv(variable);
    return value ? std::atoi(value) : 0;
  };
  if (number("WORLD_SIZE") == 0) GTEST_SKIP() << "needs torchrun";
  c10d::TCPStoreOptions options;  // torchrun serves it
  options.port = static_cast<std::uint16_t>(number("MASTER_PORT"));
  const auto store = c10::make_intrusive<c10d::TCPStore>(std::getenv("MASTER_ADDR"), options);
  use_group(c10::make_intrusive<c10d::PrefixStore>("test", store), number("RANK"),
            number("WORLD_SIZE"));
}

// A tensor for each GPU: i + 1 of the values on GPU i.
std::vector<at::Tensor> one_each(std::size_t gpus, std::int64_t values) {
  std::vector<at::Tensor> tensors;
  for (std::size_t i = 0; i < gpus; ++i)
    tensors.push_back(torch::full({values}, static_cast<double>(i + 1), gpu(i)));
  return tensors;
}

TEST(OneThread, ReducesAndGathersOnFourGpus) {
  auto x = one_each(4, 8);
  torch::cuda::nccl::all_reduce(x, x);
  for (const auto& sum : x) EXPECT_TRUE(sum.eq(10).all().item<bool>()) << sum;

  auto last = one_each(4, 8);
  torch::cuda::nccl::reduce(last, /*root=*/3);
  EXPECT_TRUE(last[3].eq(10).all().item<bool>()) << last[3];

  const auto of_first = one_each(4, 8);
  torch::cuda::nccl::broadcast(of_first);
  for (const auto& copy : of_first) EXPECT_TRUE(copy.eq(1).all().item<bool>()) << copy;

  auto parts = one_each(4, 2);
  torch::cuda::nccl::reduce_scatter(one_each(4, 8), parts);
  for (const auto& part : parts) EXPECT_TRUE(part.eq(10).all().item<bool>()) << part;

  auto everything = one_each(4, 8);
  torch::cuda::nccl::all_gather(one_each(4, 2), everything);
  const auto expected = torch::arange(1, 5).repeat_interleave(2);
  for (const auto& all : everything) EXPECT_TRUE(all.cpu().equal(expected.to(at::kFloat))) << all;
}

TEST(OneThread, TrainsAReplicaOnEachGpu) {
  torch::manual_seed(0);
  torch::nn::Sequential reference(torch::nn::Linear(6, 8), torch::nn::Tanh(),
                                  torch::nn::Linear(8, 2));
  const auto x = torch::randn({10, 6});
  reference->forward(x).square().sum().backward();

  auto net = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(reference->clone(gpu(0)));
  net->zero_grad();
  const auto y = torch::nn::parallel::data_parallel(torch::nn::Sequential(net), x.to(gpu(0)));
  EXPECT_EQ(y.device(), gpu(0));
  EXPECT_TRUE(y.cpu().allclose(reference->forward(x), 1e-5, 1e-6));
  y.square().sum().backward();
  for (const auto& p : reference->named_parameters()) {
    const auto& ours = net->named_parameters()[p.key()].grad();
    EXPECT_TRUE(ours.cpu().allclose(p.value().grad(), 1e-5, 1e-5)) << p.key();
  }
}

}  // namespace
