// SPDX-License-Identifier: MIT
//
// One rank that trains with DistributedDataParallel. Python.* compares with what the same rank of
// Python's wrote (distributed_data_parallel.py); Together.* are what all ranks do together, and
// Fault.* one scenario each (communicator_torchrun.py).
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <use_gpu/batch.hpp>
#include <use_gpu/distributed_data_parallel.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/tensor_file.hpp>

#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "distributed/rank.hpp"
#include "simulated_runtime.hpp"
#include "support.hpp"

namespace use_gpu {
namespace {

using test::die;
using test::environment;
using test::error_of;
using test::has;
using test::is_victim;
using test::say;
using test::until_noticed;

Communicator& group() {
  static Communicator joined = Communicator::join(std::chrono::seconds(60));
  return joined;
}

struct NetImpl : torch::nn::Module {
  explicit NetImpl(bool has_words = false) {
    if (has_words) {
      words = torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 8).sparse(true));
      register_module("words", words);
    }
    register_module("first", first);
    register_module("norm", norm);
    register_module("left", left);
    register_module("right", right);
    register_module("last", last);
  }
  at::Tensor forward(at::Tensor x, int branch) {
    if (words) x = x + words(torch::arange(x.size(0)) % 4);
    x = torch::relu(norm(first(x)));
    if (branch != 1) x = torch::tanh(left(x));
    if (branch != 0) x = torch::tanh(right(x));
    return last(x);
  }
  torch::nn::Linear first{8, 16}, left{16, 16}, right{16, 16}, last{16, 4};
  torch::nn::BatchNorm1d norm{16};
  torch::nn::Embedding words{nullptr};
};
TORCH_MODULE(Net);

// Where a module keeps its parameters: a tied one takes the place of the one that was made.
struct Registered : torch::nn::Module {
  static auto& of(torch::nn::Module& module) { return module.*&Registered::parameters_; }
};

Net make_net(const std::string& what) {
  Net net(what == "sparse");
  if (what == "bfloat16") place(net, cpu(), at::kBFloat16);
  if (what == "frozen") net->first->weight.set_requires_grad(false);
  if (what == "tied") {
    net->right->weight = net->left->weight;
    Registered::of(*net->right)["weight"] = net->left->weight;
  }
  return net;
}

using Tensors = std::map<std::string, at::Tensor>;

std::map<std::string, at::Tensor> state_of(const Net& net) {
  Tensors all;
  for (const auto& x : net->named_parameters()) all[x.key()] = x.value();
  for (const auto& x : net->named_buffers()) all[x.key()] = x.value();
  return all;
}

void compare(const Tensors& seen, const std::string& what, const std::string& name,
             const at::Tensor& ours) {
  const auto theirs = seen.find(what + '.' + name);
  ASSERT_EQ(theirs != seen.end(), ours.defined()) << what << '.' << name;
  if (!ours.defined()) return;
  const auto dense = ours.is_sparse() ? ours.to_dense() : ours;
  EXPECT_TRUE(dense.detach().cpu().equal(theirs->second)) << what << '.' << name << ":\n"
                                                          << ours << "\nin Python:\n"
                                                          << theirs->second;
}

class Python : public testing::TestWithParam<const char*> {};

TEST_P(Python, HasTheSameBits) {
  const std::string what = GetParam(), folder = std::getenv("FOLDER");
  const auto ranks = std::to_string(group().size()), rank = std::to_string(group().rank());
  if (what == "sparse" && !group().device().is_cpu()) GTEST_SKIP() << "NCCL has no sparse ones";
  const auto seen = load_tensors(folder + '/' + what + '.' + ranks + '.' + rank + ".safetensors");
  const auto net = make_net(what);
  {
    const at::NoGradGuard no_grad;
    for (const auto& [name, x] : state_of(net)) x.copy_(seen.at("start." + name));
  }
  place(net, group().device());
  DistributedDataParallel parallel(
      net, group(), {.bucket_bytes = 1024, .find_unused_parameters = what == "unused"});
  std::vector<at::Tensor> trained;  // a tied parameter once
  std::set<const at::TensorImpl*> known;
  for (const auto& p : net->parameters()) {
    if (p.requires_grad() && known.insert(p.unsafeGetTensorImpl()).second) trained.push_back(p);
  }
  torch::optim::SGD sgd(trained, 0.1);
  for (int step = 0; step < 10; ++step) {
    sgd.zero_grad();
    const auto in_step = std::to_string(step);
    for (int part = 0;; ++part) {
      const auto name = "input." + in_step + '.';
      const auto x = seen.at(name + std::to_string(part)).to(group().device());
      const bool is_last = !seen.contains(name + std::to_string(part + 1));
      using NoSync = DistributedDataParallel<Net>::NoSync;
      std::optional<NoSync> alone;
      if (!is_last) alone.emplace(parallel);
      const int branch = what == "unused" ? (step + group().rank()) % 2 : -1;
      parallel.forward(x, branch).square().mean().backward();
      if (is_last) break;
    }
    for (const auto& p : net->named_parameters())
      compare(seen, "gradient." + in_step, p.key(), p.value().grad());
    sgd.step();
    for (const auto& [name, x] : state_of(net)) compare(seen, "state." + in_step, name, x);
    if (HasFailure()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Python,
                         testing::Values("plain", "unused", "no_sync", "frozen", "tied", "bfloat16",
                                         "sparse"),
                         [](const auto& test) { return std::string(test.param); });

using Parallel = DistributedDataParallel<Net>;

at::Tensor rows(int count = 6) { return torch::rand({count, 8}, group().device()); }

at::Tensor loss_of(Parallel& parallel, int branch = -1) {
  return parallel.forward(rows(), branch).square().mean();
}

TEST(Together, StartsFromTheValuesOfRank0) {
  const auto net = make_net("plain");
  place(net, group().device());
  const Parallel parallel(net, group());
  for (const auto& [name, x] : state_of(parallel.module())) {
    auto root = x.detach().clone();
    group().broadcast(root);
    EXPECT_TRUE(root.equal(x)) << name;
  }
}

TEST(Together, RefusesNetworksThatDifferOnEveryRank) {
  if (group().size() == 1) GTEST_SKIP() << "one rank cannot differ";
  const bool first = group().rank() == 0;
  const auto refused = [](const Net& net, const DistributedOptions& options = {}) {
    place(net, group().device());
    return [=] { const Parallel parallel(net, group(), options); };
  };
  EXPECT_TRUE(has(error_of<ParameterError>(refused(make_net(first ? "plain" : "tied"))), "differ"));
  EXPECT_TRUE(
      has(error_of<ParameterError>(refused(make_net(first ? "plain" : "frozen"))), "differ"));
  EXPECT_TRUE(
      has(error_of<ArgumentError>(refused(make_net("plain"), {.find_unused_parameters = first})),
          "same call"));
  const auto frozen = make_net("plain");
  for (auto& p : frozen->parameters()) p.set_requires_grad(!first);
  const auto nothing = refused(frozen);
  if (first) {
    EXPECT_TRUE(has(error_of<ArgumentError>(nothing), "requires a gradient"));
  } else {
    EXPECT_TRUE(has(error_of<ParameterError>(nothing), "rank 0 cannot take part"));
  }
  group().barrier();  // and the group goes on
}

TEST(Together, NamesWhatDiffersBetweenWhichRanks) {
  if (group().size() == 1) GTEST_SKIP() << "one rank cannot differ";
  const bool first = group().rank() == 0;
  const auto differences_of = [](const torch::nn::Sequential& net) {
    place(net, group().device());
    const auto before = net->parameters()[0].detach().clone();
    std::vector<std::string> differences;
    try {
      const DistributedDataParallel parallel(net, group());
      ADD_FAILURE() << "nothing was thrown";
    } catch (const ParameterError& error) {
      differences = error.differences();
      EXPECT_TRUE(has(error.what(), differences.front()));
    }
    EXPECT_TRUE(net->parameters()[0].equal(before));
    return differences.empty() ? "" : differences.front();
  };
  using torch::nn::Linear, torch::nn::Sequential;
  EXPECT_EQ(differences_of(Sequential(Linear(2, first ? 3 : 2))),
            "0.weight is float32[3, 2] with strides [2, 1] on rank 0, but float32[2, 2] with "
            "strides [2, 1] on rank 1");
  Sequential halved(Linear(2, 2));
  if (!first) place(halved, group().device(), at::kDouble);
  EXPECT_TRUE(has(differences_of(halved), "but float64[2"));
  Sequential longer(Linear(2, 2));
  if (first) longer->push_back("mine", Linear(2, 2));
  EXPECT_TRUE(has(differences_of(longer), "on rank 0, but missing or frozen on rank 1"));
  Sequential turned;
  turned->register_parameter(first ? "a" : "b", torch::ones({2}));
  turned->register_parameter(first ? "b" : "a", torch::ones({2}));
  EXPECT_EQ(differences_of(turned),
            "the first one in another place is a on rank 0, but b on rank 1");
  group().barrier();  // and the group goes on
}

TEST(Together, RefusesABufferThatCannotBeWrittenOrNamedOnEveryRank) {
  for (const char* name : {"mask", "first"}) {
    torch::nn::Sequential net(torch::nn::Linear(2, 2));
    place(net, group().device());
    net->register_parameter("first", torch::ones({2}, group().device()));
    net->register_buffer(name, torch::ones({1}, group().device()).expand({4}));
    const auto refused = [&] { const DistributedDataParallel parallel(net, group()); };
    EXPECT_TRUE(has(error_of<ParameterError>(refused), name));
  }
  group().barrier();  // and the group goes on
}

TEST(Together, RefusesANetworkElsewhere) {
  if (group().device().is_cpu()) GTEST_SKIP() << "needs a GPU";
  const auto text =
      error_of<DeviceMismatch>([] { const Parallel parallel(make_net("plain"), group()); });
  EXPECT_TRUE(has(text, group().device().str()));
}

// What a network returns, and what a loss takes of it, may be anything.
struct PairImpl : torch::nn::Module {
  PairImpl() {
    register_module("left", left);
    register_module("right", right);
  }
  std::pair<at::Tensor, std::map<std::string, at::Tensor>> forward(const at::Tensor& x) {
    return {left(x), {{"right", right(x)}, {"input", x}}};
  }
  torch::nn::Linear left{8, 3}, right{8, 3};
};
TORCH_MODULE(Pair);

TEST(Together, FindsUnusedParametersInWhateverHoldsTensors) {
  const Pair net;
  place(net, group().device());
  DistributedDataParallel parallel(net, group(), {.find_unused_parameters = true});
  const auto x = rows();
  for (int step = 0; step < 3; ++step) {
    for (auto& p : net->parameters()) p.mutable_grad() = at::Tensor();
    const auto [left, others] = parallel.forward(x);
    EXPECT_TRUE(others.at("input").is_same(x));
    (group().rank() == 0 ? left : others.at("right")).sum().backward();
    EXPECT_EQ(net->right->bias.grad().defined(), group().size() > 1);
    EXPECT_TRUE(net->left->bias.grad().defined());
    const double mean = 6.0 / group().size();
    EXPECT_TRUE(net->left->bias.grad().allclose(torch::full_like(net->left->bias, mean)));
  }
}

TEST(Together, SendsTheFirstBucketBeforeTheBackwardPassEnds) {
  if (!test::simulated() || environment("BACKEND") != "nccl")
    GTEST_SKIP() << "needs simulated NCCL";
  const auto net = make_net("plain");
  place(net, group().device());
  Parallel parallel(net, group(), {.bucket_bytes = 1024});
  std::vector<std::string> lines;
  for (int step = 0; step < 2; ++step) {  // the first one only finds the order
    const auto loss = loss_of(parallel);
    const test::RuntimeTrace trace;
    loss.backward();
    lines = trace.lines();
  }
  const auto place_of = [&](const std::string& part, bool last) {
    std::ptrdiff_t found = -1;
    for (std::size_t i = 0; i < lines.size() && (last || found < 0); ++i) {
      if (has(lines[i], part)) found = static_cast<std::ptrdiff_t>(i);
    }
    return found;
  };
  const auto first = place_of("ncclAllReduce", false), end = place_of("aten::mm", true);
  EXPECT_GE(first, 0);
  EXPECT_LT(first, end) << "the last product comes after the first all-reduce";
}

// The last: the group is lost then.
TEST(Together, RefusesANetworkThatHasMoved) {
  const auto net = make_net("plain");
  place(net, group().device());
  Parallel parallel(net, group());
  if (group().size() == 1) GTEST_SKIP() << "a group of one is the network alone";
  place(net, group().device(), at::kDouble);
  const auto text = error_of<ParameterError>([&] { loss_of(parallel); });
  EXPECT_TRUE(has(text, "first.weight is now"));
}

TEST(Fault, KilledDuringBackward) {
  ::signal(SIGTERM, SIG_IGN);  // torchrun's: this rank still has something to say
  auto joined = Communicator::join(until_noticed());
  const auto net = make_net("plain");
  place(net, joined.device());
  Parallel parallel(net, joined, {.bucket_bytes = 1});
  const auto x = torch::rand({6, 8}, joined.device());
  parallel.forward(x, -1).square().mean().backward();
  const auto loss = parallel.forward(x, -1).square().mean();
  if (is_victim()) die();
  say(error_of<CommunicatorError>([&] {
    loss.backward();
    synchronize(joined.device());  // NCCL's watchdog ends the process here
  }));
}

// In its third step a rank's batch raises, or it makes no third step.
void lose_one_in_the_third_step(bool raises) {
  ::signal(SIGTERM, SIG_IGN);
  auto joined = Communicator::join(until_noticed());
  const auto net = make_net("plain");
  place(net, joined.device());
  Parallel parallel(net, joined);
  const auto x = torch::rand({6, 8}, joined.device());
  for (int step = 0; step < 3; ++step) {
    const bool is_lost = is_victim() && step == 2;
    if (is_lost && !raises) return;
    const auto train = [&] {
      const auto rows = is_lost ? x.narrow(1, 0, 7) : x;
      parallel.forward(rows, -1).square().mean().backward();
      synchronize(joined.device());
    };
    if (is_lost) {
      EXPECT_THROW(train(), c10::Error);
    } else {
      step < 2 ? train() : say(error_of<CommunicatorError>(train));
    }
  }
}

TEST(Fault, SkipsAStep) { lose_one_in_the_third_step(/*raises=*/false); }
TEST(Fault, BatchRaises) { lose_one_in_the_third_step(/*raises=*/true); }

// Any exception in forward() leaves the group, as one of the network's.
struct ListImpl : torch::nn::Module {
  ListImpl() { register_module("linear", linear); }
  std::vector<at::Tensor> forward(const at::Tensor& x, bool is_empty) {
    auto y = linear(x);
    if (is_empty) return {};
    return {y};
  }
  torch::nn::Linear linear{8, 3};
};
TORCH_MODULE(List);

TEST(Fault, ReturnsNoTensor) {
  auto joined = Communicator::join(until_noticed());
  const List net;
  place(net, joined.device());
  DistributedDataParallel parallel(net, joined, {.find_unused_parameters = true});
  const auto x = torch::rand({6, 8}, joined.device());
  parallel.forward(x, false).front().sum().backward();
  const auto train = [&] { parallel.forward(x, is_victim()).front().sum().backward(); };
  if (is_victim()) {
    EXPECT_TRUE(has(error_of<ArgumentError>(train), "no tensor"));
    EXPECT_TRUE(has(error_of<CommunicatorError>([&] { joined.barrier(); }), "no longer usable"));
  } else {
    say(error_of<CommunicatorError>(train));
  }
}

struct Unknown {
  at::Tensor y;
};
struct ReturnsUnknown : torch::nn::Module {
  ReturnsUnknown() { register_module("linear", linear); }
  std::pair<at::Tensor, std::vector<Unknown>> forward(const at::Tensor& x) {
    return {linear(x), {{linear(x)}}};
  }
  torch::nn::Linear linear{8, 3};
};
TEST(Fault, ReturnsAnUnknownType) {
  auto joined = Communicator::join(until_noticed());
  const auto net = std::make_shared<ReturnsUnknown>();
  place(net, joined.device());
  const auto x = torch::rand({6, 8}, joined.device());
  {
    DistributedDataParallel parallel(net, joined);
    parallel.forward(x).first.sum().backward();
  }
  DistributedDataParallel parallel(net, joined, {.find_unused_parameters = true});
  EXPECT_TRUE(has(error_of<ArgumentError>([&] { parallel.forward(x); }), "is not known"));
  EXPECT_TRUE(has(error_of<CommunicatorError>([&] { joined.barrier(); }), "no longer usable"));
}

TEST(Fault, DoesNotUseAParameter) {
  auto joined = Communicator::join(until_noticed());
  const auto net = make_net("plain");
  place(net, joined.device());
  Parallel parallel(net, joined);
  const auto x = torch::rand({6, 8}, joined.device());
  const auto train = [&] {
    for (int step = 0; step < 2; ++step)
      parallel.forward(x, is_victim() ? 0 : -1).square().mean().backward();
  };
  if (is_victim()) {
    try {
      train();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const ParameterError& error) {
      EXPECT_EQ(error.differences(), std::vector<std::string>({"right.weight", "right.bias"}));
      EXPECT_TRUE(has(error.what(), "find_unused_parameters"));
      say(error.what());
    }
  } else {
    say(error_of<CommunicatorError>(train));
  }
}

}  // namespace
}  // namespace use_gpu
