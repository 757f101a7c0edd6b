// Chapter "Training on Multiple GPUs", its small steps: a copy of the parameters for each device, the sum
// of vectors on two devices, and a batch that is split between them. multiple_gpus trains by them.
// Look at: the device of each tensor.

#include <torch/types.h>
#include <use_gpu/batch.hpp>
#include <use_gpu/device.hpp>
#include <use_gpu/tensor.hpp>

#include <iostream>

using Tensors = std::vector<torch::Tensor>;

Tensors get_params(const Tensors& params, c10::Device device) {
  Tensors copies;
  for (const auto& p : params) copies.push_back(use_gpu::copy_to(p, device).requires_grad_());
  return copies;
}

void allreduce(const Tensors& data) {
  for (std::size_t i = 1; i < data.size(); ++i) data[0].add_(data[i].to(data[0].device()));
  for (std::size_t i = 1; i < data.size(); ++i) data[i].copy_(data[0]);
}

int main() {
  const std::vector<c10::Device> devices = {use_gpu::try_gpu(0), use_gpu::try_gpu(1)};
  if (use_gpu::num_gpus() < 2)
    std::cout << "There is no second GPU: " << devices[1] << " instead.\n";
  const auto b1 = get_params({torch::zeros(20)}, devices[0])[0];
  std::cout << "b1 weight:\n"
            << use_gpu::show(b1.unsqueeze(0))
            << "\nb1 grad: " << (b1.grad().defined() ? "defined" : "none") << "\n\n";

  const Tensors data = {torch::ones({1, 2}, devices[0]), torch::ones({1, 2}, devices[1]) * 2};
  std::cout << "Before allreduce:\n" << use_gpu::show(data[0]) << '\n' << use_gpu::show(data[1]);
  allreduce(data);
  std::cout << "\nAfter:\n" << use_gpu::show(data[0]) << '\n' << use_gpu::show(data[1]);

  const auto batch = torch::arange(20).reshape({4, 5});
  std::cout << "\n\nInput:\n" << use_gpu::show(batch) << "\nOutput:\n";
  for (const auto& part : use_gpu::split_batch(batch, devices))
    std::cout << use_gpu::show(part) << '\n';
}
