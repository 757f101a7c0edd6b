// SPDX-License-Identifier: MIT
#include <use_gpu/prefetch.hpp>

#include <ATen/DeviceAccelerator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/data.h>
#include <torch/types.h>
#include <use_gpu/device.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/memory.hpp>
#include <use_gpu/transfers.hpp>

#include <random>

#include "simulated_runtime.hpp"
#include "support.hpp"

namespace use_gpu {
namespace {

using test::error_of;
using Batch = std::vector<at::Tensor>;

// Batches of one tensor, filled with their number.
std::vector<Batch> numbered(int count) {
  std::vector<Batch> all;
  for (int i = 0; i < count; ++i) all.push_back({torch::full({1000}, i)});
  return all;
}

std::vector<c10::Device> some_devices() {
  std::vector<c10::Device> devices{cpu()};
  for (int i = 0; i < std::min(num_gpus(), 2); ++i) devices.push_back(gpu(i));
  return devices;
}

// The first value of each batch.
template <class Loader>
std::vector<std::int64_t> first_values(Loader& loader, c10::Device device, int depth) {
  std::vector<at::Tensor> sums;  // computed with the batch and read later
  for (auto& batch : prefetch(loader, device, depth)) {
    EXPECT_TRUE(same_device(batch.at(0).device(), device));
    sums.push_back(batch.at(0)[0] + 0);
  }
  std::vector<std::int64_t> values;
  for (const auto& x : sums) values.push_back(x.item<std::int64_t>());
  return values;
}

std::vector<std::int64_t> up_to(int count) {
  std::vector<std::int64_t> all;
  for (int i = 0; i < count; ++i) all.push_back(i);
  return all;
}

TEST(Prefetch, GivesTheBatchesInOrder) {
  for (const auto device : some_devices()) {
    for (const int depth : {1, 2, 8, 100}) {
      for (const int count : {0, 1, 2, 20}) {
        auto batches = numbered(count);
        EXPECT_EQ(first_values(batches, device, depth), up_to(count));
        const auto& unchangeable = batches;
        EXPECT_EQ(first_values(unchangeable, device, depth), up_to(count));
      }
    }
  }
}

using Random =
    std::map<std::string, std::tuple<std::vector<at::Tensor>, std::optional<at::Tensor>, int>>;

Random random_batch(std::mt19937& random) {
  const auto number = [&](unsigned below) { return static_cast<std::int64_t>(random() % below); };
  const auto tensor = [&] {
    auto x = torch::randint(1000, {number(5), number(300)});
    return number(2) == 0 ? x.to(torch::kFloat) : number(2) == 0 ? x.t() : x;
  };
  Random batch;
  for (auto i = number(4); i > 0; --i) {
    auto& [list, maybe, label] = batch[std::to_string(i)];
    for (auto j = number(3); j > 0; --j) list.push_back(tensor());
    if (number(2) == 0) maybe = list.empty() ? tensor() : list.front();
    label = static_cast<int>(number(10));
  }
  return batch;
}

TEST(Prefetch, GivesEveryShapeWithItsValues) {
  std::mt19937 random(11);
  torch::manual_seed(11);
  for (const auto device : some_devices()) {
    for (int depth = 1; depth <= 8; ++depth) {
      std::vector<Random> batches;
      for (int i = 0; i < 1250; ++i) batches.push_back(random_batch(random));
      auto expected = batches.begin();
      // Kept beyond its turn, while its memory could be given to later ones.
      std::deque<std::pair<Random, const Random*>> kept;
      const auto check_oldest = [&] {
        const auto& [found, right] = kept.front();
        ASSERT_EQ(found.size(), right->size());
        for (const auto& [name, value] : *right) {
          const auto& [list, maybe, label] = found.at(name);
          const auto& [right_list, right_maybe, right_label] = value;
          ASSERT_EQ(label, right_label);
          ASSERT_EQ(list.size(), right_list.size());
          for (std::size_t i = 0; i < list.size(); ++i)
            ASSERT_TRUE(list[i].cpu().equal(right_list[i]));
          ASSERT_EQ(maybe.has_value(), right_maybe.has_value());
          if (maybe && !list.empty()) {
            ASSERT_TRUE(maybe->is_same(list.front()));
          }
        }
        kept.pop_front();
      };
      for (auto& batch : prefetch(batches, device, depth)) {
        kept.emplace_back(batch, &*expected++);
        if (kept.size() > 3) check_oldest();
        if (HasFatalFailure()) return;
      }
      EXPECT_EQ(expected, batches.end());
      while (!kept.empty() && !HasFatalFailure()) check_oldest();
    }
  }
}

TEST(Prefetch, TakesLibTorchsDataLoaders) {
  struct Numbers : torch::data::Dataset<Numbers> {
    torch::data::Example<> get(std::size_t index) override {
      return {torch::full({3}, static_cast<double>(index)),
              torch::tensor(static_cast<double>(index))};
    }
    [[nodiscard]] std::optional<std::size_t> size() const override { return 10; }
  };
  for (const std::size_t workers : {0U, 2U}) {
    auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
        Numbers().map(torch::data::transforms::Stack<>()),
        torch::data::DataLoaderOptions().batch_size(4).workers(workers));
    for (int epoch = 0; epoch < 2; ++epoch) {
      double sum = 0;
      std::vector<std::int64_t> sizes;
      for (auto& batch : prefetch(*loader, try_gpu())) {
        EXPECT_TRUE(same_device(batch.data.device(), try_gpu()));
        sizes.push_back(batch.target.size(0));
        sum += batch.data.sum().item<double>() + batch.target.sum().item<double>();
      }
      EXPECT_EQ(sizes, (std::vector<std::int64_t>{4, 4, 2}));
      EXPECT_EQ(sum, 4 * 45);
    }
  }
}

TEST(Prefetch, SendsTheNextBatchBeforeThisOneIsUsedAndWaitsForNothing) {
  USE_GPU_TEST_NEEDS(1);
  if (!test::simulated()) GTEST_SKIP() << "needs simulated GPUs, which count";
  const auto sent = [] { return test::runtime_count("host to device pinned copies"); };
  const auto waits = [] {
    return test::runtime_count("device synchronizations") +
           test::runtime_count("stream synchronizations") +
           test::runtime_count("event synchronizations");
  };
  auto batches = numbered(20);
  const auto before = sent();
  const auto waits_before = waits();
  const auto pageable = test::runtime_count("host to device copies") - before;
  int i = 0;
  const auto weight = torch::ones({1000}, gpu());
  for (auto& batch : prefetch(batches, gpu(), 3)) {
    EXPECT_EQ(sent() - before, std::min(i + 4, 20)) << i;
    static_cast<void>(batch.at(0) * weight);
    ++i;
  }
  EXPECT_EQ(waits(), waits_before);
  EXPECT_EQ(test::runtime_count("host to device copies") - sent(), pageable);
}

TEST(Prefetch, IsSeenInTheRuntimesTrace) {
  USE_GPU_TEST_NEEDS(1);
  if (!test::simulated()) GTEST_SKIP() << "needs simulated GPUs, which write a trace";
  auto batches = numbered(4);
  const auto weight = torch::ones({1000}, gpu());
  const test::RuntimeTrace trace;
  for (auto& batch : prefetch(batches, gpu(), 1)) static_cast<void>(batch.at(0) * weight);
  // Copies, in a stream of their own, and the products, of which each waits for its batch only.
  std::string order, copying, computing;
  for (const std::string& line : trace.lines()) {
    EXPECT_FALSE(line.starts_with("host")) << line;
    const std::string stream = line.substr(0, line.find("  "));
    if (line.find("copy host to device, pinned, 8000 bytes") != line.npos) {
      order += 'c';
      copying = stream;
    } else if (line.find("aten::mul") != line.npos) {
      order += 'm';
      computing = stream;
    } else if (line.find("waits for an event of " + copying) != line.npos) {
      order += 'w';
    }
  }
  EXPECT_EQ(order, "ccwmcwmcwmwm");
  EXPECT_NE(copying, computing);
}

TEST(Prefetch, IsExplicitAndCounted) {
  USE_GPU_TEST_NEEDS(1);
  auto batches = numbered(5);
  const TransferGuard guard;
  const TransferLedger ledger;
  for (auto& batch : prefetch(batches, gpu())) static_cast<void>(batch);
  EXPECT_EQ(ledger.count(TransferDirection::host_to_device).copies, 5);
  EXPECT_EQ(ledger.count(TransferDirection::host_to_device).bytes, 5U * 8000);
}

// A loader that fills one tensor again and again.
struct Refilled {
  struct Iterator {
    Refilled* loader;
    int number;
    Batch operator*() const { return {loader->x, loader->x.slice(0, 10, 20)}; }
    Iterator& operator++() {
      loader->x.fill_(++number);
      return *this;
    }
    bool operator==(const Iterator& other) const { return number == other.number; }
  };
  Iterator begin() {
    x.zero_();
    return {this, 0};
  }
  Iterator end() { return {this, 8}; }
  at::Tensor x;
};

TEST(Prefetch, GivesEachBatchTheValuesThatTheLoaderGaveItAndWaitsForNothing) {
  for (const auto device : some_devices()) {
    std::vector<at::Tensor> kinds{torch::empty({1000}), torch::empty({1000}, device),
                                  torch::empty({1000}, try_all_gpus().back())};
    if (num_gpus() > 0) {
      kinds.push_back(torch::empty({1000}).pin_memory());
      // Memory that is somebody else's altogether.
      kinds.push_back(torch::from_blob(kinds.back().data_ptr(), {1000}));
    }
    for (auto& x : kinds) {
      for (const int depth : {1, 2, 100}) {
        Refilled loader{x};
        EXPECT_EQ(first_values(loader, device, depth), up_to(8))
            << describe(x) << " to " << device << ", " << depth << " ahead";
      }
    }
  }
}

TEST(Prefetch, CopiesWhatIsOnTheDeviceOnceAndWaitsForNothing) {
  if (!test::simulated()) GTEST_SKIP() << "needs simulated GPUs, which count";
  const auto waits = [] {
    return test::runtime_count("device synchronizations") +
           test::runtime_count("stream synchronizations") +
           test::runtime_count("event synchronizations");
  };
  const auto copies = [] { return test::runtime_count("within a device copies"); };
  std::vector<Batch> batches(20, {torch::ones({1000}, gpu()), torch::ones({10}).pin_memory()});
  const auto copies_before = copies(), waits_before = waits();
  for (auto& batch : prefetch(batches, gpu())) static_cast<void>(batch[0] + 1);
  EXPECT_EQ(copies() - copies_before, 20);
  EXPECT_EQ(waits(), waits_before);
}

TEST(Prefetch, LetsGoOfABatchThatCannotBeSent) {
  for (const auto device : some_devices()) {
    if (device.is_cpu()) continue;
    std::vector<Batch> batches{{torch::ones({1000}), torch::ones({2}, torch::kMeta)}};
    const auto before = memory_report(device).allocated_bytes;
    auto range = prefetch(batches, device);
    EXPECT_THROW(static_cast<void>(range.begin()), c10::NotImplementedError);
    EXPECT_EQ(memory_report(device).allocated_bytes, before);
  }
}

TEST(Prefetch, LeavesAloneWhatIsOnTheCpu) {
  for (const auto device : some_devices()) {
    std::vector<Batch> batches{{torch::ones({2}, device), torch::ones({2}), at::Tensor()}};
    for (auto& batch : prefetch(batches, device)) {
      EXPECT_EQ(batch[0].is_same(batches[0][0]), device.is_cpu());
      EXPECT_TRUE(batch[0].equal(batches[0][0]));
      EXPECT_TRUE(same_device(batch[1].device(), device));
      EXPECT_FALSE(batch[2].defined());
    }
  }
}

TEST(Prefetch, TakesPinnedSparseAndOtherDevicesTensors) {
  USE_GPU_TEST_NEEDS(2);
  std::vector<Batch> batches{
      {torch::ones({2}).pin_memory(), torch::eye(3).to_sparse(), torch::ones({2}, gpu(1)) + 1}};
  for (auto& batch : prefetch(batches, gpu(0))) {
    EXPECT_EQ(batch[0].sum().item<float>(), 2);
    EXPECT_EQ(batch[1].to_dense().sum().item<float>(), 3);
    EXPECT_EQ(batch[2].sum().item<float>(), 4);
    for (const auto& x : batch) EXPECT_EQ(x.device(), gpu(0));
  }
}

TEST(Prefetch, TakesWhatToDeviceTakes) {
  const auto ones = torch::ones({4, 6});
  const std::map<std::string, at::Tensor> kinds{
      {"expanded", torch::arange(6).expand({4, 6})},
      {"a number expanded", torch::ones({}).expand({4, 6})},
      {"overlapping", torch::arange(10).as_strided({4, 4}, {1, 1})},
      {"with gaps", torch::arange(48).view({8, 6}).slice(0, 0, 8, 2)},
      {"transposed", torch::arange(24).view({4, 6}).t()},
      {"empty", torch::ones({0, 3})},
      {"conjugated", torch::rand(3, torch::kComplexFloat).conj()},
      {"negated", torch::imag(torch::rand(3, torch::kComplexFloat).conj())},
      {"sparse", ones.to_sparse()},
      {"csr", ones.to_sparse_csr()},
      {"quantized", at::quantize_per_tensor(ones, 0.1, 1, torch::kQInt8)},
      {"quantized by channel",
       at::quantize_per_channel(ones, torch::ones({4}), torch::zeros({4}), 0, torch::kQInt8)},
      {"nested", at::_nested_tensor_from_tensor_list({ones, torch::ones({2, 6})})},
      {"packed", torch::zeros({4}, torch::kByte).view(torch::kFloat4_e2m1fn_x2)},
      {"trained", torch::ones({1, 3}).requires_grad_().expand({4, 3})},
      {"meta", torch::ones({3}, torch::kMeta)}};
  const auto bytes_of = [](const at::Tensor& x) {
    auto values = x.detach().cpu();
    if (values.is_nested()) values = at::cat({values.unbind()[0], values.unbind()[1]});
    if (values.layout() != torch::kStrided) values = values.to_dense();
    if (values.is_quantized()) values = values.int_repr();
    return values.contiguous().resolve_conj().resolve_neg().view(torch::kByte);
  };
  for (const auto device : some_devices()) {
    for (const auto& [name, x] : kinds) {
      std::vector<Batch> batches(3, {x});
      const auto run = [&] {
        for (auto& batch : prefetch(batches, device)) {
          const auto expected = to_device(x, device);
          const auto& found = batch[0];
          EXPECT_EQ(describe(found), describe(expected)) << name;
          EXPECT_EQ(found.requires_grad(), expected.requires_grad()) << name;
          EXPECT_TRUE(bytes_of(found).equal(bytes_of(expected))) << name;
        }
      };
      if (x.is_meta()) {
        EXPECT_THROW(run(), c10::NotImplementedError) << name;
      } else {
        EXPECT_NO_THROW(run()) << name;
      }
    }
  }
}

TEST(Prefetch, WorksInTheStreamThatIsCurrent) {
  USE_GPU_TEST_NEEDS(1);
  auto batches = numbered(20);
  const c10::impl::VirtualGuardImpl guard(gpu().type());
  const c10::Stream own = guard.getStreamFromGlobalPool(gpu());
  const c10::Stream before = guard.exchangeStream(own);
  EXPECT_EQ(first_values(batches, gpu(), 2), up_to(20));
  EXPECT_EQ(guard.exchangeStream(before), own);
}

// A range whose third batch cannot be loaded.
struct Broken {
  struct Iterator {
    int number;
    Batch operator*() const { return {torch::full({2}, number)}; }
    Iterator& operator++() {
      if (++number == 2) throw std::runtime_error("the third is broken");
      return *this;
    }
    bool operator==(const Iterator&) const = default;
  };
  [[nodiscard]] Iterator begin() const { return {0}; }
  [[nodiscard]] Iterator end() const { return {5}; }
};

TEST(Prefetch, PassesAnErrorWhereItsBatchWouldBe) {
  for (const auto device : some_devices()) {
    for (const int depth : {1, 2, 7}) {
      Broken loader;
      int arrived = 0;
      const auto loop = [&] {
        for (auto& batch : prefetch(loader, device, depth)) {
          EXPECT_EQ(batch[0].sum().item<std::int64_t>(), 2 * arrived);
          ++arrived;
        }
      };
      EXPECT_THROW(loop(), std::runtime_error);
      EXPECT_EQ(arrived, 2);
    }
  }
}

TEST(Prefetch, MayBeLeftEarlyAndLeaksNothing) {
  for (const auto device : some_devices()) {
    const auto before = memory_report(device).allocated_bytes;
    auto batches = numbered(20);
    for (int round = 0; round < 3; ++round) {
      int i = 0;
      for (auto& batch : prefetch(batches, device, 4)) {
        EXPECT_EQ(batch[0][0].item<std::int64_t>(), i);
        if (++i == 5) break;
      }
    }
    EXPECT_EQ(memory_report(device).allocated_bytes, before);
  }
}

TEST(Prefetch, RunsTwiceAtOnce) {
  for (const auto device : some_devices()) {
    auto one = numbered(10), two = numbered(10);
    auto range = prefetch(two, device);
    auto other = range.begin();
    std::int64_t i = 0;
    for (auto& batch : prefetch(one, device, 3)) {
      EXPECT_EQ((batch[0] + (*other)[0]).sum().item<std::int64_t>(), 2000 * i++);
      ++other;
    }
    EXPECT_TRUE(other == range.end());
  }
}

TEST(Prefetch, RefusesADepthBelowOneAndAnAbsentDevice) {
  auto batches = numbered(1);
  EXPECT_TRUE(
      test::has(error_of<ArgumentError>([&] { (void)prefetch(batches, cpu(), 0); }), "depth is 0"));
  error_of<ArgumentError>([&] { (void)prefetch(batches, try_gpu(), -1); });
  error_of<DeviceError>([&] { (void)prefetch(batches, test::absent_gpu()); });
}

}  // namespace
}  // namespace use_gpu
