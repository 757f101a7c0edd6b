// SPDX-License-Identifier: MIT
#include "matmul_cublaslt_cuda.hpp"

#include <ATen/Functions.h>
#include <c10/cuda/CUDAStream.h>
#include <cublasLt.h>

#include <memory>
#include <stdexcept>

#include "timing/products.hpp"

namespace {

void require(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw std::runtime_error(std::string("cublasLt: ") + cublasLtGetStatusString(status));
  }
}

constexpr std::size_t k_workspace_bytes = 32 << 20;  // what NVIDIA recommends for Hopper

// One product, planned once and then computed as often as wanted.
class Plan {
 public:
  Plan(at::Tensor a, at::Tensor b)
      : a_(std::move(a)),
        b_(std::move(b)),
        product_(at::empty_like(a_)),
        workspace_(at::empty({k_workspace_bytes}, a_.options().dtype(at::kByte))) {
    const auto n = static_cast<std::uint64_t>(a_.size(0));
    require(cublasLtCreate(&handle_));
    require(cublasLtMatmulDescInit(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    require(cublasLtMatrixLayoutInit(&layout_, CUDA_R_16BF, n, n, a_.size(0)));
    cublasLtMatmulPreferenceOpaque_t preference;
    require(cublasLtMatmulPreferenceInit(&preference));
    require(cublasLtMatmulPreferenceSetAttribute(&preference,
                                                 CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &k_workspace_bytes, sizeof(k_workspace_bytes)));
    int found = 0;
    require(cublasLtMatmulAlgoGetHeuristic(handle_, &operation_, &layout_, &layout_, &layout_,
                                           &layout_, &preference, 1, &best_, &found));
    if (found == 0) throw std::runtime_error("cublasLt knows no algorithm for this product");
  }
  ~Plan() { cublasLtDestroy(handle_); }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // cuBLAS is column-major, LibTorch row-major: ab is computed as (b'a')'.
  const at::Tensor& run() {
    const float one = 1, zero = 0;
    require(cublasLtMatmul(handle_, &operation_, &one, b_.const_data_ptr(), &layout_,
                           a_.const_data_ptr(), &layout_, &zero, product_.data_ptr(), &layout_,
                           product_.data_ptr(), &layout_, &best_.algo, workspace_.data_ptr(),
                           k_workspace_bytes,
                           c10::cuda::getCurrentCUDAStream(a_.device().index())));
    return product_;
  }

 private:
  at::Tensor a_, b_, product_, workspace_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDescOpaque_t operation_;
  cublasLtMatrixLayoutOpaque_t layout_;
  cublasLtMatmulHeuristicResult_t best_;
};

}  // namespace

std::function<Contender()> cublaslt_contender(std::int64_t n, c10::Device device) {
  if (!device.is_cuda() || is_simulated(device)) return nullptr;
  return [=]() -> Contender {
    const auto x = random_factors(n, device, k_bf16);
    const auto plan = std::make_shared<Plan>(x.a, x.b);
    return {label(device) + " bf16 cublasLt " + std::to_string(n),
            {device},
            [plan] { return std::vector{plan->run()}; },
            check_of({x}),
            least_seconds(x)};
  };
}
