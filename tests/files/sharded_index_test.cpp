// SPDX-License-Identifier: MIT
#include "files/safetensors.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace use_gpu::detail {
namespace {

std::string index_of(const std::string& weight_map) {
  return "{\"weight_map\":" + weight_map + '}';
}

void expect_index_refused(std::string_view text, const std::string& part) {
  try {
    (void)parse_sharded_index(text);
    ADD_FAILURE() << "taken: " << text;
  } catch (const std::runtime_error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find(part), what.npos) << '"' << what << "\" instead of \"" << part << '"';
    EXPECT_LT(what.size(), 260U) << what;
  }
}

TEST(ParseShardedIndex, ReadsWhichFileHoldsWhat) {
  const auto index = parse_sharded_index(
      R"({"metadata":{"total_size":12,"weight_map":{"x":"../y"},"list":[1,[2.5,{"a":null}],-3,true]},)"
      R"( "weight_map":{"b":"2.safetensors","a":"1.safetensors","weight_map":"2.safetensors"},"more":"z"} )");
  EXPECT_EQ(index,
            (ShardedIndex{{"1.safetensors", {"a"}}, {"2.safetensors", {"b", "weight_map"}}}));
  EXPECT_TRUE(parse_sharded_index(" \r\n\t" + index_of("{}") + '\n').empty());
}

TEST(ParseShardedIndex, TakesFilesBelowItsFolder) {
  for (const auto* file : {"a", "folder/a", "./a", "..a", "a..", "a/...", "\\u00e9"})
    EXPECT_EQ(parse_sharded_index(index_of(R"({"x":")" + std::string(file) + "\"}")).size(), 1U);
}

TEST(ParseShardedIndex, RefusesFilesOutsideOfItsFolder) {
  for (const auto* file :
       {"", "/a", "//a", "..", "../a", "a/../../b", "a/..", "./../a", "a\\u0000b"}) {
    expect_index_refused(index_of(R"({"x":")" + std::string(file) + "\"}"),
                         "which is not in the index's folder");
  }
}

TEST(ParseShardedIndex, RefusesNamesThatComeTwice) {
  expect_index_refused(index_of(R"({"a":"1","a":"1"})"), "\"a\" twice");
  expect_index_refused(index_of(R"({"a":"1","\u0061":"2"})"), "\"a\" twice");
  expect_index_refused(R"({"weight_map":{},"weight_map":{}})", "\"weight_map\" twice");
}

TEST(ParseShardedIndex, RefusesWhatIsNoIndex) {
  for (const auto* text : {"", "[]", "1", " \n", "\xef\xbb\xbf{}"})
    expect_index_refused(text, "not a JSON object");
  expect_index_refused(std::string_view("{}\0", 3), "not a JSON object");
  for (const auto* text : {"{", "{}}", "{}x", "{\"\xff\":1}", "{\"a\":1e999}"})
    expect_index_refused(text, "not valid JSON");
  expect_index_refused("{}", "no weight_map");
  expect_index_refused(R"({"a":{"weight_map":{}}})", "no weight_map");
  for (const auto* map : {"[]", "null", "1", "-1", "1.5", "true", "\"a\"", "[{}]"})
    expect_index_refused(index_of(map), "not a JSON object");
  for (const auto* file : {"[]", "null", "1", "-1", "1.5", "true", "{}", "[\"a\"]"})
    expect_index_refused(index_of(R"({"x":)" + std::string(file) + '}'), "no file name for \"x\"");
}

TEST(ParseShardedIndex, TakesDeepNestingAndManyTensors) {
  const std::size_t depth = 1'000'000;
  const std::string deep =
      "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + ",\"weight_map\":{}}";
  EXPECT_TRUE(parse_sharded_index(deep).empty());
  std::string map = "{\"a\":\"f\"";
  for (int i = 0; i < 100'000; ++i) map += ",\"" + std::to_string(i) + "\":\"f\"";
  EXPECT_EQ(parse_sharded_index(index_of(map + '}')).at("f").size(), 100'001U);
  expect_index_refused(std::string(100'000'001, '{'), "larger than 100 MB");
}

}  // namespace
}  // namespace use_gpu::detail
