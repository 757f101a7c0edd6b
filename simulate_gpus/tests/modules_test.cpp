// SPDX-License-Identifier: MIT
//
// Every module of torch::nn on a simulated GPU: outputs and gradients are the CPU's, or the module
// is refused by name. Prints the table that simulate_gpus/README.md shows.
#include <dlfcn.h>
#include <glob.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/registration.hpp"

namespace {

namespace nn = torch::nn;
using torch::Tensor;
using Tensors = std::vector<Tensor>;

// Result of each module: "" if it was computed, else the refusal.
std::map<std::string, std::string>& results() {
  static std::map<std::string, std::string> results;
  return results;
}

void collect(Tensors& into, const Tensor& tensor) { into.push_back(tensor); }

template <class... Parts>
void collect(Tensors& into, const std::tuple<Parts...>& parts) {
  std::apply([&](const auto&... part) { (collect(into, part), ...); }, parts);
}

void collect(Tensors& into, const nn::ASMoutput& output) {
  into.push_back(output.output);
  into.push_back(torch::tensor(output.loss));
}

// A module whose forward takes tensors and returns a Return.
template <class Return>
Tensors forward(nn::AnyModule& module, const Tensors& x) {
  Tensors outputs;
  switch (x.size()) {
    case 1:
      collect(outputs, module.forward<Return>(x[0]));
      break;
    case 2:
      collect(outputs, module.forward<Return>(x[0], x[1]));
      break;
    case 3:
      collect(outputs, module.forward<Return>(x[0], x[1], x[2]));
      break;
    default:
      collect(outputs, module.forward<Return>(x[0], x[1], x[2], x[3]));
  }
  return outputs;
}

using Make = std::function<nn::AnyModule()>;
using Forward = std::function<Tensors(nn::AnyModule&, const Tensors&)>;

// The outputs of the module and the gradients of its inputs and parameters, on the CPU. A gradient
// flows into each output, with weights that differ.
Tensors run(const torch::Device& device, const Make& make, const Tensors& inputs,
            const Forward& forward) {
  torch::manual_seed(0);
  nn::AnyModule module = make();
  module.ptr()->to(device);
  Tensors here;
  for (const Tensor& input : inputs) {
    here.push_back(input.detach().clone().to(device).set_requires_grad(input.requires_grad()));
  }
  Tensors found = forward(module, here);
  Tensor loss = torch::zeros({}, device);
  for (const Tensor& output : found) {
    if (!output.requires_grad()) continue;
    const Tensor places =
        torch::arange(1, output.numel() + 1, output.options().requires_grad(false));
    loss = loss + (output * places.reshape(output.sizes()).sin()).sum();
  }
  if (loss.requires_grad()) loss.backward();
  for (const Tensor& input : here) {
    if (input.grad().defined()) found.push_back(input.grad());
  }
  for (const Tensor& parameter : module.ptr()->parameters()) {
    if (parameter.grad().defined()) found.push_back(parameter.grad());
  }
  for (const Tensor& buffer : module.ptr()->buffers()) found.push_back(buffer);
  for (Tensor& tensor : found) tensor = tensor.detach().cpu();
  return found;
}

// Compares the two devices.
void check(const std::string& name, const Tensors& inputs, const Make& make,
           const Forward& forward = ::forward<Tensor>) {
  const Tensors expected = run(torch::kCPU, make, inputs, forward);
  Tensors found;
  try {
    found = run(torch::kCUDA, make, inputs, forward);
  } catch (const c10::Error& error) {
    results()[name] = error.what_without_backtrace();
    EXPECT_NE(results()[name].find("imulated GPUs"), std::string::npos)
        << name << ": " << error.what_without_backtrace();
    return;
  }
  results()[name] = "";
  ASSERT_EQ(found.size(), expected.size()) << name;
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(torch::allclose(found[i].to(torch::kDouble), expected[i].to(torch::kDouble), 1e-4,
                                1e-5, /*equal_nan=*/true))
        << name << ", tensor " << i << '\n'
        << found[i] << '\n'
        << expected[i];
  }
}

// CHECK(<module>, <inputs>, <constructor's arguments>)
#define CHECK_MODULE(name, inputs, ...) \
  check(#name, inputs, [] { return nn::AnyModule(nn::name(__VA_ARGS__)); })
// The same for a forward that returns something else than a tensor.
#define CHECK_MODULE_RETURNING(result, name, inputs, ...) \
  check(                                                  \
      #name, inputs, [] { return nn::AnyModule(nn::name(__VA_ARGS__)); }, forward<result>)

Tensor real(torch::IntArrayRef sizes) { return torch::rand(sizes).sub_(0.5).requires_grad_(); }
Tensor positive(torch::IntArrayRef sizes) {
  return torch::rand(sizes).mul_(0.8).add_(0.1).requires_grad_();
}
Tensor classes(torch::IntArrayRef sizes, int count) {
  return torch::randint(count, sizes, torch::kLong);
}
Tensor signs(torch::IntArrayRef sizes) {
  return torch::randint(2, sizes).mul_(2).sub_(1).to(torch::kFloat);
}

class Modules : public testing::Test {
 protected:
  Modules() { torch::manual_seed(1); }
};

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
    check(
        "EmbeddingBag", {classes({4, 5}, 7), real({4, 5})},
        [=] {
          const nn::EmbeddingBagOptions options(7, 3);
          return nn::AnyModule(nn::EmbeddingBag(
              weighted ? nn::EmbeddingBagOptions(options).mode(torch::kSum) : options));
        },
        [=](nn::AnyModule& module, const Tensors& x) -> Tensors {
          return {module.get<nn::EmbeddingBag>()->forward(x[0], {}, weighted ? x[1] : Tensor())};
        });
  }
  CHECK_MODULE(CosineSimilarity, (Tensors{real({4, 5}), real({4, 5})}));
  CHECK_MODULE(PairwiseDistance, (Tensors{real({4, 5}), real({4, 5})}));
  CHECK_MODULE(PixelShuffle, (Tensors{real({2, 8, 3, 3})}), 2);
  CHECK_MODULE(PixelUnshuffle, (Tensors{real({2, 2, 6, 6})}), 2);
  const auto upsample = [](auto mode) {
    check("Upsample", {real({2, 3, 4, 5})}, [=] {
      return nn::AnyModule(
          nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(mode)));
    });
  };
  upsample(torch::kNearest);
  upsample(torch::kBilinear);
  upsample(torch::kBicubic);
}

// A container has no forward of its own, or one that is a template; this has.
struct HolderImpl : nn::Module {
  explicit HolderImpl(const std::shared_ptr<nn::Module>& module)
      : held(register_module("held", module)) {}
  Tensor forward(const Tensor& x) { return held->as<nn::Sequential>()->forward(x); }

  std::shared_ptr<nn::Module> held;
};

TEST_F(Modules, Containers) {
  CHECK_MODULE(Functional, (Tensors{real({4, 5})}), [](const Tensor& x) { return x.relu(); });
  const auto sum_of_parameters = [](nn::AnyModule& module, const Tensors& x) -> Tensors {
    Tensor sum = x[0];
    for (const Tensor& parameter : module.ptr()->parameters()) sum = sum + parameter.sum();
    return {sum};
  };
  const auto check_container = [&](const std::string& name, auto make) {
    check(
        name, {real({4, 5})}, [=] { return nn::AnyModule(std::make_shared<HolderImpl>(make())); },
        sum_of_parameters);
  };
  check("Sequential", {real({4, 5})}, [] {
    const nn::Sequential sequence(nn::Linear(5, 3), nn::ReLU());
    return nn::AnyModule(std::make_shared<HolderImpl>(sequence.ptr()));
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

// Unpooling needs the places of a pooling of the same device.
template <class Pool, class Unpool>
void check_unpooling(const std::string& name, const Tensor& input) {
  check(
      name, {input}, [] { return nn::AnyModule(Unpool(2)); },
      [](nn::AnyModule& module, const Tensors& x) -> Tensors {
        const auto [pooled, places] = Pool(2)->forward_with_indices(x[0]);
        return {module.get<Unpool>()->forward(pooled, places)};
      });
}

TEST_F(Modules, Pooling) {
  const Tensors line{real({2, 3, 8})}, plane{real({2, 3, 8, 6})}, space{real({2, 3, 4, 6, 8})};
  CHECK_MODULE(AdaptiveAvgPool1d, line, 3);
  CHECK_MODULE(AdaptiveAvgPool2d, plane, 3);
  CHECK_MODULE(AdaptiveAvgPool3d, space, 3);
  CHECK_MODULE(AdaptiveMaxPool1d, line, 3);
  CHECK_MODULE(AdaptiveMaxPool2d, plane, 3);
  CHECK_MODULE(AdaptiveMaxPool3d, space, 3);
  CHECK_MODULE(AvgPool1d, line, 2);
  CHECK_MODULE(AvgPool2d, plane, 2);
  CHECK_MODULE(AvgPool3d, space, 2);
  CHECK_MODULE(MaxPool1d, line, 2);
  CHECK_MODULE(MaxPool2d, plane, 2);
  CHECK_MODULE(MaxPool3d, space, 2);
  CHECK_MODULE(LPPool1d, line, 2, 2);
  CHECK_MODULE(LPPool2d, plane, 2, 2);
  CHECK_MODULE(LPPool3d, space, 2, 2);
  check_unpooling<nn::MaxPool1d, nn::MaxUnpool1d>("MaxUnpool1d", line[0]);
  check_unpooling<nn::MaxPool2d, nn::MaxUnpool2d>("MaxUnpool2d", plane[0]);
  check_unpooling<nn::MaxPool3d, nn::MaxUnpool3d>("MaxUnpool3d", space[0]);
}

// Which regions a fractional pooling takes is random: here the program says it.
TEST_F(Modules, FractionalPooling) {
  check(
      "FractionalMaxPool2d", {real({2, 3, 8, 6}), torch::rand({2, 3, 2})},
      [] { return nn::AnyModule(nn::Identity()); },
      [](nn::AnyModule&, const Tensors& x) -> Tensors {
        return {nn::FractionalMaxPool2d(
                    nn::FractionalMaxPool2dOptions(2).output_size(3)._random_samples(x[1]))
                    ->forward(x[0])};
      });
  check(
      "FractionalMaxPool3d", {real({2, 3, 8, 6, 5}), torch::rand({2, 3, 3})},
      [] { return nn::AnyModule(nn::Identity()); },
      [](nn::AnyModule&, const Tensors& x) -> Tensors {
        return {nn::FractionalMaxPool3d(
                    nn::FractionalMaxPool3dOptions(2).output_size(3)._random_samples(x[1]))
                    ->forward(x[0])};
      });
}

TEST_F(Modules, Recurrent) {
  using States = std::tuple<Tensor, Tensor>;
  using LstmOutput = std::tuple<Tensor, States>;
  const Tensors sequence{real({7, 3, 5})}, step{real({3, 5})};
  CHECK_MODULE_RETURNING(States, RNN, sequence, nn::RNNOptions(5, 4).num_layers(2));
  CHECK_MODULE_RETURNING(LstmOutput, LSTM, sequence,
                         nn::LSTMOptions(5, 4).num_layers(2).bidirectional(true));
  CHECK_MODULE_RETURNING(LstmOutput, LSTM, sequence,
                         nn::LSTMOptions(5, 4).bias(false).proj_size(3));
  CHECK_MODULE_RETURNING(States, GRU, sequence,
                         nn::GRUOptions(5, 4).num_layers(2).bidirectional(true));
  CHECK_MODULE_RETURNING(States, GRU, sequence, nn::GRUOptions(5, 4).bias(false));
  CHECK_MODULE(RNNCell, step, 5, 4);
  CHECK_MODULE_RETURNING(States, LSTMCell, step, 5, 4);
  CHECK_MODULE(GRUCell, step, 5, 4);
}

TEST_F(Modules, Attention) {
  using Attended = std::tuple<Tensor, Tensor>;
  const Tensor x = real({6, 2, 8});
  const auto without_dropout = [](auto options) { return options.dropout(0.0); };
  CHECK_MODULE_RETURNING(Attended, MultiheadAttention, (Tensors{x, x, x}), 8, 2);
  const auto encoder_layer = [=] {
    return nn::TransformerEncoderLayer(
        without_dropout(nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16)));
  };
  const auto decoder_layer = [=] {
    return nn::TransformerDecoderLayer(
        without_dropout(nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(16)));
  };
  check("TransformerEncoderLayer", {x}, [=] { return nn::AnyModule(encoder_layer()); });
  check("TransformerDecoderLayer", {x, x}, [=] { return nn::AnyModule(decoder_layer()); });
  check("TransformerEncoder", {x},
        [=] { return nn::AnyModule(nn::TransformerEncoder(encoder_layer(), 2)); });
  check("TransformerDecoder", {x, x},
        [=] { return nn::AnyModule(nn::TransformerDecoder(decoder_layer(), 2)); });
  CHECK_MODULE(Transformer, (Tensors{x, x}),
               nn::TransformerOptions(8, 2, 1, 1).dim_feedforward(16).dropout(0.0));
}

TEST_F(Modules, Losses) {
  const Tensor x = real({4, 5}), y = real({4, 5}), z = real({4, 5}), p = positive({4, 5});
  const Tensor labels = classes({4}, 5), many = classes({4, 5}, 5), sign = signs({4, 5});
  CHECK_MODULE(L1Loss, (Tensors{x, y}));
  CHECK_MODULE(MSELoss, (Tensors{x, y}));
  CHECK_MODULE(SmoothL1Loss, (Tensors{x, y}));
  CHECK_MODULE(HuberLoss, (Tensors{x, y}));
  CHECK_MODULE(KLDivLoss, (Tensors{p.log().detach().requires_grad_(), p}));
  CHECK_MODULE(BCELoss, (Tensors{p, positive({4, 5})}));
  CHECK_MODULE(BCEWithLogitsLoss, (Tensors{x, p}));
  CHECK_MODULE(HingeEmbeddingLoss, (Tensors{x, sign}));
  CHECK_MODULE(MultiMarginLoss, (Tensors{x, labels}));
  CHECK_MODULE(MultiLabelMarginLoss, (Tensors{x, many}));
  CHECK_MODULE(MultiLabelSoftMarginLoss, (Tensors{x, p}));
  CHECK_MODULE(SoftMarginLoss, (Tensors{x, sign}));
  CHECK_MODULE(CosineEmbeddingLoss, (Tensors{x, y, signs({4})}));
  CHECK_MODULE(TripletMarginLoss, (Tensors{x, y, z}));
  CHECK_MODULE(TripletMarginWithDistanceLoss, (Tensors{x, y, z}));
  CHECK_MODULE(MarginRankingLoss, (Tensors{x, y, sign}));
  CHECK_MODULE(PoissonNLLLoss, (Tensors{x, p}));
  CHECK_MODULE(NLLLoss, (Tensors{x, labels}));
  CHECK_MODULE(CrossEntropyLoss, (Tensors{x, labels}));
  CHECK_MODULE(CTCLoss,
               (Tensors{real({8, 4, 5}), classes({4, 3}, 4).add(1),
                        torch::full({4}, 8, torch::kLong), torch::full({4}, 3, torch::kLong)}));
  CHECK_MODULE_RETURNING(nn::ASMoutput, AdaptiveLogSoftmaxWithLoss,
                         (Tensors{real({6, 16}), classes({6}, 10)}),
                         nn::AdaptiveLogSoftmaxWithLossOptions(16, 10, {3, 7}));
}

// What dropout leaves is scaled; the rest is zero, and so are the gradients.
template <class Module>
void check_dropout(const std::string& name, const Tensor& input) {
  const double kept = 0.75;
  Module module(1 - kept);
  const Tensor x = input.to(torch::kCUDA).detach().requires_grad_();
  const Tensor y = module->forward(x);
  y.sum().backward();
  const Tensor dropped = (y == 0).cpu();
  EXPECT_TRUE(torch::allclose(y.cpu(), torch::where(dropped, 0, x.detach().cpu() / kept))) << name;
  EXPECT_TRUE(torch::allclose(x.grad().cpu(), torch::where(dropped, 0, 1 / kept).to(torch::kFloat)))
      << name;
  EXPECT_NEAR(dropped.to(torch::kFloat).mean().item<double>(), 1 - kept, 0.1) << name;
  module->eval();
  EXPECT_TRUE(module->forward(x).equal(x)) << name;
  results()[name] = "";
}

TEST_F(Modules, Dropout) {
  check_dropout<nn::Dropout>("Dropout", torch::rand({30, 40}) + 1);
  check_dropout<nn::Dropout2d>("Dropout2d", torch::rand({30, 40, 2, 2}) + 1);
  check_dropout<nn::Dropout3d>("Dropout3d", torch::rand({30, 40, 2, 2, 2}) + 1);
  const Tensor x = torch::randn({100, 100}, torch::kCUDA);
  for (const bool whole_channels : {false, true}) {  // these keep mean and deviation
    const Tensor y = whole_channels ? nn::FeatureAlphaDropout(0.2)->forward(x)
                                    : nn::AlphaDropout(0.2)->forward(x);
    EXPECT_NEAR(y.mean().item<double>(), 0, 0.1);
    EXPECT_NEAR(y.std().item<double>(), 1, 0.1);
    results()[whole_channels ? "FeatureAlphaDropout" : "AlphaDropout"] = "";
  }
  // RReLU draws each slope between 1/8 and 1/3.
  const Tensor slopes = (nn::RReLU()->forward(-torch::ones({1000}, torch::kCUDA)) * -1).cpu();
  EXPECT_GE(slopes.min().item<double>(), 1.0 / 8);
  EXPECT_LE(slopes.max().item<double>(), 1.0 / 3);
  EXPECT_GT(slopes.std().item<double>(), 0.03);
  results()["RReLU"] = "";
}

// LibTorch's own headers say which modules there are.
std::set<std::string> modules_of_libtorch() {
  std::set<std::string> names{"Embedding", "EmbeddingBag", "Sequential"};  // declared in other ways
  const std::regex declaration(R"(\nTORCH_MODULE\((\w+)\))");
  for (const char* pattern : {MODULE_HEADERS "/*.h", MODULE_HEADERS "/container/*.h"}) {
    glob_t files{};
    glob(pattern, 0, nullptr, &files);
    for (std::size_t i = 0; i < files.gl_pathc; ++i) {
      std::ifstream in(files.gl_pathv[i]);
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      for (std::sregex_iterator found(text.begin(), text.end(), declaration), end; found != end;
           ++found) {
        names.insert((*found)[1]);
      }
    }
    globfree(&files);
  }
  return names;
}

// The last two look at what the others did: tests run in the order of this file.
TEST_F(Modules, AreAllOfLibTorch) {
  std::set<std::string> tried;
  for (const auto& [name, refusal] : results()) tried.insert(name);
  EXPECT_EQ(tried, modules_of_libtorch());
}

// What is computed and what is refused, as simulate_gpus/README.md has it.
std::string table() {
  void* const kernels = dlopen("libtorch_simulated_kernels.so", RTLD_LAZY | RTLD_NOLOAD);
  auto* const get = reinterpret_cast<decltype(&simulated_cuda_registered)>(
      dlsym(kernels, "simulated_cuda_registered"));
  auto refused_operations = get()->refused;
  std::ranges::sort(refused_operations);
  std::string refused_modules, operations;
  std::size_t computed = 0;
  for (const auto& [name, refusal] : results()) {
    computed += refusal.empty();
    if (!refusal.empty()) refused_modules += " `" + name + '`';
  }
  for (const std::string& name : refused_operations)
    operations += (operations.empty() ? "`" : " `") + name + '`';
  std::ostringstream text;
  text << "| LibTorch " << TORCH_VERSION << " | computed | refused by name |\n|---|---|---|\n"
       << "| modules of `torch::nn`, forward and backward | " << computed << " | "
       << results().size() - computed << refused_modules << " |\n"
       << "| CUDA kernels of `aten` | " << get()->computed.size() << " | "
       << refused_operations.size() << " |\n\n"
       << "Refused: " << operations << '\n';
  return text.str();
}

TEST_F(Modules, AndOperationsAreInTheDocs) {
  std::cout << table();
  std::ifstream file(DOCS_PAGE);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const std::string of_this_version = "| LibTorch " TORCH_VERSION " |";
  if (page.find("<!-- table -->") != std::string::npos &&
      page.find(of_this_version) == std::string::npos) {
    GTEST_SKIP() << DOCS_PAGE " shows the table of another LibTorch";
  }
  EXPECT_NE(page.find("<!-- table -->\n" + table() + "<!-- end -->"), std::string::npos)
      << "the table in " DOCS_PAGE " is not the one above";
}

}  // namespace
