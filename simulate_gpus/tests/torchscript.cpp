// SPDX-License-Identifier: MIT
//
// The modules that torchscript.py has saved, in a C++ program: values and gradients are those of eager
// code in Python. Usage: simulate_gpus 1 torchscript FOLDER
#include <torch/script.h>
#include <torch/torch.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using torch::Tensor;
using Tensors = std::vector<Tensor>;

void collect(Tensors& into, const torch::IValue& value) {
  if (value.isTensor()) {
    into.push_back(value.toTensor());
  } else if (value.isTuple()) {
    for (const auto& part : value.toTupleRef().elements()) collect(into, part);
  } else if (value.isList()) {
    for (const torch::IValue& part : value.toListRef()) collect(into, part);
  }
}

torch::IValue on_gpu(const torch::IValue& value) {
  if (value.isTuple()) {
    std::vector<torch::IValue> parts;
    for (const auto& part : value.toTupleRef().elements()) parts.push_back(on_gpu(part));
    return c10::ivalue::Tuple::create(std::move(parts));
  }
  if (!value.isTensor()) return value;
  const Tensor x = value.toTensor();
  return x.detach().to(torch::kCUDA).set_requires_grad(x.requires_grad());
}

// Outputs, and the gradients of inputs and parameters.
Tensors results(torch::jit::Module& module, const std::vector<torch::IValue>& inputs) {
  torch::manual_seed(0);
  Tensors found, starts, gradients;
  collect(found, module.forward(inputs));
  Tensor loss;
  for (const Tensor& output : found) {
    if (!output.requires_grad()) continue;
    loss = loss.defined() ? loss + output.square().sum() : output.square().sum();
  }
  const auto add = [&](const Tensor& x) {
    if (x.requires_grad()) starts.push_back(x);
  };
  Tensors of_inputs;
  for (const auto& input : inputs) collect(of_inputs, input);
  for (const Tensor& input : of_inputs) add(input);
  for (const Tensor& parameter : module.parameters()) add(parameter);
  if (loss.defined() && !starts.empty()) {
    gradients = torch::autograd::grad({loss}, starts, {}, {}, false, /*allow_unused=*/true);
  }
  for (const Tensor& gradient : gradients) {
    if (gradient.defined()) found.push_back(gradient);
  }
  return found;
}

// What is wrong; empty if nothing is.
std::string check(const std::filesystem::path& file) {
  std::unordered_map<std::string, std::string> extra{{"case", ""}};
  torch::jit::Module module = torch::jit::load(file.string(), torch::kCUDA, extra);
  const std::string& bytes = extra.at("case");
  const auto saved = torch::pickle_load({bytes.begin(), bytes.end()}).toList();
  Tensors expected;
  collect(expected, saved.get(1));
  std::vector<torch::IValue> inputs;
  for (const torch::IValue& input : saved.get(0).toListRef()) inputs.push_back(on_gpu(input));
  const auto buffers = [&] {
    Tensors copies;
    for (const Tensor& buffer : module.buffers()) copies.push_back(buffer.clone());
    return copies;
  };
  const Tensors before = buffers();
  for (int call = 1; call <= 3; ++call) {  // TorchScript fuses after the first
    const Tensors found = results(module, inputs);
    if (found.size() != expected.size()) return "another number of results";
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (!found[i].is_cuda() ||
          !torch::allclose(found[i].detach().cpu(), expected[i], 1e-4, 1e-5, true)) {
        return "call " + std::to_string(call) + ", result " + std::to_string(i) + " differs";
      }
    }
    const torch::NoGradGuard no_grad;
    std::size_t next = 0;
    for (const Tensor& buffer : module.buffers()) buffer.copy_(before[next++]);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  int equal = 0, wrong = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argc > 1 ? argv[1] : ".")) {
    if (entry.path().extension() != ".pt") continue;
    std::string what;
    try {
      what = check(entry.path());
    } catch (const std::exception& error) {
      what = error.what();
    }
    what.empty() ? ++equal : ++wrong;
    if (!what.empty()) std::printf("%s: %s\n", entry.path().filename().c_str(), what.c_str());
  }
  std::printf("jit.load: %d equal, %d wrong\n", equal, wrong);
  return wrong == 0 && equal >= 30 ? 0 : 1;
}
