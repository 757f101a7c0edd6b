// Chapter "Training on Multiple GPUs": data parallelism from scratch. Each device has a copy of LeNet's
// parameters and takes its part of each batch; every copy is updated by the sum of all gradients.
//   multiple_gpus [FOLDER]        with Fashion-MNIST's files, unpacked; else with images made on the spot
// Look at: the losses are the same on one device and on two, though the last batch has an odd size.
// multiple_gpus_steps has the small steps.

#include <torch/data/datasets/mnist.h>
#include <use_gpu/batch.hpp>
#include <use_gpu/device.hpp>

#include <iostream>

using Tensors = std::vector<torch::Tensor>;  // the parameters of one device, or one for each device

// In float64, so that the two ways of summing differ by less than 1e-5 after many steps too. With the
// book's scale of 0.01 for all weights it takes about 1,000 steps to begin to learn.
Tensors make_params() {
  return {torch::randn({20, 1, 3, 3}, torch::kDouble) / 3,    torch::zeros(20, torch::kDouble),
          torch::randn({50, 20, 5, 5}, torch::kDouble) / 22., torch::zeros(50, torch::kDouble),
          torch::randn({800, 128}, torch::kDouble) / 28,      torch::zeros(128, torch::kDouble),
          torch::randn({128, 10}, torch::kDouble) / 11,       torch::zeros(10, torch::kDouble)};
}

torch::Tensor lenet(const torch::Tensor& X, const Tensors& params) {
  const auto h1 = avg_pool2d(conv2d(X.to(torch::kDouble), params[0], params[1]).relu(), 2);
  const auto h2 = avg_pool2d(conv2d(h1, params[2], params[3]).relu(), 2);
  return (h2.flatten(1).mm(params[4]) + params[5]).relu().mm(params[6]) + params[7];
}

void allreduce(const Tensors& data) {
  for (std::size_t i = 1; i < data.size(); ++i) data[0].add_(data[i].to(data[0].device()));
  for (std::size_t i = 1; i < data.size(); ++i) data[i].copy_(data[0]);
}

torch::Tensor train_batch(const torch::data::Example<>& batch,
                          const std::vector<Tensors>& device_params,
                          const std::vector<c10::Device>& devices, double lr) {
  Tensors ls;  // sums, so that those of all parts add up
  for (std::size_t i = 0; const auto& [X, y] : use_gpu::split_batch(batch, devices)) {
    const auto y_hat = lenet(X, device_params[i++]);
    ls.push_back(torch::cross_entropy_loss(y_hat, y, {}, at::Reduction::Sum));
  }
  for (const auto& l : ls) l.backward();
  const auto rows = batch.data.size(0);
  const torch::NoGradGuard no_grad;
  for (std::size_t k = 0; k < device_params[0].size(); ++k) {
    Tensors grads;
    for (const auto& params : device_params) grads.push_back(params[k].grad());
    allreduce(grads);
    for (const auto& params : device_params) params[k].sub_(params[k].grad() * lr / rows);
    for (const auto& grad : grads) grad.zero_();
  }
  allreduce(ls);
  return ls[0] / rows;
}

int main(int argc, char** argv) {
  torch::manual_seed(0);
  const auto patterns = torch::rand({10, 1, 7, 7}).repeat_interleave(4, 2).repeat_interleave(4, 3);
  const auto y = torch::randint(10, {1501}, torch::kLong), noise = torch::rand({1501, 1, 28, 28});
  torch::data::Example<> images(0.7 * patterns.index_select(0, y) + 0.3 * noise, y);
  if (argc > 1) {
    const torch::data::datasets::MNIST files(argv[1]);  // LibTorch's MNIST reads these files too
    images = {files.images(), files.targets()};
  }
  const auto data = images.data.split(32), labels = images.target.split(32);
  const Tensors params = make_params();
  const c10::Device first = use_gpu::try_gpu(0), second = use_gpu::try_gpu(1);
  if (use_gpu::num_gpus() < 2) std::cout << "There is no second GPU: " << second << " instead.\n";
  std::vector<Tensors> losses;  // of each batch; on one device, and on two
  for (const auto& devices : {std::vector{first}, std::vector{first, second}}) {
    std::vector<Tensors> device_params(devices.size());
    for (std::size_t i = 0; i < devices.size(); ++i)
      for (const auto& p : params)
        device_params[i].push_back(use_gpu::copy_to(p, devices[i]).requires_grad_());
    auto& ls = losses.emplace_back();
    for (std::size_t i = 0; i < data.size(); ++i)
      ls.push_back(train_batch({data[i], labels[i]}, device_params, devices, /*lr=*/0.2));
    std::cout << "On " << at::ArrayRef(devices) << " the loss falls from "
              << ls.front().item<float>() << " to " << ls.back().item<float>() << '\n';
  }
  TORCH_CHECK(torch::stack(losses[0]).allclose(torch::stack(losses[1]), 1e-5, 1e-5), "they differ");
  std::cout << "The losses of all batches are the same\n";
}
