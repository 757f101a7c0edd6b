// Chapter "Training on Multiple GPUs": data parallelism from scratch. Each device has a copy of LeNet's
// parameters and takes its part of each batch; every copy is updated by the sum of all gradients.
//   multiple_gpus [FOLDER]        with Fashion-MNIST's files, unpacked; else with images made on the spot
// Look at: the losses are the same on one device and on two, though the last batch has an odd size.

#include <torch/types.h>
#include <use_gpu/batch.hpp>
#include <use_gpu/device.hpp>
#include <use_gpu/metric_log.hpp>

#include <cmath>
#include <iostream>

#include "earlier_chapters.hpp"

using Tensors = std::vector<torch::Tensor>;  // the parameters of one device, or one for each device
using Devices = std::vector<c10::Device>;

// In float64, so that the two ways of summing differ by less than 1e-5 after many steps too. With the
// book's scale of 0.01 for all weights it takes about 1,000 steps to begin to learn.
Tensors make_params() {
  const auto weight = [](at::IntArrayRef size, double inputs) {
    return torch::randn(size, torch::kDouble) / std::sqrt(inputs);
  };
  const auto bias = [](std::int64_t size) { return torch::zeros(size, torch::kDouble); };
  return {weight({20, 1, 3, 3}, 9), bias(20),  weight({50, 20, 5, 5}, 500), bias(50),
          weight({800, 128}, 800),  bias(128), weight({128, 10}, 128),      bias(10)};
}

torch::Tensor lenet(const torch::Tensor& X, const Tensors& params) {
  const auto h1 =
      torch::avg_pool2d(torch::conv2d(X.to(torch::kDouble), params[0], params[1]).relu(), 2);
  const auto h2 = torch::avg_pool2d(torch::conv2d(h1, params[2], params[3]).relu(), 2);
  return (h2.flatten(1).mm(params[4]) + params[5]).relu().mm(params[6]) + params[7];
}

Tensors get_params(const Tensors& params, c10::Device device) {
  Tensors new_params;
  for (const auto& p : params) new_params.push_back(use_gpu::copy_to(p, device).requires_grad_());
  return new_params;
}

void allreduce(const Tensors& data) {
  for (std::size_t i = 1; i < data.size(); ++i) data[0].add_(data[i].to(data[0].device()));
  for (std::size_t i = 1; i < data.size(); ++i) data[i].copy_(data[0]);
}

torch::Tensor train_batch(const torch::data::Example<>& batch,
                          const std::vector<Tensors>& device_params, const Devices& devices,
                          double lr) {
  const auto shards = use_gpu::split_batch(batch, devices);
  Tensors ls;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const auto y_hat = lenet(shards[i].data, device_params[i]);
    const auto sum = torch::cross_entropy_loss(y_hat, shards[i].target, {}, at::Reduction::Sum);
    ls.push_back(sum / batch.data.size(0));  // of the whole batch
  }
  for (const auto& l : ls) l.backward();
  const torch::NoGradGuard no_grad;
  for (std::size_t k = 0; k < device_params[0].size(); ++k) {
    Tensors grads;
    for (const auto& params : device_params) grads.push_back(params[k].grad());
    allreduce(grads);
    for (const auto& params : device_params) {
      params[k].sub_(params[k].grad(), lr);
      params[k].grad().zero_();
    }
  }
  allreduce(ls);
  return ls[0];
}

std::vector<double> train(const Tensors& params, const Devices& devices, const char* folder) {
  std::vector<Tensors> device_params;
  for (const auto device : devices) device_params.push_back(get_params(params, device));
  use_gpu::MetricLog losses(devices[0]);
  for (const auto& batch : batches_of(load_images(folder, /*for_training=*/true, 1501), 32))
    losses.push(train_batch(batch, device_params, devices, /*lr=*/0.2));
  const auto net = [&](const torch::Tensor& X) { return lenet(X, device_params[0]); };
  const auto test = use_gpu::to_device(load_images(folder, false, 500), devices[0]);
  std::cout << "Loss of the last batch " << losses.values().back() << ", " << count_right(net, test)
            << " of " << test.data.size(0) << " test images right, on " << c10::Join(", ", devices)
            << '\n';
  return losses.values();
}

int main(int argc, char** argv) try {
  const char* folder = argc > 1 ? argv[1] : nullptr;
  const Devices one = {use_gpu::try_gpu(0)}, two = {use_gpu::try_gpu(0), use_gpu::try_gpu(1)};
  torch::manual_seed(0);
  const Tensors params = make_params();
  const auto b1 = get_params(params, one[0])[1];
  std::cout << "b1 weight:\n"
            << use_gpu::show(b1.unsqueeze(0))
            << "\nb1 grad: " << (b1.grad().defined() ? "defined" : "none") << "\n\n";

  const Tensors data = {torch::ones({1, 2}, two[0]), torch::ones({1, 2}, two[1]) * 2};
  std::cout << "Before allreduce:\n" << use_gpu::show(data[0]) << '\n' << use_gpu::show(data[1]);
  allreduce(data);
  std::cout << "\nAfter:\n" << use_gpu::show(data[0]) << '\n' << use_gpu::show(data[1]);
  const auto batch = torch::arange(20).reshape({4, 5});
  std::cout << "\n\nInput:\n" << use_gpu::show(batch) << "\nOutput:\n";
  for (const auto& part : use_gpu::split_batch(batch, two))
    std::cout << use_gpu::show(part) << '\n';

  const auto losses = torch::tensor(train(params, one, folder), torch::kDouble);
  const auto others = torch::tensor(train(params, two, folder), torch::kDouble);
  const bool are_same = losses.allclose(others, /*rtol=*/1e-5, /*atol=*/1e-5);
  std::cout << "The losses of all batches are " << (are_same ? "the same\n" : "DIFFERENT\n");
  return are_same ? 0 : 1;
} catch (const std::runtime_error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
