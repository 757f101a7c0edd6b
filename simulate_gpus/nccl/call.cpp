// SPDX-License-Identifier: MIT
#include "nccl/call.hpp"

#include <array>

namespace simulate_gpus::nccl {
namespace {

struct Type {
  const char* name;
  std::uint64_t bytes;
};

// In the order of ncclDataType_t.
constexpr std::array<Type, ncclNumTypes> k_types{{{"int8", 1},
                                                  {"uint8", 1},
                                                  {"int32", 4},
                                                  {"uint32", 4},
                                                  {"int64", 8},
                                                  {"uint64", 8},
                                                  {"float16", 2},
                                                  {"float32", 4},
                                                  {"float64", 8},
                                                  {"bfloat16", 2},
                                                  {"float8_e4m3", 1},
                                                  {"float8_e5m2", 1}}};

const Type& type_of(const Call& call) { return k_types[static_cast<std::size_t>(call.type)]; }

}  // namespace

bool Call::reduces() const {
  return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter;
}

bool Call::has_root() const {
  return kind == Kind::reduce || kind == Kind::broadcast || kind == Kind::gather ||
         kind == Kind::scatter;
}

std::uint64_t Call::bytes() const { return count * type_of(*this).bytes; }

const char* name_of(Kind kind) {
  constexpr std::array k_names = {"AllReduce",     "Reduce",   "Broadcast", "AllGather",
                                  "ReduceScatter", "AlltoAll", "Gather",    "Scatter",
                                  "CommSplit",     "Send",     "Recv"};  // in the order of Kind
  return k_names[static_cast<std::size_t>(kind)];
}

std::string text_of(const Call& call) {
  constexpr std::array k_reductions = {"sum", "prod", "max", "min", "avg", "premulsum"};
  std::string text = std::string("nccl") + name_of(call.kind);
  if (call.kind == Kind::split) return text;
  text += " of " + std::to_string(call.count) + ' ' + type_of(call).name;
  if (call.reduces())
    text += std::string(", ") + k_reductions[static_cast<std::size_t>(call.reduction)];
  if (call.has_root()) text += ", root " + std::to_string(call.root);
  return text;
}

}  // namespace simulate_gpus::nccl
