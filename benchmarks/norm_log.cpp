// SPDX-License-Identifier: MIT
#include "norm_log.hpp"

#include <ATen/Parallel.h>
#include <torch/types.h>
#include <use_gpu/device.hpp>
#include <use_gpu/metric_log.hpp>
#include <use_gpu/parallel.hpp>
#include <use_gpu/tensor.hpp>

#include "norm_log_cuda.hpp"
#include "timing/products.hpp"

namespace {

constexpr std::int64_t k_products = 1000;
constexpr std::int64_t k_size = 100;

// In float64, and once more as the Java edition does: the square root of the trace of M M^T.
torch::Tensor reference_norms(const torch::Tensor& a, const torch::Tensor& b) {
  const auto products = torch::bmm(a.to(torch::kDouble), b.to(torch::kDouble));
  const auto norms = products.flatten(1).norm(2, 1);
  const auto traces = torch::bmm(products, products.mT()).diagonal(0, 1, 2).sum(1);
  TORCH_CHECK(norms.allclose(traces.sqrt(), 1e-12), "the two forms of the norm disagree");
  return norms;
}

std::vector<torch::Tensor> on_host(const std::vector<double>& norms) {
  return {torch::tensor(norms, torch::kDouble)};
}

}  // namespace

std::vector<Contender> norm_log_contenders(c10::Device device) {
  torch::manual_seed(1);
  const auto host_a = torch::randn({k_products, k_size, k_size}) / std::sqrt(k_size);
  const auto host_b = torch::randn({k_products, k_size, k_size});
  const auto reference = reference_norms(host_a, host_b);
  const auto a = use_gpu::to_device(host_a, device), b = use_gpu::to_device(host_b, device);
  const auto norm = [a, b](std::int64_t i) { return torch::mm(a[i], b[i]).norm(); };

  // The precision of float32 after a sum of 100 products, and one of 10,000 squares.
  const auto are_right = [reference](const std::vector<torch::Tensor>& norms) {
    return norms.front().to(torch::kDouble).allclose(reference, 1e-5);
  };
  const auto is_last_right = [reference](const std::vector<torch::Tensor>& norms) {
    return norms.front().cpu().to(torch::kDouble).allclose(reference[-1], 1e-5);
  };

  std::vector<Contender> all;
  all.push_back({"one result at a time",
                 {device},
                 [norm] {
                   std::vector<double> norms;
                   for (std::int64_t i = 0; i < k_products; ++i) {
                     norms.push_back(norm(i).item<double>());
                   }
                   return on_host(norms);
                 },
                 are_right});
  all.push_back({"MetricLog",
                 {device},
                 [norm, device] {
                   use_gpu::MetricLog log(device, /*block_size=*/256);
                   for (std::int64_t i = 0; i < k_products; ++i) log.push(norm(i));
                   return on_host(log.values());
                 },
                 are_right});
  all.push_back({"select and copy_ by hand",
                 {device},
                 [norm, device] {
                   const auto norms = torch::empty({k_products}, device);
                   for (std::int64_t i = 0; i < k_products; ++i) norms.select(0, i).copy_(norm(i));
                   return std::vector{norms.cpu()};
                 },
                 are_right});
  all.push_back({"no log",
                 {device},
                 [norm] {
                   for (std::int64_t i = 1; i < k_products; ++i) static_cast<void>(norm(i - 1));
                   return std::vector{norm(k_products - 1)};
                 },
                 is_last_right});
  all.push_back({"batched",
                 {device},
                 [a, b] { return std::vector{torch::bmm(a, b).flatten(1).norm(2, 1).cpu()}; },
                 are_right});
  if (auto graph = norm_log_graph(a, b)) {
    all.push_back({"CUDA graph", {device}, std::move(graph), are_right});
  }
  all.push_back({"a thread per core, on cpu",
                 {},
                 [host_a, host_b] {
                   const std::vector cores(static_cast<std::size_t>(at::get_num_threads()),
                                           use_gpu::cpu());
                   const auto count = static_cast<std::int64_t>(cores.size());
                   auto norms = torch::empty({k_products});
                   use_gpu::parallel_on(cores, [&](c10::Device, int core) {
                     auto product = torch::empty({k_size, k_size});
                     for (std::int64_t i = core; i < k_products; i += count) {
                       torch::mm_out(product, host_a[i], host_b[i]);
                       norms[i] = product.norm();
                     }
                   });
                   return std::vector{norms};
                 },
                 are_right});
  for (auto& contender : all) {
    contender.least_seconds = 2 * k_products * std::pow(k_size, 3) / k_float32.most_flops;
  }
  return all;
}
