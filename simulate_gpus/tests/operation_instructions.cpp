// Small operations on the CPU and on a simulated GPU, for callgrind to count.
#include <torch/torch.h>
#include <valgrind/callgrind.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

int main() {
  const c10::InferenceMode without_autograd;
  torch::set_num_threads(1);
  for (const char* device : {"cpu", "cuda"}) {
    const auto x = torch::ones({2, 3}, torch::Device(device)), y = torch::ones_like(x);
    const auto square = torch::ones({3, 3}, torch::Device(device));
    std::vector<torch::Tensor> many;
    for (int i = 0; i < 100; ++i) many.push_back(torch::ones_like(x));
    const std::vector<std::pair<std::string, std::function<void()>>> operations{
        {"add_", [&] { x.add_(y); }},
        {"relu", [&] { (void)x.relu(); }},
        {"mm", [&] { (void)square.mm(square); }},
        {"sum", [&] { (void)x.sum(); }},
        {"cat of 100", [&] { (void)torch::cat(many); }},
        {"_foreach_add_ of 100", [&] { at::_foreach_add_(many, 1); }}};
    for (const auto& [name, operation] : operations) {
      for (int i = 0; i < 10; ++i) operation();  // caches are filled, functions are found
      CALLGRIND_START_INSTRUMENTATION;
      for (int i = 0; i < 10; ++i) operation();
      CALLGRIND_STOP_INSTRUMENTATION;
      const std::string mark = name + ' ' + device;
      CALLGRIND_DUMP_STATS_AT(mark.c_str());
    }
  }
}
