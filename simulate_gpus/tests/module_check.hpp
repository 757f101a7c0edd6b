// SPDX-License-Identifier: MIT
//
// A module of torch::nn on a simulated GPU: outputs and gradients are the CPU's, or it is refused by name.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace modules {

namespace nn = torch::nn;
using torch::Tensor;
using Tensors = std::vector<Tensor>;

// Result of each module: "" if it was computed, else the refusal.
inline std::map<std::string, std::string>& results() {
  static std::map<std::string, std::string> results;
  return results;
}

inline void collect(Tensors& into, const Tensor& tensor) { into.push_back(tensor); }

template <class... Parts>
void collect(Tensors& into, const std::tuple<Parts...>& parts) {
  std::apply([&](const auto&... part) { (collect(into, part), ...); }, parts);
}

inline void collect(Tensors& into, const nn::ASMoutput& output) {
  into.push_back(output.output);
  into.push_back(torch::tensor(output.loss));
}

// A module, and what it makes of tensors. (nn::AnyModule does the same, and takes a minute to compile.)
struct Made {
  std::shared_ptr<nn::Module> module;
  std::function<Tensors(const Tensors&)> forward;
};

template <class Module>
Made made(const std::shared_ptr<Module>& module) {
  return {module, [module](const Tensors& x) {
            Tensors outputs;
            const auto call = [&](const auto&... arguments) {
              if constexpr (requires { module->forward(arguments...); })
                collect(outputs, module->forward(arguments...));
            };
            x.size() == 1   ? call(x[0])
            : x.size() == 2 ? call(x[0], x[1])
            : x.size() == 3 ? call(x[0], x[1], x[2])
                            : call(x[0], x[1], x[2], x[3]);
            return outputs;
          }};
}
template <class Module>
Made made(const nn::ModuleHolder<Module>& module) {
  return made(module.ptr());
}

using Make = std::function<Made()>;

// The outputs of the module and the gradients of its inputs and parameters, on the CPU. A gradient
// flows into each output, with weights that differ.
inline Tensors run(const torch::Device& device, const Make& make, const Tensors& inputs) {
  torch::manual_seed(0);
  const auto [module, forward] = make();
  module->to(device);
  Tensors here;
  for (const Tensor& input : inputs) {
    here.push_back(input.detach().clone().to(device).set_requires_grad(input.requires_grad()));
  }
  Tensors found = forward(here);
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
  for (const Tensor& parameter : module->parameters()) {
    if (parameter.grad().defined()) found.push_back(parameter.grad());
  }
  for (const Tensor& buffer : module->buffers()) found.push_back(buffer);
  for (Tensor& tensor : found) tensor = tensor.detach().cpu();
  return found;
}

// Compares the two devices.
inline void check(const std::string& name, const Tensors& inputs, const Make& make) {
  const Tensors expected = run(torch::kCPU, make, inputs);
  ASSERT_FALSE(expected.empty()) << name;
  Tensors found;
  try {
    found = run(torch::kCUDA, make, inputs);
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
  check(#name, inputs, [] { return made(nn::name(__VA_ARGS__)); })

inline Tensor real(torch::IntArrayRef sizes) {
  return torch::rand(sizes).sub_(0.5).requires_grad_();
}
inline Tensor positive(torch::IntArrayRef sizes) {
  return torch::rand(sizes).mul_(0.8).add_(0.1).requires_grad_();
}
inline Tensor classes(torch::IntArrayRef sizes, int count) {
  return torch::randint(count, sizes, torch::kLong);
}
inline Tensor signs(torch::IntArrayRef sizes) {
  return torch::randint(2, sizes).mul_(2).sub_(1).to(torch::kFloat);
}

class Modules : public testing::Test {
 protected:
  Modules() { torch::manual_seed(1); }
};

}  // namespace modules
