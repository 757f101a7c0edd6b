// Chapter "Concise Implementation for Multiple GPUs": ResNet-18, a replica of it on each device.
//   multiple_gpus_concise [FOLDER]    with Fashion-MNIST's files, unpacked; else with images made on the spot
// Look at: the loss falls on one device and on all. The losses differ: BatchNorm takes the mean and the variance
// of each device's part alone.

#include <torch/torch.h>
#include <use_gpu/batch.hpp>
#include <use_gpu/device.hpp>
#include <use_gpu/parallel.hpp>
#include <use_gpu/replicas.hpp>

#include <cstdio>

using namespace torch::nn;
using torch::Tensor;

// LibTorch's momentum of 0.1 is for hundreds of steps; these are ten.
BatchNorm2d norm(int channels) { return BatchNorm2d(BatchNorm2dOptions(channels).momentum(0.5)); }

Conv2d conv(int in, int out, int kernel, int stride) {
  return Conv2d(Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2));
}

struct Residual : Module {
  // In braces: in parentheses each compiler draws the weights in an order of its own.
  Residual(int in, int out, int stride)
      : path{conv(in, out, 3, stride), norm(out), ReLU(), conv(out, out, 3, 1), norm(out)} {
    register_module("path", path);
    if (in != out) skip = register_module("skip", conv(in, out, 1, stride));
  }
  Tensor forward(const Tensor& X) {
    return (path->forward(X) + (skip ? skip->forward(X) : X)).relu();
  }
  Sequential path;
  Conv2d skip{nullptr};
};

Sequential resnet18() {
  Sequential net(conv(1, 64, 3, 1), norm(64), ReLU());
  for (const auto& [in, out] : {std::pair(64, 64), {64, 128}, {128, 256}, {256, 512}}) {
    net->push_back(Residual(in, out, in == out ? 1 : 2));
    net->push_back(Residual(out, out, 1));
  }
  net->extend(*Sequential(AdaptiveAvgPool2d(1), Flatten(), Linear(512, 10)));
  return net;
}

void train(const char* folder, const std::vector<c10::Device>& devices, double lr) {
  torch::manual_seed(0);
  const auto y = torch::randint(10, {704}, torch::kLong);
  const auto patterns = torch::rand({10, 1, 8, 8}), noise = torch::rand({704, 1, 8, 8});
  torch::data::Example<> images(0.7 * patterns.index_select(0, y) + 0.3 * noise, y);
  if (folder != nullptr) {
    const torch::data::datasets::MNIST files(folder);  // LibTorch's MNIST reads these files too
    images = {files.images(), files.targets()};
  }
  const auto data = images.data.split(64), labels = images.target.split(64);
  auto nets = use_gpu::mirror(devices, resnet18);
  std::vector<std::int64_t> rows(devices.size());
  std::vector<Tensor> ls(devices.size());
  std::printf("%s: loss", c10::str(at::ArrayRef(devices)).c_str());
  for (std::size_t b = 1; b < data.size(); ++b) {
    const auto parts = use_gpu::split_batch(torch::data::Example<>(data[b], labels[b]), devices);
    use_gpu::parallel_on(devices, [&](c10::Device, std::size_t i) {
      nets[i]->zero_grad();
      rows[i] = parts[i].data.size(0);
      const auto l = torch::cross_entropy_loss(nets[i]->forward(parts[i].data), parts[i].target);
      l.backward();
      ls[i] = l.detach().cpu();
    });
    use_gpu::average_gradients(nets, rows);
    // Plain SGD keeps nothing from step to step; Adam would need an optimizer for each replica.
    for (const auto& net : nets) torch::optim::SGD(net->parameters(), lr).step();
    if (b == 1 || b + 1 == data.size()) std::printf(" %.1f", torch::stack(ls).mean().item<float>());
  }
  use_gpu::copy_buffers(nets);
  nets[0]->eval();  // asked about the first batch, which it was not trained with
  const auto guesses = nets[0]->forward(data[0].to(devices[0])).argmax(1).cpu();
  std::printf(", %d of 64 images right\n", guesses.eq(labels[0]).sum().item<int>());
}

int main(int, char** argv) {  // argv[1] is nullptr where no folder is named
  train(argv[1], {use_gpu::try_gpu()}, /*lr=*/0.02);
  const std::vector<c10::Device> twice(2, use_gpu::try_gpu());  // where there is no second GPU
  train(argv[1], use_gpu::num_gpus() < 2 ? twice : use_gpu::try_all_gpus(), 0.02);
}
