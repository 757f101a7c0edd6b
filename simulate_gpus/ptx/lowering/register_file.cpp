// Places of registers in the file of a warp: those of which only one is needed at a time share one. PTX has a register for
// each intermediate result, and a processor's cache has no room for all of them in 32 lanes.
#include "ptx/lowering/register_file.hpp"

#include <algorithm>
#include <queue>
#include <utility>

namespace simulate_gpus::ptx {
namespace {

// From the first to the last instruction between which a register may hold what is still read.
struct Interval {
  Slot slot = no_slot;
  std::int32_t first = 0, last = 0;
  bool is_within_block = false;  // of straight code, which writes it first
};

struct Loop {
  std::int32_t begin = 0, end = 0;
};

bool ends_block(Flow flow) {
  return flow == Flow::branch || flow == Flow::indexed_branch || flow == Flow::exit;
}

// For each instruction the number of its block of straight code.
std::vector<int> blocks_of(const std::vector<Instruction>& code) {
  std::vector<int> begins(code.size() + 1, 0);
  for (std::size_t k = 0; k < code.size(); ++k) {
    if (ends_block(code[k].flow)) begins[k + 1] = 1;
    for (const std::int32_t target : code[k].targets)
      if (ends_block(code[k].flow)) begins[static_cast<std::size_t>(target)] = 1;
  }
  for (std::size_t k = 1; k < begins.size(); ++k) begins[k] += begins[k - 1];
  return begins;
}

// Loops that overlap count as one.
std::vector<Loop> loops_of(const std::vector<Instruction>& code) {
  std::vector<Loop> loops;
  for (std::int32_t k = static_cast<std::int32_t>(code.size()) - 1; k >= 0; --k) {
    const Instruction& instruction = code[static_cast<std::size_t>(k)];
    if (!ends_block(instruction.flow) || instruction.targets.empty()) continue;
    const std::int32_t begin = std::ranges::min(instruction.targets);
    if (begin > k) continue;
    if (loops.empty() || k < loops.back().begin)
      loops.push_back({begin, k});
    else
      loops.back().begin = std::min(loops.back().begin, begin);
  }
  std::ranges::reverse(loops);
  return loops;
}

// What is read in a loop may have been written in the round before: it is needed from the loop's begin to its end.
Interval extended(Interval interval, const std::vector<Loop>& loops) {
  if (interval.is_within_block) return interval;
  const auto after = std::ranges::lower_bound(loops, interval.first, {}, &Loop::end);
  for (auto loop = after; loop != loops.end() && loop->begin <= interval.last; ++loop) {
    interval.first = std::min(interval.first, loop->begin);
    interval.last = std::max(interval.last, loop->end);
  }
  return interval;
}

// Gives each interval a place that no other one has at the same time.
void share(std::vector<Interval> intervals, const std::map<Slot, std::size_t>& sizes,
           RegisterFile& file, std::unordered_map<Slot, Slot>& moved) {
  const auto ends_later = [](const Interval& a, const Interval& b) { return a.last > b.last; };
  std::priority_queue<Interval, std::vector<Interval>, decltype(ends_later)> taken(ends_later);
  std::map<std::size_t, std::vector<Slot>> free;  // by their size
  std::ranges::sort(intervals, {}, [](const Interval& each) {
    return std::pair(each.first, each.slot);  // the same places on each run
  });
  for (const Interval& interval : intervals) {
    for (; !taken.empty() && taken.top().last < interval.first; taken.pop()) {
      const Slot ended = taken.top().slot;
      free[sizes.at(ended)].push_back(moved.at(ended));
    }
    const std::size_t bytes = sizes.at(interval.slot);
    std::vector<Slot>& fitting = free[bytes];
    if (fitting.empty()) fitting.push_back(file.add(bytes));
    moved[interval.slot] = fitting.back();
    fitting.pop_back();
    taken.push(interval);
  }
}

void move_registers(Program& program, const std::unordered_map<Slot, Slot>& moved) {
  for (std::vector<Instruction>* const code : {&program.code, &program.steady}) {
    for (Instruction& instruction : *code) {
      instruction.guard = moved.at(instruction.guard);
      for (Slot& slot : instruction.slots) slot = moved.at(slot);
    }
  }
  for (auto* const constants : {&program.constants, &program.wide_constants})
    for (auto& [slot, bits] : *constants) slot = moved.at(slot);
  for (Special& special : program.specials) special.slot = moved.at(special.slot);
}

}  // namespace

Slot RegisterFile::add(std::size_t bytes) {
  if (bytes > sizeof(Mask)) bytes_ = (bytes_ + 63) / 64 * 64;
  const auto slot = static_cast<Slot>(bytes_);
  bytes_ += bytes;
  sizes_[slot] = bytes;
  return slot;
}

void RegisterFile::allocate(Program& program) const {
  const std::vector<int> blocks = blocks_of(program.code);
  const std::vector<Loop> loops = loops_of(program.code);
  std::unordered_map<Slot, Interval> needed;
  for (const Slot slot : sharing_)
    if (!steady_.contains(slot)) needed[slot] = {};
  for (std::size_t k = 0; k < program.code.size(); ++k) {
    const Instruction& instruction = program.code[k];
    const auto place = static_cast<std::int32_t>(k);
    const auto meet = [&](Slot slot) {
      const auto found = needed.find(slot);
      if (found == needed.end()) return;
      Interval& interval = found->second;
      if (interval.slot == no_slot) {
        const auto writes = writes_.find(slot);
        const bool is_written = instruction.guard == no_slot && writes != writes_.end() &&
                                writes->second.first == k &&
                                std::ranges::count(instruction.slots, slot) == 1;
        interval = {slot, place, place, is_written};
      }
      interval.is_within_block &= blocks[k] == blocks[static_cast<std::size_t>(interval.first)];
      interval.last = place;
    };
    meet(instruction.guard);
    std::ranges::for_each(instruction.slots, meet);
  }
  RegisterFile file;
  std::unordered_map<Slot, Slot> moved = {{no_slot, no_slot}};
  for (const auto& [slot, bytes] : sizes_)
    if (!needed.contains(slot)) moved[slot] = file.add(bytes);
  std::vector<Interval> intervals;
  for (const auto& [slot, interval] : needed)
    if (interval.slot != no_slot) intervals.push_back(extended(interval, loops));
  share(std::move(intervals), sizes_, file, moved);
  move_registers(program, moved);
  program.register_bytes = (file.bytes() + 63) / 64 * 64;
}

}  // namespace simulate_gpus::ptx
