// SPDX-License-Identifier: MIT
//
// Compares the ledger with the CUDA runtime's copies, for typical user code.
#include <torch/nn/parallel/data_parallel.h>
#include <torch/torch.h>
#include <use_gpu/device.hpp>
#include <use_gpu/metric_log.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/parameters.hpp>
#include <use_gpu/replicas.hpp>
#include <use_gpu/tensor.hpp>
#include <use_gpu/transfers.hpp>

#include <functional>
#include <sstream>

#include "simulated_runtime.hpp"
#include "support.hpp"

namespace use_gpu {
namespace {

// Copies, and their bytes: as the ledger has counted them, or the runtime.
struct Count {
  std::int64_t to_device, to_device_bytes, to_host, to_host_bytes, between, between_bytes;
  bool operator==(const Count&) const = default;
};

void PrintTo(const Count& c, std::ostream* out) {
  *out << "host to device " << c.to_device << " (" << c.to_device_bytes
       << " bytes), device to host " << c.to_host << " (" << c.to_host_bytes
       << "), device to device " << c.between << " (" << c.between_bytes << ')';
}

Count counted_by_runtime() {
  const auto count = [](const std::string& row) { return test::runtime_count(row); };
  return {count("host to device copies"),   count("host to device bytes"),
          count("device to host copies"),   count("device to host bytes"),
          count("device to device copies"), count("device to device bytes")};
}

// An item read is a copy to the host too, of one value.
Count counted_by(const TransferLedger& ledger) {
  const auto to_device = ledger.count(TransferDirection::host_to_device);
  const auto to_host = ledger.count(TransferDirection::device_to_host);
  const auto between = ledger.count(TransferDirection::device_to_device);
  const auto number = [](std::uint64_t bytes) { return static_cast<std::int64_t>(bytes); };
  return {to_device.copies,      number(to_device.bytes), to_host.copies + ledger.item_reads(),
          number(to_host.bytes), between.copies,          number(between.bytes)};
}

struct World {
  c10::Device first = gpu(0), second = gpu(1);
  at::Tensor x = torch::rand({8, 16}, first), y = torch::rand({8, 16});
  at::Tensor labels = torch::randint(0, 4, {8}, torch::kLong).to(first);
  torch::nn::Linear net = [this] {
    torch::nn::Linear made(16, 4);
    made->to(first);
    made(x).square().mean().backward();
    return made;
  }();
  torch::optim::Adam adam{net->parameters(), 1e-3};
  torch::optim::SGD sgd{net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)};
  torch::optim::AdamW adamw{net->parameters(), 1e-3};
};

struct Idiom {
  const char* name;
  std::function<void(World&)> run;
  // What kernels read by themselves: LibTorch's do, the simulated ones compute on the host.
  std::int64_t own_reads = 0;
};

const Idiom k_idioms[] = {
    {"to cuda", [](World& w) { (void)w.y.to(w.first); }},
    {"to cuda from strided", [](World& w) { (void)w.y.t().to(w.first); }},
    {"to cuda + dtype", [](World& w) { (void)w.y.to(w.first, torch::kHalf); }},
    {"cpu()", [](World& w) { (void)w.x.cpu(); }},
    {"cpu() strided", [](World& w) { (void)w.x.t().cpu(); }},
    {"cpu() sliced", [](World& w) { (void)w.x.slice(1, 0, 16, 2).cpu(); }},
    {"to half cpu", [](World& w) { (void)w.x.to(torch::kCPU, torch::kHalf); }},
    {"p2p", [](World& w) { (void)w.x.to(w.second); }},
    {"p2p strided", [](World& w) { (void)w.x.t().to(w.second); }},
    {"p2p dtype", [](World& w) { (void)w.x.to(w.second, torch::kHalf); }},
    {"same device dtype", [](World& w) { (void)w.x.to(torch::kHalf); }},
    {"non_blocking pinned",
     [](World& w) {
       auto p = torch::empty({8, 16}, torch::TensorOptions().pinned_memory(true));
       p.copy_(w.x, true);
       synchronize(w.first);
     }},
    {"item", [](World& w) { (void)w.x.sum().item<float>(); }},
    {"bool",
     [](World& w) {
       if (w.x.sum().item<float>() > 0) {
       }
       if (torch::is_nonzero(w.x.sum())) {
       }
     }},
    {"equal", [](World& w) { (void)w.x.equal(w.x); }},
    {"equal of another", [](World& w) { (void)w.x.equal(w.x.clone()); }, 1},
    {"allclose", [](World& w) { (void)w.x.allclose(w.x); }},
    {"tensor list init",
     [](World& w) {
       (void)torch::tensor({1., 2., 3.}, torch::TensorOptions(w.first));
     }},
    {"tensor scalar", [](World& w) { (void)torch::tensor(1., torch::TensorOptions(w.first)); }},
    {"scalar_tensor",
     [](World& w) { (void)torch::scalar_tensor(1., torch::TensorOptions(w.first)); }},
    {"full", [](World& w) { (void)torch::full({3}, 2., w.first); }},
    {"x + 1", [](World& w) { (void)(w.x + 1); }},
    {"x * cpu scalar tensor", [](World& w) { (void)(w.x * torch::tensor(2.)); }},
    {"x[i] = 2", [](World& w) { w.x.index_put_({0}, 2); }},
    {"x[1][2] = cpu scalar",
     [](World& w) {
       w.x.index_put_({1, 2}, torch::tensor(3.));
     }},
    {"x[indices] = 2",
     [](World& w) {
       const auto indices = torch::zeros({2}, torch::TensorOptions(w.first).dtype(torch::kLong));
       w.x.index_put_({indices}, 2);
     }},
    {"mask read", [](World& w) { (void)w.x.index({w.x > 0.5}); }, 1},
    {"one_hot", [](World& w) { (void)torch::one_hot(w.labels); }},
    {"normal of deviations", [](World& w) { (void)at::normal(w.x, w.x); }},
    {"histc", [](World& w) { (void)w.x.histc(4); }},
    {"one_hot of 4", [](World& w) { (void)torch::one_hot(w.labels, 4); }},
    {"multinomial", [](World& w) { (void)w.x.multinomial(2); }},
    {"linalg_inv", [](World& w) { (void)torch::linalg_inv(torch::eye(3, w.first)); }},
    {"linalg_inv_ex", [](World& w) { (void)torch::linalg_inv_ex(torch::eye(3, w.first)); }},
    {"linalg_cholesky", [](World& w) { (void)torch::linalg_cholesky(torch::eye(3, w.first)); }},
    {"clip_grad_norm_",
     [](World& w) { torch::nn::utils::clip_grad_norm_(w.net->parameters(), 1); }},
    {"ctc_loss",
     [](World& w) {
       const auto lengths = torch::tensor({8}, torch::TensorOptions(w.first).dtype(torch::kLong));
       (void)torch::ctc_loss(w.x.unsqueeze(1).log_softmax(2),
                             w.labels.slice(0, 0, 2).unsqueeze(0) + 1, lengths, lengths - 6);
     }},
    {"mask write", [](World& w) { w.x.index_put_({w.x > 0.9}, 0.5); }},
    {"masked_fill", [](World& w) { (void)w.x.masked_fill(w.x > 0.9, 0.5); }},
    {"masked_select", [](World& w) { (void)w.x.masked_select(w.x > 0.5); }, 1},
    {"mode", [](World& w) { (void)w.x.mode(); }},
    {"mode of long rows",
     [](World& w) {
       (void)w.x.new_zeros({3, 2049}).mode();
     },
     15},
    {"mode of long columns",
     [](World& w) {
       (void)w.x.new_zeros({2049, 2}).mode(0);
     },
     10},
    {"nonzero", [](World& w) { (void)w.x.nonzero(); }, 1},
    {"index by cpu indices",
     [](World& w) {
       (void)w.x.index({torch::tensor({0, 1})});
     }},
    {"index by vector slice", [](World& w) { (void)w.x.index({torch::indexing::Slice(0, 4)}); }},
    {"index_select",
     [](World& w) {
       (void)w.x.index_select(
           0, torch::tensor({0, 1}, torch::TensorOptions(w.first).dtype(torch::kLong)));
     }},
    {"print",
     [](World& w) {
       std::ostringstream s;
       s << w.x;
     }},
    {"show",
     [](World& w) {
       std::ostringstream s;
       s << show(w.x);
     }},
    {"cross entropy step",
     [](World& w) {
       torch::nn::Linear net(16, 4);
       net->to(w.first);
       auto l = torch::nn::functional::cross_entropy(net(w.x), w.labels);
       l.backward();
     }},
    {"adam 3 steps",
     [](World& w) {
       for (int i = 0; i < 3; ++i) {
         w.adam.zero_grad();
         w.net(w.x).square().mean().backward();
         w.adam.step();
       }
     }},
    {"sgd 3 steps",
     [](World& w) {
       for (int i = 0; i < 3; ++i) {
         w.sgd.zero_grad();
         w.net(w.x).square().mean().backward();
         w.sgd.step();
       }
     }},
    {"adamw 3 steps",
     [](World& w) {
       for (int i = 0; i < 3; ++i) {
         w.adamw.zero_grad();
         w.net(w.x).square().mean().backward();
         w.adamw.step();
       }
     }},
    {"clip_grad_norm_",
     [](World& w) { torch::nn::utils::clip_grad_norm_(w.net->parameters(), 1.0); }},
    {"clip_grad_norm_ error_if_nonfinite",
     [](World& w) { torch::nn::utils::clip_grad_norm_(w.net->parameters(), 1.0, 2.0, true); }},
    {"clip_grad_value_",
     [](World& w) { torch::nn::utils::clip_grad_value_(w.net->parameters(), 1.0); }},
    {"save optimizer",
     [](World& w) {
       std::ostringstream s;
       torch::save(w.adam, s);
     }},
    {"save net",
     [](World& w) {
       std::ostringstream s;
       torch::save(w.net, s);
     }},
    {"parameters_to_vector",
     [](World& w) { (void)torch::nn::utils::parameters_to_vector(w.net->parameters()); }},
    {"batchnorm train",
     [](World& w) {
       torch::nn::BatchNorm1d bn(16);
       bn->to(w.first);
       bn(w.x).sum().backward();
     }},
    {"dropout",
     [](World& w) {
       torch::nn::Dropout d(0.5);
       (void)d(w.x);
     }},
    {"embedding",
     [](World& w) {
       torch::nn::Embedding e(10, 4);
       e->to(w.first);
       (void)e(w.labels);
     }},
    {"lstm",
     [](World& w) {
       torch::nn::LSTM l(16, 8);
       l->to(w.first);
       (void)std::get<0>(l(w.x.unsqueeze(1)));
     }},
    {"multihead attention",
     [](World& w) {
       torch::nn::MultiheadAttention a(16, 2);
       a->to(w.first);
       auto q = w.x.unsqueeze(1);
       (void)a(q, q, q);
     }},
    {"conv",
     [](World& w) {
       torch::nn::Conv2d c(1, 2, 3);
       c->to(w.first);
       (void)c(w.x.view({1, 1, 8, 16}));
     }},
    {"randperm", [](World& w) { (void)torch::randperm(10, torch::TensorOptions(w.first)); }},
    {"multinomial", [](World& w) { (void)w.x.abs().multinomial(2); }},
    {"bernoulli", [](World& w) { (void)torch::bernoulli(w.x.clamp(0, 1)); }},
    {"unique", [](World& w) { (void)torch::_unique2(w.labels); }, 1},
    {"sort/topk",
     [](World& w) {
       (void)w.x.sort();
       (void)w.x.topk(2);
     }},
    {"where", [](World& w) { (void)torch::where(w.x > 0.5, w.x, torch::zeros({}, w.first)); }},
    {"where 1 arg", [](World& w) { (void)torch::where(w.x > 0.5); }, 1},
    {"repeat_interleave",
     [](World& w) {
       (void)w.x.repeat_interleave(torch::tensor({1, 2, 1, 1, 1, 1, 1, 1},
                                                 torch::TensorOptions(w.first).dtype(torch::kLong)),
                                   0);
     },
     2},
    {"split sizes tensor",
     [](World& w) {
       (void)w.x.tensor_split(torch::tensor({2, 4}), 0);
     }},
    {"linspace/arange/eye",
     [](World& w) {
       (void)torch::linspace(0, 1, 5, w.first);
       (void)torch::arange(5, w.first);
       (void)torch::eye(3, w.first);
     }},
    {"one_hot", [](World& w) { (void)torch::one_hot(w.labels); }},
    {"one_hot n", [](World& w) { (void)torch::one_hot(w.labels, 4); }},
    {"inverse",
     [](World& w) {
       (void)torch::rand({3, 3}, w.first).inverse();
     }},
    {"std/var/norm",
     [](World& w) {
       (void)w.x.std();
       (void)w.x.norm();
     }},
    {"histc", [](World& w) { (void)w.x.histc(4); }},
    {"bincount", [](World& w) { (void)w.labels.bincount(); }, 2},
    {"pin_memory", [](World& w) { (void)w.y.pin_memory(); }},
    {"pin + to", [](World& w) { (void)w.y.pin_memory().to(w.first, true); }},
    {"place",
     [](World& w) {
       torch::nn::Sequential n(torch::nn::Linear(4, 4), torch::nn::Linear(4, 4));
       place(n, w.first);
       place(n, w.second);
       place(n, cpu());
     }},
    {"Module::to",
     [](World& w) {
       torch::nn::Sequential n(torch::nn::Linear(4, 4), torch::nn::Linear(4, 4));
       n->to(w.first);
       n->to(w.second);
       n->to(cpu());
     }},
    {"read/write parameters",
     [](World& w) {
       torch::nn::Sequential n(torch::nn::Linear(4, 4), torch::nn::Linear(4, 4));
       n->to(w.first);
       auto p = read_parameters(n);
       write_parameters(n, p);
     }},
    {"mirror + average",
     [](World& w) {
       auto n = mirror({w.first, w.second}, [] { return torch::nn::Linear(3, 1); });
       for (auto& m : n) m(torch::ones({2, 3}, m->weight.device())).sum().backward();
       average_gradients(n);
     }},
    {"metric log",
     [](World& w) {
       MetricLog log(w.first, 4);
       for (int i = 0; i < 10; ++i) log.push(w.x.sum());
       (void)log.values();
     }},
    {"data_parallel",
     [](World& w) {
       torch::nn::Linear n(16, 4);
       n->to(w.first);
       (void)torch::nn::parallel::data_parallel(n, w.x,
                                                std::vector<torch::Device>{w.first, w.second});
     }},
    {"scatter/gather",
     [](World& w) {
       auto v = torch::chunk(w.x, 2);
       (void)torch::cat({v[0], v[1]});
     }},
    {"set_data",
     [](World& w) {
       auto t = torch::rand({3}, w.first);
       t.set_data(torch::rand({3}, w.second));
     }},
    {"sparse to dense",
     [](World& w) {
       auto s = torch::eye(4).to_sparse().to(w.first);
       (void)s.cpu();
     }},
    {"complex",
     [](World& w) {
       auto c = torch::view_as_complex(torch::rand({4, 2}, w.first));
       (void)c.conj().cpu();
     }},
    {"quantile/median",
     [](World& w) {
       (void)w.x.median();
       (void)w.x.quantile(0.5);
     }},
    {"std::cout size",
     [](World& w) {
       std::ostringstream s;
       s << w.x.sizes() << w.x.numel() << w.x.dtype();
     }},
    {"accessor-ish data_ptr", [](World& w) { (void)w.x.data_ptr<float>(); }},
    {"tolist loop",
     [](World& w) {
       for (int i = 0; i < 3; ++i) (void)w.x[i][0].item<float>();
     }},
    {"broadcast to cuda", [](World& w) { w.x.copy_(w.y[0]); }},
    {"broadcast to cpu", [](World& w) { w.y.copy_(w.x[0]); }},
    {"broadcast p2p", [](World& w) { w.x.copy_(w.x[0].to(w.second)); }},
    {"to cuda + wider dtype", [](World& w) { (void)w.y.to(w.first, torch::kDouble); }},
    {"to wider dtype cpu", [](World& w) { w.y.to(torch::kDouble).copy_(w.x); }},
    {"p2p wider dtype", [](World& w) { (void)w.x.to(w.second, torch::kDouble); }},
    {"csr to cuda", [](World& w) { (void)torch::eye(4).to_sparse_csr().to(w.first); }},
};

void PrintTo(const Idiom& idiom, std::ostream* out) { *out << idiom.name; }

std::string test_name(const testing::TestParamInfo<Idiom>& idiom) {
  return std::to_string(idiom.index);
}

#define NEEDS_TWO_SIMULATED_GPUS \
  if (num_gpus() < 2 || !test::simulated()) GTEST_SKIP() << "needs 2 simulated GPUs"

class OfEachIdiom : public testing::TestWithParam<Idiom> {};

TEST_P(OfEachIdiom, TheLedgerSaysWhatTheRuntimeCopied) {
  NEEDS_TWO_SIMULATED_GPUS;
  World world;
  const auto before = counted_by_runtime();
  const TransferLedger ledger;
  GetParam().run(world);
  const auto after = counted_by_runtime();
  Count copied{after.to_device - before.to_device, after.to_device_bytes - before.to_device_bytes,
               after.to_host - before.to_host,     after.to_host_bytes - before.to_host_bytes,
               after.between - before.between,     after.between_bytes - before.between_bytes};
  auto seen = counted_by(ledger);
  seen.to_host -= GetParam().own_reads;
  if (ledger.item_reads() > 0) {  // the ledger does not say of how many bytes those were
    EXPECT_GE(copied.to_host_bytes, seen.to_host_bytes);
    copied.to_host_bytes = seen.to_host_bytes;
  }
  EXPECT_EQ(seen, copied);
}

// LibTorch's own kernels, launched and not computed: what they read back are unspecified values.
TEST(KernelsOwnReads, AreItemReadsOfTheLedger) {
  NEEDS_TWO_SIMULATED_GPUS;
  if (!test::is_dry_run()) GTEST_SKIP() << "needs simulate_gpus --dry-run";
  const auto x = torch::zeros({8, 16}, gpu(0));
  const auto mask = torch::zeros({8, 16}, torch::TensorOptions(gpu(0)).dtype(torch::kBool));
  const auto labels = torch::zeros({8}, torch::TensorOptions(gpu(0)).dtype(torch::kLong));
  const auto empty = labels.slice(0, 0, 0);
  const auto sparse = [&](std::int64_t count) {
    return torch::sparse_coo_tensor(labels.slice(0, 0, count).unsqueeze(0), x[0].slice(0, 0, count),
                                    {4}, x.options(), /*is_coalesced=*/false);
  };
  const std::pair<const char*, std::function<void()>> operations[] = {
      {"_unique", [&] { (void)torch::_unique(labels); }},
      {"_unique2", [&] { (void)torch::_unique2(labels); }},
      {"bincount", [&] { (void)labels.bincount(); }},
      {"bincount of nothing", [&] { (void)empty.bincount(); }},
      {"equal", [&] { (void)x.equal(mask.to(torch::kFloat)); }},
      {"equal to itself", [&] { (void)x.equal(x); }},
      {"equal, other sizes", [&] { (void)x.equal(labels); }},
      {"masked_select", [&] { (void)x.masked_select(mask); }},
      {"masked_select of nothing", [&] { (void)empty.masked_select(empty > 0); }},
      {"mode", [&] { (void)x.mode(); }},
      {"mode of long rows of bool",
       [&] {
         (void)mask.new_zeros({3, 2049}).mode();
       }},
      {"mode of a number", [&] { (void)torch::zeros({}, gpu(0)).mode(); }},
      {"_coalesce", [&] { (void)sparse(2).coalesce(); }},
      {"_coalesce of one value", [&] { (void)sparse(1).coalesce(); }},
      {"nonzero", [&] { (void)x.nonzero(); }},
      {"nonzero of nothing", [&] { (void)empty.nonzero(); }},
      {"repeat_interleave of nothing", [&] { (void)torch::repeat_interleave(empty); }},
      {"_unique2 of nothing", [&] { (void)torch::_unique2(empty); }},
      {"unique_consecutive", [&] { (void)torch::unique_consecutive(labels); }},
      {"unique_dim", [&] { (void)torch::unique_dim(x, 0); }},
      {"unique_dim_consecutive", [&] { (void)torch::unique_dim_consecutive(x, 0); }}};
  for (const auto& [name, run] : operations) {
    const auto before = counted_by_runtime();
    const TransferLedger ledger;
    try {
      run();
    } catch (const c10::Error&) {  // because the values read are unspecified
    }
    EXPECT_EQ(ledger.item_reads(), counted_by_runtime().to_host - before.to_host) << name;
  }
}

TEST(KernelsOwnReads, OfModeAreFiveForALongRow) {
  NEEDS_TWO_SIMULATED_GPUS;
  if (!test::is_dry_run()) GTEST_SKIP() << "needs simulate_gpus --dry-run";
  const auto x = torch::zeros({3, 2049}, gpu(0));
  const auto before = counted_by_runtime();
  // As nothing was computed, it refuses what it has read of the first row.
  EXPECT_THROW((void)x.mode(), c10::Error);
  EXPECT_EQ(counted_by_runtime().to_host - before.to_host, 5);
}

INSTANTIATE_TEST_SUITE_P(Transfers, OfEachIdiom, testing::ValuesIn(k_idioms), test_name);

}  // namespace
}  // namespace use_gpu
