// SPDX-License-Identifier: MIT
//
// Our side of safetensors_python.py:
//
//   safetensors_exchange write FILE        saves a network with a known value for each dtype and shape
//   safetensors_exchange check FILE        loads it into one of other values; fails unless it then has these
//   safetensors_exchange copy FROM TO      loads all tensors onto the first GPU and saves them from there
//   safetensors_exchange memory FILE       the same without saving; prints the host memory that this took
//   safetensors_exchange transformer FILE  loads Python's TransformerEncoder into ours and runs it; prints what
//                                          was reported, and how far its output is from Python's
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/types.h>
#include <use_gpu/device.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/parameter_file.hpp>
#include <use_gpu/parameters.hpp>
#include <use_gpu/tensor_file.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>

namespace {

constexpr at::ScalarType k_dtypes[] = {torch::kBool,
                                       torch::kByte,
                                       torch::kChar,
                                       torch::kShort,
                                       torch::kInt,
                                       torch::kLong,
                                       torch::kHalf,
                                       torch::kFloat,
                                       torch::kDouble,
                                       torch::kBFloat16,
                                       torch::kComplexFloat,
                                       torch::kUInt16,
                                       torch::kUInt32,
                                       torch::kUInt64,
                                       torch::kFloat8_e5m2,
                                       torch::kFloat8_e4m3fn,
                                       torch::kFloat8_e5m2fnuz,
                                       torch::kFloat8_e4m3fnuz};

// The known bytes: for bool 0, 1, 0, 1 ... (others are not valid), else 0, 7, 14 ... The other
// bytes: for bool 1, 0, 1, 0 ..., else 255, 254 ...
at::Tensor pattern(at::ScalarType dtype, at::IntArrayRef shape, bool known) {
  const auto bytes =
      c10::multiply_integers(shape) * static_cast<std::int64_t>(c10::elementSize(dtype));
  const auto numbers = torch::arange(bytes);
  const auto values = dtype == torch::kBool ? (numbers + (known ? 0 : 1)) % 2
                      : known               ? numbers * 7 % 251
                                            : 255 - numbers % 251;
  return values.to(torch::kByte).view(dtype).view(shape);
}

struct Net : torch::nn::Module {
  explicit Net(bool known) {
    for (const auto dtype : k_dtypes) {
      const auto name = std::string(c10::getDtypeNames(dtype).first);
      register_buffer(name, pattern(dtype, {2, 3}, known));
      register_buffer(name + "_scalar", pattern(dtype, {}, known));
      register_buffer(name + "_empty", pattern(dtype, {3, 0}, known));
    }
    for (int i = 0; i < 2000; ++i)
      register_buffer("entry_" + std::to_string(i),
                      torch::full({2}, known ? i : -1, torch::kFloat));
  }
};

bool same(const at::Tensor& a, const at::Tensor& b) {
  const auto bytes = [](const at::Tensor& x) { return x.flatten().view(torch::kByte); };
  return bytes(a).equal(bytes(b));
}

int check(const char* file) {
  Net net(false);
  use_gpu::load_parameters(net, file);
  const auto expected = use_gpu::read_parameters(Net(true));
  int wrong = 0;
  for (const auto& [name, value] : use_gpu::read_parameters(net)) {
    if (same(value, expected.at(name))) continue;
    std::cout << name << " has other values\n";
    ++wrong;
  }
  return wrong == 0 ? 0 : 1;
}

// What this process has in memory that is no file's, in bytes: pinned buffers and the memory of
// simulated GPUs too.
std::int64_t memory_in_use() {
  std::ifstream status("/proc/self/status");
  std::int64_t kilobytes = 0;
  for (std::string line; std::getline(status, line);) {
    for (const std::string row : {"RssAnon:", "RssShmem:"})
      if (line.starts_with(row)) kilobytes += std::stoll(line.substr(row.size()));
  }
  return 1024 * kilobytes;
}

// The most that was in use at any time while `work` ran, beyond what was before.
template <class Work>
std::int64_t peak_memory_of(const Work& work) {
  const auto before = memory_in_use();
  std::int64_t peak = before;
  std::atomic<bool> done = false;
  std::thread watch([&] {
    while (!done) {
      peak = std::max(peak, memory_in_use());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  work();
  done = true;
  watch.join();
  return peak - before;
}

void measure_memory(const char* file) {
  (void)torch::ones({1}, use_gpu::try_gpu());
  std::int64_t bytes = 0;
  std::map<std::string, at::Tensor> tensors;
  const auto peak =
      peak_memory_of([&] { tensors = use_gpu::load_tensors(file, use_gpu::try_gpu()); });
  for (const auto& [name, x] : tensors) bytes += static_cast<std::int64_t>(x.nbytes());
  std::cout << bytes << ' ' << peak << '\n';
}

void run_transformer(const char* file) {
  namespace nn = torch::nn;
  const auto layer = nn::TransformerEncoderLayerOptions(16, 4).dim_feedforward(32).dropout(0);
  nn::TransformerEncoder encoder(nn::TransformerEncoderOptions(layer, 2));
  use_gpu::place(encoder, use_gpu::try_gpu());
  const std::string prefix = "model.encoder.";
  use_gpu::LoadOptions options;
  options.rename = [&](const std::string& name) {
    if (name == "input" || name == "output") return std::string();
    return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  };
  options.allow_missing = options.allow_unexpected = options.convert_dtype = true;
  const auto report = use_gpu::load_parameters(encoder, file, options);
  const auto show = [](const char* what, const std::vector<std::string>& names) {
    std::cout << what;
    for (const auto& name : names) std::cout << ' ' << name;
    std::cout << '\n';
  };
  show("missing:", report.missing);
  show("unexpected:", report.unexpected);
  show("converted:", report.converted);
  const auto example = use_gpu::load_tensors(file, use_gpu::try_gpu());
  encoder->eval();
  const torch::NoGradGuard no_grad;
  const auto distance = (encoder->forward(example.at("input")) - example.at("output")).abs().max();
  std::cout << report.loaded.size() << " loaded\n" << distance.item<double>() << '\n';
}

int run(const std::string& what, int argc, char** argv) {
  if (what == "write" && argc == 3) return (use_gpu::save_parameters(Net(true), argv[2]), 0);
  if (what == "check" && argc == 3) return check(argv[2]);
  if (what == "memory" && argc == 3) return (measure_memory(argv[2]), 0);
  if (what == "transformer" && argc == 3) return (run_transformer(argv[2]), 0);
  if (what != "copy" || argc != 4) return 2;
  use_gpu::save_tensors(use_gpu::load_tensors(argv[2], use_gpu::try_gpu()), argv[3]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return argc < 2 ? 2 : run(argv[1], argc, argv); }
