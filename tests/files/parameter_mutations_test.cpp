// SPDX-License-Identifier: MIT
//
// 2,000 damaged files of parameters, as many of a training, and 200 damaged indexes, or
// USE_GPU_MUTATIONS of the first two and a tenth of that of the last: the preset dev has 10,000.
// Whatever was done to a file, loading it gives its values or a FileError or a ParameterError that changed nothing.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/types.h>
#include <use_gpu/errors.hpp>
#include <use_gpu/parameter_file.hpp>
#include <use_gpu/parameters.hpp>
#include <use_gpu/tensor_file.hpp>
#include <use_gpu/training.hpp>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>

#include "scratch_folder.hpp"

namespace use_gpu {
namespace {

// The byte that fills a tensor; -1 if it is filled with several.
int byte_of(const at::Tensor& x) {
  const auto* data = static_cast<const unsigned char*>(x.const_data_ptr());
  const bool uniform =
      std::all_of(data, data + x.nbytes(), [&](unsigned char b) { return b == data[0]; });
  return x.numel() == 0 ? 0 : uniform ? data[0] : -1;
}

struct MarkedNet : torch::nn::Module {
  // A network with that byte, and a number that tells its tensors apart, in every byte of its
  // values.
  explicit MarkedNet(int byte) {
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
  std::vector<int> bytes() const {
    std::vector<int> all;
    for (const auto& x : buffers()) all.push_back(byte_of(x));
    return all;
  }
};

std::string content_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const std::filesystem::path& file, const std::string& content) {
  std::filesystem::remove(file);  // a truncated one would be written to the disk at once
  std::ofstream(file, std::ios::binary) << content;
}

int mutations() {
  const char* const wanted = std::getenv("USE_GPU_MUTATIONS");
  return wanted == nullptr ? 2'000 : std::atoi(wanted);
}

// Changes the first of two files, whose headers of JSON have that place and size in both.
class Mutator {
 public:
  Mutator(std::string a, std::string b, std::size_t begin, std::size_t size)
      : a_(std::move(a)), b_(std::move(b)), begin_(begin), size_(size) {}

  std::string next() {
    std::string file = a_;
    switch (below(8)) {
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
        file.replace(begin_, size_ - below(2) * below(size_), b_, begin_, size_);
        break;
      case 4: {  // a piece of one of the two, somewhere
        const auto& source = below(2) == 0 ? a_ : b_;
        const auto from = below(source.size());
        file.replace(below(file.size()), below(100), source, from, below(100));
        break;
      }
      case 5:  // another digit in the header: sizes, offsets, checksums
        for (auto n = 1 + below(3); n > 0; --n) {
          const auto digit = file.find_first_of("0123456789", begin_ + below(size_));
          if (digit < begin_ + size_) file[digit] = static_cast<char>('0' + below(10));
        }
        break;
      case 6: {  // from one comma in the header to a later one: an entry, or a part of one
        const auto first = file.find(',', begin_ + below(size_));
        const auto second = first == file.npos ? first : file.find(',', first + 1);
        if (second < begin_ + size_) file.erase(first, second - first);
        break;
      }
      default:  // in a file the length of the header
        file[below(8)] = static_cast<char>(below(256));
    }
    return file;
  }

 private:
  std::size_t below(std::size_t end) {
    return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_);
  }

  std::string a_, b_;
  std::size_t begin_, size_;
  std::mt19937 random_{6};
};

void expect_refusal(const Error& error) {
  ASSERT_LE(std::strlen(error.what()), 400U);
  ASSERT_TRUE(dynamic_cast<const FileError*>(&error) ||
              dynamic_cast<const ParameterError*>(&error));
}

// Loads it into a network of nines, and makes it one again: it gives the values of MarkedNet(1), or an
// error that changed nothing.
void load(const std::filesystem::path& file, MarkedNet& net, int& refused) {
  static const auto before = MarkedNet(9).bytes();
  try {
    load_parameters(net, file);
    ASSERT_EQ(net.bytes(), MarkedNet(1).bytes()) << "a wrong value was loaded";
    write_parameters(net, read_parameters(MarkedNet(9)));
  } catch (const Error& error) {
    ++refused;
    ASSERT_NO_FATAL_FAILURE(expect_refusal(error));
    ASSERT_EQ(net.bytes(), before) << "something was written: " << error.what();
  }
}

TEST(LoadParameters, NeverTakesADamagedFileForAnother) {
  const test::ScratchFolder folder(test::folder_in_memory());
  save_parameters(MarkedNet(1), folder / "a");
  save_parameters(MarkedNet(2), folder / "b");
  const auto a = content_of(folder / "a");
  const auto header_size =
      static_cast<unsigned char>(a[0]) + 256U * static_cast<unsigned char>(a[1]);
  Mutator mutator(a, content_of(folder / "b"), 8, header_size);
  MarkedNet net(9);
  const int count = mutations();
  int refused = 0;
  int unchanged = 0;
  for (int i = 0; i < count; ++i) {
    const auto file = mutator.next();
    write(folder / "file", file);
    const int refused_before = refused;
    ASSERT_NO_FATAL_FAILURE(load(folder / "file", net, refused)) << "mutation " << i;
    unchanged += refused == refused_before && file == a ? 1 : 0;
    try {  // names and shapes may have changed, values not
      for (const auto& [name, x] : load_tensors(folder / "file")) {
        ASSERT_TRUE(x.numel() == 0 || byte_of(x) / 16 == 1) << name << ": mutation " << i;
      }
    } catch (const Error& error) {
      ASSERT_NO_FATAL_FAILURE(expect_refusal(error));
    }
  }
  std::cout << refused << " files refused, " << count - refused
            << " loaded with their values, of which " << unchanged << " were unchanged\n";
  EXPECT_GT(refused, count * 3 / 4);
}

// A layer, an optimizer that has stepped, and the random numbers that come next.
struct Training {
  explicit Training(std::uint64_t seed) {
    torch::manual_seed(seed);
    for (auto& p : net->parameters()) p.mutable_grad() = torch::rand_like(p);
    adam.step();
  }
  [[nodiscard]] std::string bytes(const TrainingState& state) const {
    std::string all = std::to_string(state.step);
    const auto add = [&](const at::Tensor& x) {
      all.append(static_cast<const char*>(x.const_data_ptr()), x.nbytes());
    };
    for (const auto& p : net->parameters()) {
      add(p);
      const auto& own = static_cast<const torch::optim::AdamParamState&>(
          *adam.state().at(p.unsafeGetTensorImpl()));
      add(own.exp_avg());
      add(own.exp_avg_sq());
      all += std::to_string(own.step());
    }
    add(torch::rand({4}));
    return all + std::to_string(adam.param_groups()[0].options().get_lr());
  }
  torch::nn::Linear net{2, 3};
  torch::optim::Adam adam{net->parameters(), 0.125};
};

TEST(LoadTraining, NeverTakesADamagedFileForAnother) {
  const test::ScratchFolder folder(test::folder_in_memory());
  const Training first(1);
  save_training(first.net, first.adam, {.step = 7}, folder / "a");
  const auto expected = first.bytes({.step = 7});
  const Training second(2);
  save_training(second.net, second.adam, {.step = 8}, folder / "b");
  const auto a = content_of(folder / "a");
  std::uint64_t header_size = 0;
  std::memcpy(&header_size, a.data(), sizeof header_size);
  Mutator mutator(a, content_of(folder / "b"), 8, header_size);
  Training training(9);
  save_training(training.net, training.adam, {}, folder / "own");
  const auto own = training.bytes({});
  int refused = 0;
  for (int i = 0; i < mutations(); ++i) {
    load_training(training.net, training.adam, folder / "own");
    write(folder / "file", mutator.next());
    try {
      const auto state = load_training(training.net, training.adam, folder / "file");
      ASSERT_EQ(training.bytes(state), expected) << "mutation " << i;
    } catch (const Error& error) {
      ++refused;
      ASSERT_NO_FATAL_FAILURE(expect_refusal(error));
      ASSERT_EQ(training.bytes({}), own) << "mutation " << i << ": " << error.what();
    }
  }
  std::cout << refused << " files refused, " << mutations() - refused << " loaded\n";
  EXPECT_GT(refused, mutations() * 3 / 4);
}

TEST(LoadParameters, NeverTakesADamagedIndexForAnother) {
  const test::ScratchFolder folder(test::folder_in_memory());
  const auto all = read_parameters(MarkedNet(1));
  std::map<std::string, at::Tensor> first, second;
  std::string map;
  for (const auto& [name, x] : all) {
    (first.size() > second.size() ? second : first).emplace(name, x);
    map += (map.empty() ? "" : ",") + ('"' + name) + "\":\"" + (second.contains(name) ? '2' : '1') +
           ".safetensors\"";
  }
  save_tensors(first, folder / "1.safetensors");
  save_tensors(second, folder / "2.safetensors");
  const std::string index =
      R"({"metadata":{"total_size":123,"by":["a",{}]},"weight_map":{)" + map + "}}";
  std::string other = R"({"weight_map":{"weight":"../1.safetensors","bias":"/dev/zero"}})";
  other.resize(index.size(), ' ');
  Mutator mutator(index, other, 0, index.size());
  MarkedNet net(9);
  const int count = mutations() / 10;
  int refused = 0;
  int in_part = 0;
  for (int i = 0; i < count; ++i) {
    write(folder / "index.json", mutator.next());
    ASSERT_NO_FATAL_FAILURE(load(folder / "index.json", net, refused)) << "mutation " << i;
    try {  // less may be listed
      const auto loaded = load_tensors(folder / "index.json");
      in_part += loaded.size() < all.size() ? 1 : 0;
      for (const auto& [name, x] : loaded)
        ASSERT_TRUE(x.equal(all.at(name))) << name << ": mutation " << i;
    } catch (const Error& error) {
      ASSERT_NO_FATAL_FAILURE(expect_refusal(error));
    }
  }
  std::cout << refused << " indexes refused, " << count - refused << " loaded with their values, "
            << in_part << " lists of some tensors\n";
  EXPECT_GT(refused, count / 2);
}

}  // namespace
}  // namespace use_gpu
