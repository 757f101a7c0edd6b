// SPDX-License-Identifier: MIT
//
// The functions of PyTorch's test/cpp/c10d/CUDATest.cu, which needs nvcc. Its kernel only lasts; simulated work takes no time.
#include <CUDATest.hpp>

namespace c10d::test {

void cudaSleep(at::cuda::CUDAStream&, std::uint64_t) {}

int cudaNumDevices() { return static_cast<int>(torch::cuda::device_count()); }

}  // namespace c10d::test
