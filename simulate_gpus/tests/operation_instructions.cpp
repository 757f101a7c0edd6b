// Small operations and steps of training on the CPU and on a simulated GPU, for callgrind to count.
#include <torch/torch.h>
#include <valgrind/callgrind.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace {

using Tensors = std::vector<torch::Tensor>;
using Operations = std::vector<std::pair<std::string, std::function<void()>>>;

constexpr int k_calls = 4;  // by which operation_instructions.py divides

void count(const Operations& operations, const std::string& device) {
  for (const auto& [name, operation] : operations) {
    for (int i = 0; i < k_calls; ++i) operation();  // caches are filled, functions are found
    CALLGRIND_START_INSTRUMENTATION;
    for (int i = 0; i < k_calls; ++i) operation();
    CALLGRIND_STOP_INSTRUMENTATION;
    const std::string mark = name + ' ' + device;
    CALLGRIND_DUMP_STATS_AT(mark.c_str());
  }
}

Tensors ones(std::int64_t count, const torch::TensorOptions& options) {
  Tensors made;
  for (std::int64_t i = 0; i < count; ++i) made.push_back(torch::ones({4, 4}, options));
  return made;
}

// A step of AdamW over lists, as Python's foreach implementation computes it.
void step_of_lists(const Tensors& parameters, const Tensors& gradients, const Tensors& averages,
                   const Tensors& squares) {
  at::_foreach_mul_(parameters, 0.99999);
  at::_foreach_lerp_(averages, gradients, 0.1);
  at::_foreach_mul_(squares, 0.999);
  at::_foreach_addcmul_(squares, gradients, gradients, 0.001);
  const Tensors roots = at::_foreach_sqrt(squares);
  at::_foreach_div_(roots, 0.9);
  at::_foreach_add_(roots, 1e-8);
  at::_foreach_addcdiv_(parameters, averages, roots, -0.001);
}

void count_training(const std::string& name) {
  const torch::Device device(name);
  const Tensors gradients = ones(100, device), averages = ones(100, device),
                squares = ones(100, device);
  const Tensors parameters = ones(100, torch::TensorOptions(device).requires_grad(true));
  for (std::size_t i = 0; i < 100; ++i) parameters[i].mutable_grad() = gradients[i];
  torch::optim::AdamW optimizer(parameters);
  torch::nn::Sequential network(torch::nn::Linear(4, 8), torch::nn::ReLU(),
                                torch::nn::Linear(8, 2));
  network->to(device);
  const torch::Tensor x = torch::ones({3, 4}, device);
  torch::nn::LSTM lstm(32, 32);
  lstm->to(device);
  const torch::Tensor sequences = torch::ones({50, 4, 32}, device);
  count({{"AdamW over lists of 100",
          [&] {
            const torch::NoGradGuard no_grad;
            step_of_lists(parameters, gradients, averages, squares);
          }},
         {"AdamW of 100", [&] { optimizer.step(); }},
         {"forward, backward", [&] { network->forward(x).sum().backward(); }},
         {"LSTM of 50 steps",
          [&] {
            const torch::NoGradGuard no_grad;
            (void)lstm->forward(sequences);
          }},
         {"LSTM, backward too", [&] { std::get<0>(lstm->forward(sequences)).sum().backward(); }}},
        name);
}

void count_operations(const std::string& name) {
  const c10::InferenceMode without_autograd;
  const torch::Device device(name);
  const auto x = torch::ones({2, 3}, device), y = torch::ones_like(x);
  const auto square = torch::ones({3, 3}, device);
  Tensors many;
  for (int i = 0; i < 100; ++i) many.push_back(torch::ones_like(x));
  count({{"add_", [&] { x.add_(y); }},
         {"add", [&] { (void)x.add(y); }},
         {"relu", [&] { (void)x.relu(); }},
         {"mm", [&] { (void)square.mm(square); }},
         {"sum", [&] { (void)x.sum(); }},
         {"cat of 100", [&] { (void)torch::cat(many); }},
         {"_foreach_add_ of 100", [&] { at::_foreach_add_(many, 1); }}},
        name);
}

}  // namespace

int main() {
  torch::set_num_threads(1);
  for (const char* device : {"cpu", "cuda"}) count_operations(device);
  for (const char* device : {"cpu", "cuda"}) count_training(device);
}
