// SPDX-License-Identifier: MIT
#include "core/copies/flat_buffers.hpp"

#include <torch/types.h>

#include "support.hpp"

namespace use_gpu::detail {
namespace {

at::Tensor megabytes(std::int64_t count, c10::Device device = cpu()) {
  return torch::empty({count << 20}, torch::TensorOptions(device).dtype(torch::kByte));
}

TEST(Buckets, HoldAtMost64MegabytesUnlessATensorIsLarger) {
  const std::vector<at::Tensor> tensors{megabytes(30), megabytes(34),
                                        megabytes(1),  megabytes(65),
                                        megabytes(1),  torch::empty({0}, torch::kByte)};
  EXPECT_EQ(buckets(tensors), (std::vector<Positions>{{0, 1}, {2}, {3}, {4, 5}}));
  EXPECT_TRUE(buckets({}).empty());
}

TEST(Buckets, HaveOneDeviceAndOneDtype) {
  const auto device = try_gpu();
  const std::vector<at::Tensor> tensors{
      torch::ones({2}), torch::ones({2}, device), torch::ones({2}, torch::kDouble),
      torch::ones({2}), torch::ones({3}, device), torch::ones({}, torch::kDouble)};
  const auto expected = device.is_cpu() ? std::vector<Positions>{{0, 1, 3, 4}, {2, 5}}
                                        : std::vector<Positions>{{0, 3}, {1, 4}, {2, 5}};
  EXPECT_EQ(buckets(tensors), expected);
}

TEST(Flatten, IsUndoneByUnflatten) {
  for (const auto device : try_all_gpus()) {
    const auto z = torch::view_as_complex(torch::arange(4.F, device).view({2, 2}));
    for (const auto& tensors :
         {std::vector<at::Tensor>{torch::ones({2, 3}, device), torch::full({}, 2.F, device),
                                  torch::empty({0, 2}, device), torch::rand({3, 2}, device).t()},
          std::vector<at::Tensor>{z, z.conj()}, std::vector<at::Tensor>{z.conj()}}) {
      const auto flat = flatten(tensors);
      EXPECT_EQ(flat.dim(), 1);
      EXPECT_EQ(flat.device(), tensors[0].device());
      const auto views = at::unflatten_dense_tensors(flat, tensors);
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        EXPECT_TRUE(views[i].equal(tensors[i]));
        EXPECT_TRUE(views[i].numel() == 0 || views[i].is_alias_of(flat));
      }
    }
  }
}

TEST(Flatten, CopiesNothingThatIsAloneAndContiguous) {
  const auto x = torch::rand({2, 3}, try_gpu());
  EXPECT_TRUE(flatten({x}).is_alias_of(x));
}

}  // namespace
}  // namespace use_gpu::detail
