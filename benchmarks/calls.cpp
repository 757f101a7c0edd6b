// SPDX-License-Identifier: MIT
//
// What each verb of the library asks of a GPU, beside LibTorch's own way: kernels, copies, waits,
// allocations. Counted, so the table is the same on every machine and needs no GPU:
//
//   simulate_gpus --dry-run 2 calls
//
// Fails where a verb takes more calls than its budget.
#include <dlfcn.h>
#include <simulate_gpus.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/parallel/data_parallel.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <unistd.h>
#include <use_gpu/device.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/parameter_file.hpp>
#include <use_gpu/parameters.hpp>
#include <use_gpu/prefetch.hpp>
#include <use_gpu/replicas.hpp>
#include <use_gpu/tensor.hpp>
#include <use_gpu/tensor_file.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "norm_log.hpp"

namespace {

const auto runtime_count =
    reinterpret_cast<decltype(&simulated_cuda_count)>(dlsym(RTLD_DEFAULT, "simulated_cuda_count"));

struct Column {
  const char* name;
  std::vector<const char*> rows;  // of the summary, added up
};

const std::vector<Column> k_columns = {
    {"kernels", {"kernels"}},
    {"graphs", {"graph launches"}},
    {"on device", {"within a device copies"}},
    {"peers", {"device to device copies"}},
    {"to device", {"host to device copies"}},
    {"to host", {"device to host copies"}},
    {"waits", {"stream synchronizations", "event synchronizations", "device synchronizations"}}};
const std::vector<Column> k_more_columns = {  // beside the calls
    {"allocations", {"allocations", "pinned allocations"}},
    {"bytes", {"host to device bytes", "device to host bytes", "device to device bytes"}}};

using Counts = std::vector<std::int64_t>;

Counts counts(const std::vector<Column>& columns) {
  Counts numbers;
  for (const auto& column : columns) {
    auto& number = numbers.emplace_back();
    for (const char* row : column.rows) number += static_cast<std::int64_t>(runtime_count(row));
  }
  return numbers;
}

struct Way {
  std::string name;
  std::function<void()> work;
  std::function<void()> before = [] {};
};

bool all_within_budgets = true;

// Counts the second run: the first one loads kernels and fills LibTorch's caches. Prints it, and
// returns how many calls it took. <budget>: at most so many.
std::int64_t print_row(const Way& way, std::optional<std::int64_t> budget = {}) {
  way.before();
  way.work();
  way.before();
  const auto calls_before = counts(k_columns);
  const auto more_before = counts(k_more_columns);
  way.work();
  const auto calls = counts(k_columns);
  const auto more = counts(k_more_columns);
  std::printf("%-40s", way.name.c_str());
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    sum += calls[i] - calls_before[i];
    std::printf("  %9lld", static_cast<long long>(calls[i] - calls_before[i]));
  }
  const bool is_within = !budget || sum <= *budget;
  std::printf("  %9lld  %9s", static_cast<long long>(sum),
              budget ? std::to_string(*budget).c_str() : "-");
  for (std::size_t i = 0; i < more.size(); ++i)
    std::printf("  %11lld", static_cast<long long>(more[i] - more_before[i]));
  std::puts(is_within ? "" : "  MISSED");
  all_within_budgets = all_within_budgets && is_within;
  return sum;
}

void print_heading(const std::string& what) {
  std::printf("\n%-40s", what.c_str());
  for (const auto& column : k_columns) std::printf("  %9s", column.name);
  std::printf("  %9s  %9s", "calls", "at most");
  for (const auto& column : k_more_columns) std::printf("  %11s", column.name);
  std::puts("");
}

// A verb may take at most <most> calls, and never more than LibTorch's own way.
void compare(const Way& ours, const Way& own,
             std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
  const auto calls = print_row(own);
  print_row(ours, std::min(most, calls));
}

struct Net : torch::nn::Cloneable<Net> {
  explicit Net(int count) : count_(count) { Net::reset(); }
  void reset() override {
    for (int i = 0; i < count_; ++i)
      register_parameter("p" + std::to_string(i), torch::zeros({8, 8}));
  }

 private:
  int count_;
};

std::string parameters_of_8x8(int count) {
  return std::to_string(count) + (count == 1 ? " parameter" : " parameters") + " of 8x8";
}

void exercise_2(int count) {
  print_heading((count == 1000 ? "Exercise 2: " : "") + parameters_of_8x8(count));
  const auto net = std::make_shared<Net>(count);
  use_gpu::place(*net, use_gpu::gpu());
  const auto values = use_gpu::read_parameters(*net);
  compare({"read_parameters", [&] { (void)use_gpu::read_parameters(*net); }},
          {"a loop of cpu()",
           [&] {
             for (const auto& x : net->parameters()) (void)x.cpu();
           }},
          30);
  compare({"write_parameters", [&] { use_gpu::write_parameters(*net, values); }},
          {"a loop of copy_",
           [&] {
             const torch::NoGradGuard no_grad;
             for (const auto& x : net->named_parameters()) x.value().copy_(values.at(x.key()));
           }},
          30);
  const auto folder = std::filesystem::temp_directory_path();
  const auto ours = folder / ("calls." + std::to_string(getpid()) + ".safetensors");
  const auto own = folder / ("calls." + std::to_string(getpid()) + ".pt");
  use_gpu::save_parameters(*net, ours);
  torch::save(net, own);
  compare({"load_parameters", [&] { use_gpu::load_parameters(*net, ours); }},
          {"torch::load",
           [&] {
             auto loaded = net;
             torch::load(loaded, own, use_gpu::gpu());
           }},
          30);
  auto list = net->parameters();
  torch::save(list, own);
  compare({"load_tensors", [&] { (void)use_gpu::load_tensors(ours, use_gpu::gpu()); }},
          {"torch::load of a list", [&] { torch::load(list, own, use_gpu::gpu()); }}, 30);
  auto halves = values;
  for (auto& [name, x] : halves) x = x.to(torch::kHalf);
  use_gpu::save_tensors(halves, ours);
  compare({"load_parameters, converting",
           [&] { use_gpu::load_parameters(*net, ours, {.convert_dtype = true}); }},
          {"a loop of copy_, converting",
           [&] {
             const torch::NoGradGuard no_grad;
             for (const auto& x : net->named_parameters()) x.value().copy_(halves.at(x.key()));
           }},
          30);
  std::filesystem::remove(ours);
  std::filesystem::remove(own);
}

void batches(int count) {
  print_heading(std::to_string(count) + " batches of 64x64");
  const std::vector<at::Tensor> loader(static_cast<std::size_t>(count), torch::zeros({64, 64}));
  // Of each batch a copy and a kernel; nothing is waited for.
  compare({"prefetch",
           [&] {
             for (auto& batch : use_gpu::prefetch(loader, use_gpu::gpu())) batch.add_(1);
           }},
          {"a loop of to(device)",
           [&] {
             for (const auto& batch : loader) batch.to(use_gpu::gpu()).add_(1);
           }},
          2 * count);
}

void several_devices(int count) {
  print_heading(count == 1000 ? "Several devices: " + parameters_of_8x8(count)
                              : parameters_of_8x8(count) + ", several devices");
  const auto net = std::make_shared<Net>(count);
  struct Move {
    const char *to_text, *name;
    c10::Device from, to;
  };
  for (const auto& move :
       {Move{"to(cuda)", "place", use_gpu::cpu(), use_gpu::gpu()},
        Move{"to(cpu)", "place on the host", use_gpu::gpu(), use_gpu::cpu()},
        Move{"to(another)", "place on another GPU", use_gpu::gpu(0), use_gpu::gpu(1)}}) {
    const auto before = [&] { use_gpu::place(*net, move.from); };
    compare({move.name, [&] { use_gpu::place(*net, move.to); }, before},
            {std::string("Module::") + move.to_text, [&] { net->to(move.to); }, before}, 30);
  }
  const std::vector<c10::Device> devices{use_gpu::gpu(0), use_gpu::gpu(1)};
  const auto make = [&] { return std::make_shared<Net>(count); };
  compare({"mirror on two", [&] { (void)use_gpu::mirror(devices, make); }},
          {"replicate on two", [&] { (void)torch::nn::parallel::replicate(make(), devices); }}, 40);
  const auto nets = use_gpu::mirror(devices, make);
  for (const auto& replica : nets) {
    for (auto& x : replica->parameters()) x.mutable_grad() = torch::ones_like(x);
  }
  // A gather and a scatter on each, 3 kernels, 2 copies.
  compare({"average_gradients of two", [&] { use_gpu::average_gradients(nets); }},
          {"a loop of add_, div_, copy_",
           [&] {
             for (int i = 0; i < count; ++i) {
               const auto index = static_cast<std::size_t>(i);
               auto& sum = nets[0]->parameters()[index].mutable_grad();
               auto& other = nets[1]->parameters()[index].mutable_grad();
               sum.add_(other.to(sum.device())).div_(2);
               other.copy_(sum);
             }
           }},
          2 * (8 + 16) + 3 + 2);
}

void one_tensor() {
  print_heading("A tensor of 8x8");
  const auto x = torch::zeros({8, 8});
  compare({"to_device", [&] { (void)use_gpu::to_device(x, use_gpu::gpu()); }},
          {"to()", [&] { (void)x.to(use_gpu::gpu()); }});
  const auto on_gpu = x.to(use_gpu::gpu());
  compare({"checked_add", [&] { (void)use_gpu::checked_add(on_gpu, on_gpu); }},
          {"add()", [&] { (void)on_gpu.add(on_gpu); }});
}

void exercise_3(c10::Device device) {
  print_heading("Exercise 3: 1000 products and norms");
  for (const auto& contender : norm_log_contenders(device)) {
    if (contender.devices.empty()) continue;
    const Way way{contender.name, [&] { (void)contender.work(); }};
    // Of all contenders only the log has one: the products and norms, and few more.
    print_row(way, contender.name == "MetricLog" ? std::optional(2000 + 30) : std::nullopt);
  }
}

}  // namespace

int main() {
  if (runtime_count == nullptr || use_gpu::num_gpus() < 2) {
    std::fputs("calls: start it as: simulate_gpus --dry-run 2 calls\n", stderr);
    return 2;
  }
  std::puts("What each way asks of GPUs, by the kernels of LibTorch; a product is one kernel.");
  for (const int parameters : {1000, 1, 2, 10}) {
    exercise_2(parameters);
    several_devices(parameters);
  }
  one_tensor();
  batches(100);
  exercise_3(use_gpu::gpu());
  if (all_within_budgets) return 0;
  std::fputs("calls: a verb takes more calls than its budget: see MISSED\n", stderr);
  return 1;
}
