// SPDX-License-Identifier: MIT
//
// Modules of torch::nn with one input: activations, convolutions, linear ones, normalizations, padding; containers.
#include "module_check.hpp"

namespace modules {
namespace {

TEST_F(Modules, Activations) {
  const Tensors x{real({3, 4, 5, 6})};
  CHECK_MODULE(CELU, x);
  CHECK_MODULE(ELU, x);
  CHECK_MODULE(GELU, x);
  CHECK_MODULE(GLU, x);
  CHECK_MODULE(Hardshrink, x, 0.2);
  CHECK_MODULE(Hardtanh, x, nn::HardtanhOptions().min_val(-0.2).max_val(0.2));
  CHECK_MODULE(LeakyReLU, x);
  CHECK_MODULE(LogSigmoid, x);
  CHECK_MODULE(LogSoftmax, x, 1);
  CHECK_MODULE(Mish, x);
  CHECK_MODULE(PReLU, x);
  CHECK_MODULE(ReLU, x);
  CHECK_MODULE(ReLU6, x);
  CHECK_MODULE(SELU, x);
  CHECK_MODULE(SiLU, x);
  CHECK_MODULE(Sigmoid, x);
  CHECK_MODULE(Softmax, x, 1);
  CHECK_MODULE(Softmax2d, x);
  CHECK_MODULE(Softmin, x, 1);
  CHECK_MODULE(Softplus, x);
  CHECK_MODULE(Softshrink, x, 0.2);
  CHECK_MODULE(Softsign, x);
  CHECK_MODULE(Tanh, x);
  CHECK_MODULE(Tanhshrink, x);
  CHECK_MODULE(Threshold, x, 0.1, 0.5);
}

TEST_F(Modules, Convolutions) {
  const Tensors line{real({2, 4, 9})}, plane{real({2, 4, 9, 8})}, space{real({2, 4, 6, 5, 7})};
  CHECK_MODULE(Conv1d, line, nn::Conv1dOptions(4, 6, 3).stride(2).padding(1));
  CHECK_MODULE(Conv2d, plane, nn::Conv2dOptions(4, 8, 3).groups(4).dilation(2));  // depthwise
  CHECK_MODULE(Conv2d, plane, nn::Conv2dOptions(4, 6, 3).padding_mode(torch::kCircular).padding(1));
  CHECK_MODULE(Conv3d, space, nn::Conv3dOptions(4, 6, 3).padding(1));
  CHECK_MODULE(ConvTranspose1d, line, nn::ConvTranspose1dOptions(4, 6, 3).stride(2));
  CHECK_MODULE(ConvTranspose2d, plane, nn::ConvTranspose2dOptions(4, 6, 3).groups(2));
  CHECK_MODULE(ConvTranspose3d, space, nn::ConvTranspose3dOptions(4, 2, 3));
  CHECK_MODULE(Unfold, plane, nn::UnfoldOptions(3));
  CHECK_MODULE(Fold, (Tensors{real({2, 12, 20})}), nn::FoldOptions({5, 6}, {2, 2}));
}

TEST_F(Modules, Linear) {
  CHECK_MODULE(Linear, (Tensors{real({4, 5})}), 5, 3);
  CHECK_MODULE(Bilinear, (Tensors{real({4, 5}), real({4, 6})}), 5, 6, 3);
  CHECK_MODULE(Identity, (Tensors{real({4, 5})}));
  CHECK_MODULE(Flatten, (Tensors{real({4, 5, 6})}));
  CHECK_MODULE(Unflatten, (Tensors{real({4, 6})}), nn::UnflattenOptions(1, {2, 3}));
  CHECK_MODULE(Embedding, (Tensors{classes({4, 5}, 7)}), 7, 3);
  CHECK_MODULE(Embedding, (Tensors{classes({4, 5}, 7)}), nn::EmbeddingOptions(7, 3).max_norm(1.0));
  for (const bool weighted : {false, true}) {
    check("EmbeddingBag", {classes({4, 5}, 7), real({4, 5})}, [=] {
      const nn::EmbeddingBagOptions options(7, 3);
      nn::EmbeddingBag bag(weighted ? nn::EmbeddingBagOptions(options).mode(torch::kSum) : options);
      return Made{bag.ptr(), [=](const Tensors& x) mutable -> Tensors {
                    return {bag->forward(x[0], {}, weighted ? x[1] : Tensor())};
                  }};
    });
  }
  CHECK_MODULE(CosineSimilarity, (Tensors{real({4, 5}), real({4, 5})}));
  CHECK_MODULE(PairwiseDistance, (Tensors{real({4, 5}), real({4, 5})}));
  CHECK_MODULE(PixelShuffle, (Tensors{real({2, 8, 3, 3})}), 2);
  CHECK_MODULE(PixelUnshuffle, (Tensors{real({2, 2, 6, 6})}), 2);
  const auto upsample = [](auto mode) {
    check("Upsample", {real({2, 3, 4, 5})}, [=] {
      return made(
          nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(mode)));
    });
  };
  upsample(torch::kNearest);
  upsample(torch::kBilinear);
  upsample(torch::kBicubic);
}

TEST_F(Modules, Containers) {
  CHECK_MODULE(Functional, (Tensors{real({4, 5})}), [](const Tensor& x) { return x.relu(); });
  // Most have no forward.
  const auto check_container = [&](const std::string& name, auto make) {
    check(name, {real({4, 5})}, [=] {
      const std::shared_ptr<nn::Module> module = make();
      return Made{module, [module](const Tensors& x) -> Tensors {
                    Tensor sum = x[0];
                    for (const Tensor& parameter : module->parameters())
                      sum = sum + parameter.sum();
                    return {sum};
                  }};
    });
  };
  check("Sequential", {real({4, 5})}, [] {
    nn::Sequential sequence(nn::Linear(5, 3), nn::ReLU());
    return Made{sequence.ptr(),
                [=](const Tensors& x) mutable -> Tensors { return {sequence->forward(x[0])}; }};
  });
  check_container("ModuleList", [] { return nn::ModuleList(nn::Linear(2, 3)).ptr(); });
  check_container("ModuleDict", [] {
    nn::ModuleDict modules;
    modules->update({{"a", nn::Linear(2, 3).ptr()}});
    return modules.ptr();
  });
  check_container("ParameterList", [] { return nn::ParameterList(torch::rand({3})).ptr(); });
  check_container("ParameterDict", [] {
    nn::ParameterDict parameters;
    parameters->insert("a", torch::rand({3}));
    return parameters.ptr();
  });
}

TEST_F(Modules, Normalization) {
  const Tensors line{real({3, 4, 9})}, plane{real({3, 4, 5, 6})}, space{real({2, 4, 3, 5, 4})};
  CHECK_MODULE(BatchNorm1d, line, 4);
  CHECK_MODULE(BatchNorm2d, plane, 4);
  CHECK_MODULE(BatchNorm3d, space, 4);
  CHECK_MODULE(InstanceNorm1d, line, nn::InstanceNorm1dOptions(4).affine(true));
  CHECK_MODULE(InstanceNorm2d, plane, nn::InstanceNorm2dOptions(4).track_running_stats(true));
  CHECK_MODULE(InstanceNorm3d, space, 4);
  CHECK_MODULE(LayerNorm, plane, nn::LayerNormOptions({5, 6}));
  CHECK_MODULE(GroupNorm, plane, 2, 4);
  CHECK_MODULE(LocalResponseNorm, plane, 2);
  CHECK_MODULE(CrossMapLRN2d, plane, 3);
}

TEST_F(Modules, Padding) {
  const Tensors line{real({2, 3, 5})}, plane{real({2, 3, 5, 6})}, space{real({2, 3, 4, 5, 6})};
  CHECK_MODULE(ConstantPad1d, line, 2, 0.5);
  CHECK_MODULE(ConstantPad2d, plane, 2, 0.5);
  CHECK_MODULE(ConstantPad3d, space, 2, 0.5);
  CHECK_MODULE(ReflectionPad1d, line, 2);
  CHECK_MODULE(ReflectionPad2d, plane, 2);
  CHECK_MODULE(ReflectionPad3d, space, 2);
  CHECK_MODULE(ReplicationPad1d, line, 2);
  CHECK_MODULE(ReplicationPad2d, plane, 2);
  CHECK_MODULE(ReplicationPad3d, space, 2);
  CHECK_MODULE(ZeroPad1d, line, 2);
  CHECK_MODULE(ZeroPad2d, plane, 2);
  CHECK_MODULE(ZeroPad3d, space, 2);
}

}  // namespace
}  // namespace modules
