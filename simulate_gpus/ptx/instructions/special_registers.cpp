// Special registers: %tid, %ctaid, %laneid and such are filled when a block begins; clocks are read.
#include <chrono>
#include <unordered_map>

#include "ptx/instructions/apply.hpp"
#include "ptx/instructions/moves.hpp"

namespace simulate_gpus::ptx {
namespace {

const Launch& request_of(const Warp& warp) { return warp.block->launch.request; }
std::uint64_t up_to(int lane) { return (std::uint64_t{1} << lane) - 1; }

const std::unordered_map<std::string, SpecialFunction>& specials() {
  static const std::unordered_map<std::string, SpecialFunction> known = {
      {"%tid.x",
       [](const Warp& warp, int lane) -> std::uint64_t { return thread_of(warp, lane).x; }},
      {"%tid.y",
       [](const Warp& warp, int lane) -> std::uint64_t { return thread_of(warp, lane).y; }},
      {"%tid.z",
       [](const Warp& warp, int lane) -> std::uint64_t { return thread_of(warp, lane).z; }},
      {"%ntid.x", [](const Warp& warp, int) -> std::uint64_t { return request_of(warp).block.x; }},
      {"%ntid.y", [](const Warp& warp, int) -> std::uint64_t { return request_of(warp).block.y; }},
      {"%ntid.z", [](const Warp& warp, int) -> std::uint64_t { return request_of(warp).block.z; }},
      {"%ctaid.x", [](const Warp& warp, int) -> std::uint64_t { return warp.block->index.x; }},
      {"%ctaid.y", [](const Warp& warp, int) -> std::uint64_t { return warp.block->index.y; }},
      {"%ctaid.z", [](const Warp& warp, int) -> std::uint64_t { return warp.block->index.z; }},
      {"%nctaid.x", [](const Warp& warp, int) -> std::uint64_t { return request_of(warp).grid.x; }},
      {"%nctaid.y", [](const Warp& warp, int) -> std::uint64_t { return request_of(warp).grid.y; }},
      {"%nctaid.z", [](const Warp& warp, int) -> std::uint64_t { return request_of(warp).grid.z; }},
      {"%laneid",
       [](const Warp&, int lane) -> std::uint64_t { return static_cast<std::uint64_t>(lane); }},
      {"%warpid", [](const Warp& warp, int) -> std::uint64_t { return warp.number; }},
      {"%nwarpid", [](const Warp&, int) -> std::uint64_t { return 64; }},
      {"%smid",
       [](const Warp& warp, int) -> std::uint64_t {
         return warp.block->index.x % request_of(warp).multiprocessors;
       }},
      {"%nsmid",
       [](const Warp& warp, int) -> std::uint64_t { return request_of(warp).multiprocessors; }},
      {"%gridid", [](const Warp&, int) -> std::uint64_t { return 1; }},
      {"%lanemask_eq",
       [](const Warp&, int lane) -> std::uint64_t { return std::uint64_t{1} << lane; }},
      {"%lanemask_lt", [](const Warp&, int lane) -> std::uint64_t { return up_to(lane); }},
      {"%lanemask_le", [](const Warp&, int lane) -> std::uint64_t { return up_to(lane + 1); }},
      {"%lanemask_ge",
       [](const Warp&, int lane) -> std::uint64_t { return ~up_to(lane) & all_lanes; }},
      {"%lanemask_gt",
       [](const Warp&, int lane) -> std::uint64_t { return ~up_to(lane + 1) & all_lanes; }},
      {"%dynamic_smem_size",
       [](const Warp& warp, int) -> std::uint64_t {
         return request_of(warp).dynamic_shared_bytes;
       }},
      {"%total_smem_size",
       [](const Warp& warp, int) -> std::uint64_t { return warp.block->launch.shared_bytes; }},
      // grid.sync() finds its counter there, and ends the kernel if there is none.
      {"%envreg1",
       [](const Warp& warp, int) -> std::uint64_t { return warp.block->launch.workspace >> 32; }},
      {"%envreg2",
       [](const Warp& warp, int) -> std::uint64_t {
         return warp.block->launch.workspace & 0xFFFFFFFF;
       }},
      // A grid without clusters is one of clusters of one block.
      {"%clusterid.x", [](const Warp& warp, int) -> std::uint64_t { return warp.block->index.x; }},
      {"%clusterid.y", [](const Warp& warp, int) -> std::uint64_t { return warp.block->index.y; }},
      {"%clusterid.z", [](const Warp& warp, int) -> std::uint64_t { return warp.block->index.z; }},
      {"%nclusterid.x",
       [](const Warp& warp, int) -> std::uint64_t { return request_of(warp).grid.x; }},
      {"%nclusterid.y",
       [](const Warp& warp, int) -> std::uint64_t { return request_of(warp).grid.y; }},
      {"%nclusterid.z",
       [](const Warp& warp, int) -> std::uint64_t { return request_of(warp).grid.z; }},
      {"%cluster_ctaid.x", [](const Warp&, int) -> std::uint64_t { return 0; }},
      {"%cluster_ctaid.y", [](const Warp&, int) -> std::uint64_t { return 0; }},
      {"%cluster_ctaid.z", [](const Warp&, int) -> std::uint64_t { return 0; }},
      {"%cluster_nctaid.x", [](const Warp&, int) -> std::uint64_t { return 1; }},
      {"%cluster_nctaid.y", [](const Warp&, int) -> std::uint64_t { return 1; }},
      {"%cluster_nctaid.z", [](const Warp&, int) -> std::uint64_t { return 1; }},
      {"%cluster_ctarank", [](const Warp&, int) -> std::uint64_t { return 0; }},
      {"%cluster_nctarank", [](const Warp&, int) -> std::uint64_t { return 1; }},
  };
  return known;
}

// In nanoseconds; %clock counts two in each.
std::uint64_t now(bool is_timer) {
  const auto clock = is_timer ? std::chrono::system_clock::now().time_since_epoch()
                              : std::chrono::steady_clock::now().time_since_epoch();
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(clock).count();
  return static_cast<std::uint64_t>(nanoseconds) * (is_timer ? 1 : 2);
}

}  // namespace

SpecialFunction find_special(const std::string& name) {
  const auto found = specials().find(name);
  return found == specials().end() ? nullptr : found->second;
}

bool is_of_block(const std::string& name) {
  return name.starts_with("%ctaid") || name.starts_with("%clusterid") || name == "%smid";
}

void read_clock(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::uint64_t time = now(instruction.negated) >> (instruction.mode != 0 ? 32 : 0);
  each_lane(mask, [&](int lane) {
    warp.lanes.put(instruction.slots[0], lane, static_cast<std::uint32_t>(time));
  });
}

void read_wide_clock(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::uint64_t time = now(instruction.negated);
  each_lane(mask, [&](int lane) { warp.lanes.put(instruction.slots[0], lane, time); });
}

}  // namespace simulate_gpus::ptx
