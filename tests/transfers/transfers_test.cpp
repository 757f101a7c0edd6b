// SPDX-License-Identifier: MIT
#include <use_gpu/transfers.hpp>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <use_gpu/default_device.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/log.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/tensor.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <sstream>
#include <thread>

#include "support.hpp"

namespace use_gpu {
namespace {

using test::error_of;
using test::has;
using test::printed;
using torch::Tensor;

constexpr TransferPolicy k_allow_all{OnTransfer::allow, OnTransfer::allow, OnTransfer::allow};
constexpr TransferPolicy k_log_all{OnTransfer::log, OnTransfer::log, OnTransfer::log};

// What a ledger counted, to compare and to read.
struct Counts {
  TransferCount to_device = {}, to_host = {}, between = {};
  std::int64_t item_reads = 0;
};

std::string text_of(const Counts& c) {
  std::ostringstream text;
  text << c.to_device.copies << '/' << c.to_device.bytes << ' ' << c.to_host.copies << '/'
       << c.to_host.bytes << ' ' << c.between.copies << '/' << c.between.bytes << ' '
       << c.item_reads;
  return text.str();
}

std::string text_of(const TransferLedger& ledger) {
  return text_of({ledger.count(TransferDirection::host_to_device),
                  ledger.count(TransferDirection::device_to_host),
                  ledger.count(TransferDirection::device_to_device), ledger.item_reads()});
}

// Tensors on the CPU and on a GPU.
struct Transfers : testing::Test {
  void SetUp() override {
    if (num_gpus() < 1) GTEST_SKIP() << "needs a GPU, found " << num_gpus();
    host = torch::ones({2, 3});
    x = torch::ones({2, 3}, gpu(0));
    y = torch::ones({2, 3}, second());
    leaf = torch::ones({2, 3}, torch::requires_grad());
    device_leaf = torch::ones({2, 3}, torch::TensorOptions(gpu(0)).requires_grad(true));
  }

  // The second GPU; the first again where there is no second, and then a copy to it is no transfer.
  static c10::Device second() { return gpu(num_gpus() > 1 ? 1 : 0); }
  static bool has_second() { return num_gpus() > 1; }
  static TransferCount between(std::int64_t copies) {
    return has_second() ? TransferCount{copies, 24 * static_cast<std::uint64_t>(copies)}
                        : TransferCount{};
  }

  Tensor host, x, y, leaf, device_leaf;
};

// Programs whose transfers were counted by hand.
TEST_F(Transfers, AreCountedExactly) {
  torch::nn::Sequential net(torch::nn::Linear(3, 4),
                            torch::nn::BatchNorm1d(4));  // 32 floats, 1 long
  const Tensor index = torch::tensor({0, 1, 1});
  const Tensor mask = x > 0;
  std::stringstream file;

  const std::vector<std::pair<Counts, std::function<void()>>> programs = {
      // {to the device, to the host, between devices, item reads}
      {{},
       [&] {
         x + x;
         x.clone();
         x.t().contiguous();
         torch::zeros({9}, second());
         host.sum().item<float>();
       }},
      {{{1, 24}}, [&] { host.to(gpu(0)); }},
      {{{1, 12}}, [&] { host.to(gpu(0), torch::kHalf); }},
      {{{}, {1, 24}}, [&] { x.cpu(); }},
      {{{}, {1, 24}}, [&] { x.t().cpu(); }},
      {{{}, {}, between(1)}, [&] { x.to(second()); }},
      {{{1, 24}}, [&] { x.copy_(host, /*non_blocking=*/true); }},
      {{{}, {1, 12}}, [&] { host[0].copy_(x[1]); }},
      {{{}, {}, between(1)}, [&] { y.copy_(x); }},
      {{{2, 48}, {1, 24}}, [&] { host.to(gpu(0)).cpu().to(second()); }},
      {{{1, 12}},
       [&] {
         torch::tensor({1.f, 2.f, 3.f}, gpu(0));
       }},
      {{{}, {}, {}, 1}, [&] { x.sum().item<float>(); }},
      {{{}, {}, {}, 1},
       [&] {
         if ((x.sum() > 0).is_nonzero()) x.add(1);
       }},
      {{{}, {}, {}, 1}, [&] { x.nonzero(); }},
      {{{}, {}, {}, 1}, [&] { x.masked_select(mask); }},
      {{{}, {}, {}, 1}, [&] { x.index({mask}); }},
      {{{1, 24}},
       [&] {
         x.index({torch::indexing::Slice(), index.remainder(3)});
       }},
      {{{}, {}, {}, 4},
       [&] {
         torch::_unique2(x);
         x.equal(x + 1);
         x.flatten().to(torch::kLong).bincount();
       }},
      {{{}, {}, {}, 2},
       [&] {
         torch::repeat_interleave(
             torch::full({3}, 2, torch::TensorOptions(gpu(0)).dtype(torch::kLong)));
       }},
      {{},
       [&] {
         torch::repeat_interleave(
             torch::full({3}, 2, torch::TensorOptions(gpu(0)).dtype(torch::kLong)), 6);
       }},
      {{{7, 136}}, [&] { net->to(gpu(0)); }},
      {{{1, 16}, {}, {}, 1},
       [&] {
         // The values are on the device: a plain number would be one more copy from the host.
         x.index_put_({torch::tensor({0, 1})}, torch::full({}, 2.F, gpu(0)));
         x.index_put_({mask}, torch::full({}, 1.F, gpu(0)));
       }},
      {{{}, {1, 24}}, [&] { torch::save(x, file); }},
      {{{}, {1, 48}}, [&] { printed(x.to(torch::kDouble)); }},
      {{{1, 24}, {1, 24}}, [&] { leaf.to(gpu(0)).sum().backward(); }},
      {{{}, {}, between(2)}, [&] { (device_leaf * 2).to(second()).sum().backward(); }},
      {{{10, 240}},
       [&] {
         for (int i = 0; i < 10; ++i) (void)to_device(host, second());
       }},
      {{{}, {}, {}, 10},
       [&] {
         for (int i = 0; i < 10; ++i) x[0][0].item<float>();
       }},
  };
  for (std::size_t i = 0; i < programs.size(); ++i) {
    const auto& [expected, program] = programs[i];
    TransferLedger ledger;
    program();
    EXPECT_EQ(text_of(ledger), text_of(expected)) << "program " << i;
    EXPECT_EQ(ledger.empty(), text_of(expected) == text_of(Counts{}));
  }
}

TEST_F(Transfers, OfAnInnerLedgerAreCountedByTheOuterOneToo) {
  TransferLedger outer;
  host.to(gpu(0));
  {
    TransferLedger inner;
    host.to(gpu(0));
    EXPECT_EQ(text_of(inner), "1/24 0/0 0/0 0");
  }
  host.to(gpu(0));
  EXPECT_EQ(text_of(outer), "3/72 0/0 0/0 0");
}

TEST_F(Transfers, AreCountedInExplicitScopesAndUnderGuards) {
  TransferLedger ledger;
  const TransferGuard guard;
  error_of<TransferForbidden>([&] { host.to(gpu(0)); });
  EXPECT_TRUE(ledger.empty()) << "a forbidden transfer did not happen";
  const AllowTransfers certain;
  host.to(gpu(0));
  EXPECT_EQ(text_of(ledger), "1/24 0/0 0/0 0");
}

TEST_F(Transfers, ArePrintedAsATable) {
  TransferLedger ledger;
  host.to(gpu(0));
  x.sum().item<float>();
  EXPECT_EQ(printed(ledger),
            "transfer          copies  bytes  item reads\n"
            "host to device         1     24           0\n"
            "device to host         0      0           1\n"
            "device to device       0      0           0\n");
}

TEST_F(Transfers, AreForbiddenWhateverAsksForThem) {
  torch::nn::Linear net(3, 4);
  std::stringstream file;
  std::vector<std::function<void()>> programs = {
      [&] { host.to(gpu(0)); },
      [&] { host.to(gpu(0), torch::kHalf); },
      [&] { leaf.to(gpu(0)); },
      [&] { x.cpu(); },
      [&] { device_leaf.cpu(); },
      [&] { host.copy_(x); },
      [&] { x.copy_(host, /*non_blocking=*/true); },
      [&] { x.t().cpu(); },
      [&] { net->to(gpu(0)); },
      [&] { printed(x); },
      [&] { x.sum().item<float>(); },
      [&] { (void)(x.sum() > 0).is_nonzero(); },
      [&] {
        torch::tensor({1.f, 2.f}, gpu(0));
      },
      [&] { torch::save(x, file); },
      [&] { x.nonzero(); },
      [&] { x.masked_select(x > 0); },
      [&] { x.index({x > 0}); },
      [&] { x.index({torch::tensor({0})}); },
      [&] { x.index_put_({torch::tensor({0})}, 1); },
      [&] { torch::_unique2(x); },
      [&] { torch::unique_dim(x, 0); },
      [&] { torch::unique_consecutive(x); },
      [&] { (void)x.equal(x + 1); },
      [&] { (void)torch::allclose(x, x); },
      [&] { x.set_data(host.to(gpu(0))); },
      [&] {
        const c10::InferenceMode inference;
        host.to(gpu(0));
      },
      [&] {
        const torch::NoGradGuard no_grad;
        leaf.to(gpu(0));
      },
      [&] {
        const AllowTransfers certain;
        const TransferGuard again;
        host.to(gpu(0));
      },
  };
  if (has_second()) {
    programs.push_back([&] { x.to(second()); });
    programs.push_back([&] { y.copy_(x); });
  }
  for (std::size_t i = 0; i < programs.size(); ++i) {
    TransferLedger ledger;
    const auto text = error_of<TransferForbidden>([&] {
      const TransferGuard guard;
      programs[i]();
    });
    EXPECT_TRUE(ledger.empty()) << "program " << i << " copied something";
    EXPECT_TRUE(has(text, "use_gpu::AllowTransfers"));
  }
  EXPECT_TRUE(net->weight.is_cpu());
  EXPECT_EQ(to_device(x + 1, cpu()).sum().item<float>(), 12) << "the next operation works";
}

TEST_F(Transfers, AreForbiddenByAGuardInsideInferenceMode) {
  const c10::InferenceMode inference;
  const TransferGuard guard;
  error_of<TransferForbidden>([&] { host.to(gpu(0)); });
}

TEST_F(Transfers, ThatAreNoneAreNotForbidden) {
  const TransferGuard guard;
  x + 1;
  x + x;
  x + torch::tensor(1.f);  // a CPU number is an argument, not a copy
  x.clone();
  x.t().contiguous();
  x.to(torch::kDouble);
  x.index_select(0, torch::zeros({1}, torch::TensorOptions(gpu(0)).dtype(torch::kLong)));
  host.to(torch::kMeta);
  host.clone().copy_(host);
  host.sum().item<float>();
  host.nonzero();
  printed(host);
  torch::zeros({2}, gpu(0)).fill_(3);
  torch::rand({2}, second());
  (device_leaf * 2).pow(2).sum().backward();
}

TEST_F(Transfers, InABackwardPassAreForbiddenAndAllowedAsAround) {
  const auto loss = [&] { return (device_leaf * 2).cpu().pow(2).sum(); };
  auto first = loss();
  error_of<TransferForbidden>([&] {
    const TransferGuard guard;
    first.backward();
  });
  auto second = loss();
  const TransferGuard guard;
  {
    const AllowTransfers certain;
    second.backward();
  }
  EXPECT_TRUE(device_leaf.grad().defined());
}

TEST_F(Transfers, InAHookAreForbidden) {
  auto v = device_leaf * 2;
  v.register_hook([](Tensor gradient) { return gradient.cpu().to(gradient.device()); });
  auto loss = v.sum();
  error_of<TransferForbidden>([&] {
    const TransferGuard guard;
    loss.backward();
  });
}

TEST_F(Transfers, OfNothingAreNone) {
  const TransferGuard guard;
  const TransferLedger ledger;
  EXPECT_EQ(torch::empty({0, 3}).to(gpu(0)).device(), gpu(0));
  EXPECT_TRUE(ledger.empty());
}

TEST_F(Transfers, AreJudgedByDirection) {
  const TransferGuard guard({OnTransfer::allow, OnTransfer::forbid, OnTransfer::allow});
  host.to(gpu(0));
  x.to(second());
  error_of<TransferForbidden>([&] { x.cpu(); });
  error_of<TransferForbidden>([&] { x.sum().item<float>(); });
}

TEST_F(Transfers, AreLoggedAndLetThrough) {
  testing::internal::CaptureStderr();
  {
    const TransferGuard guard(k_log_all);
    EXPECT_TRUE(x.cpu().equal(host));
    x.sum().item<float>();
  }
  const auto log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(
      has(log, "[warning] Implicit transfer: copy_ of 24 bytes from " + gpu(0).str() + " to cpu"));
  EXPECT_TRUE(has(log, "[warning] Implicit transfer: item() reads from " + gpu(0).str()));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2);
}

TEST_F(Transfers, AreDecidedByTheInnermostGuard) {
  const TransferGuard outer;
  {
    const TransferGuard inner(k_allow_all);
    host.to(gpu(0));
  }
  error_of<TransferForbidden>([&] { host.to(gpu(0)); });
}

TEST_F(Transfers, OfThisLibrarysVerbsAreExplicit) {
  const TransferGuard guard;
  torch::nn::Linear net(3, 1);
  place(net, second());
  const auto text = printed(show(copy_to(to_device(host, gpu(0)), second())));
  EXPECT_TRUE(has(text, "on " + second().str()));
}

TEST_F(Transfers, NameOperationBytesDevicesAndTheFix) {
  const TransferGuard guard;
  const auto copy = error_of<TransferForbidden>([&] { host.to(second()); });
  for (const auto& part :
       {std::string("copy_"), std::string("24 bytes"), "from cpu to " + second().str(),
        std::string("use_gpu::to_device(x, device)")}) {
    EXPECT_TRUE(has(copy, part));
  }
  EXPECT_TRUE(
      has(error_of<TransferForbidden>([&] { x.nonzero(); }), "nonzero reads from " + gpu(0).str()));
  EXPECT_TRUE(has(error_of<TransferForbidden>([&] { x[0][0].item(); }), "4 bytes"));
}

TEST_F(Transfers, AreFreeAgainAfterAnExceptionInTheScope) {
  EXPECT_THROW(
      {
        const TransferGuard guard;
        TransferLedger ledger;
        throw std::runtime_error("any");
      },
      std::runtime_error);
  host.to(gpu(0));
}

TEST_F(Transfers, OfOtherThreadsAreTheirOwnAffair) {
  const TransferGuard guard;
  TransferLedger ledger;
  std::thread other([&] {
    host.to(gpu(0));
    TransferLedger own;
    const TransferGuard own_guard(k_allow_all);
    host.to(second());
    EXPECT_EQ(text_of(own), "1/24 0/0 0/0 0");
  });
  other.join();
  EXPECT_TRUE(ledger.empty());
  error_of<TransferForbidden>([&] { host.to(gpu(0)); });
}

TEST_F(Transfers, OfSeveralThreadsAreCountedInOneLedger) {
  TransferLedger ledger;
  const at::ThreadLocalState state;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const at::ThreadLocalStateGuard as_the_caller(state);
      for (int i = 0; i < 100; ++i) host.to(i % 2 == 0 ? gpu(0) : second());
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(text_of(ledger), "400/9600 0/0 0/0 0");
}

// Opens the scopes of these letters, then ends them in this order.
TEST_F(Transfers, AreFreeAgainInWhateverOrderTheirScopesEnd) {
  std::string letters = "aflgd";  // two guards, a scope that allows, a ledger, a default device
  std::sort(letters.begin(), letters.end());
  do {
    auto forbid = std::make_unique<TransferGuard>();
    auto ledger = std::make_unique<TransferLedger>();
    auto log = std::make_unique<TransferGuard>(k_log_all);
    auto allow = std::make_unique<AllowTransfers>();
    auto device = std::make_unique<DefaultDeviceGuard>(gpu(0));
    std::string open = "flgad";
    for (const char ended : letters) {
      if (ended == 'f') forbid.reset();
      if (ended == 'l') log.reset();
      if (ended == 'g') ledger.reset();
      if (ended == 'a') allow.reset();
      if (ended == 'd') device.reset();
      open.erase(open.find(ended), 1);
      const bool is_open_f = open.find('f') != open.npos, is_open_l = open.find('l') != open.npos;
      const bool is_open_a = open.find('a') != open.npos;
      const auto before = ledger ? ledger->count(TransferDirection::device_to_host).copies : 0;
      testing::internal::CaptureStderr();
      bool is_forbidden = false;
      try {
        static_cast<void>(x.cpu());
      } catch (const TransferForbidden&) {
        is_forbidden = true;
      }
      const bool is_logged = !testing::internal::GetCapturedStderr().empty();
      EXPECT_EQ(is_forbidden, is_open_f && !is_open_l && !is_open_a) << letters << ": " << ended;
      EXPECT_EQ(is_logged, is_open_l && !is_open_a) << letters << ": " << ended;
      if (ledger) {
        const auto counted = ledger->count(TransferDirection::device_to_host).copies - before;
        EXPECT_EQ(counted, is_forbidden ? 0 : 1) << letters << ": " << ended;
      }
      EXPECT_EQ(torch::ones({1}).is_cpu(), !device) << letters << ": " << ended;
    }
    EXPECT_FALSE(c10::impl::tls_is_dispatch_key_included(test::k_library_key));
  } while (std::next_permutation(letters.begin(), letters.end()));
}

TEST_F(Transfers, AreFreeAgainInWhateverOrderLibTorchsOwnScopesEnd) {
  struct Info : c10::DebugInfoBase {};
  const auto kind = c10::DebugInfoKind::TEST_INFO;
  auto guard = std::make_unique<TransferGuard>();
  auto info = std::make_unique<c10::DebugInfoGuard>(kind, std::make_shared<Info>());
  guard.reset();
  EXPECT_NO_THROW(static_cast<void>(x.cpu()));
  EXPECT_NE(c10::ThreadLocalDebugInfo::get(kind), nullptr);
  info.reset();
  EXPECT_NO_THROW(static_cast<void>(x.cpu()));
  EXPECT_FALSE(c10::impl::tls_is_dispatch_key_included(test::k_library_key));
  { const TransferLedger next; }  // takes away what is left of the guard
  EXPECT_EQ(c10::ThreadLocalDebugInfo::current(), nullptr);
}

// Each scope is opened while the one before is: what has ended is not kept.
TEST_F(Transfers, OfScopesThatOverlapLeaveNothingBehind) {
  std::unique_ptr<TransferLedger> open, next;
  for (int i = 0; i < 100; ++i) {
    next = std::make_unique<TransferLedger>();
    open = std::move(next);
    static_cast<void>(x.cpu());
    EXPECT_EQ(open->count(TransferDirection::device_to_host).copies, 1);
  }
  open.reset();
  EXPECT_EQ(c10::ThreadLocalDebugInfo::current(), nullptr);
}

TEST_F(Transfers, InAnotherThreadThatEndsAScopeAreAsBefore) {
  std::thread([&] {
    auto guard = std::make_unique<TransferGuard>();
    auto device = std::make_unique<DefaultDeviceGuard>(gpu(0));
    testing::internal::CaptureStderr();
    std::thread([&] {
      const TransferLedger own;
      guard.reset();
      device.reset();
      EXPECT_NO_THROW(static_cast<void>(x.cpu()));
      EXPECT_TRUE(torch::ones({1}).is_cpu());
      EXPECT_EQ(own.count(TransferDirection::device_to_host).copies, 1);
    }).join();
    const auto log = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(has(log, "[warning] A scope of use_gpu"));
    EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2);
    EXPECT_THROW(static_cast<void>(x.cpu()), TransferForbidden) << "until this thread ends";
    EXPECT_EQ(torch::ones({1}).device(), gpu(0));
  }).join();
  EXPECT_NO_THROW(static_cast<void>(x.cpu()));
}

TEST_F(Transfers, OfAModuleThatWasHalfMovedCanBeUndoneByPlace) {
  torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::Linear(4, 1));
  const TransferGuard guard({OnTransfer::forbid, OnTransfer::forbid, OnTransfer::forbid});
  EXPECT_THROW(net->to(gpu(0)), TransferForbidden);
  place(net, cpu());
  EXPECT_EQ(net->forward(host).sizes(), (std::vector<std::int64_t>{2, 1}));
}

// An operation that a new LibTorch adds makes this fail: list it in transfers.cpp, or here.
TEST(TransferScopes, KnowEveryOperationWhoseResultDependsOnValues) {
  const std::set<std::string> exceptions = {
      "aten::_ctc_loss",         // is given its lengths on the host
      "aten::_ctc_loss.Tensor",  // copies its lengths
      "aten::index.Tensor",      // calls nonzero
      "aten::linalg_lstsq.out"   // on a GPU its shapes do not depend on values
  };
  auto& dispatcher = c10::Dispatcher::singleton();
  int operations = 0;
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || name.getNamespace().value_or("") != "aten" ||
        !op->hasKernelForDispatchKey(c10::DispatchKey::CPU) ||
        !(op->hasTag(at::Tag::data_dependent_output) ||
          op->hasTag(at::Tag::dynamic_output_shape)) ||
        exceptions.contains(c10::toString(name))) {
      continue;
    }
    ++operations;
    EXPECT_TRUE(op->hasKernelForDispatchKey(test::k_library_key)) << op->schema();
  }
  EXPECT_GE(operations, 12);
}

TEST(TransferScopes, WorkWhereThereIsNoGpu) {
  TransferLedger ledger;
  const TransferGuard guard;
  const AllowTransfers certain;
  EXPECT_EQ(to_device(torch::ones({2}), try_gpu()).size(0), 2);
  EXPECT_EQ(ledger.empty(), num_gpus() == 0);
}

}  // namespace
}  // namespace use_gpu
