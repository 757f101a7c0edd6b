// SPDX-License-Identifier: MIT
#include "files/safetensors.hpp"

#include <gtest/gtest.h>

#include <array>
#include <stdexcept>

namespace use_gpu::detail {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A file from its header and its data.
std::string file_of(std::string_view header, std::string_view data = "") {
  const std::uint64_t length = header.size();
  return text_of(std::as_bytes(std::span(&length, 1))).append(header).append(data);
}

std::string written(std::vector<StoredTensor> tensors) {
  sort_for_file(tensors);
  for (auto& x : tensors) x.checksum = checksum_of(x.data);
  std::string file = file_start(tensors);
  for (const auto& x : tensors) file += text_of(x.data);
  return file;
}

// Why a file is refused; empty if it is not.
std::string refusal(std::string_view file) {
  try {
    (void)parse_safetensors(bytes_of(file));
    return {};
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

void expect_refused(const std::string& file, const std::string& part) {
  const auto text = refusal(file);
  EXPECT_NE(text.find(part), std::string::npos)
      << '"' << text << "\" instead of \"" << part << "\" for " << file;
  EXPECT_LT(text.size(), 260U) << text;
}

// The header of a file with one tensor, "a".
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

TEST(ParseSafetensors, ReadsTensorsInTheOrderOfTheirData) {
  const auto file = file_of(
      R"({"b":{"data_offsets":[4,8],"shape":[2],"dtype":"BF16"},"a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},)"
      R"("c":{"dtype":"U8","shape":[],"data_offsets":[8,9]},"d":{"dtype":"F64","shape":[3,0],"data_offsets":[9,9]},)"
      R"("__metadata__":{"anything":"goes"}}   )",
      "aaaabbbbc");
  const auto tensors = parse_safetensors(bytes_of(file)).tensors;
  ASSERT_EQ(tensors.size(), 4U);
  const std::array<const char*, 4> names{"a", "b", "c", "d"};
  const std::array<const char*, 4> data{"aaaa", "bbbb", "c", ""};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(tensors[i].name, names[i]);
    EXPECT_EQ(text_of(tensors[i].data), data[i]);
  }
  EXPECT_EQ(tensors[0].shape, (std::vector<std::int64_t>{1, 1}));
  EXPECT_EQ(tensors[1].dtype, "BF16");
  EXPECT_TRUE(tensors[2].shape.empty());
}

TEST(ParseSafetensors, KnowsEveryDtypeOfTheFormat) {
  const std::vector<std::pair<std::size_t, std::vector<const char*>>> bits_and_dtypes{
      {4, {"F4"}},
      {6, {"F6_E2M3", "F6_E3M2"}},
      {8, {"BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}},
      {16, {"I16", "U16", "F16", "BF16"}},
      {32, {"I32", "U32", "F32"}},
      {64, {"I64", "U64", "F64", "C64"}}};
  for (const auto& [bits, dtypes] : bits_and_dtypes) {
    const std::string data(bits, '\1');  // eight elements
    for (const auto* dtype : dtypes) {
      EXPECT_EQ(refusal(file_of(one(dtype, "[8]", "[0," + std::to_string(bits) + "]"), data)), "")
          << dtype;
      expect_refused(file_of(one(dtype, "[8]", "[0," + std::to_string(bits + 1) + "]"), data + 'x'),
                     "number of bytes");
    }
  }
}

// nlohmann's own way to check while it parses takes a time that grows with the square of their
// number.
TEST(ParseSafetensors, TakesManyTensors) {
  std::vector<StoredTensor> tensors;
  for (int i = 0; i < 20'000; ++i) tensors.push_back({std::to_string(i), "U8", {0}, {}});
  EXPECT_EQ(refusal(written(tensors)), "");
}

TEST(ParseSafetensors, TakesAFileWithoutTensors) { EXPECT_EQ(refusal(file_of("{}")), ""); }

TEST(ParseSafetensors, RefusesWhatIsNoSuchFile) {
  expect_refused("", "too short");
  expect_refused("1234567", "too short");
  expect_refused(std::string(8, '\0'), "not a JSON object");
  expect_refused(file_of("{}").substr(0, 9), "cut off");
  expect_refused(std::string(8, '\xff'), "no safetensors file");
  const std::uint64_t longest = 100'000'000, longer = longest + 1;
  expect_refused(std::string(reinterpret_cast<const char*>(&longest), 8), "cut off");
  expect_refused(std::string(reinterpret_cast<const char*>(&longer), 8), "no safetensors file");
  expect_refused(std::string("PK\3\4 a file of torch::save"), "no safetensors file");
}

TEST(ParseSafetensors, RefusesHeadersThatAreNotTheFormats) {
  for (const auto* header : {" {}", "[]", "1", "\"a\"", "\xef\xbb\xbf{}"})
    expect_refused(file_of(header), "not a JSON object");
  expect_refused(file_of(std::string_view("{}\0{}", 5)), "not a JSON object");
  for (const auto* header : {"{", "{}}", "{}x", "{'a':1}", "{\"a\":1e999}", "{/**/}",
                             "{\"\xff\":1}", "{\"\\ud800\":1}"}) {
    expect_refused(file_of(header), "not valid JSON");
  }
  expect_refused(file_of("{\"" + std::string(1000, 'x')), "not valid JSON");
  for (const auto* entry : {"1", "null", "[]", "{}", R"({"dtype":"U8","shape":[1]})",
                            R"({"dtype":8,"shape":[1],"data_offsets":[0,1]})",
                            R"({"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1})"}) {
    expect_refused(file_of(std::string("{\"a\":") + entry + '}', "x"), "\"a\": its entry is not");
  }
  expect_refused(file_of(R"({"__metadata__":[]})"), "metadata is not");
  expect_refused(file_of(R"({"__metadata__":{"a":1}})"), "metadata has a value");
  expect_refused(file_of(R"({"__metadata__":{"a":null}})"), "metadata has a value");
}

TEST(ParseSafetensors, RefusesNamesThatComeTwice) {
  const std::string a = R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_EQ(refusal(file_of('{' + a + '}')), "");
  expect_refused(file_of('{' + a + ',' + a + '}'), "\"a\" twice");
  expect_refused(file_of('{' + a + R"(,"\u0061":1})"), "\"a\" twice");
  expect_refused(file_of(R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
                 "\"dtype\" twice");
  expect_refused(file_of(R"({"__metadata__":{"x":"1","x":"2"}})"), "\"x\" twice");
}

TEST(ParseSafetensors, RefusesDeepNestingAndManyDimensions) {
  const std::size_t depth = 1'000'000;
  expect_refused(file_of("{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + '}'),
                 "\"a\": its entry is not");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  expect_refused(file_of(objects + '1' + std::string(100'000, '}')), "\"a\": its entry is not");
  std::string shape = "[1";
  for (int i = 1; i < 64; ++i) shape += ",1";
  EXPECT_EQ(refusal(file_of(one("U8", shape + ']', "[0,1]"), "x")), "");
  expect_refused(file_of(one("U8", shape + ",1]", "[0,1]"), "x"),
                 "\"a\": it has more than 64 dimensions");
}

TEST(ParseSafetensors, RefusesShapesAndOffsetsThatDoNotFit) {
  for (const auto* number :
       {"-1", "1.0", "1e0", "\"1\"", "null", "true", "18446744073709551616", "[1]", "-0"}) {
    EXPECT_NE(refusal(file_of(one("U8", '[' + std::string(number) + ']', "[0,1]"), "x")), "")
        << number;
    EXPECT_NE(refusal(file_of(one("U8", "[1]", "[0," + std::string(number) + ']'), "x")), "")
        << number;
  }
  expect_refused(file_of(one("U8", "[4294967296,4294967296]", "[0,0]")), "too large");
  expect_refused(file_of(one("U8", "[18446744073709551615]", "[0,1]"), "x"), "too large");
  expect_refused(file_of(one("F64", "[2305843009213693952]", "[0,0]")), "too large");
  expect_refused(file_of(one("U8", "[0,4294967296,4294967296]", "[0,0]")), "too large");
  expect_refused(file_of(one("F4", "[3]", "[0,1]"), "x"), "number of bytes");
  for (const auto* offsets : {"[]", "[0]", "[0,1,2]", "[1,0]"})
    expect_refused(file_of(one("U8", "[1]", offsets), "x"), "begin and an end");
  expect_refused(file_of(one("U8", "[1]", "[0,2]"), "xx"), "number of bytes");
  expect_refused(file_of(one("X8", "[1]", "[0,1]"), "x"), "\"a\": dtype \"X8\"");
}

TEST(ParseSafetensors, RefusesHolesOverlapsAndOtherLengths) {
  expect_refused(file_of(one("U8", "[2]", "[0,2]"), "x"), "past the end");
  expect_refused(file_of(one("U8", "[1]", "[18446744073709551614,18446744073709551615]"), "x"),
                 "past the end");
  expect_refused(file_of(one("U8", "[2]", "[0,2]"), "xxx"), "belongs to no tensor");
  expect_refused(file_of(one("U8", "[1]", "[1,2]"), "xx"), "hole");
  const std::string overlap =
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})";
  expect_refused(file_of(overlap, "xxx"), "\"b\": its data leaves a hole or overlaps");
}

TEST(ParseSafetensors, RefusesABoolThatIsNeitherTrueNorFalse) {
  EXPECT_EQ(refusal(file_of(one("BOOL", "[2]", "[0,2]"), std::string_view("\0\1", 2))), "");
  expect_refused(file_of(one("BOOL", "[2]", "[0,2]"), "\1\2"), "\"a\": it is BOOL");
}

TEST(ParseSafetensors, ChecksChecksumsWhereThereAreSome) {
  const auto file = written({{"a", "U8", {3}, bytes_of("abc")}, {"b", "U8", {3}, bytes_of("xyz")}});
  EXPECT_EQ(refusal(file), "");
  const auto with = [&](const std::string& from, const std::string& to) {
    auto changed = file;
    return changed.replace(changed.find(from), from.size(), to);
  };
  EXPECT_NE(file.find(R"("xxh3:a":"78af5f94892f3950")"), std::string::npos)
      << "XXH3 of abc, by its own tool: " << file;
  expect_refused(with("abcx", "abdx"), "\"a\" is damaged");
  expect_refused(with("xxh3:a", "xxh3:c"), "\"a\" has no checksum");
  expect_refused(with("xxh3:a", "xxh4:a"), "\"a\" has no checksum");
  expect_refused(with("78af", "78AF"), "\"a\" is damaged");
  const std::string extra = R"({"__metadata__":{"xxh3:gone":"0"}})";
  EXPECT_EQ(refusal(file_of(extra + "        ")),
            "it has a checksum of a tensor that is not there");
}

// Python's writer adds at most seven spaces; ours at least eight, whatever the header's length is.
TEST(ParseSafetensors, DoubtsChecksumsOfAnotherProgramsFile) {
  for (std::size_t length = 0; length < 20; ++length) {
    const auto file = written({{std::string(length, 'n'), "U8", {3}, bytes_of("abc")}});
    EXPECT_EQ(parse_safetensors(bytes_of(file)).doubt, "");
    const auto end = file.rfind('}') + 1;
    EXPECT_EQ((end + 15) / 8 * 8, file.size() - 3) << "8 to 15 spaces";
    const auto header = file.substr(8, end - 8);
    for (std::size_t spaces = 0; spaces < 16; ++spaces) {
      const auto changed = file_of(header + std::string(spaces, ' '), "abd");
      if (spaces < 8) {
        EXPECT_NE(parse_safetensors(bytes_of(changed)).doubt, "");
      } else {
        expect_refused(changed, "is damaged");
      }
    }
  }
}

TEST(ParseSafetensors, NoticesEveryFlippedBit) {
  const auto file =
      written({{"a", "U8", {3}, bytes_of("abc")}, {"b", "BOOL", {2}, bytes_of({"\1\0", 2})}});
  const auto original = parse_safetensors(bytes_of(file)).tensors;
  for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
    auto changed = file;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    if (!refusal(changed).empty()) continue;
    // Not refused: a name, a shape or other metadata has changed, but the data has not.
    const auto found = parse_safetensors(bytes_of(changed)).tensors;
    ASSERT_EQ(found.size(), original.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_EQ(text_of(found[i].data), text_of(original[i].data)) << bit;
  }
}

TEST(FileStart, WritesWhatParseSafetensorsReads) {
  const std::array<float, 6> floats{1, 2, 3, 4, 5, 6};
  const std::string name = "\xc3\xa9\n\"\\\x7f";
  const auto file = written({{"byte", "U8", {}, bytes_of("x")},
                             {"floats", "F32", {2, 3}, std::as_bytes(std::span(floats))},
                             {"empty", "F64", {0, 5}, {}},
                             {name, "BOOL", {2}, bytes_of({"\0\1", 2})}});
  const auto found = parse_safetensors(bytes_of(file)).tensors;
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0].name, "empty");
  EXPECT_EQ(found[0].shape, (std::vector<std::int64_t>{0, 5}));
  EXPECT_EQ(found[1].name, "floats");
  EXPECT_EQ(text_of(found[1].data), text_of(std::as_bytes(std::span(floats))));
  EXPECT_EQ((found[1].data.data() - bytes_of(file).data()) % 8, 0) << "aligned in the file";
  EXPECT_EQ(text_of(found[2].data), "x");
  EXPECT_EQ(found[3].name, name);
}

TEST(FileStart, RefusesNamesThatTheFormatCannotHold) {
  EXPECT_THROW((void)file_start({{"__metadata__", "U8", {0}, {}}}), std::runtime_error);
  EXPECT_THROW((void)file_start({{"\xff", "U8", {0}, {}}}), std::runtime_error);
}

}  // namespace
}  // namespace use_gpu::detail
