// SPDX-License-Identifier: MIT
//
// Our side of safetensors_python.py: `write FILE` saves a network with a known value for each dtype
// and shape, `check FILE` loads a file into one of other values and exits with 0 if it then has
// these.
#include <torch/nn/module.h>
#include <torch/types.h>
#include <use_gpu/parameters.hpp>

#include <iostream>
#include <string_view>

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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  if (std::string_view(argv[1]) == "write") {
    use_gpu::save_parameters(Net(true), argv[2]);
    return 0;
  }
  Net net(false);
  use_gpu::load_parameters(net, argv[2]);
  const auto expected = use_gpu::read_parameters(Net(true));
  int wrong = 0;
  for (const auto& [name, value] : use_gpu::read_parameters(net)) {
    if (same(value, expected.at(name))) continue;
    std::cout << name << " has other values\n";
    ++wrong;
  }
  return wrong == 0 ? 0 : 1;
}
