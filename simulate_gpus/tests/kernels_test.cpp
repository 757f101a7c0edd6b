// SPDX-License-Identifier: MIT
//
// What simulated GPUs compute, and what they refuse to. Runs on two.
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <torch/nested.h>
#include <torch/nn/modules.h>
#include <torch/nn/utils.h>
#include <torch/optim.h>
#include <torch/version.h>

#include <array>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support.hpp"

// A launch's side of nvcc's registration. NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*,
                                       dim3*, dim3*, int*);
namespace {

using torch::Tensor;

TEST(Kernels, ThatCannotBeComputedAreRefusedByName) {
  EXPECT_TRUE(has(error_of([] {
                    (void)at::quantize_per_tensor(torch::ones({4}, k_gpu), 0.1, 0, torch::kQInt8);
                  }),
                  "Simulated GPUs have no quantized tensors"));
  EXPECT_TRUE(has(error_of([] { (void)at::_fused_dropout(torch::ones({4}, k_gpu), 0.5); }),
                  "Simulated GPUs have no aten::_fused_dropout"));
}

// A program that does not look at the error of its launch learns it from the next operation.
TEST(Kernels, ThatAreRefusedUnseenAreReportedBeforeTheirValuesAreRead) {
  static char kernel;
  __cudaRegisterFunction(nullptr, &kernel, nullptr, "_Z9my_kernelPf", 0, nullptr, nullptr, nullptr,
                         nullptr, nullptr);
  (void)cudaLaunchKernel(&kernel, dim3(1), dim3(1), nullptr, 0, nullptr);
  EXPECT_TRUE(has(error_of([] { (void)torch::ones({4}, k_gpu); }), "the CUDA kernel my_kernel"));
  EXPECT_TRUE(torch::ones({4}, k_gpu).cpu().equal(torch::ones({4})));
}

struct Deterministic {
  Deterministic() { at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false); }
  ~Deterministic() { at::globalContext().setDeterministicAlgorithms(false, false); }
};

// Where LibTorch itself refuses on the host, before a kernel of a GPU is launched.
TEST(Kernels, AreRefusedWhereAProgramWantsDeterministicOnes) {
  namespace F = torch::nn::functional;
  const Tensor x = torch::rand({1, 2, 8}, k_gpu).requires_grad_(), y = x.detach().flatten();
  const Tensor integers = torch::arange(4, k_gpu), places = integers.clone(),
               values = torch::rand({4}, k_gpu);
  const Tensor table = torch::rand({5, 3}, k_gpu).requires_grad_();
  const auto bag = [&](auto mode) {
    return F::embedding_bag(places, table,
                            F::EmbeddingBagFuncOptions().mode(mode).offsets(places.slice(0, 0, 1)));
  };
  const Tensor picture = torch::rand({1, 3, 2, 2}, k_gpu),
               labels = torch::zeros({1, 2, 2}, torch::TensorOptions(k_gpu).dtype(torch::kLong));
  const std::vector<std::pair<const char*, std::function<void()>>> refused = {
      {"reflection_pad1d_backward_out_cuda",
       [&] {
         torch::reflection_pad1d(x, {1, 1}).sum().backward();
       }},
      {"embedding_bag_backward_cuda_max", [&] { bag(torch::kMax).sum().backward(); }},
      {"_histc_cuda with floating point input", [&] { (void)y.histc(); }},
      {"median CUDA with indices output", [&] { (void)y.median(0); }},
      {"_bincount_cuda", [&] { (void)integers.bincount(values); }},
      {"nll_loss2d_forward_out_cuda_template", [&] { (void)at::nll_loss2d(picture, labels); }},
      {"put_", [&] { y.clone().put_(places, values, /*accumulate=*/true); }},
      {"put_", [&] { y.clone().put_(places, values); }},
      {"scatter_reduce_cuda_kernel", [&] { (void)y.scatter(0, places, values, "multiply"); }},
      {"scatter_reduce_cuda_prod_", [&] { (void)y.scatter_reduce(0, places, values, "prod"); }},
      {"index_reduce_cuda", [&] { (void)y.index_reduce(0, places, values, "amax"); }},
  };
  const std::vector<std::function<void()>> taken = {
      [&] { bag(torch::kSum).sum().backward(); },
      [&] { EXPECT_TRUE(integers.bincount().cpu().equal(torch::ones({4}, torch::kLong))); },
      [&] { EXPECT_TRUE(integers.histc(4).cpu().equal(torch::ones({4}, torch::kLong))); },
      [&] { EXPECT_FLOAT_EQ(y.median().item<float>(), y.cpu().median().item<float>()); },
      [&] { (void)at::nll_loss2d(picture, labels, {}, torch::Reduction::None); },
      [&] { (void)y.scatter(0, places, values); },
      [&] { (void)y.scatter_reduce(0, places, values, "amax"); },
      [&] { (void)y.scatter_add(0, places, values); },
  };
  for (const auto& [caller, action] : refused) {
    const Deterministic mode;
    EXPECT_TRUE(has(error_of(action),
                    std::string(caller) + " does not have a deterministic implementation"));
  }
  for (const auto& action : taken) {
    const Deterministic mode;
    EXPECT_NO_THROW(action());
  }
  for (const auto& [caller, action] : refused) EXPECT_NO_THROW(action()) << caller;
}

// What Python's SyncBatchNorm calls: a batch of two parts is normalized as a whole.
TEST(Kernels, NormalizeABatchOfTwoParts) {
  for (const auto type : {torch::kFloat, torch::kHalf}) {
    const double bound = type == torch::kHalf ? 2e-2 : 1e-4;
    const auto options = torch::TensorOptions(k_gpu).dtype(type);
    const Tensor x = torch::rand({5, 3, 4}, options), grad = torch::rand({5, 3, 4}, options);
    const Tensor weight = torch::rand({3}, k_gpu), bias = torch::rand({3}, k_gpu);
    const Tensor running_mean = torch::zeros({3}, k_gpu), running_var = torch::ones({3}, k_gpu);
    const Tensor whole = x.to(torch::kFloat).cpu().requires_grad_();
    const Tensor mean_of_whole = torch::zeros({3}), var_of_whole = torch::ones({3}),
                 whole_weight = weight.cpu().requires_grad_(),
                 whole_bias = bias.cpu().requires_grad_();
    const Tensor expected = torch::batch_norm(whole, whole_weight, whole_bias, mean_of_whole,
                                              var_of_whole, true, 0.1, 1e-5, false);
    expected.backward(grad.to(torch::kFloat).cpu());

    const std::vector<Tensor> parts{x.slice(0, 0, 2), x.slice(0, 2)},
        grads{grad.slice(0, 0, 2), grad.slice(0, 2)};
    const auto [mean0, scale0] = at::batch_norm_stats(parts[0], 1e-5);
    const auto [mean1, scale1] = at::batch_norm_stats(parts[1], 1e-5);
    const Tensor counts = torch::tensor({8.F, 12.F}).to(k_gpu);
    const auto [mean, scale] = at::batch_norm_gather_stats_with_counts(
        x, torch::stack({mean0, mean1}), torch::stack({scale0, scale1}), running_mean, running_var,
        0.1, 1e-5, counts);
    const auto same = [&](const Tensor& found, const Tensor& reference) {
      return found.to(torch::kFloat).cpu().allclose(reference, bound, bound);
    };
    EXPECT_TRUE(same(running_mean, mean_of_whole) && same(running_var, var_of_whole));
    std::vector<Tensor> outputs, of_inputs;
    Tensor sum = torch::zeros({3}, k_gpu), product = sum.clone(), of_weight = sum.clone(),
           of_bias = sum.clone();
    for (std::size_t i = 0; i < 2; ++i) {
      outputs.push_back(at::batch_norm_elemt(parts[i], weight, bias, mean, scale, 1e-5));
      const auto [s, p, w, b] =
          at::batch_norm_backward_reduce(grads[i], parts[i], mean, scale, weight, true, true, true);
      sum += s;
      product += p;
      of_weight += w;
      of_bias += b;
    }
    for (std::size_t i = 0; i < 2; ++i) {
      of_inputs.push_back(at::batch_norm_backward_elemt(grads[i], parts[i], mean, scale, weight,
                                                        sum, product, counts.to(torch::kInt)));
    }
    EXPECT_EQ(outputs[0].scalar_type(), type);
    EXPECT_TRUE(same(torch::cat(outputs), expected.detach()));
    EXPECT_TRUE(same(torch::cat(of_inputs), whole.grad()));
    EXPECT_TRUE(same(of_weight, whole_weight.grad()) && same(of_bias, whole_bias.grad()));
  }
}

TEST(Kernels, ComputeOnNestedTensors) {
  const std::vector<Tensor> parts{torch::randn({3, 8}), torch::randn({5, 8})};
  const Tensor host = torch::nested::nested_tensor(parts), nested = host.to(k_gpu);
  const auto padded = [](const Tensor& x) { return torch::nested::to_padded_tensor(x.cpu(), 0.0); };
  EXPECT_TRUE(torch::nested::to_padded_tensor(nested, 0.0).cpu().equal(padded(host)));
  EXPECT_TRUE(padded(nested.softmax(-1)).allclose(padded(host.softmax(-1))));
  EXPECT_TRUE(padded(torch::matmul(nested, nested.transpose(1, 2)))
                  .allclose(padded(torch::matmul(host, host.transpose(1, 2))), 1e-4, 1e-5));
  EXPECT_TRUE(padded(nested + nested).equal(padded(host + host)));
  nested.mul_(2);
  EXPECT_TRUE(padded(nested).equal(padded(host * 2)));
}

// A kernel for a few queries at a time, as a GPU has it: all pairs of 4096 would take 512 MiB.
TEST(Kernels, AttendWithoutMemoryForAllPairs) {
  for (const auto type : {torch::kHalf, torch::kBFloat16, torch::kFloat}) {
    const Tensor x = torch::randn({1, 8, 4096, 16}, torch::TensorOptions(k_gpu).dtype(type));
    c10::cuda::CUDACachingAllocator::resetPeakStats(0);
    const auto allocated = [] {
      return c10::cuda::CUDACachingAllocator::getDeviceStats(0).allocated_bytes[0];
    };
    const auto before = allocated().current;
    const Tensor y = torch::scaled_dot_product_attention(x, x, x, {}, 0.0, /*is_causal=*/true);
    EXPECT_LT(allocated().peak - before, std::int64_t{2} * static_cast<std::int64_t>(x.nbytes()));
    EXPECT_TRUE(y.slice(2, 0, 1).cpu().allclose(x.slice(2, 0, 1).cpu(), 1e-2, 1e-2));
  }
}

// A result was computed in memory of the host, of which nothing is left to see.
TEST(Kernels, GiveTensorsLikeTheProgramsOwn) {
  const auto expect_alike = [](const Tensor& result) {
    const Tensor own = torch::empty_strided(result.sizes(), result.strides(), result.options());
    const auto &memory = result.storage(), &own_memory = own.storage();
    EXPECT_TRUE(result.key_set() == own.key_set());
    EXPECT_EQ(result.is_inference(), own.is_inference());
    EXPECT_EQ(memory.device(), own_memory.device());
    EXPECT_EQ(memory.nbytes(), own_memory.nbytes());
    EXPECT_EQ(memory.resizable(), own_memory.resizable());
    EXPECT_EQ(memory.allocator(), own_memory.allocator());
    EXPECT_TRUE(memory.data_ptr().get_deleter() == own_memory.data_ptr().get_deleter());
    EXPECT_TRUE(result.is_inference() || result._version() == own._version());
  };
  for (const torch::Device& gpu : {k_gpu, k_second_gpu}) {
    const Tensor x = torch::arange(6., gpu);
    const Tensor matrix = x.view({2, 3});
    for (const bool is_inference : {false, true}) {
      const c10::InferenceMode mode(is_inference);
      const auto [largest, places] = matrix.max(0);
      for (const Tensor& result :
           {matrix.relu(), matrix.sum(), matrix.t().mm(matrix), matrix.t().contiguous(), largest,
            places, matrix.eq(1), torch::complex(x, x), x.clone(), torch::cat({x, x}), x.add(1),
            std::get<0>(matrix.sort(1)), x.nonzero(), torch::rand({3}, x.options())})
        expect_alike(result);
    }
    Tensor result = matrix.add(1);
    result.resize_({20, 3});
    EXPECT_TRUE(result.narrow(0, 0, 2).cpu().equal(matrix.cpu() + 1));
  }
}

// Of another size, they get the result's; of as many elements, some keep their own.
TEST(Kernels, WriteOutputsOfAnyShape) {
  Tensor x = torch::zeros({2, 3}, torch::device(k_gpu).dtype(torch::kInt)),
         part = x.narrow(1, 1, 2);
  at::linspace_out(part, 0, 3, 4);
  EXPECT_TRUE(x.cpu().equal(torch::tensor({{0, 0, 1}, {0, 2, 3}}, torch::kInt)));
  for (const int size : {5, 1, 7, 3}) {  // each by the views of the last call
    Tensor small = torch::empty({2}, k_gpu);
    const Tensor y = torch::arange(size, torch::device(k_gpu).dtype(torch::kFloat));
    at::add_out(small, y, y);
    EXPECT_TRUE(small.cpu().equal(2 * torch::arange(size, torch::kFloat)));
    EXPECT_TRUE(y.cpu().equal(torch::arange(size, torch::kFloat)));
  }
}

TEST(Kernels, DoNotDependOnFlags) {
  const Tensor q = torch::rand({1, 2, 4, 8}), x = torch::rand({2, 3, 8, 8}),
               weight = torch::rand({4, 3, 3, 3});
  const Tensor attended = torch::scaled_dot_product_attention(q, q, q),
               convolved = torch::conv2d(x, weight);
  auto& context = at::globalContext();
  EXPECT_TRUE(context.userEnabledCuDNN());  // as LibTorch has it
  for (const bool on : {true, false}) {
    context.setUserEnabledCuDNN(on);
    context.setSDPUseFlash(on);
    context.setSDPUseMemEfficient(on);
    context.setSDPUseMath(!on);
    const Tensor on_gpu = q.to(k_gpu);
    EXPECT_TRUE(
        torch::scaled_dot_product_attention(on_gpu, on_gpu, on_gpu).cpu().allclose(attended));
    EXPECT_TRUE(torch::conv2d(x.to(k_gpu), weight.to(k_gpu)).cpu().allclose(convolved, 1e-4, 1e-5));
    torch::nn::BatchNorm2d norm(3);
    const Tensor expected = norm(x);
    norm->to(k_gpu);
    EXPECT_TRUE(norm(x.to(k_gpu)).cpu().allclose(expected, 1e-4, 1e-5));
    torch::nn::LSTM lstm(8, 4);
    const Tensor output = std::get<0>(lstm(x[0]));
    lstm->to(k_gpu);
    EXPECT_TRUE(std::get<0>(lstm(x[0].to(k_gpu))).cpu().allclose(output, 1e-4, 1e-5));
  }
  context.setUserEnabledCuDNN(true);
  context.setSDPUseMath(true);
}

// Few values are copied without the CPU's kernel, if they lie in order.
TEST(Kernels, JoinTensors) {
  const auto check = [](const Tensor& x, std::int64_t dim, const auto& parts_of) {
    const Tensor joined = torch::cat(parts_of(x.to(k_gpu)), dim),
                 expected = torch::cat(parts_of(x), dim);
    EXPECT_EQ(joined.scalar_type(), expected.scalar_type());
    EXPECT_EQ(joined.strides(), expected.strides());
    EXPECT_TRUE(joined.cpu().equal(expected)) << expected.sizes() << ' ' << dim;
  };
  using Parts = std::vector<Tensor>;
  for (const auto dtype :
       {torch::kFloat, torch::kDouble, torch::kHalf, torch::kLong, torch::kBool}) {
    const Tensor x = (100 * torch::rand({4, 3, 5})).to(dtype);
    for (std::int64_t dim = -3; dim < 3; ++dim) {
      check(x, dim, [&](const Tensor& y) { return Parts{y, y.narrow(dim, 1, 2).contiguous(), y}; });
      check(x, dim, [&](const Tensor& y) { return Parts{y, y.narrow(dim, 1, 2)}; });
      check(x, dim, [&](const Tensor& y) { return Parts{y, y[0].expand_as(y)}; });
      check(x, dim, [&](const Tensor& y) { return Parts{y.narrow(dim, 0, 0).contiguous(), y}; });
    }
    check(x, 1, [](const Tensor& y) { return Parts{y, y.new_empty({0})}; });
    check(x[0][0], 0, [](const Tensor& y) { return Parts{y, y.narrow(0, 2, 3)}; });
    check(x.repeat({20, 10, 20}), 1, [](const Tensor& y) { return Parts{y, y}; });
  }
  const Tensor images = torch::rand({2, 3, 4, 4});
  for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast})
    check(images.to(format), 1, [](const Tensor& y) { return Parts{y, y}; });
  check(images[0], 0, [](const Tensor& y) { return Parts{y, y.to(torch::kLong)}; });
  const Tensor x = torch::ones({2, 3}, k_gpu);
  EXPECT_TRUE(has(error_of([&] { torch::cat({x, x}, 2); }), "Dimension out of range"));
  EXPECT_TRUE(has(error_of([&] { torch::cat({x, x.t()}, 0); }), "Sizes of tensors must match"));
  EXPECT_TRUE(has(error_of([&] { torch::cat({x, x.to(k_second_gpu)}, 0); }), "same device"));
}

TEST(Kernels, ComputeInEveryType) {
  for (const auto type : {torch::kHalf, torch::kBFloat16, torch::kDouble, torch::kComplexFloat,
                          torch::kComplexDouble}) {
    const Tensor x = torch::rand({4, 4}).to(type), y = torch::rand({4, 4}).to(type);
    const Tensor expected = (x.mm(y) + x).div(y + 1).sum(0);
    const Tensor a = x.to(k_gpu), b = y.to(k_gpu);
    EXPECT_TRUE((a.mm(b) + a).div(b + 1).sum(0).cpu().allclose(expected, 1e-2, 1e-2)) << type;
  }
}

TEST(Kernels, ComputeOnSparseTensors) {
  const Tensor dense = torch::rand({4, 5}).mul_(torch::rand({4, 5}) > 0.5),
               right = torch::rand({5, 3});
  for (const auto& sparse : {dense.to_sparse(), dense.to_sparse_csr()}) {
    const Tensor x = sparse.to(k_gpu);
    EXPECT_TRUE(x.to_dense().cpu().equal(dense));
    EXPECT_TRUE(x.cpu().to_dense().equal(dense));
    EXPECT_TRUE(torch::matmul(x, right.to(k_gpu)).cpu().allclose(dense.mm(right)));
    EXPECT_TRUE((x + x).to_dense().cpu().equal(dense * 2));
    EXPECT_TRUE(dense.to(k_gpu).to_sparse().to_dense().cpu().equal(dense));
  }
  torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(6, 3).sparse(true));
  embedding->to(k_gpu);
  const Tensor before = embedding->weight.detach().cpu();
  torch::optim::SGD sgd(embedding->parameters(), 0.5);
  embedding(torch::tensor({1, 4, 1}, k_gpu)).sum().backward();
  EXPECT_TRUE(embedding->weight.grad().is_sparse());
  sgd.step();
  const Tensor step = torch::tensor({0.0, 1.0, 0.0, 0.0, 0.5, 0.0}).to(torch::kFloat).unsqueeze(1);
  EXPECT_TRUE(embedding->weight.detach().cpu().allclose(before - step));
}

template <class Optimizer, class Options>
void check_optimizer(const char* name, const Options& options) {
  const auto train = [&](const torch::Device& device) {
    torch::manual_seed(0);
    torch::nn::Sequential net(torch::nn::Linear(5, 4), torch::nn::Tanh(), torch::nn::Linear(4, 1));
    const Tensor x = torch::rand({8, 5}).to(device), y = torch::rand({8, 1}).to(device);
    net->to(device);
    Optimizer optimizer(net->parameters(), options);
    for (int step = 0; step < 5; ++step) {
      optimizer.step([&] {
        optimizer.zero_grad();
        Tensor loss = torch::mse_loss(net->forward(x), y);
        loss.backward();
        return loss;
      });
    }
    return torch::nn::utils::parameters_to_vector(net->parameters()).detach().cpu();
  };
  EXPECT_TRUE(train(k_gpu).allclose(train(torch::kCPU), 1e-4, 1e-5)) << name;
}

TEST(Kernels, ServeEveryOptimizer) {
  namespace optim = torch::optim;
  check_optimizer<optim::Adagrad>("Adagrad", optim::AdagradOptions(0.1));
  check_optimizer<optim::Adam>("Adam", optim::AdamOptions(0.1).amsgrad(true));
  check_optimizer<optim::AdamW>("AdamW", optim::AdamWOptions(0.1));
  check_optimizer<optim::LBFGS>("LBFGS", optim::LBFGSOptions(0.1));
  check_optimizer<optim::RMSprop>("RMSprop",
                                  optim::RMSpropOptions(0.1).centered(true).momentum(0.5));
  check_optimizer<optim::SGD>("SGD", optim::SGDOptions(0.1).momentum(0.9).nesterov(true));
}

// What NVIDIA's libraries compute and has no shape function in C++. In a dry run nothing is computed.
std::vector<Tensor> results_of_libraries(c10::Device device) {
  const Tensor square = torch::eye(5, device).expand({3, 5, 5}).contiguous();
  const Tensor a = torch::rand({3, 6, 4}, device), b = torch::rand({3, 4, 8}, device);
  const Tensor small = torch::zeros({32, 64}, device).to(torch::kChar);
  Tensor written = torch::rand({6, 8}, device), output = torch::empty({0}, device);
  written.addbmm_(a, b);
  at::addbmm_out(output, written, a, b);
  const auto [values, vectors] = at::linalg_eig(square);
  const auto [packed, scales] = at::geqrf(a);
  std::vector<Tensor> results{
      written,
      output,
      at::addbmm(written, a, b),
      at::dot(a[0][0], a[0][1]),
      at::vdot(a[0][0], a[0][1]),
      at::_int_mm(small, small.t()),
      at::cholesky_inverse(square),
      at::cholesky_solve(square.narrow(2, 0, 2), square),
      values,
      vectors,
      at::linalg_eigvals(square),
      packed,
      scales,
      at::linalg_householder_product(packed, scales),
      at::ormqr(packed, scales, torch::rand({3, 6, 2}, device)),
      at::linalg_solve_triangular(square, torch::rand({2, 1, 5, 7}, device), true),
      at::linalg_solve_triangular(square, torch::rand({7, 5}, device), true, false),
      at::fft_fft(a),
      at::fft_fft(a, 9, 1),
      at::fft_rfftn(a),
      at::fft_irfft(at::fft_rfft(a)),
      at::fft_irfft(at::fft_rfft(a), 5)};
#if TORCH_VERSION_MINOR < 14  // the newer ones have linalg_cholesky alone
  results.push_back(at::cholesky(square));
#endif
  return results;
}

TEST(Libraries, ResultsHaveTheCpusShapes) {
  const auto found = results_of_libraries(k_gpu), expected = results_of_libraries(torch::kCPU);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found[i].sizes(), expected[i].sizes()) << i;
    EXPECT_EQ(found[i].dtype(), expected[i].dtype()) << i;
  }
}

TEST(Kernels, ProductsHaveTheDtypeThatIsAskedFor) {
  const Tensor a = torch::randn({2, 3, 3}, k_gpu).to(torch::kHalf), wide = a.to(torch::kFloat);
  EXPECT_TRUE(torch::equal(at::mm(a[0], a[1], torch::kFloat), wide[0].mm(wide[1])));
  EXPECT_TRUE(torch::equal(at::addmm(a[1], a[0], a[1], torch::kFloat, /*beta=*/2),
                           wide[1].addmm(wide[0], wide[1], /*beta=*/2)));
  EXPECT_TRUE(torch::equal(at::bmm(a, a, torch::kFloat), wide.bmm(wide)));
  Tensor out = torch::empty_like(wide);
  at::baddbmm_out(out, a, a, a, torch::kFloat);
  EXPECT_TRUE(torch::equal(out, wide.baddbmm(wide, wide)));
  EXPECT_TRUE(has(error_of([&] { (void)at::mm(a[0], a[1], torch::kDouble); }),
                  "out_dtype must be the same as input dtype or fp32"));
}

TEST(Kernels, LogSoftmaxOf16BitsRoundsOnce) {
  const Tensor x = torch::randn({4, 5000}, k_gpu).to(torch::kBFloat16);
  EXPECT_TRUE(
      torch::equal(x.log_softmax(1), x.to(torch::kFloat).log_softmax(1).to(torch::kBFloat16)));
  EXPECT_EQ(x.to(torch::kHalf).log_softmax(1, torch::kFloat).scalar_type(), torch::kFloat);
}

}  // namespace
