// SPDX-License-Identifier: MIT
//
// The other modules of torch::nn: pooling, recurrent ones, attention, losses, dropout. Then whether all were tried. Prints
// the table that simulate_gpus/README.md shows.
#include <dlfcn.h>
#include <glob.h>
#include <torch/version.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "kernels/registration.hpp"
#include "module_check.hpp"

namespace modules {
namespace {

// Unpooling needs the places of a pooling of the same device.
template <class Pool, class Unpool>
void check_unpooling(const std::string& name, const Tensor& input) {
  check(name, {input}, [] {
    Unpool unpool(2);
    return Made{unpool.ptr(), [=](const Tensors& x) mutable -> Tensors {
                  const auto [pooled, places] = Pool(2)->forward_with_indices(x[0]);
                  return {unpool->forward(pooled, places)};
                }};
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
  const auto check_pooling = [](const std::string& name, const Tensors& inputs, auto make) {
    check(name, inputs, [=] {
      return Made{std::make_shared<nn::IdentityImpl>(),
                  [=](const Tensors& x) -> Tensors { return {make(x[1])->forward(x[0])}; }};
    });
  };
  check_pooling("FractionalMaxPool2d", {real({2, 3, 8, 6}), torch::rand({2, 3, 2})},
                [](const Tensor& places) {
                  return nn::FractionalMaxPool2d(
                      nn::FractionalMaxPool2dOptions(2).output_size(3)._random_samples(places));
                });
  check_pooling("FractionalMaxPool3d", {real({2, 3, 8, 6, 5}), torch::rand({2, 3, 3})},
                [](const Tensor& places) {
                  return nn::FractionalMaxPool3d(
                      nn::FractionalMaxPool3dOptions(2).output_size(3)._random_samples(places));
                });
}

TEST_F(Modules, Recurrent) {
  const Tensors sequence{real({7, 3, 5})}, step{real({3, 5})};
  CHECK_MODULE(RNN, sequence, nn::RNNOptions(5, 4).num_layers(2));
  CHECK_MODULE(LSTM, sequence, nn::LSTMOptions(5, 4).num_layers(2).bidirectional(true));
  CHECK_MODULE(LSTM, sequence, nn::LSTMOptions(5, 4).bias(false).proj_size(3));
  CHECK_MODULE(GRU, sequence, nn::GRUOptions(5, 4).num_layers(2).bidirectional(true));
  CHECK_MODULE(GRU, sequence, nn::GRUOptions(5, 4).bias(false));
  CHECK_MODULE(RNNCell, step, 5, 4);
  CHECK_MODULE(LSTMCell, step, 5, 4);
  CHECK_MODULE(GRUCell, step, 5, 4);
}

TEST_F(Modules, Attention) {
  const Tensor x = real({6, 2, 8});
  const auto without_dropout = [](auto options) { return options.dropout(0.0); };
  CHECK_MODULE(MultiheadAttention, (Tensors{x, x, x}), 8, 2);
  const auto encoder_layer = [=] {
    return nn::TransformerEncoderLayer(
        without_dropout(nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16)));
  };
  const auto decoder_layer = [=] {
    return nn::TransformerDecoderLayer(
        without_dropout(nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(16)));
  };
  check("TransformerEncoderLayer", {x}, [=] { return made(encoder_layer()); });
  check("TransformerDecoderLayer", {x, x}, [=] { return made(decoder_layer()); });
  check("TransformerEncoder", {x},
        [=] { return made(nn::TransformerEncoder(encoder_layer(), 2)); });
  check("TransformerDecoder", {x, x},
        [=] { return made(nn::TransformerDecoder(decoder_layer(), 2)); });
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
  CHECK_MODULE(AdaptiveLogSoftmaxWithLoss, (Tensors{real({6, 16}), classes({6}, 10)}),
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

// The last two look at what the others did: tests run in the order of the sources.
TEST_F(Modules, AreAllOfLibTorch) {
  std::set<std::string> tried;
  for (const auto& [name, refusal] : results()) tried.insert(name);
  EXPECT_EQ(tried, modules_of_libtorch());
}

// What is computed and what is refused, as simulate_gpus/README.md has it.
std::string table() {
  void* const kernels = dlopen("libtorch_simulate_gpus.so", RTLD_LAZY | RTLD_NOLOAD);
  auto* const get = reinterpret_cast<decltype(&simulate_gpus_registered)>(
      dlsym(kernels, "simulate_gpus_registered"));
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
}  // namespace modules
