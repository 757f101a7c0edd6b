// SPDX-License-Identifier: MIT
//
// Files of tensors: the same as tensor_files.py, to be run in turn with it. Writes FILE, 512 MiB of 128
// tensors, and reads it again while it is cached. Prints the name of each way and the median of its
// milliseconds.
//
// Usage: tensor_files FILE
#include <ATen/ATen.h>
#include <fcntl.h>
#include <torch/cuda.h>
#include <unistd.h>
#include <use_gpu/device.hpp>
#include <use_gpu/tensor_file.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

namespace {

using Tensors = std::map<std::string, at::Tensor>;
constexpr std::int64_t k_tensors = 128, k_floats = 1 << 20;

bool wrong = false;

template <class Work>
void time(const char* name, const Work& work) {
  std::array<double, 9> rounds;
  wrong |= !work();
  for (double& milliseconds : rounds) {
    const auto start = std::chrono::steady_clock::now();
    wrong |= !work();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    milliseconds = time.count();
  }
  std::ranges::nth_element(rounds, rounds.begin() + rounds.size() / 2);
  std::printf("%-28s %8.1f\n", name, rounds[rounds.size() / 2]);
}

bool all_there(const Tensors& tensors) {
  return tensors.size() == k_tensors && tensors.at("t100").numel() == k_floats &&
         tensors.at("t100").reshape(-1)[5].item<float>() == 100;
}

bool sums_are_right(const Tensors& tensors) {
  double sum = 0;
  for (const auto& [name, x] : tensors) sum += x.sum().item<double>();
  return sum == static_cast<double>(k_floats) * k_tensors * (k_tensors - 1) / 2;
}

bool read_whole(const char* file) {
  const auto size = std::filesystem::file_size(file);
  const std::unique_ptr<char, decltype(&std::free)> memory(static_cast<char*>(std::malloc(size)),
                                                           &std::free);
  const int fd = ::open(file, O_RDONLY | O_CLOEXEC);
  std::size_t done = 0;
  for (ssize_t got = 1; got > 0; done += static_cast<std::size_t>(got))
    got = ::read(fd, memory.get() + done, size - done);
  ::close(fd);
  return done == size;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return EXIT_FAILURE;
  const char* file = argv[1];
  Tensors tensors;
  for (int i = 0; i < k_tensors; ++i)
    tensors["t" + std::to_string(i)] = at::full({1024, 1024}, static_cast<float>(i));
  time("save_tensors", [&] { return use_gpu::save_tensors(tensors, file), true; });
  time("read() into fresh memory", [&] { return read_whole(file); });
  time("load_tensors", [&] { return all_there(use_gpu::load_tensors(file)); });
  time("load_tensors, sum", [&] { return sums_are_right(use_gpu::load_tensors(file)); });
  time("map_tensors", [&] { return all_there(use_gpu::map_tensors(file)); });
  time("map_tensors, sum", [&] { return sums_are_right(use_gpu::map_tensors(file)); });
  if (torch::cuda::is_available()) {
    time("load_tensors, cuda:0",
         [&] { return all_there(use_gpu::load_tensors(file, use_gpu::try_gpu())); });
    Tensors on_gpu = use_gpu::load_tensors(file, use_gpu::try_gpu());
    time("save_tensors, cuda:0", [&] { return use_gpu::save_tensors(on_gpu, file), true; });
  }
  if (!wrong) return EXIT_SUCCESS;
  std::fputs("tensor_files: WRONG RESULT\n", stderr);
  return EXIT_FAILURE;
}
