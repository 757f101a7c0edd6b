// SPDX-License-Identifier: MIT
//
// save_parameters and load_parameters beside torch::save and torch::load, for 100 MB in 25 tensors
// and for 1,000 tensors of 4 KB, on try_gpu(). Every load is checked. Ours waits until the file is
// on the disk and computes checksums; LibTorch's do neither, so "save_to_disk" flushes LibTorch's
// file too.
//
//   parameters --benchmark_enable_random_interleaving=true --benchmark_repetitions=9
//   [TMPDIR=/var/tmp]
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <malloc.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/serialize.h>
#include <torch/version.h>
#include <unistd.h>
#include <use_gpu/device.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/parameters.hpp>
#include <use_gpu/tensor.hpp>

#include <filesystem>
#include <stdexcept>

namespace {

struct ManyImpl : torch::nn::Module {
  ManyImpl(std::int64_t count, std::int64_t floats) {
    for (std::int64_t i = 0; i < count; ++i) {
      register_parameter("p" + std::to_string(i), torch::full({floats}, static_cast<float>(i)));
    }
  }
};
TORCH_MODULE(Many);

constexpr std::int64_t k_mebi = 1 << 20;

Many net_of(const benchmark::State& state) {
  Many net(state.range(0), state.range(1));
  use_gpu::place(net, use_gpu::try_gpu());
  return net;
}

std::string file_of(const char* name) {
  return (std::filesystem::temp_directory_path() / (name + std::to_string(::getpid()))).string();
}

void require_values(Many& net) {
  const auto all = net->parameters();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].eq(static_cast<float>(i)).all().item<bool>())
      throw std::runtime_error("a wrong value was loaded");
  }
}

void note(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0) * state.range(1) * 4);
  state.SetLabel(use_gpu::try_gpu().str() +
                 (use_gpu::try_gpu().is_privateuseone() ? " SIMULATED" : ""));
}

template <class Save>
void save(benchmark::State& state, const char* name, const Save& do_save) {
  auto net = net_of(state);
  const auto file = file_of(name);
  for (auto _ : state) do_save(net, file);
  note(state);
  std::filesystem::remove(file);
}

template <class Save, class Load>
void load(benchmark::State& state, const char* name, const Save& do_save, const Load& do_load) {
  auto net = net_of(state);
  const auto file = file_of(name);
  do_save(net, file);
  Many other(state.range(0), state.range(1));
  use_gpu::place(other, use_gpu::try_gpu());
  for (auto _ : state) {
    do_load(other, file);
    use_gpu::synchronize(use_gpu::try_gpu());
  }
  require_values(other);
  note(state);
  std::filesystem::remove(file);
}

void ours_save(const Many& net, const std::string& file) { use_gpu::save_parameters(net, file); }
void ours_load(const Many& net, const std::string& file) { use_gpu::load_parameters(net, file); }
void torch_save(const Many& net, const std::string& file) { torch::save(net, file); }
void torch_load(Many& net, const std::string& file) { torch::load(net, file); }
void torch_save_to_disk(const Many& net, const std::string& file) {
  torch::save(net, file);
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (::fsync(fd) != 0) throw std::runtime_error("fsync");
  ::close(fd);
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"tensors", "floats"})->Args({25, k_mebi})->Args({1000, 1024});
  benchmark->Unit(benchmark::kMillisecond)->UseRealTime();
}

BENCHMARK_CAPTURE(save, use_gpu, "use_gpu_bench_a", ours_save)->Apply(sizes);
BENCHMARK_CAPTURE(save, torch, "use_gpu_bench_b", torch_save)->Apply(sizes);
BENCHMARK_CAPTURE(save, torch_to_disk, "use_gpu_bench_c", torch_save_to_disk)->Apply(sizes);
BENCHMARK_CAPTURE(load, use_gpu, "use_gpu_bench_d", ours_save, ours_load)->Apply(sizes);
BENCHMARK_CAPTURE(load, torch, "use_gpu_bench_e", torch_save, torch_load)->Apply(sizes);

}  // namespace

int main(int argc, char** argv) {
  // A program loads once. In a loop glibc would keep LibTorch's memory for the next round, which a
  // first load has to get from the system, page by page; told where to draw the line, it does not.
  ::mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  benchmark::Initialize(&argc, argv);
  benchmark::AddCustomContext("LibTorch", TORCH_VERSION);
  benchmark::AddCustomContext("threads", std::to_string(at::get_num_threads()));
  benchmark::RunSpecifiedBenchmarks();
}
