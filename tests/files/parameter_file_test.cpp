// SPDX-License-Identifier: MIT
#include <use_gpu/parameter_file.hpp>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <use_gpu/default_device.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/memory.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/parameters.hpp>
#include <use_gpu/tensor.hpp>
#include <use_gpu/tensor_file.hpp>
#include <use_gpu/training.hpp>
#include <use_gpu/transfers.hpp>

#include <fstream>

#include "networks.hpp"
#include "scratch_folder.hpp"
#include "support.hpp"

namespace use_gpu {
namespace {

using test::error_of;
using test::expect_same;
using test::fill_with_zeros;
using test::has;
using test::Net;
using test::register_all_kinds;
using test::same_bits;
using test::ScratchFolder;
using test::small_net;
using test::snapshot;
using Values = std::map<std::string, at::Tensor>;

TEST(Parameters, OfAThousandSmallTensorsTravelInFewTransfers) {
  USE_GPU_TEST_NEEDS(1);
  Net net;
  for (int i = 0; i < 1000; ++i)
    net.register_parameter("p" + std::to_string(i), torch::full({1000}, float(i), gpu()));
  const ScratchFolder folder;
  const TransferGuard guard;
  Values values;
  const auto transfers_in = [](const auto& action) {
    const TransferLedger ledger;
    action();
    std::int64_t copies = ledger.item_reads();
    for (const auto kind : {TransferDirection::host_to_device, TransferDirection::device_to_host,
                            TransferDirection::device_to_device}) {
      copies += ledger.count(kind).copies;
    }
    return copies;
  };
  EXPECT_EQ(transfers_in([&] { values = read_parameters(net); }), 1);
  EXPECT_EQ(transfers_in([&] { write_parameters(net, values); }), 1);
  EXPECT_EQ(transfers_in([&] { save_parameters(net, folder / "net"); }), 1);
  EXPECT_EQ(transfers_in([&] { load_parameters(net, folder / "net"); }), 1);
}

TEST(Parameters, IgnoreTheDeviceScopeAroundThem) {
  auto net = small_net();
  const ScratchFolder folder;
  const DefaultDeviceGuard scope(try_gpu());
  for (const auto& [name, value] : read_parameters(net)) EXPECT_TRUE(value.is_cpu()) << name;
  save_parameters(net, folder / "net");
  load_parameters(net, folder / "net");
  EXPECT_TRUE(placement(net).single_device().is_cpu());
}

// LibTorch allows both names.
TEST(Parameters, RefuseABufferOfAParametersName) {
  Net net;
  net.register_parameter("one", torch::ones({2}));
  net.register_parameter("both", torch::ones({2}));
  net.register_buffer("both", torch::zeros({3}));
  const ScratchFolder folder;
  const auto file = folder / "net.safetensors";
  save_tensors({{"one", torch::zeros({2})}, {"both", torch::zeros({2})}}, file);
  torch::optim::SGD sgd(net.parameters(), 0.1);
  TrainingState state;
  for (const std::function<void()>& refused : std::vector<std::function<void()>>{
           [&] { static_cast<void>(read_parameters(net)); },
           [&] {
             write_parameters(net, {{"one", torch::zeros({2})}});
           },
           [&] { load_parameters(net, file, {.allow_missing = true}); },
           [&] { save_parameters(net, folder / "other"); },
           [&] { save_training(net, sgd, state, folder / "other"); },
           [&] { static_cast<void>(load_training(net, sgd, file)); }}) {
    EXPECT_TRUE(has(error_of<ParameterError>(refused), "both is a parameter and a buffer"));
    EXPECT_TRUE(net.named_parameters()["one"].equal(torch::ones({2})));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "other"));
}

TEST(Parameters, RefuseAnEmptyHolder) {
  const torch::nn::Linear empty = nullptr;
  error_of<ArgumentError>([&] { (void)read_parameters(empty); });
  error_of<ArgumentError>([&] { write_parameters(empty, {}); });
  error_of<ArgumentError>([&] { save_parameters(empty, "never"); });
  error_of<ArgumentError>([&] { load_parameters(empty, "never"); });
}

TEST(LoadParameters, RestoresWhatWasSavedOnAnyDevice) {
  const ScratchFolder folder;
  for (const auto from : try_all_gpus()) {
    for (const auto to : {cpu(), try_gpu(0), try_gpu(1)}) {
      Net net;
      register_all_kinds(net);
      place(net, from);
      const auto expected = snapshot(net);
      save_parameters(net, folder / "net.safetensors");
      fill_with_zeros(net);
      place(net, to);
      load_parameters(net, folder / "net.safetensors");
      expect_same(expected, snapshot(net));
      EXPECT_TRUE(same_device(placement(net).single_device(), to));
    }
  }
}

TEST(LoadParameters, TakesANetworkWithoutParameters) {
  const ScratchFolder folder;
  Net net;
  save_parameters(net, folder / "nothing");
  load_parameters(net, folder / "nothing");
}

TEST(LoadParameters, ListsAllDifferencesAndChangesNothing) {
  const ScratchFolder folder;
  Net saved;
  saved.register_parameter("same", torch::ones({2}));
  saved.register_parameter("extra", torch::ones({2}));
  saved.register_parameter("wider", torch::ones({4, 3}));
  saved.register_parameter("float", torch::ones({2}));
  save_parameters(saved, folder / "net");
  Net net;
  net.register_parameter("same", torch::zeros({2}, try_gpu()));
  net.register_parameter("missing", torch::zeros({2}, try_gpu()));
  net.register_parameter("wider", torch::zeros({1, 3}, try_gpu()));
  net.register_parameter("float",
                         torch::zeros({2}, torch::TensorOptions(try_gpu()).dtype(torch::kDouble)));
  const auto before = snapshot(net);
  const auto text = error_of<ParameterError>([&] { load_parameters(net, folder / "net"); });
  EXPECT_TRUE(has(text, (folder / "net").string() + " does not fit the network (build the one that "
                                                    "was saved): extra is not in the network; "));
  try {
    load_parameters(net, folder / "net");
  } catch (const ParameterError& error) {
    EXPECT_EQ(error.differences(),
              (std::vector<std::string>{
                  "extra is not in the network",
                  "float is float64[2] in the network, but float32[2] was given",
                  "wider is float32[1, 3] in the network, but float32[4, 3] was given",
                  "missing is missing"}));
  }
  expect_same(before, snapshot(net));
}

// README: what plain LibTorch does with a file of another shape.
TEST(LoadParameters, RefusesAnotherShapeWhichTorchLoadTakes) {
  const ScratchFolder folder;
  const torch::nn::Linear saved(3, 1);
  torch::nn::Linear wider(4, 1);
  torch::save(saved, (folder / "net.pt").string());
  torch::load(wider, (folder / "net.pt").string());
  EXPECT_EQ(wider->weight.sizes(), (std::vector<std::int64_t>{1, 3})) << "LibTorch checks now";

  torch::nn::Linear other(4, 1);
  const auto before = other->weight.clone();
  save_parameters(saved, folder / "net.safetensors");
  EXPECT_THROW(load_parameters(other, folder / "net.safetensors"), ParameterError);
  EXPECT_TRUE(other->weight.equal(before));
}

TEST(LoadParameters, RenamesAndReportsWhatItDid) {
  const ScratchFolder folder;
  save_tensors({{"model.w", torch::full({2}, 3.F)},
                {"model.half", torch::full({2}, 0.5F, torch::kHalf)},
                {"input", torch::ones({7})},
                {"z.head", torch::ones({7})},
                {"a.head", torch::ones({7})}},
               folder / "model");
  Net net;
  const auto w = net.register_parameter("w", torch::zeros({2}, try_gpu()));
  const auto half = net.register_parameter("half", torch::zeros({2}, try_gpu()));
  const auto missing = net.register_parameter("missing", torch::ones({2}, try_gpu()));
  std::vector<std::string> asked;
  const auto report = load_parameters(net, folder / "model",
                                      {.rename =
                                           [&](const std::string& name) {
                                             asked.push_back(name);
                                             return name == "input"              ? ""
                                                    : name.starts_with("model.") ? name.substr(6)
                                                                                 : "of " + name;
                                           },
                                       .allow_missing = true,
                                       .allow_unexpected = true,
                                       .convert_dtype = true});
  using Names = std::vector<std::string>;
  EXPECT_EQ(report.loaded, (Names{"half", "w"}));
  EXPECT_EQ(report.missing, (Names{"missing"}));
  EXPECT_EQ(report.unexpected, (Names{"a.head", "z.head"}));
  EXPECT_EQ(report.converted, (Names{"half"}));
  EXPECT_EQ(asked.size(), 5U);
  EXPECT_EQ(w.sum().item<float>(), 6);
  EXPECT_EQ(half.sum().item<float>(), 1);
  EXPECT_EQ(missing.sum().item<float>(), 2);
  EXPECT_TRUE(half.is_same(net.named_parameters()["half"]) && half.requires_grad());
}

TEST(LoadParameters, AllowsOnlyWhatTheOptionsSay) {
  const ScratchFolder folder;
  save_tensors({{"same", torch::ones({2})},
                {"extra", torch::ones({2})},
                {"double", torch::ones({2}, torch::kDouble)},
                {"wider", torch::ones({3}, torch::kDouble)}},
               folder / "model");
  Net net;
  for (const auto* name : {"same", "double", "wider", "missing"})
    net.register_parameter(name, torch::zeros({2}, try_gpu()));
  const auto before = snapshot(net);
  const auto differences = [&](const LoadOptions& options) {
    try {
      load_parameters(net, folder / "model", options);
    } catch (const ParameterError& error) {
      return error.differences();
    }
    return std::vector<std::string>{"none"};
  };
  const std::string extra = "extra is not in the network";
  const std::string missing = "missing is missing";
  const std::string other = "double is float32[2] in the network, but float64[2] was given";
  const std::string wider = "wider is float32[2] in the network, but float64[3] was given";
  using Texts = std::vector<std::string>;
  EXPECT_EQ(differences({}), (Texts{other, extra, wider, missing}));
  EXPECT_EQ(differences({.allow_missing = true}), (Texts{other, extra, wider}));
  EXPECT_EQ(differences({.allow_unexpected = true}), (Texts{other, wider, missing}));
  EXPECT_EQ(differences({.convert_dtype = true}), (Texts{extra, wider, missing}));
  const auto wide = [](const std::string& name) { return name == "wider" ? "" : name + "s"; };
  EXPECT_EQ(differences({.rename = wide, .allow_missing = true, .convert_dtype = true}),
            (Texts{"doubles (double in the file) is not in the network",
                   "extras (extra in the file) is not in the network",
                   "sames (same in the file) is not in the network"}));
  expect_same(before, snapshot(net));
}

TEST(LoadParameters, RefusesTwoTensorsOfOneName) {
  const ScratchFolder folder;
  save_tensors({{"a", torch::ones({2})}, {"b", torch::ones({2})}}, folder / "model");
  Net net;
  const auto w = net.register_parameter("w", torch::zeros({2}, try_gpu()));
  const auto load = [&] {
    load_parameters(net, folder / "model", {.rename = [](const std::string&) { return "w"; }});
  };
  EXPECT_TRUE(has(error_of<ParameterError>(load), "a and b are both renamed to w"));
  EXPECT_EQ(w.sum().item<float>(), 0);
}

TEST(LoadParameters, RefusesANestedTensor) {
  const ScratchFolder folder;
  save_tensors({{"x", torch::ones({2})}}, folder / "model");
  Net net;
  net.register_buffer("x", torch::_nested_tensor_from_tensor_list({torch::ones({2})}));
  EXPECT_TRUE(has(error_of<ParameterError>([&] { load_parameters(net, folder / "model"); }),
                  "x is not dense"));
}

TEST(LoadParameters, PassesWhatRenameThrows) {
  const ScratchFolder folder;
  Net net;
  const auto w = net.register_parameter("w", torch::zeros({2}, try_gpu()));
  save_tensors({{"w", torch::ones({2})}}, folder / "model");
  struct Mine : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  const LoadOptions options{
      .rename = [](const std::string&) -> std::string { throw Mine("mine"); }};
  EXPECT_THROW(load_parameters(net, folder / "model", options), Mine);
  EXPECT_EQ(w.sum().item<float>(), 0);
}

// Such tensors repeat what they have in memory.
TEST(LoadParameters, ReadsWhatWasSavedOfAnExpandedBuffer) {
  const ScratchFolder folder;
  for (const auto device : {cpu(), try_gpu()}) {
    Net saved, net;
    const auto values = torch::arange(3).view({3, 1}).to(device);
    saved.register_buffer("expanded", values.expand({3, 4}));
    net.register_buffer("expanded", torch::zeros_like(values).expand({3, 4}));
    save_parameters(saved, folder / "net");
    load_parameters(net, folder / "net");
    EXPECT_TRUE(net.buffers()[0].equal(saved.buffers()[0]));
    EXPECT_EQ(net.buffers()[0].stride(1), 0);
    save_tensors({{"expanded", torch::arange(12).view({3, 4})}}, folder / "other");
    EXPECT_TRUE(has(error_of<ParameterError>([&] { load_parameters(net, folder / "other"); }),
                    "overlaps itself"));
  }
}

TEST(LoadParameters, TakesOneOfTheTiedNames) {
  const ScratchFolder folder;
  save_tensors({{"decoder", torch::ones({2})}}, folder / "model");
  Net net;
  const auto weight = net.register_parameter("encoder", torch::zeros({2}, try_gpu()));
  net.register_parameter("decoder", weight);
  const auto report = load_parameters(net, folder / "model");
  EXPECT_EQ(report.loaded, std::vector<std::string>{"decoder"});
  EXPECT_TRUE(report.missing.empty());
  EXPECT_EQ(weight.sum().item<float>(), 2);
}

TEST(LoadParameters, ComparesTiedValuesAsTheNetworkHasThem) {
  const ScratchFolder folder;
  Net net;
  const auto weight = net.register_parameter("encoder", torch::zeros({2}, try_gpu()));
  net.register_parameter("decoder", weight);
  const auto load = [&](const at::Tensor& decoder, const at::Tensor& encoder) {
    save_tensors({{"decoder", decoder}, {"encoder", encoder}}, folder / "model");
    load_parameters(net, folder / "model", {.convert_dtype = true});
  };
  const auto half = torch::ones({2}, torch::kHalf);
  load(torch::ones({2}), half);
  EXPECT_EQ(weight.sum().item<float>(), 2);
  error_of<ParameterError>([&] { load(torch::zeros({2}), half); });
  error_of<ParameterError>([&] { load(half.view(torch::kBFloat16), half); });  // the same bytes
}

TEST(LoadParameters, ConvertsDtypesAsTensorToDoes) {
  const ScratchFolder folder;
  const auto floats = {torch::kHalf,           torch::kBFloat16,    torch::kFloat,
                       torch::kDouble,         torch::kFloat8_e5m2, torch::kFloat8_e4m3fn,
                       torch::kFloat8_e8m0fnu, torch::kComplexFloat};
  for (const auto from : floats) {
    for (const auto to : floats) {
      if (from == torch::kComplexFloat && to != from) continue;
      const auto value = torch::tensor({0.5, 1.0, 2.0, 3.0}).to(from);
      const auto large = torch::full({1200, 500}, 1.5).to(from);
      save_tensors({{"x", value}, {"large", large}, {"transposed", value.view({2, 2})}},
                   folder / "model");
      Net net;
      const auto options = torch::TensorOptions(try_gpu()).dtype(to);
      net.register_buffer("x", torch::empty({4}, options));
      net.register_buffer("large", torch::empty({1200, 500}, options));
      net.register_buffer("transposed", torch::empty({2, 2}, options).t());
      const auto report = load_parameters(net, folder / "model", {.convert_dtype = true});
      EXPECT_EQ(report.converted.size(), from == to ? 0U : 3U);
      expect_same(
          {{"x", value.to(to)}, {"large", large.to(to)}, {"transposed", value.to(to).view({2, 2})}},
          snapshot(net));
    }
  }
}

TEST(LoadParameters, ConvertsNoValueIntoAnother) {
  const ScratchFolder folder;
  const auto refusal = [&](const at::Tensor& value, at::ScalarType dtype) -> std::string {
    save_tensors({{"x", value}}, folder / "model");
    Net net;
    auto options = torch::TensorOptions(try_gpu()).dtype(dtype);
    const auto x = net.register_buffer("x", torch::empty(value.sizes(), options));
    try {
      load_parameters(net, folder / "model", {.convert_dtype = true});
    } catch (const ParameterError& error) {
      return error.differences().at(0);
    }
    EXPECT_TRUE(same_bits(x, value.to(dtype)));
    return {};
  };
  const auto integers = [](std::int64_t a, std::int64_t b) { return torch::tensor({a, b}); };
  EXPECT_EQ(refusal(integers(-128, 127), torch::kChar), "");
  EXPECT_EQ(refusal(integers(-1, 128), torch::kChar),
            "x is int8[2] in the network, which cannot hold all the integers of int64[2]");
  EXPECT_EQ(refusal(integers(0, 65535), torch::kUInt16), "");
  EXPECT_NE(refusal(integers(-1, 1), torch::kUInt64), "");
  EXPECT_EQ(refusal(integers(7, 1).to(torch::kUInt64), torch::kLong), "");
  EXPECT_NE(refusal(integers(-1, 1).to(torch::kUInt64), torch::kLong), "");
  EXPECT_EQ(refusal(integers(-1, 1).to(torch::kChar), torch::kLong), "");
  EXPECT_EQ(refusal(torch::tensor({true, false}), torch::kLong), "");
  EXPECT_EQ(refusal(integers(3, 4), torch::kFloat), "");
  EXPECT_EQ(refusal(torch::empty({0}, torch::kLong), torch::kUInt8), "");
  EXPECT_EQ(refusal(torch::ones({2}), torch::kLong),
            "x is int64[2] in the network, to which float32[2] cannot be converted");
  EXPECT_NE(refusal(torch::ones({2}, torch::kComplexFloat), torch::kFloat), "");
  EXPECT_NE(refusal(integers(0, 1), torch::kBool), "");
  const auto packed = torch::ones({2}, torch::kByte).view(torch::kFloat4_e2m1fn_x2);
  EXPECT_NE(refusal(packed, torch::kFloat), "");
}

TEST(LoadParameters, ConvertsManyTensorsInOneTransfer) {
  USE_GPU_TEST_NEEDS(1);
  const ScratchFolder folder;
  Net net;
  Values values;
  for (int i = 0; i < 1000; ++i) {
    values.emplace("p" + std::to_string(i), torch::full({100}, i, torch::kBFloat16));
    net.register_parameter("p" + std::to_string(i), torch::empty({100}, gpu()));
  }
  save_tensors(values, folder / "model");
  {
    const TransferGuard guard;
    const TransferLedger ledger;
    load_parameters(net, folder / "model", {.convert_dtype = true});
    EXPECT_EQ(ledger.count(TransferDirection::host_to_device).copies, 1);
  }
  for (auto& [name, value] : values) value = value.to(torch::kFloat);
  expect_same(values, snapshot(net));
}

TEST(LoadParameters, TakesAShardedModel) {
  const ScratchFolder folder;
  auto net = small_net();
  place(net, try_gpu());
  Values first;
  auto second = snapshot(*net);
  first.insert(second.extract("0.weight"));
  save_tensors(first, folder / "1");
  save_tensors(second, folder / "2");
  std::string map = R"("0.weight":"1")";
  for (const auto& [name, x] : second) map += ",\"" + name + R"(":"2")";
  std::ofstream(folder / "index.json") << "{\"weight_map\":{" << map << "}}";
  const auto expected = snapshot(*net);
  fill_with_zeros(*net);
  EXPECT_EQ(load_parameters(net, folder / "index.json").loaded.size(), expected.size());
  expect_same(expected, snapshot(*net));

  fill_with_zeros(*net);
  const auto zeros = snapshot(*net);
  std::filesystem::remove(folder / "2");
  EXPECT_TRUE(has(error_of<FileError>([&] { load_parameters(net, folder / "index.json"); }),
                  "\"2\": opening it: No such file or directory"));
  expect_same(zeros, snapshot(*net));
}

// As writers do that fill no header up to a multiple of 8.
TEST(LoadParameters, TakesValuesAtOddAddresses) {
  const ScratchFolder folder;
  const auto values = torch::arange(600'003).to(torch::kFloat);  // 2.4 MB
  const std::string header =
      R"({"x":{"dtype":"F32","shape":[600003],"data_offsets":[0,2400012]},"y":{"dtype":"F32","shape":[2,2],)"
      R"("data_offsets":[2400012,2400028]}} )";
  ASSERT_EQ(header.size() % 2, 1U);
  const std::uint64_t length = header.size();
  const auto little = torch::tensor({1.F, 2.F, 3.F, 4.F});
  std::ofstream(folder / "odd", std::ios::binary)
      .write(reinterpret_cast<const char*>(&length), 8)
      .write(header.data(), static_cast<std::streamsize>(length))
      .write(static_cast<const char*>(values.const_data_ptr()), 2'400'012)
      .write(static_cast<const char*>(little.const_data_ptr()), 16);
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    Net net;
    const auto options = torch::TensorOptions(try_gpu()).dtype(dtype);
    const auto x = net.register_parameter("x", torch::zeros({600'003}, options));
    const auto y = net.register_parameter("y", torch::zeros({2, 2}, options).t());
    load_parameters(net, folder / "odd", {.convert_dtype = true});
    EXPECT_TRUE(same_bits(x, values.to(dtype)));
    EXPECT_TRUE(same_bits(y, little.to(dtype).view({2, 2})));
  }
}

TEST(LoadParameters, NamesPathAndCause) {
  const ScratchFolder folder;
  auto net = small_net();
  const auto text = [&](const std::filesystem::path& file) {
    return error_of<FileError>([&] { load_parameters(net, file); });
  };
  const auto absent = folder / "absent";
  EXPECT_EQ(text(absent),
            "load_parameters: " + absent.string() + ": opening it: No such file or directory");
  EXPECT_TRUE(has(text(folder / "."), "not a regular file"));
  std::ofstream(folder / "empty").flush();
  EXPECT_TRUE(has(text(folder / "empty"), "too short"));
  text(std::string(5000, 'x'));
  text("esc\033ape");
}

TEST(SaveParameters, RefusesWhatTheFormatLacks) {
  const ScratchFolder folder;
  Net complex;
  complex.register_parameter("z", torch::ones({2}, torch::kComplexDouble));
  EXPECT_TRUE(has(error_of<ParameterError>([&] { save_parameters(complex, folder / "net"); }),
                  "z is complex128"));
  Net reserved;
  reserved.register_parameter("__metadata__", torch::ones({2}));
  EXPECT_TRUE(has(error_of<ParameterError>([&] { save_parameters(reserved, folder / "net"); }),
                  "__metadata__"));
  EXPECT_TRUE(has(error_of<FileError>([&] { save_parameters(Net(), folder / "net.json"); }),
                  "choose .safetensors"));
  Net binary;
  binary.register_parameter("\xff", torch::ones({2}));
  EXPECT_TRUE(
      has(error_of<ParameterError>([&] { save_parameters(binary, folder / "net"); }), "UTF-8"));
  EXPECT_TRUE(std::filesystem::is_empty(folder / "."));
}

TEST(SaveParameters, KeepsNamesOfEveryKind) {
  const ScratchFolder folder;
  Net net;
  for (const auto* name : {"\xc3\xa9t\xc3\xa9", "with \"quotes\"", "line\nbreak", "\\"}) {
    net.register_parameter(name, torch::ones({1}));
  }
  save_parameters(net, folder / "net");
  load_parameters(net, folder / "net");
}

}  // namespace
}  // namespace use_gpu
