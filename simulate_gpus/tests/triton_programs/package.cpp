// SPDX-License-Identifier: MIT
//
// Runs a model that compiled.py compiled ahead of time, on a GPU that is named here.
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>

#include <iostream>

int main(int, char** arguments) {
  const torch::Device device("cuda:1");
  torch::inductor::AOTIModelPackageLoader model(arguments[1], "model",
                                                /*run_single_threaded=*/false,
                                                /*num_runners=*/1, device.index());
  const torch::Tensor x = torch::rand({5, 8}, device);
  const torch::Tensor weights = torch::linspace(-1, 1, 32, device).view({8, 4});
  const torch::Tensor got = model.run({x}).at(0), wanted = torch::gelu(x.mm(weights)).softmax(-1);
  std::cout << got.device() << ", apart by " << (got - wanted).abs().max().item<float>() << '\n';
  return got.device() == device && torch::allclose(got, wanted) ? 0 : 1;
}
