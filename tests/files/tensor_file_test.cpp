// SPDX-License-Identifier: MIT
#include <use_gpu/tensor_file.hpp>

#include <torch/types.h>
#include <use_gpu/default_device.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/transfers.hpp>

#include <fstream>

#include "networks.hpp"
#include "scratch_folder.hpp"
#include "simulated_runtime.hpp"
#include "support.hpp"

namespace use_gpu {
namespace {

using test::error_of;
using test::expect_same;
using test::has;
using test::ScratchFolder;
using Tensors = std::map<std::string, at::Tensor>;

// Tensors of every dtype and some shapes, on several devices.
Tensors all_kinds() {
  Tensors all;
  for (const auto dtype :
       {torch::kByte, torch::kChar, torch::kShort, torch::kInt, torch::kLong, torch::kHalf,
        torch::kBFloat16, torch::kFloat, torch::kDouble, torch::kComplexFloat, torch::kUInt16,
        torch::kUInt32, torch::kUInt64, torch::kFloat8_e5m2, torch::kFloat8_e4m3fn,
        torch::kFloat8_e8m0fnu, torch::kFloat8_e5m2fnuz, torch::kFloat8_e4m3fnuz,
        torch::kFloat4_e2m1fn_x2}) {
    const auto bytes = torch::arange(16, torch::kByte) * 7;
    all.emplace(c10::getDtypeNames(dtype).first, bytes.view(dtype).view({2, -1}));
  }
  all.emplace("mask", torch::tensor({true, false, true}));
  all.emplace("empty", torch::empty({0, 3}));
  all.emplace("scalar", torch::tensor(1.5F, try_gpu()));
  all.emplace("transposed", torch::arange(6.).view({2, 3}).t().to(try_gpu(1)));
  all.emplace("every_second", torch::arange(10, try_gpu()).slice(0, 0, 10, 2));
  all.emplace("conjugated", torch::view_as_complex(torch::rand({3, 2})).conj());
  all.emplace("trained", torch::ones({2}, torch::requires_grad()));
  all.emplace("large", torch::rand({600, 1000}, try_gpu()));
  all.emplace("", torch::ones({1}));
  return all;
}

// A model of two files, and its index.
std::filesystem::path save_sharded(const ScratchFolder& folder) {
  save_tensors({{"a", torch::ones({2})}, {"unlisted", torch::ones({2})}}, folder / "1.safetensors");
  save_tensors({{"b", torch::zeros({3})}, {"a", torch::zeros({9})}}, folder / "2.safetensors");
  const auto file = folder / "model.safetensors.index.json";
  std::ofstream(file) << R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})";
  return file;
}

TEST(LoadTensors, GivesOnAnyDeviceWhatSaveTensorsWasGiven) {
  const ScratchFolder folder;
  const auto tensors = all_kinds();
  save_tensors(tensors, folder / "all");
  for (const auto device : {cpu(), try_gpu(0), try_gpu(1)}) {
    const auto loaded = load_tensors(folder / "all", device);
    expect_same(tensors, loaded);
    for (const auto& [name, x] : loaded) {
      EXPECT_TRUE(same_device(x.device(), device)) << name;
      EXPECT_TRUE(x.is_contiguous() && !x.requires_grad() && !x.is_inference()) << name;
      EXPECT_EQ(x.storage().nbytes(), x.nbytes()) << name << " shares memory with others";
    }
  }
}

TEST(LoadTensors, GivesDtypesAndShapesAloneOnMeta) {
  const ScratchFolder folder;
  save_tensors({{"x", torch::ones({2, 3}, torch::kHalf)}}, folder / "x");
  const auto x = load_tensors(folder / "x", c10::Device("meta")).at("x");
  EXPECT_TRUE(x.is_meta() && x.scalar_type() == torch::kHalf &&
              x.sizes() == at::IntArrayRef({2, 3}));
}

TEST(LoadTensors, GivesTensorsThatCanBeChangedAndTrained) {
  const ScratchFolder folder;
  save_tensors({{"x", torch::ones({2})}}, folder / "x");
  Tensors loaded;
  {
    const c10::InferenceMode inference;
    loaded = load_tensors(folder / "x", try_gpu());
  }
  auto x = loaded.at("x").requires_grad_();
  (x * 2).sum().backward();
  EXPECT_EQ(x.grad().sum().item<float>(), 4);
}

TEST(LoadTensors, TravelInFewLargeTransfers) {
  USE_GPU_TEST_NEEDS(1);
  const ScratchFolder folder;
  Tensors tensors;
  for (int i = 0; i < 1000; ++i) tensors.emplace(std::to_string(i), torch::full({100}, i));
  save_tensors(tensors, folder / "x");
  Tensors loaded;
  {
    const TransferGuard guard;
    const TransferLedger ledger;
    loaded = load_tensors(folder / "x", gpu());
    EXPECT_EQ(ledger.count(TransferDirection::host_to_device).copies, 1);
  }
  expect_same(tensors, loaded);
}

// Blocks of 8 MB, of which "first" fills the first and begins the second.
std::filesystem::path save_blocks(const ScratchFolder& folder) {
  const auto numbers = torch::arange(3'000'000, torch::kFloat);
  save_tensors({{"first", numbers}, {"last", numbers.to(torch::kByte)}, {"mask", numbers > 7}},
               folder / "x");
  return folder / "x";
}

TEST(LoadTensors, CopiesLargeTensorsFromPinnedMemoryAlone) {
  USE_GPU_TEST_NEEDS(1);
  if (!test::simulated()) GTEST_SKIP() << "needs simulated GPUs, which count";
  const ScratchFolder folder;
  const auto file = save_blocks(folder);
  const auto copies = [] { return test::runtime_count("host to device copies"); };
  const auto pinned = [] { return test::runtime_count("host to device pinned copies"); };
  const auto copies_before = copies(), pinned_before = pinned();
  const auto loaded = load_tensors(file, gpu());
  EXPECT_EQ(copies() - copies_before, 3);
  EXPECT_EQ(pinned() - pinned_before, 3);
  expect_same(load_tensors(file), loaded);
}

TEST(LoadTensors, NoticesDamageInEveryBlock) {
  const ScratchFolder folder;
  const auto file = save_blocks(folder);
  const auto size = static_cast<std::streamoff>(std::filesystem::file_size(file));
  for (const auto& [position, name] :
       {std::pair(size - 17'000'000, "first"), {size - 4'000'000, "last"}, {size - 1, "mask"}}) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    const auto old = static_cast<char>(stream.seekg(position).get());
    stream.seekp(position).put(static_cast<char>(old ^ 1)).flush();
    for (const auto device : {cpu(), try_gpu()}) {
      const auto text = error_of<FileError>([&] { (void)load_tensors(file, device); });
      EXPECT_TRUE(has(text, std::string(name) + "\" is damaged")) << text;
    }
    stream.seekp(position).put(old);
  }
  EXPECT_EQ(load_tensors(file, try_gpu()).size(), 3U);
}

TEST(LoadTensors, IgnoresTheDefaultDeviceAroundIt) {
  const ScratchFolder folder;
  const DefaultDeviceGuard scope(try_gpu());
  save_tensors({{"x", torch::ones({2})}}, folder / "x");
  EXPECT_TRUE(load_tensors(folder / "x").at("x").is_cpu());
}

TEST(LoadTensors, RefusesADeviceThatIsNotThere) {
  error_of<DeviceError>([] { (void)load_tensors("never", test::absent_gpu()); });
}

TEST(LoadTensors, PassesTheErrorOfADeviceWithoutMemory) {
  USE_GPU_TEST_NEEDS(1);
  if (!test::simulated()) GTEST_SKIP() << "needs simulated GPUs, whose memory is known";
  const ScratchFolder folder;  // a file of 16 GB that has no blocks on the disk
  const std::string header =
      R"({"x":{"dtype":"U8","shape":[17179869184],"data_offsets":[0,17179869184]}})";
  const std::uint64_t length = header.size();
  std::ofstream(folder / "x", std::ios::binary)
      .write(reinterpret_cast<const char*>(&length), sizeof(length))
      .write(header.data(), static_cast<std::streamsize>(length));
  std::filesystem::resize_file(folder / "x", 8 + length + (std::uintmax_t{1} << 34));
  EXPECT_THROW((void)load_tensors(folder / "x", gpu()), c10::OutOfMemoryError);
}

TEST(LoadTensors, NamesFileAndCause) {
  const ScratchFolder folder;
  const auto text = [&](const std::filesystem::path& file) {
    return error_of<FileError>([&] { (void)load_tensors(file); });
  };
  const auto absent = folder / "absent";
  try {
    (void)load_tensors(absent);
  } catch (const FileError& error) {
    EXPECT_EQ(error.file(), absent);
  }
  EXPECT_EQ(text(absent),
            "load_tensors: " + absent.string() + ": opening it: No such file or directory");
  EXPECT_TRUE(has(text(folder / "."), "not a regular file"));
  EXPECT_TRUE(has(text(""), "an empty file name"));
  const std::string header = R"({"x":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})";
  std::ofstream(folder / "f6") << static_cast<char>(header.size()) << std::string(7, '\0') << header
                               << "abc";
  EXPECT_TRUE(has(text(folder / "f6"), "x is F6_E2M3, which LibTorch does not have"));
}

// What Python's save_file(changed, file, metadata=safe_open(ours).metadata()) gives: our checksums,
// other values, and a header of its own layout.
TEST(LoadTensors, WarnsOfChecksumsThatAnotherProgramHasCopied) {
  const ScratchFolder folder;
  const auto file = folder / "theirs.safetensors";
  std::string header =
      R"({"__metadata__":{"format":"pt","xxh3:x":"0123456789abcdef"},"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  for (const std::size_t spaces : {0U, 7U}) {
    const auto text = header + std::string(spaces, ' ');
    const std::uint64_t length = text.size();
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof(length)) << text << std::string(8, 0);
    out.close();
    testing::internal::CaptureStderr();
    EXPECT_TRUE(load_tensors(file).at("x").equal(torch::zeros({2})));
    const auto log = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(has(log, "[warning] load_tensors: "));
    EXPECT_TRUE(has(log, "theirs.safetensors: \"x\" is damaged, or was changed by a program"));
    EXPECT_LE(log.size(), 400U);
  }
}

TEST(LoadTensors, SaysWhyAPackedTensorDoesNotFit) {
  const ScratchFolder folder;
  for (const auto& [header, text] :
       {std::pair<std::string, const char*>(
            R"({"x":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}})",
            "x is F4 of an odd last size"),
        {R"({"x":{"dtype":"F6_E2M3","shape":[2,2],"data_offsets":[0,3]}})",
         "x is F6_E2M3, which LibTorch does not have"}}) {
    std::ofstream(folder / "f4") << static_cast<char>(header.size()) << std::string(7, '\0')
                                 << header << "abc";
    EXPECT_TRUE(has(error_of<FileError>([&] { (void)load_tensors(folder / "f4"); }), text));
  }
  const auto scalar =
      torch::ones({1}, torch::kByte).view(torch::kFloat4_e2m1fn_x2).view(at::IntArrayRef());
  EXPECT_TRUE(has(error_of<ParameterError>([&] {
                    save_tensors({{"x", scalar}}, folder / "f4");
                  }),
                  "x is F4 of zero dimensions"));
}

TEST(LoadTensors, TakesFromEachShardWhatTheIndexLists) {
  const ScratchFolder folder;
  const auto file = save_sharded(folder);
  const Tensors expected{{"a", torch::ones({2})}, {"b", torch::zeros({3})}};
  expect_same(expected, load_tensors(file, try_gpu()));
  // A download cache has links in place of files.
  const ScratchFolder links;
  for (const auto* name : {"1.safetensors", "2.safetensors", "model.safetensors.index.json"})
    std::filesystem::create_symlink(folder / name, links / name);
  expect_same(expected, load_tensors(links / "model.safetensors.index.json"));
}

TEST(LoadTensors, NamesTheShardThatIsWrong) {
  const ScratchFolder folder;
  const auto file = save_sharded(folder);
  const auto refusal = [&](const std::string& map) {
    std::ofstream(file) << "{\"weight_map\":" << map << '}';
    return error_of<FileError>([&] { (void)load_tensors(file, try_gpu()); });
  };
  EXPECT_EQ(refusal(R"({"a":"1.safetensors","b":"1.safetensors"})"),
            "load_tensors: " + file.string() +
                ": \"1.safetensors\": it lacks \"b\", which the index says is there");
  EXPECT_TRUE(
      has(refusal(R"({"a":"3.safetensors"})"), "\"3.safetensors\": opening it: No such file"));
  EXPECT_TRUE(has(refusal(R"({"a":"../1.safetensors"})"), "\"../1.safetensors\", which is not in"));
  EXPECT_TRUE(has(refusal(R"({"a":".","b":"1.safetensors"})"), "\".\": it is not a regular file"));
  EXPECT_TRUE(has(refusal(R"({"a":"1.safetensors","a":"2.safetensors"})"), "\"a\" twice"));
  EXPECT_TRUE(has(refusal(R"({"a":"model.safetensors.index.json"})"), "model.safetensors.index"));
  std::filesystem::resize_file(folder / "1.safetensors", 100);
  EXPECT_TRUE(has(refusal(R"({"a":"1.safetensors"})"), "\"1.safetensors\": its header is cut off"));
}

TEST(MapTensors, GivesOnTheCpuWhatSaveTensorsWasGiven) {
  const ScratchFolder folder;
  const auto tensors = all_kinds();
  save_tensors(tensors, folder / "all.safetensors");
  const auto mapped = map_tensors(folder / "all.safetensors");
  expect_same(tensors, mapped);
  for (const auto& [name, x] : mapped) {
    EXPECT_TRUE(x.is_cpu() && x.is_contiguous() && !x.requires_grad() && !x.is_inference()) << name;
  }
  EXPECT_EQ(map_tensors(save_sharded(folder)).size(), 2U);
}

TEST(MapTensors, WritesToNoFileAndOutlivesIt) {
  const ScratchFolder folder;
  const auto file = folder / "x.safetensors";
  save_tensors({{"x", torch::ones({1000})}, {"y", torch::ones({2})}}, file);
  auto x = map_tensors(file).at("x");
  x.add_(1);
  EXPECT_TRUE(load_tensors(file).at("x").equal(torch::ones({1000})));
  std::filesystem::remove(file);
  EXPECT_TRUE(x.equal(torch::full({1000}, 2.)));
  x.requires_grad_().sum().backward();
  EXPECT_TRUE(x.grad().equal(torch::ones({1000})));
}

TEST(MapTensors, ChecksTheHeaderAlone) {
  const ScratchFolder folder;
  const auto file = folder / "x.safetensors";
  save_tensors({{"x", torch::zeros({4})}}, file);
  std::fstream(file, std::ios::in | std::ios::out).seekp(-1, std::ios::end).put(1);
  EXPECT_NE(map_tensors(file).at("x")[3].item<float>(), 0);
  EXPECT_TRUE(has(error_of<FileError>([&] { (void)load_tensors(file); }), "is damaged"));
  std::fstream(file, std::ios::in | std::ios::out).seekp(9).put('!');
  EXPECT_TRUE(
      has(error_of<FileError>([&] { (void)map_tensors(file); }), "map_tensors: " + file.string()));
  EXPECT_THROW((void)map_tensors(folder / "none.safetensors"), FileError);
}

TEST(MapTensorsDeathTest, EndsTheProgramThatReadsPastTheEndOfAShortenedFile) {
  const ScratchFolder folder;
  const auto file = folder / "x.safetensors";
  save_tensors({{"x", torch::ones({100'000})}}, file);
  const auto x = map_tensors(file).at("x");
  std::filesystem::resize_file(file, 4096);
  EXPECT_DEATH((void)x[99'999].item<float>(), "");  // SIGBUS, but under a sanitizer
}

TEST(SaveTensors, RefusesWhatCannotBeWrittenAndLeavesNoFile) {
  const ScratchFolder folder;
  const auto text = [&](const Tensors& tensors) {
    return error_of<ParameterError>([&] { save_tensors(tensors, folder / "x"); });
  };
  EXPECT_TRUE(has(text({{"x", at::Tensor()}}), "x is undefined"));
  EXPECT_TRUE(has(text({{"x", torch::ones({2}).to_sparse()}}), "x is not dense"));
  EXPECT_TRUE(has(text({{"x", torch::ones({2}, c10::Device("meta"))}}), "x is without values"));
  EXPECT_TRUE(has(text({{"x", torch::ones({2}, torch::kComplexDouble)}}), "x is complex128"));
  const auto quantized = torch::quantize_per_tensor(torch::ones({2}), 1, 0, torch::kQInt8);
  EXPECT_TRUE(has(text({{"x", quantized}}), "x is quantized"));
  EXPECT_TRUE(has(text({{"__metadata__", torch::ones({2})}}), "__metadata__"));
  EXPECT_TRUE(has(text({{"\xff", torch::ones({2})}}), "the name \"\\xff\" is not UTF-8"));
  const auto file_text = [&](const char* name) {
    return error_of<FileError>([&] { save_tensors({{"x", torch::ones({2})}}, folder / name); });
  };
  EXPECT_TRUE(has(file_text("x.index.json"), "choose .safetensors"));
  EXPECT_TRUE(has(file_text("none/x"), "No such file or directory"));
  EXPECT_EQ(folder.files(), 0);
}

TEST(SaveTensors, BringsTensorsOfAGpuToTheHostGroupByGroup) {
  USE_GPU_TEST_NEEDS(1);
  const ScratchFolder folder;
  Tensors tensors;
  for (int i = 0; i < 1000; ++i) tensors.emplace("small" + std::to_string(i), torch::full({9}, i));
  for (int i = 0; i < 3; ++i)  // 20 MB, of which no two go together
    tensors.emplace("large" + std::to_string(i), torch::full({5'000'000}, i, torch::kFloat));
  Tensors on_gpu;
  for (const auto& [name, x] : tensors) on_gpu.emplace(name, x.to(gpu()));
  {
    const TransferGuard guard;
    const TransferLedger ledger;
    save_tensors(on_gpu, folder / "x");
    EXPECT_EQ(ledger.count(TransferDirection::device_to_host).copies, 4);
  }
  expect_same(tensors, load_tensors(folder / "x"));
}

TEST(SaveTensors, TakesNoTensors) {
  const ScratchFolder folder;
  save_tensors({}, folder / "none");
  EXPECT_TRUE(load_tensors(folder / "none", try_gpu()).empty());
}

}  // namespace
}  // namespace use_gpu
