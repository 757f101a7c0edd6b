// SPDX-License-Identifier: MIT
//
// One rank of the groups that communicator_torchrun.py starts. Group.* are what all ranks do
// together; Fault.* are one scenario each, in which ranks fail or disagree: errors of the survivors
// are checked here, exit statuses there.
#include <c10/core/CPUAllocator.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <use_gpu/communicator.hpp>
#include <use_gpu/default_device.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/log.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/transfers.hpp>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "distributed/rank.hpp"
#include "support.hpp"

namespace {
std::atomic<bool> waits_shortly = false;
}

// LibTorch's own wait, which can be made to end before Gloo gives its work up.
bool c10d::Work::wait(std::chrono::milliseconds timeout) {
  using Wait = bool (*)(c10d::Work*, std::chrono::milliseconds);
  static const auto own = reinterpret_cast<Wait>(
      ::dlsym(RTLD_NEXT, "_ZN4c10d4Work4waitENSt6chrono8durationIlSt5ratioILl1ELl1000EEEE"));
  return own(this, waits_shortly ? std::chrono::milliseconds(500) : timeout);
}

namespace use_gpu {
namespace {

using test::die;
using test::environment;
using test::error_of;
using test::has;
using test::is_victim;
using test::say;
using test::until_noticed;

// One for all tests, as in a program. The driver gives up long before its time-out.
Communicator& group() {
  static Communicator joined = Communicator::join(std::chrono::minutes(10));
  return joined;
}

std::vector<c10::Device> devices() {
  if (group().device().is_cpu()) return {cpu()};
  return {cpu(), group().device()};
}

// (1 + rank) * [1, 2, 3 ...] so that sums, minima and maxima over the ranks are known.
at::Tensor values(int rank, at::IntArrayRef shape, at::ScalarType dtype, c10::Device device) {
  const auto count = c10::multiply_integers(shape);
  return (torch::arange(1, count + 1) * (1 + rank)).reshape(shape).to(dtype).to(device);
}

void expect_same_everywhere(const at::Tensor& x) {
  const auto mine = x.detach().contiguous().cpu();
  auto root = mine.clone();
  group().broadcast(root);
  EXPECT_TRUE(root.flatten().view(at::kByte).equal(mine.flatten().view(at::kByte)))
      << "rank " << group().rank() << ":\n"
      << mine << "\nrank 0:\n"
      << root;
}

bool by_nccl() { return group().backend()->getBackendName() == "nccl"; }

// The first to call group(), which joins.
TEST(Group, UsesNcclWhereEachRankHasAGpuAndLogsIt) {
  const auto backend = environment("BACKEND");
  testing::internal::CaptureStderr();
  set_log_level(LogLevel::debug);
  EXPECT_EQ(group().backend()->getBackendName(), backend);
  set_log_level(LogLevel::warning);
  const auto logged = testing::internal::GetCapturedStderr();
  if (group().size() > 1) {
    EXPECT_TRUE(has(logged, ", " + backend + ','));
  }
  EXPECT_EQ(environment("TORCH_NCCL_BLOCKING_WAIT"), "") << "the process's own environment changed";
}

TEST(Group, KnowsRankSizeAndDevice) {
  EXPECT_EQ(group().rank(), std::atoi(std::getenv("RANK")));
  EXPECT_EQ(group().size(), std::atoi(std::getenv("WORLD_SIZE")));
  const auto local_rank = std::atoi(std::getenv("LOCAL_RANK"));
  EXPECT_EQ(group().device(), num_gpus() == 0 ? cpu() : num_gpus() == 1 ? gpu(0) : gpu(local_rank));
}

TEST(Group, ReducesEveryDtypeOnEveryDevice) {
  const int n = group().size();
  const int ranks = n * (n + 1) / 2;  // the sum of 1 + rank
  for (const auto device : devices()) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
                             at::kShort, at::kChar, at::kByte, at::kComplexFloat}) {
      const auto one = values(0, {2, 3}, dtype, device);
      const auto check = [&](ReduceOp how, const at::Tensor& expected) {
        const auto x = values(group().rank(), {2, 3}, dtype, device);
        group().all_reduce(x, how);
        EXPECT_TRUE(x.equal(expected)) << dtype << " on " << device << ":\n" << x << expected;
      };
      check(ReduceOp::sum, one * ranks);
      if (!at::isComplexType(dtype)) {
        check(ReduceOp::min, one);
        check(ReduceOp::max, one * n);
      }
      if (!at::isIntegralType(dtype, /*includeBool=*/false)) check(ReduceOp::mean, one * ranks / n);
    }
  }
}

TEST(Group, RoundsHalfPrecisionOnce) {
  // 256 + 1 is 256 in bfloat16 and 2048 + 1 is 2048 in float16: added up one by one, ones are lost.
  for (const auto device : devices()) {
    for (const auto& [dtype, large] : {std::pair(at::kBFloat16, 256), std::pair(at::kHalf, 2048)}) {
      const auto x = torch::full({5}, group().rank() == 0 ? large : 1, dtype).to(device);
      group().all_reduce(x);
      const auto expected = torch::full({5}, large + group().size() - 1, at::kDouble).to(dtype);
      EXPECT_TRUE(x.cpu().equal(expected)) << x;
    }
  }
}

TEST(Group, TakesBoolsForMinAndMax) {
  for (const auto device : devices()) {
    const auto any = torch::tensor({group().rank() == 0, false}, device);
    group().all_reduce(any, ReduceOp::max);
    EXPECT_TRUE(any.cpu().equal(torch::tensor({true, false})));
    const auto all = torch::tensor({group().rank() > 0, true}, device);
    group().all_reduce(all, ReduceOp::min);
    EXPECT_TRUE(all.cpu().equal(torch::tensor({false, true})));
  }
}

TEST(Group, WritesInPlaceWhateverTheStrides) {
  for (const auto device : devices()) {
    const auto whole = torch::zeros({3, 4}, device);
    const auto column = whole.select(1, 2);
    column.fill_(1 + group().rank());
    group().all_reduce(column, ReduceOp::max);
    EXPECT_EQ(whole.sum().item<double>(), 3.0 * group().size());
    EXPECT_EQ(column.sum().item<double>(), 3.0 * group().size());

    const auto z = torch::complex(torch::ones({2}), torch::ones({2})).to(device);
    const auto conjugate = z.conj();
    group().all_reduce(conjugate);
    EXPECT_TRUE(torch::real(z).eq(group().size()).all().item<bool>()) << z;
    EXPECT_TRUE(torch::imag(z).eq(group().size()).all().item<bool>()) << z;

    const auto nothing = torch::empty({0, 3}, device);
    group().all_reduce(nothing);
    group().broadcast(nothing);
    EXPECT_EQ(nothing.numel(), 0);
    const auto scalar = torch::ones({}, device);
    group().all_reduce(scalar);
    EXPECT_EQ(scalar.item<double>(), group().size());
  }
}

TEST(Group, LeavesAutogradAlone) {
  const auto leaf = torch::ones({2}, torch::requires_grad());
  const auto doubled = leaf * leaf;  // its backward needs leaf as it is now
  group().all_reduce(leaf);
  EXPECT_TRUE(leaf.requires_grad() && leaf.is_leaf());
  EXPECT_TRUE(leaf.detach().eq(group().size()).all().item<bool>());
  if (group().size() > 1) {
    EXPECT_THROW(doubled.sum().backward(), c10::Error) << "the write was not seen";
  }
  at::Tensor made_in_inference_mode;
  {
    const c10::InferenceMode inference;
    made_in_inference_mode = torch::ones({2});
  }
  group().all_reduce(made_in_inference_mode);
  EXPECT_TRUE(made_in_inference_mode.eq(group().size()).all().item<bool>());
}

TEST(Group, BroadcastsEveryDtypeFromEveryRoot) {
  for (const auto device : devices()) {
    for (int root = 0; root < group().size(); ++root) {
      for (const auto dtype : {at::kFloat, at::kBFloat16, at::kLong, at::kBool, at::kComplexDouble,
                               at::kUInt16, at::kFloat8_e4m3fn}) {
        const auto expected = values(root, {2, 3}, dtype, device);
        const auto x = values(group().rank(), {2, 3}, dtype, device);
        group().broadcast(x, root);
        EXPECT_TRUE(x.view(at::kByte).equal(expected.view(at::kByte))) << dtype << x;
      }
      const auto strided = torch::full({3, 2}, group().rank(), device).t();
      group().broadcast(strided, root);
      EXPECT_TRUE(strided.eq(root).all().item<bool>()) << strided;
    }
  }
}

TEST(Group, WorksInsideTheOtherScopes) {
  const auto x = torch::ones({3}, group().device());
  {
    const TransferGuard guard;
    const DefaultDeviceGuard elsewhere(group().device());
    group().all_reduce(x, ReduceOp::mean);
    group().broadcast(x);
    group().barrier();
  }
  EXPECT_TRUE(x.eq(1).all().item<bool>());
}

TEST(Group, RefusesCallsThatDifferOnEveryRank) {
  if (group().size() == 1) GTEST_SKIP() << "one rank cannot differ";
  const bool first = group().rank() == 0;
  const auto refused = [](const auto& call) {
    EXPECT_TRUE(has(error_of<ArgumentError>(call), "do not make the same call"));
  };
  for (const auto device : devices()) {
    const auto x = torch::ones({first ? 100 : 200}, device), y = torch::ones({2}, device);
    refused([&] { group().all_reduce(x); });
    refused([&] { group().broadcast(x); });
    refused([&] { group().all_reduce(y.to(first ? at::kInt : at::kFloat)); });
    refused([&] { group().all_reduce(y, first ? ReduceOp::sum : ReduceOp::mean); });
    refused([&] { group().broadcast(y, first ? 0 : 1); });
    refused([&] { first ? group().barrier() : group().all_reduce(x); });
    EXPECT_TRUE(x.eq(1).all().item<bool>());
    group().barrier();  // and all goes on
    if (by_nccl()) refused([&] { group().all_reduce(y.to(first ? cpu() : group().device())); });
  }
}

torch::nn::Sequential make_net(std::uint64_t seed) {
  torch::manual_seed(seed);
  torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8),
                            torch::nn::Linear(8, 1));
  place(net, group().device());
  return net;
}

TEST(Group, BroadcastsParametersAndBuffers) {
  const int root = group().size() - 1;
  auto net = make_net(static_cast<std::uint64_t>(group().rank()));
  net[1]->as<torch::nn::BatchNorm1d>()->running_mean.fill_(group().rank());
  broadcast_parameters(net, group(), root);
  const auto expected = make_net(static_cast<std::uint64_t>(root));
  for (const auto& x : expected->named_parameters()) {
    EXPECT_TRUE(net->named_parameters()[x.key()].equal(x.value())) << x.key();
  }
  EXPECT_TRUE(net->named_buffers()["1.running_mean"].eq(root).all().item<bool>());
  EXPECT_EQ(net->parameters()[0].device(), group().device());
}

TEST(Group, AveragesGradients) {
  auto net = make_net(0);
  auto all = net->parameters();
  net->register_parameter("tied", all[0]);
  all[1].set_requires_grad(false);
  all[1].mutable_grad() = torch::full_like(all[1], group().rank());           // frozen: left alone
  all[0].mutable_grad() = torch::full_like(all[0], 1 + group().rank());       // on every rank
  if (group().rank() == 0) all[2].mutable_grad() = torch::ones_like(all[2]);  // on one
  average_gradients(net, group());
  const double n = group().size();
  EXPECT_TRUE(all[0].grad().eq((n + 1) / 2).all().item<bool>()) << all[0].grad();
  EXPECT_TRUE(all[1].grad().eq(group().rank()).all().item<bool>());
  ASSERT_TRUE(all[2].grad().defined());
  EXPECT_TRUE(all[2].grad().eq(1 / n).all().item<bool>()) << all[2].grad();
  EXPECT_FALSE(all[3].grad().defined());
  (all[2] * 2).sum().backward();  // goes on adding to the gradient that was made
  EXPECT_TRUE(all[2].grad().eq(1 / n + 2).all().item<bool>()) << all[2].grad();
}

// One message to compare, and one for each dtype, as all is on one device and smaller than 64 MB.
TEST(Group, AveragesGradientsInFewMessages) {
  auto net = make_net(0);
  for (auto& x : net->parameters()) x.mutable_grad() = torch::ones_like(x);
  const auto backend = group().backend();
  const auto before = backend->getSequenceNumberForGroup();
  average_gradients(net, group());
  const auto messages = backend->getSequenceNumberForGroup() - before;
  // What is compared is on the host, and goes by Gloo.
  EXPECT_EQ(messages, group().size() == 1 ? 0U : by_nccl() ? 1U : 2U);
}

TEST(Group, RefusesGradientsThatHaveNoMeanOnEveryRank) {
  auto net = torch::nn::Linear(2, 2);
  net->weight.set_data(net->weight.detach().to(at::kFloat8_e4m3fn));
  EXPECT_TRUE(has(error_of<ParameterError>([&] { average_gradients(net, group()); }), "no mean"));
  group().barrier();  // and the group goes on
}

TEST(Group, RefusesNetworksThatDifferOnEveryRank) {
  if (group().size() == 1) GTEST_SKIP() << "one rank cannot differ";
  torch::nn::Linear net(2, group().rank() == 0 ? 3 : 2);
  const auto before = net->weight.detach().clone();
  EXPECT_TRUE(has(error_of<ParameterError>([&] { broadcast_parameters(net, group()); }), "differ"));
  EXPECT_TRUE(has(error_of<ParameterError>([&] { average_gradients(net, group()); }), "differ"));
  EXPECT_TRUE(net->weight.equal(before));
  const int last = group().size() - 1;
  const auto roots = error_of<ArgumentError>(
      [&] { broadcast_parameters(torch::nn::Linear(1, 1), group(), group().rank() == last); });
  EXPECT_TRUE(has(roots, "root"));
}

TEST(Group, NamesWhatDiffersBetweenWhichRanks) {
  if (group().size() == 1) GTEST_SKIP() << "one rank cannot differ";
  const bool first = group().rank() == 0;
  torch::nn::Linear net(2, 2);
  net->register_buffer("shape", torch::ones({first ? 2 : 3}));
  net->register_buffer("dtype", torch::ones({2}, first ? at::kInt : at::kLong));
  net->register_buffer(first ? "mine" : "theirs", torch::ones({2}));
  place(net, group().device());
  std::vector<std::string> expected;
  for (int rank = 1; rank < group().size(); ++rank) {
    const auto where = " on rank " + std::to_string(rank);
    for (const char* text : {"dtype is int32[2] on rank 0, but int64[2]",
                             "mine is float32[2] on rank 0, but missing or frozen",
                             "shape is float32[2] on rank 0, but float32[3]",
                             "theirs is missing or frozen on rank 0, but float32[2]"})
      expected.push_back(text + where);
  }
  try {
    broadcast_parameters(net, group());
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ParameterError& error) {
    EXPECT_EQ(error.differences(), expected);
    EXPECT_TRUE(has(error.what(), expected.front()));
  }
  group().barrier();  // and the group goes on
}

TEST(Group, RefusesOnEveryRankWhatOneCannotWriteOrName) {
  for (const bool has_both : {false, true}) {
    torch::nn::Linear net(2, 2);
    if (group().rank() == 0)
      net->register_buffer(has_both ? "bias" : "mask", torch::ones({1}).expand({4}));
    const auto refused = [&] { broadcast_parameters(net, group()); };
    if (group().rank() == 0) {
      EXPECT_TRUE(has(error_of<ParameterError>(refused),
                      has_both ? "bias is a parameter and a buffer" : "mask: float32[4]"));
    } else {
      EXPECT_THROW(refused(), Error);
    }
  }
  torch::nn::Linear net(2, 2);
  net->weight.mutable_grad() = torch::ones({1}).expand({2, 2});
  EXPECT_TRUE(has(error_of<ParameterError>([&] { average_gradients(net, group()); }), "weight"));
  group().barrier();  // and the group goes on
}

// Work that is given up may write to it when the tensor has gone.
TEST(Group, CopiesMemoryThatItCannotKeep) {
  std::vector<float> own(3, 1.F);
  const auto x = torch::from_blob(own.data(), {3});
  group().all_reduce(x);
  EXPECT_EQ(own, std::vector<float>(3, static_cast<float>(group().size())));
}

TEST(Group, RefusesTiesThatDifferOnEveryRank) {
  if (group().size() == 1) GTEST_SKIP() << "one rank cannot differ";
  torch::nn::Linear net(2, 2);
  const auto other = net->register_parameter("other", torch::ones({2, 2}));
  net->register_parameter("tied", group().rank() == 0 ? net->weight : other);
  EXPECT_TRUE(has(error_of<ParameterError>([&] { broadcast_parameters(net, group()); }), "ties"));
}

// Gloo would end the process.
TEST(Group, RefusesGradientsOfDifferentDtypesOnEveryRank) {
  if (group().size() == 1) GTEST_SKIP() << "one rank cannot differ";
  const auto dtype = group().rank() == 0 ? at::kDouble : at::kFloat;
  torch::nn::Linear net(2, 2);
  net->weight.mutable_grad() = torch::full({2, 2}, group().rank(), dtype);
  EXPECT_TRUE(has(error_of<ParameterError>([&] { average_gradients(net, group()); }), "gradients"));
  EXPECT_TRUE(net->weight.grad().equal(torch::full({2, 2}, group().rank(), dtype)));
  group().barrier();  // and the group goes on
}

TEST(Group, RefusesASparseGradientOnEveryRank) {
  torch::nn::Linear net(2, 2);
  if (group().rank() == 0) {
    net->weight.mutable_grad() = torch::ones({2, 2}).to_sparse();
    EXPECT_TRUE(has(error_of<ParameterError>([&] { average_gradients(net, group()); }), "weight"));
  } else {
    EXPECT_TRUE(has(error_of<ParameterError>([&] { average_gradients(net, group()); }), "rank 0"));
  }
}

// After 100 steps, in which each rank has its shard, the parameters are those of one process with
// the whole batch. The sums are the same but for their order: 1e-12 relative in float64.
TEST(Group, TrainsLikeOneProcessWithTheWholeBatch) {
  const std::int64_t n = group().size();
  const auto train = [&](torch::nn::Sequential net, const at::Tensor& x, const at::Tensor& y,
                         bool together) {
    torch::optim::SGD sgd(net->parameters(), 0.05);
    for (int step = 0; step < 100; ++step) {
      sgd.zero_grad();
      torch::nn::functional::mse_loss(net->forward(x), y).backward();
      if (together) average_gradients(net, group());
      sgd.step();
    }
    return net;
  };
  const auto make = [&](int seed) {
    torch::manual_seed(static_cast<std::uint64_t>(seed));
    torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 1));
    net->to(at::kDouble);
    place(net, group().device());
    return net;
  };
  torch::manual_seed(7);
  const auto x = torch::rand({8 * n, 4}, at::kDouble).to(group().device());
  const auto y = x.sum(1, /*keepdim=*/true).sin();
  const auto net = make(group().rank());
  broadcast_parameters(net, group());
  const auto rank = static_cast<std::size_t>(group().rank());
  train(net, x.chunk(n)[rank], y.chunk(n)[rank], true);
  const auto alone = train(make(0), x, y, false);
  for (const auto& p : net->named_parameters()) {
    expect_same_everywhere(p.value());
    EXPECT_TRUE(p.value().allclose(alone->named_parameters()[p.key()], 1e-12, 1e-12)) << p.key();
  }
}

TEST(Group, HasABackendForOtherCollectives) {
  const auto where = by_nccl() ? group().device() : cpu();
  std::vector<at::Tensor> own{torch::full({1}, group().rank(), at::device(where).dtype(at::kLong))};
  std::vector<std::vector<at::Tensor>> all(1);
  for (int rank = 0; rank < group().size(); ++rank) all[0].push_back(torch::empty_like(own[0]));
  group().backend()->allgather(all, own)->wait();
  EXPECT_TRUE(torch::cat(all[0]).cpu().equal(torch::arange(group().size())));
}

TEST(Group, GoesOnAfterACallThatOneRankRefuses) {
  if (group().size() == 1) GTEST_SKIP() << "needs several ranks, found 1";
  const bool first = group().rank() == 0;
  const auto x = torch::ones({2}, first ? at::kInt : at::kFloat);
  error_of<ArgumentError>([&] { group().all_reduce(x, first ? ReduceOp::mean : ReduceOp::sum); });
  error_of<ArgumentError>([&] { group().broadcast(first ? at::Tensor() : x); });
  error_of<ArgumentError>([&] { group().broadcast(x, first ? -1 : 0); });
  group().barrier();
}

Communicator join_within(std::chrono::seconds timeout) { return Communicator::join(timeout); }

template <class Action>
std::string said(const Action& action) {
  const auto text = error_of<CommunicatorError>(action);
  say(text);
  return text;
}

TEST(Fault, CannotJoin) {
  if (is_victim()) die();
  const auto text = said([] { (void)join_within(std::chrono::seconds(6)); });
  EXPECT_TRUE(has(text, "rank " + environment("RANK") + " of " + environment("WORLD_SIZE")));
  EXPECT_TRUE(has(text, environment("MASTER_ADDR") + ':' + environment("MASTER_PORT")));
}

TEST(Fault, KilledDuringAllReduce) {
  ::signal(SIGTERM, SIG_IGN);  // torchrun's: this rank still has something to say
  auto joined = join_within(until_noticed());
  const auto x = torch::ones({1 << 20}, joined.device());
  joined.all_reduce(x, ReduceOp::max);
  std::thread killer;
  if (is_victim()) {
    killer = std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      die();
    });
  }
  const auto text = said([&] {
    for (;;) joined.all_reduce(x, ReduceOp::max);
  });
  EXPECT_TRUE(has(text, "all_reduce on rank " + std::to_string(joined.rank())));
  const auto later = error_of<CommunicatorError>([&] { joined.barrier(); });
  EXPECT_TRUE(has(later, "no longer usable: all_reduce")) << "must not wait for anything";
  EXPECT_TRUE(has(error_of<CommunicatorError>([&] { (void)joined.backend(); }), "all_reduce"));
}

TEST(Fault, StoppedBeforeAllReduce) {
  auto joined = join_within(std::chrono::seconds(6));
  joined.barrier();
  if (is_victim()) ::raise(SIGSTOP);
  const auto x = torch::ones({3}, joined.device());
  // The script looks for the time-out: that of one rank may end the other's wait.
  said([&] { joined.all_reduce(x); });
}

// Returns when that many processes have called it with that number.
void wait_for_others(std::int64_t number, int processes) {
  const std::string name = "/use_gpu_test_" + std::to_string(number);
  const int shared = ::shm_open(name.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::ftruncate(shared, sizeof(int)), 0);
  void* const memory = ::mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const std::atomic_ref<int> here(*static_cast<int*>(memory));
  ++here;
  while (here < processes) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ::shm_unlink(name.c_str());
}

// Gloo goes on with what the others have given up.
TEST(Fault, ContinuesAfterTheTimeOut) {
  auto joined = join_within(std::chrono::seconds(60));
  const auto victim = torch::tensor({is_victim() ? ::getpid() : 0}, at::kLong);
  joined.all_reduce(victim);
  if (is_victim()) {
    ::raise(SIGSTOP);
    joined.barrier();  // with what the others have given up
    return;
  }
  waits_shortly = true;  // and Gloo's work goes on
  said([&] { joined.barrier(); });
  torch::nn::Linear net(1, 1);
  error_of<CommunicatorError>([&] { average_gradients(net, joined); });
  volatile std::uint8_t where_the_calls_were[1 << 14];
  for (auto& byte : where_the_calls_were) byte = 0xa5;
  // Earlier, a rank that still waits would have its answer.
  wait_for_others(victim.item<std::int64_t>(), joined.size() - 1);
  ::kill(static_cast<pid_t>(victim.item<std::int64_t>()), SIGCONT);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  for (const auto& byte : where_the_calls_were) ASSERT_EQ(byte, 0xa5);
}

// A program may call c10d itself: nothing ends the process there either.
TEST(Fault, StoppedBeforeACallOfTheBackend) {
  auto joined = join_within(std::chrono::seconds(6));
  const auto backend = joined.backend();
  joined.barrier();
  if (is_victim()) ::raise(SIGSTOP);
  std::vector<at::Tensor> x{torch::ones({3}, joined.device())};
  try {
    backend->allreduce(x)->wait();
    ADD_FAILURE() << "there is no error";
  } catch (const std::exception& error) {
    say(error.what());
  }
}

// In place of LibTorch's for host memory: has none for requests of one size.
class NoMemoryFor final : public c10::Allocator {
 public:
  explicit NoMemoryFor(std::size_t bytes) : bytes_(bytes) { c10::SetCPUAllocator(this); }
  ~NoMemoryFor() override { c10::SetCPUAllocator(usual_); }
  NoMemoryFor(const NoMemoryFor&) = delete;
  NoMemoryFor& operator=(const NoMemoryFor&) = delete;

  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == bytes_) throw std::bad_alloc();
    return usual_->allocate(bytes);
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return usual_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    usual_->copy_data(to, from, bytes);
  }

 private:
  std::size_t bytes_;
  c10::Allocator* usual_ = c10::GetCPUAllocator();
};

TEST(Fault, OutOfMemoryBetweenTwoBuckets) {
  auto joined = join_within(until_noticed());
  torch::nn::Linear net(2, 2);  // the first bucket; that of float64 is the second
  net->register_buffer("x", torch::ones({1001}, at::kDouble));
  net->register_buffer("y", torch::ones({1003}, at::kDouble));
  if (is_victim()) {
    const NoMemoryFor second((1001 + 1003) * sizeof(double));
    EXPECT_THROW(broadcast_parameters(net, joined), std::bad_alloc);
    EXPECT_TRUE(has(said([&] { joined.barrier(); }), "no longer usable: broadcast_parameters"));
  } else {  // it must not wait for the victim's message
    EXPECT_TRUE(has(said([&] { broadcast_parameters(net, joined); }), "broadcast_parameters on"));
  }
}

TEST(Fault, KilledAtTheEnd) {
  auto joined = join_within(until_noticed());
  joined.barrier();
  if (is_victim()) die();
  say("left");
}

TEST(Fault, KilledOnceThenRestarted) {
  auto joined = join_within(until_noticed());
  if (is_victim() && environment("TORCHELASTIC_RESTART_COUNT") == "0") die();
  joined.barrier();  // fails without the victim, then a restart
  const auto x = torch::ones({2}, joined.device());
  joined.all_reduce(x);
  EXPECT_TRUE(x.eq(joined.size()).all().item<bool>());
  say("joined again, restart " + environment("TORCHELASTIC_RESTART_COUNT"));
}

// torchrun's store then has the name of a group that never was, with a place for rank 1.
TEST(Fault, KilledWhileJoiningThenRestarted) {
  const bool is_restarted = environment("TORCHELASTIC_RESTART_COUNT") != "0";
  if (is_victim() && !is_restarted) {
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::seconds(2));
      die();
    }).detach();
  }
  const bool comes_last = is_victim() == is_restarted;
  if (comes_last) std::this_thread::sleep_for(std::chrono::seconds(is_restarted ? 2 : 20));
  auto joined = join_within(until_noticed());
  joined.barrier();
  say("joined, restart " + environment("TORCHELASTIC_RESTART_COUNT"));
}

TEST(Fault, JoinsUnlessAnotherHasItsRank) {
  try {
    auto joined = join_within(std::chrono::seconds(6));
    joined.barrier();
    say("joined");
    std::this_thread::sleep_for(std::chrono::seconds(8));  // rank 0 serves the one that waits
  } catch (const CommunicatorError& error) {
    EXPECT_TRUE(has(error.what(), "another process has the same rank"));
    say("refused");
  }
}

}  // namespace
}  // namespace use_gpu
