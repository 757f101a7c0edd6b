// SPDX-License-Identifier: MIT
// What query_gpus() says against what nvidia-smi says: for machines with a real GPU.
#include <gtest/gtest.h>
#include <stdio.h>
#include <use_gpu/gpu_info.hpp>

#include <sstream>

namespace use_gpu {
namespace {

std::string output_of(const char* command) {
  FILE* const pipe = popen(command, "r");
  std::string output;
  for (int c; pipe && (c = fgetc(pipe)) != EOF;) output += static_cast<char>(c);
  if (pipe) pclose(pipe);
  return output;
}

TEST(QueryGpus, MatchesNvidiaSmi) {
  const GpuReport report = query_gpus();
  if (report.gpus.empty()) GTEST_SKIP() << "0 GPUs found: " << report.problem;
  if (output_of("command -v nvidia-smi").empty()) GTEST_SKIP() << "there is no nvidia-smi";
  std::ostringstream ours;
  for (const GpuInfo& gpu : report.gpus) {
    ours << gpu.index << ", " << gpu.name << ", " << gpu.uuid << ", " << gpu.pci_bus_id << ", "
         << gpu.memory_total_bytes.value_or(0) / (1 << 20) << '\n';
  }
  EXPECT_EQ(ours.str(), output_of("nvidia-smi --query-gpu=index,name,uuid,pci.bus_id,memory.total "
                                  "--format=csv,noheader,nounits"));
}

}  // namespace
}  // namespace use_gpu
