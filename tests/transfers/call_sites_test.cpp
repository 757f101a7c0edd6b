// SPDX-License-Identifier: MIT
//
// A ledger's call sites for typical user code. This source is built twice: without optimization, where
// each function and line is known, and optimized.
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <use_gpu/network.hpp>
#include <use_gpu/parallel.hpp>
#include <use_gpu/parameters.hpp>
#include <use_gpu/tensor.hpp>
#include <use_gpu/transfers.hpp>

#include <errno.h>  // program_invocation_short_name

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "support.hpp"

using use_gpu::TransferDirection;
using use_gpu::TransferLedger;
using use_gpu::TransferSite;

// Does it, and remembers the line. It is not the last act of its function: such a call an optimizing
// compiler makes a jump, and the function is no longer there.
#define HERE(...) static_cast<void>((line = __LINE__, static_cast<void>(__VA_ARGS__), ++done))

// Outside of the namespaces that a call site is never in.
namespace idioms {

int line = 0, done = 0;

struct World {
  c10::Device device = use_gpu::gpu();
  at::Tensor host = torch::rand({8, 4}), x = torch::rand({8, 4}).to(device);
  at::Tensor positive = x > 0.5;
  at::Tensor rows = torch::arange(2);
  torch::nn::Linear net{4, 4}, host_net{4, 4};
  std::ostringstream out;
  int depth = 3;

  World() { net->to(device); }
};

#define AS_IT_IS [[gnu::noinline, gnu::used]]  // neither inlined nor cloned
#define IDIOM AS_IT_IS void

IDIOM reads_an_item(World& w) { HERE(w.x[0][0].item<float>()); }
IDIOM reads_a_double(World& w) { HERE(w.x.sum().item().toDouble()); }
IDIOM branches_on_a_sum(World& w) { HERE(w.x.sum().is_nonzero() ? w.out << "yes" : w.out << "no"); }
IDIOM prints(World& w) { HERE(w.out << w.x); }
IDIOM copies_to_the_host(World& w) { HERE(w.x.cpu()); }
IDIOM moves_to_a_device(World& w) { HERE(w.host.to(w.device)); }
IDIOM moves_with_options(World& w) {
  HERE(w.host.to(torch::device(w.device).dtype(torch::kDouble)));
}
IDIOM overwrites(World& w) { HERE(w.host.copy_(w.x)); }
IDIOM makes_from_numbers(World& w) { HERE(torch::tensor({1.0F, 2.0F}, w.device)); }
IDIOM masks(World& w) { HERE(w.x.index({w.positive})); }
IDIOM indexes_from_the_host(World& w) { HERE(w.x.index({w.rows})); }
IDIOM assigns_a_number(World& w) { HERE(w.x.index_put_({w.rows.to(w.device)}, 2)); }
IDIOM counts_nonzero(World& w) { HERE(torch::nonzero(w.x)); }
IDIOM compares(World& w) { HERE(torch::equal(w.x, w.x + 1)); }
IDIOM moves_a_network(World& w) { HERE(w.host_net->to(w.device)); }
IDIOM places_a_network(World& w) { HERE(use_gpu::place(w.host_net, w.device)); }
IDIOM reads_parameters(World& w) { HERE(use_gpu::read_parameters(w.net)); }
IDIOM shows(World& w) { HERE(w.out << use_gpu::show(w.x)); }
IDIOM saves(World& w) { HERE(torch::save(w.x, w.out)); }
IDIOM selects(World& w) { HERE(torch::masked_select(w.x, w.positive)); }
IDIOM repeats(World& w) { HERE(w.rows.to(w.device).repeat_interleave(2 * w.rows.to(w.device))); }

template <class Number>
IDIOM reads_as(World& w) {
  HERE(w.x[0][0].item<Number>());
}

// What a compiler inlines is in its caller.
[[gnu::always_inline]] inline void copies_inlined(World& w) { HERE(w.x.cpu()); }
IDIOM calls_what_is_inlined(World& w) { copies_inlined(w); }

struct Reader {
  IDIOM operator()(World& w) const { HERE(w.x.sum().item<float>()); }
  AS_IT_IS static void all(World& w) { HERE(w.x.to(torch::kCPU)); }
};

IDIOM recurses(World& w) {
  if (--w.depth > 0)
    recurses(w);
  else
    HERE(w.x.cpu());
  ++done;
}

// A step of the backward pass that reads a value.
struct Reading : torch::autograd::Function<Reading> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x * 2;
  }
  AS_IT_IS static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext*, torch::autograd::variable_list gradients) {
    HERE(gradients[0].sum().item<float>());
    return gradients;
  }
};

struct PrintingImpl : torch::nn::Module {
  AS_IT_IS at::Tensor forward(const at::Tensor& x) {
    HERE(x.norm().item<float>());
    return x;
  }
};
TORCH_MODULE(Printing);

}  // namespace idioms

// The linker keeps its name in a program without a symbol table too (CMakeLists.txt).
extern "C" [[gnu::noinline, gnu::used]] void exported_copy(idioms::World& w) {
  using idioms::line, idioms::done;
  HERE(w.x.cpu());
}

namespace {

using idioms::done;
using idioms::line;
using idioms::World;

std::vector<TransferSite> sites_of(const std::function<void()>& action) {
  const TransferLedger ledger({.call_sites = true});
  action();
  return ledger.sites();
}

// Whether the place is in that function: "idioms::prints(...) call_sites_test.cpp:51", and optimized, or
// without lines, also "idioms::prints(...) + 0x2f41".
testing::AssertionResult is_in(const std::string& where, const std::string& function) {
  const std::string start = function + "(...) ";
  bool is_right = where == start + "call_sites_test.cpp:" + std::to_string(line);
#ifndef USE_GPU_TEST_LINES
  is_right = is_right || where.starts_with(start + "+ 0x");
#endif
  if (is_right) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << '"' << where << "\", expected one in " << function << ':' << line;
}

void expect_site(const std::string& function, const std::function<void()>& action) {
  const auto sites = sites_of(action);
  ASSERT_FALSE(sites.empty()) << function;
  for (const TransferSite& site : sites) EXPECT_TRUE(is_in(site.where, function));
}

TEST(CallSites, NameTheFunctionAndTheLineOfEachIdiom) {
  USE_GPU_TEST_NEEDS(1);
#define ENTRY(function) \
  { #function, &idioms::function }
  const std::map<std::string, void (*)(World&)> all = {ENTRY(reads_an_item),
                                                       ENTRY(reads_a_double),
                                                       ENTRY(branches_on_a_sum),
                                                       ENTRY(prints),
                                                       ENTRY(copies_to_the_host),
                                                       ENTRY(moves_to_a_device),
                                                       ENTRY(moves_with_options),
                                                       ENTRY(overwrites),
                                                       ENTRY(makes_from_numbers),
                                                       ENTRY(masks),
                                                       ENTRY(indexes_from_the_host),
                                                       ENTRY(assigns_a_number),
                                                       ENTRY(counts_nonzero),
                                                       ENTRY(compares),
                                                       ENTRY(moves_a_network),
                                                       ENTRY(places_a_network),
                                                       ENTRY(reads_parameters),
                                                       ENTRY(shows),
                                                       ENTRY(saves),
                                                       ENTRY(selects),
                                                       ENTRY(repeats),
                                                       ENTRY(reads_as<float>),
                                                       ENTRY(reads_as<double>),
                                                       ENTRY(calls_what_is_inlined),
                                                       ENTRY(Reader::all)};
  for (const auto& [name, idiom] : all) {
    World world;
    expect_site("idioms::" + name, [&, run = idiom] { run(world); });
  }
}

TEST(CallSites, AreOfTheProgramsOwnFunctions) {
  USE_GPU_TEST_NEEDS(1);
  World w;
  expect_site("idioms::Reader::operator()", [&] { idioms::Reader()(w); });
  expect_site("idioms::recurses", [&] { idioms::recurses(w); });
  expect_site("idioms::PrintingImpl::forward", [&] {
    torch::nn::Sequential net(idioms::Printing{});
    net->forward(w.x);
  });
  expect_site("idioms::reads_an_item", [&] {
    use_gpu::parallel_on({w.device}, [&](c10::Device, int) { idioms::reads_an_item(w); });
  });
}

// Of this program without a symbol table only what is exported is named.
TEST(CallSites, NameExportedFunctionsOfAStrippedProgram) {
  USE_GPU_TEST_NEEDS(1);
  World w;
  const std::string stripped = "call_sites_stripped_test";
  const bool is_stripped = stripped == program_invocation_short_name;
  const auto exported = sites_of([&] { exported_copy(w); });
  const auto other = sites_of([&] { idioms::copies_to_the_host(w); });
  ASSERT_EQ(exported.size() + other.size(), 2U);
  EXPECT_TRUE(exported[0].where.starts_with("exported_copy")) << exported[0].where;
  EXPECT_TRUE(other[0].where.starts_with(is_stripped ? stripped + " + 0x"
                                                     : "idioms::copies_to_the_host(...) "))
      << other[0].where;
}

TEST(CallSites, NameWhatOnlyTheFileKnows) {
  USE_GPU_TEST_NEEDS(1);
  World w;
  struct Local {
    AS_IT_IS static void read(const at::Tensor& x) { HERE(x.sum().item<float>()); }
  };
  const auto sites = sites_of([&] { Local::read(w.x); });
  ASSERT_EQ(sites.size(), 1U);
  EXPECT_TRUE(use_gpu::test::has(sites[0].where, "Local::read(...) "));
  EXPECT_TRUE(use_gpu::test::has(sites[0].where, "CallSites_NameWhatOnlyTheFileKnows"));
}

TEST(CallSites, OfABackwardPass) {
  USE_GPU_TEST_NEEDS(1);
  World w;
  const at::Tensor leaf = w.host.clone().requires_grad_();
  const at::Tensor loss = leaf.to(w.device).sum();
  const auto sites = sites_of([&] { loss.backward(); });
  ASSERT_EQ(sites.size(), 1U);
  EXPECT_EQ(sites[0].where, "backward");
  EXPECT_EQ(sites[0].direction, TransferDirection::device_to_host);

  // The program's own step of it is a call site as any other.
  const at::Tensor other = idioms::Reading::apply(w.x.clone().requires_grad_()).sum();
  expect_site("idioms::Reading::backward", [&] { other.backward(); });
}

AS_IT_IS at::Tensor moved(const at::Tensor& x, c10::Device device) {
  at::Tensor y;
  HERE(y = x.to(device));
  return y;
}

TEST(CallSites, OfABackwardPassInAnomalyMode) {
  USE_GPU_TEST_NEEDS(1);
  World w;
  const at::Tensor leaf = w.host.clone().requires_grad_();
  const torch::autograd::DetectAnomalyGuard anomaly(/*check_nan=*/false);
  const at::Tensor loss = moved(leaf, w.device).sum();
  const auto sites = sites_of([&] { loss.backward(); });
  ASSERT_EQ(sites.size(), 1U);
  EXPECT_TRUE(is_in(sites[0].where, "backward of moved"));

  const at::Tensor other = idioms::Reading::apply(w.x.clone().requires_grad_()).sum();
  expect_site("idioms::Reading::backward", [&] { other.backward(); });
}

TEST(CallSites, AreReadWhileOthersAdd) {
  USE_GPU_TEST_NEEDS(2);
  World w;
  const TransferLedger ledger({.call_sites = true});
  use_gpu::parallel_on({use_gpu::gpu(0), use_gpu::gpu(1), use_gpu::gpu(1)},
                       [&](c10::Device, int i) {
                         for (int round = 0; round < 50; ++round) {
                           static_cast<void>(i == 0 ? w.x.cpu() : w.host.to(w.device));
                           if (i == 2 && round % 10 == 0) static_cast<void>(ledger.sites());
                         }
                       });
  std::int64_t copies = 0;
  for (const TransferSite& site : ledger.sites()) copies += site.copies;
  EXPECT_EQ(copies, 150);
}

TEST(CallSites, AddUpToTheCounts) {
  USE_GPU_TEST_NEEDS(1);
  World w;
  const TransferLedger outer({.call_sites = true});
  {
    const TransferLedger plain;
    const TransferLedger ledger({.call_sites = true});
    for (int i = 0; i < 3; ++i) idioms::copies_to_the_host(w);
    idioms::moves_to_a_device(w);
    idioms::reads_an_item(w);
    EXPECT_TRUE(plain.sites().empty());
    const auto sites = ledger.sites();
    ASSERT_EQ(sites.size(), 3U);
    EXPECT_EQ(sites[0].copies, 3);
    EXPECT_EQ(sites[0].bytes, 3U * 128);
    EXPECT_EQ(sites[0].direction, TransferDirection::device_to_host);
    EXPECT_EQ(sites[1].copies, 1);
    EXPECT_EQ(sites[1].direction, TransferDirection::host_to_device);
    EXPECT_EQ(sites[2].copies, 0);
    EXPECT_EQ(sites[2].item_reads, 1);
    EXPECT_EQ(sites[2].bytes, 0U);
    EXPECT_EQ(ledger.count(TransferDirection::device_to_host).copies, 3);
    EXPECT_EQ(ledger.item_reads(), 1);
    EXPECT_EQ(plain.item_reads(), 1);
  }
  EXPECT_EQ(outer.sites().size(), 3U);
}

TEST(CallSites, LeaveOutWhatWasForbidden) {
  USE_GPU_TEST_NEEDS(1);
  World w;
  const TransferLedger ledger({.call_sites = true});
  const use_gpu::TransferGuard guard;
  EXPECT_THROW(idioms::copies_to_the_host(w), c10::Error);
  EXPECT_TRUE(ledger.sites().empty());
}

TEST(CallSites, ArePrintedAsATable) {
  USE_GPU_TEST_NEEDS(1);
  World w;
  const TransferLedger ledger({.call_sites = true});
  EXPECT_FALSE(use_gpu::test::has(use_gpu::test::printed(ledger), "call site"));
  idioms::copies_to_the_host(w);
  const std::string table = use_gpu::test::printed(ledger);
  EXPECT_TRUE(use_gpu::test::has(table, "\n\ncall site"));
  EXPECT_TRUE(use_gpu::test::has(table, "\nidioms::copies_to_the_host(...) "));

  std::vector<TransferSite> many(23, {"here", TransferDirection::host_to_device, 1, 0, 4});
  const std::string rows = use_gpu::test::printed(many);
  EXPECT_EQ(std::ranges::count(rows, '\n'), 1 + 20 + 1);
  EXPECT_TRUE(use_gpu::test::has(rows, "and 3 more\n"));
}

}  // namespace
