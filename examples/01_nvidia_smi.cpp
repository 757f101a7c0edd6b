// Chapter cell "!nvidia-smi": the graphics cards of this machine.
// Look at: the number of each card, and how much of its memory is in use: a network, its gradients
// and its inputs must fit into what is left. Without a GPU one line says why.

#include <use_gpu/gpu_info.hpp>

#include <iostream>

int main() {
  const use_gpu::GpuReport report = use_gpu::query_gpus();
  std::cout << report;

  // The same as data, which a program can act on.
  for (const use_gpu::GpuInfo& gpu : report.gpus) {
    if (!gpu.memory_free_bytes) continue;
    std::cout << "GPU " << gpu.index << " has " << (*gpu.memory_free_bytes >> 20) << " MiB left\n";
  }
}
