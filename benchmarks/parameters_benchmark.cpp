// SPDX-License-Identifier: MIT
//
// save_parameters and load_parameters beside torch::save and torch::load, for 25 tensors of 4 MiB
// and for 1,000 of 4 KiB, on the CPU and on the first GPU. Saved files are loaded, and loaded
// values checked. Ours waits until the file is on the disk; LibTorch's do not, so "torch and fsync"
// has LibTorch's file flushed too. Ours computes XXH3 checksums, torch::save CRC-32 ones. Files are
// in TMPDIR.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <malloc.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/serialize.h>
#include <unistd.h>
#include <use_gpu/device.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/parameter_file.hpp>

#include <filesystem>
#include <stdexcept>
#include <string>

#include "contender_benchmark.hpp"

namespace {

struct ManyImpl : torch::nn::Module {
  ManyImpl(std::int64_t count, std::int64_t floats, float value, c10::Device device) {
    for (std::int64_t i = 0; i < count; ++i) {
      register_parameter("p" + std::to_string(i), torch::full({floats}, value++));
    }
    use_gpu::place(*this, device);
  }
};
TORCH_MODULE(Many);

struct Size {
  const char* name;
  std::int64_t tensors, floats;
};

struct Way {
  const char* name;
  void (*save)(const Many&, const std::string&);
  void (*load)(Many&, const std::string&);
};

void save_ours(const Many& net, const std::string& file) { use_gpu::save_parameters(net, file); }
void load_ours(Many& net, const std::string& file) { use_gpu::load_parameters(net, file); }
void save_torch(const Many& net, const std::string& file) { torch::save(net, file); }
void load_torch(Many& net, const std::string& file) { torch::load(net, file); }
void save_torch_to_disk(const Many& net, const std::string& file) {
  torch::save(net, file);
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (::fsync(fd) != 0) throw std::runtime_error("fsync");
  ::close(fd);
}

void require_values(const Many& net) {
  float expected = 0;
  for (const auto& x : net->parameters()) {
    if (!x.eq(expected++).all().item<bool>()) throw std::runtime_error("a wrong value was loaded");
  }
}

// Times saving, or loading into a network with other values.
void measure(benchmark::State& state, c10::Device device, const Size& size, const Way& way,
             bool is_save) {
  const auto file =
      (std::filesystem::temp_directory_path() / ("use_gpu_benchmark_" + std::to_string(::getpid())))
          .string();
  const Many net(size.tensors, size.floats, 0, device);
  Many other(size.tensors, size.floats, 1, device);
  for (int i = 0; i < 2; ++i) way.save(net, file);  // an atomic save has two files, for a moment
  for (auto _ : state) {
    if (is_save) {
      way.save(net, file);
    } else {
      way.load(other, file);
      use_gpu::synchronize(device);
    }
  }
  if (is_save) way.load(other, file);
  require_values(other);
  std::filesystem::remove(file);
  state.SetBytesProcessed(state.iterations() * size.tensors * size.floats * 4);
  state.SetLabel(label(device));
}

}  // namespace

int main(int argc, char** argv) {
  // A program loads once. In a loop glibc would keep LibTorch's memory for the next round, but a
  // first load must get it from the system, page by page. A fixed threshold prevents this.
  ::mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  const Way ours{"use_gpu", save_ours, load_ours}, torch{"torch", save_torch, load_torch},
      to_disk{"torch and fsync", save_torch_to_disk, load_torch};
  std::vector<c10::Device> devices = {use_gpu::cpu()};
  if (use_gpu::num_gpus() > 0) devices.push_back(use_gpu::gpu());
  for (const auto device : devices) {
    for (const Size& size : {Size{"25 of 4 MiB", 25, 1 << 20}, {"1000 of 4 KiB", 1000, 1 << 10}}) {
      const auto add = [&](const std::string& what, const Way& way) {
        const auto name =
            "parameters/" + label(device) + '/' + what + '/' + way.name + '/' + size.name;
        benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
          measure(state, device, size, way, what == "save");
        })->UseRealTime();
      };
      for (const auto& way : {ours, torch, to_disk}) add("save", way);
      for (const auto& way : {ours, torch}) add("load", way);
    }
  }
  return run_benchmarks(argc, argv);
}
