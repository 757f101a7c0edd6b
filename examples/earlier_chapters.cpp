// SPDX-License-Identifier: MIT
#include "earlier_chapters.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace {

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& found) {
  throw std::runtime_error(file.string() + ": " + found);
}

// The values of an IDX file: two zeros, the type of bytes (8), the number of dimensions, these as
// big-endian numbers of four bytes, and the bytes.
torch::Tensor read_idx(const std::filesystem::path& file, std::size_t dimensions) {
  std::ifstream in(file, std::ios::binary);
  if (!in || std::filesystem::is_directory(file)) {
    const bool is_packed = std::filesystem::exists(file.string() + ".gz");
    refuse(file, is_packed ? "it is still packed; unpack it with gunzip."
                           : "it cannot be read; the folder must have Fashion-MNIST's four files.");
  }
  const std::string all(std::istreambuf_iterator<char>(in), {});
  const auto begin = 4 + 4 * dimensions;
  if (all.size() < begin || all[0] != 0 || all[1] != 0 || all[2] != 8 ||
      static_cast<std::size_t>(all[3]) != dimensions) {
    refuse(file, "this is no IDX file of bytes in " + std::to_string(dimensions) +
                     " dimensions; download it again.");
  }
  std::vector<std::int64_t> sizes(dimensions, 0);
  for (std::size_t i = 4; i < begin; ++i) {
    auto& size = sizes[i / 4 - 1];
    size = size << 8 | static_cast<unsigned char>(all[i]);
  }
  // Compared as floating point, which a damaged size cannot overflow.
  double bytes = 1;
  for (const auto size : sizes) bytes *= static_cast<double>(size);
  if (bytes != static_cast<double>(all.size() - begin)) {
    refuse(file, "its header announces " + c10::str(at::IntArrayRef(sizes)) + " bytes, but " +
                     std::to_string(all.size() - begin) + " follow; download it again.");
  }
  const auto values = torch::empty(sizes, torch::kByte);
  std::copy(all.begin() + static_cast<std::ptrdiff_t>(begin), all.end(),
            static_cast<char*>(values.data_ptr()));
  return values;
}

using torch::nn::Sequential;

Sequential conv_and_norm(int in, int out, int kernel, int stride) {
  const auto options = torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2);
  return Sequential(torch::nn::Conv2d(options), torch::nn::BatchNorm2d(out));
}

struct Residual : torch::nn::Module {
  Residual(int in, int out, int stride)
      : first(register_module("first", conv_and_norm(in, out, 3, stride))),
        second(register_module("second", conv_and_norm(out, out, 3, 1))) {
    if (in != out) {
      const auto options = torch::nn::Conv2dOptions(in, out, 1).stride(stride);
      shortcut = register_module("shortcut", torch::nn::Conv2d(options));
    }
  }
  torch::Tensor forward(const torch::Tensor& X) {
    const auto Y = second->forward(first->forward(X).relu());
    return (Y + (shortcut ? shortcut->forward(X) : X)).relu();
  }
  Sequential first, second;
  torch::nn::Conv2d shortcut{nullptr};
};

}  // namespace

torch::data::Example<> load_images(const char* folder, bool for_training, std::int64_t made) {
  if (folder == nullptr) {
    const auto patterns = at::detail::createCPUGenerator(/*seed=*/7);
    const auto generator = at::detail::createCPUGenerator(for_training ? 1 : 2);
    const auto shapes = torch::rand({10, 1, 7, 7}, patterns);
    const auto labels = torch::randint(10, {made}, generator, torch::kLong);
    const auto noise = torch::rand({made, 1, 28, 28}, generator);
    const auto large = shapes.repeat_interleave(4, 2).repeat_interleave(4, 3);
    return {0.7 * large.index_select(0, labels) + 0.3 * noise, labels};
  }
  const std::string kind = for_training ? "train" : "t10k";
  const std::filesystem::path path(folder);
  const auto images = read_idx(path / (kind + "-images-idx3-ubyte"), 3);
  const auto labels = read_idx(path / (kind + "-labels-idx1-ubyte"), 1);
  if (images.size(1) != 28 || images.size(2) != 28)
    refuse(path, "its images for " + kind + " are not of 28 x 28 pixels; these are other data.");
  if (images.size(0) == 0)
    refuse(path, "its files for " + kind + " have no image; download them again.");
  if (images.size(0) != labels.size(0)) {
    refuse(path, "there are " + std::to_string(images.size(0)) + " images for " + kind + ", but " +
                     std::to_string(labels.size(0)) + " labels; download both again.");
  }
  if (labels.max().item<int>() > 9) refuse(path, "there is a label over 9; these are other data.");
  return {images.unsqueeze(1).to(torch::kFloat) / 255, labels.to(torch::kLong)};
}

std::vector<torch::data::Example<>> batches_of(const torch::data::Example<>& images,
                                               std::int64_t size) {
  std::vector<torch::data::Example<>> batches;
  const auto data = images.data.split(size), targets = images.target.split(size);
  for (std::size_t i = 0; i < data.size(); ++i) batches.emplace_back(data[i], targets[i]);
  return batches;
}

std::int64_t count_right(const std::function<torch::Tensor(const torch::Tensor&)>& net,
                         const torch::data::Example<>& images) {
  const torch::NoGradGuard no_grad;
  std::int64_t right = 0;
  for (const auto& batch : batches_of(images, 256)) {
    if (batch.data.size(0) == 0) continue;  // fewer images than devices
    right += net(batch.data).argmax(1).eq(batch.target).sum().item<std::int64_t>();
  }
  return right;
}

Sequential resnet18(int num_classes) {
  auto net = conv_and_norm(1, 64, 3, 1);
  net->push_back(torch::nn::Functional([](const torch::Tensor& X) { return X.relu(); }));
  for (int in = 64; const int out : {64, 128, 256, 512}) {
    net->push_back(Residual(in, out, in == out ? 1 : 2));
    net->push_back(Residual(out, out, 1));
    in = out;
  }
  net->push_back(torch::nn::Functional([](const torch::Tensor& X) { return X.mean({2, 3}); }));
  net->push_back(torch::nn::Linear(512, num_classes));
  return net;
}
