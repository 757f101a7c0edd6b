// SPDX-License-Identifier: MIT
//
// 20,000 damaged files. Whatever was done to a file, loading it gives its values or a
// ParameterError that changed nothing.
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <use_gpu/errors.hpp>
#include <use_gpu/parameters.hpp>

#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>

#include "scratch_folder.hpp"

namespace use_gpu {
namespace {

struct Net : torch::nn::Module {
  // A network with that byte, and a number that tells its tensors apart, in every byte of its
  // values.
  explicit Net(int byte) {
    int number = 0;
    const auto add = [&](const char* name, at::ScalarType dtype, at::IntArrayRef shape) {
      const auto x = register_buffer(name, torch::empty(shape, dtype));
      const int value = 16 * byte + number++;
      if (x.nbytes() > 0) std::memset(x.mutable_data_ptr(), value, x.nbytes());
    };
    add("weight", torch::kFloat, {3, 4});
    add("bias", torch::kFloat, {3});
    add("turned", torch::kFloat, {4, 3});
    add("count", torch::kLong, {});
    add("mask", torch::kByte, {5});
    add("half", torch::kHalf, {2, 2});
    add("empty", torch::kDouble, {0, 2});
  }
  // The byte that fills each tensor; -1 where one is filled with several.
  std::vector<int> bytes() const {
    std::vector<int> all;
    for (const auto& x : buffers()) {
      const auto* data = static_cast<const unsigned char*>(x.const_data_ptr());
      const bool uniform =
          std::all_of(data, data + x.nbytes(), [&](unsigned char b) { return b == data[0]; });
      all.push_back(x.numel() == 0 ? 0 : uniform ? data[0] : -1);
    }
    return all;
  }
};

std::string content_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Mutator {
 public:
  Mutator(std::string a, std::string b) : a_(std::move(a)), b_(std::move(b)) {}

  std::string next() {
    std::string file = a_;
    switch (below(7)) {
      case 0:  // flipped bits
        for (auto n = 1 + below(4); n > 0; --n)
          file[below(file.size())] ^= static_cast<char>(1U << below(8));
        break;
      case 1:
        file.resize(below(file.size()));
        break;
      case 2:
        file.append(1 + below(40), static_cast<char>(below(256)));
        break;
      case 3:  // the other's header, or a part of it
        file.replace(8, header_size() - below(2) * below(header_size()), b_, 8, header_size());
        break;
      case 4: {  // a piece of one of the two, somewhere
        const auto& source = below(2) == 0 ? a_ : b_;
        const auto from = below(source.size());
        file.replace(below(file.size()), below(100), source, from, below(100));
        break;
      }
      case 5:  // another digit in the header: sizes, offsets, checksums
        for (auto n = 1 + below(3); n > 0; --n) {
          const auto digit = file.find_first_of("0123456789", 8 + below(header_size()));
          if (digit < 8 + header_size()) file[digit] = static_cast<char>('0' + below(10));
        }
        break;
      default:  // the length of the header
        file[below(8)] = static_cast<char>(below(256));
    }
    return file;
  }

 private:
  std::size_t below(std::size_t end) {
    return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_);
  }
  std::size_t header_size() const {
    return static_cast<unsigned char>(a_[0]) + 256U * static_cast<unsigned char>(a_[1]);
  }

  std::string a_, b_;
  std::mt19937 random_{6};
};

TEST(LoadParameters, NeverTakesADamagedFileForAnother) {
  const test::ScratchFolder folder;
  save_parameters(Net(1), folder / "a");
  save_parameters(Net(2), folder / "b");
  const auto a = content_of(folder / "a");
  Mutator mutator(a, content_of(folder / "b"));
  Net net(9);
  const auto before = net.bytes();
  int refused = 0;
  int unchanged = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto file = mutator.next();
    std::filesystem::remove(folder /
                            "file");  // a truncated one would be written to the disk at once
    std::ofstream(folder / "file", std::ios::binary) << file;
    try {
      load_parameters(net, folder / "file");
      ASSERT_EQ(net.bytes(), Net(1).bytes()) << "a wrong value was loaded: mutation " << i;
      unchanged += file == a ? 1 : 0;
      write_parameters(net, read_parameters(Net(9)));
    } catch (const ParameterError& error) {
      ++refused;
      ASSERT_LE(std::strlen(error.what()), 400U);
      ASSERT_EQ(net.bytes(), before)
          << "something was written: mutation " << i << ", " << error.what();
    }
  }
  std::cout << refused << " files refused, " << 20'000 - refused
            << " loaded with their values, of which " << unchanged << " were unchanged\n";
  EXPECT_GT(refused, 15'000);
}

}  // namespace
}  // namespace use_gpu
