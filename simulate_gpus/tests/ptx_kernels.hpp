// Kernels for tests of the PTX engine, and how they run.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ptx_memory.hpp"

namespace ptx = simulate_gpus::ptx;

constexpr const char* ptx_head = ".version 7.8\n.target sm_90\n.address_size 64\n";

// A kernel with the address of its results in %out and the number of its thread, over all blocks, in %i.
inline std::string kernel(const std::string& body, const std::string& outside = "") {
  return ptx_head + outside +
         ".visible .entry k(.param .u64 out)\n{\n"
         ".reg .b64 %out, %place, %l<9>; .reg .b32 %i, %r<20>; .reg .pred %p<5>; .reg .f32 %f<5>;\n"
         "ld.param.u64 %out, [out]; mov.u32 %i, %tid.x; mov.u32 %r0, %ctaid.x; mov.u32 %r1, "
         "%ntid.x;\n"
         "mad.lo.u32 %i, %r0, %r1, %i; mad.wide.u32 %place, %i, 4, %out;\n" +
         body + "\n}\n";
}

class PtxTest : public testing::Test {
 protected:
  ~PtxTest() override {
    if (out_.begin != 0) memory_.release(out_.begin);
  }

  std::vector<std::uint32_t> run(const std::string& text, ptx::Launch launch,
                                 std::size_t results = 256) {
    if (out_.begin != 0) memory_.release(out_.begin);
    out_ = memory_.allocate(4 * results);
    std::memset(out_.host, 0, 4 * results);
    if (launch.kernel.empty()) launch.kernel = "k";
    launch.parameters.resize(8);
    std::memcpy(launch.parameters.data(), &out_.begin, 8);
    memory_.load(text)->launch(launch);
    std::vector<std::uint32_t> values(results);
    std::memcpy(values.data(), out_.host, 4 * results);
    return values;
  }

  // The kind and the text of what a launch throws.
  std::pair<ptx::Kind, std::string> failure(const std::string& text,
                                            ptx::Launch launch = {.block = {32}}) {
    try {
      run(text, std::move(launch));
    } catch (const ptx::Error& error) {
      return {error.kind(), error.what()};
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }

  TestMemory memory_;
  ptx::Allocation out_ = {};
};
