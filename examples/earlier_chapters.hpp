// SPDX-License-Identifier: MIT
//
// What the programs that train on several GPUs need of earlier chapters: images and ResNet-18.
#pragma once

#include <torch/data/example.h>
#include <torch/nn/modules/container/sequential.h>

#include <functional>
#include <vector>

/// Images, float32[n, 1, 28, 28] from 0 to 1, and their labels, int64[n] from 0 to 9.
///
/// Of a folder: Fashion-MNIST's files for training or for testing, unpacked, with any number of
/// images. std::runtime_error, with the path, if one is missing or damaged.
/// (LibTorch's own MNIST dataset takes only 60,000 and 10,000.)
/// Without one (nullptr): `made` images made on the spot, the same each time: ten patterns and noise.
[[nodiscard]] torch::data::Example<> load_images(const char* folder, bool for_training,
                                                 std::int64_t made);

/// Batches of `size` rows, the last of which may have fewer. They share the images' memory.
[[nodiscard]] std::vector<torch::data::Example<>> batches_of(const torch::data::Example<>& images,
                                                             std::int64_t size);

/// How many of the images the net, from images to scores of the labels, takes for what they are. Both on one
/// device; no gradients.
[[nodiscard]] std::int64_t count_right(
    const std::function<torch::Tensor(const torch::Tensor&)>& net,
    const torch::data::Example<>& images);

/// ResNet-18 as the book has it for small images: X, float32[n, 1, 28, 28], to float32[n, num_classes].
[[nodiscard]] torch::nn::Sequential resnet18(int num_classes);
