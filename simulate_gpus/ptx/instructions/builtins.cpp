#include "ptx/instructions/builtins.hpp"

#include <cstdio>
#include <map>
#include <mutex>

#include "ptx/execution/access.hpp"

namespace simulate_gpus::ptx {
namespace {

std::byte* local_place(Warp& warp, int lane, std::int32_t offset, std::size_t bytes) {
  return find(warp, Target{Space::local, static_cast<std::uint64_t>(offset), bytes, Access::read},
              lane);
}

std::uint64_t argument(Warp& warp, const Instruction& instruction, std::size_t number, int lane,
                       std::size_t bytes = 8) {
  std::uint64_t value = 0;
  std::memcpy(&value, local_place(warp, lane, instruction.targets[number + 1], bytes), bytes);
  return value;
}

void put_result(Warp& warp, const Instruction& instruction, int lane, std::uint64_t value,
                std::size_t bytes) {
  if (instruction.targets[0] < 0) return;
  std::memcpy(local_place(warp, lane, instruction.targets[0], bytes), &value, bytes);
}

class ArgumentsInMemory : public PrintfArguments {
 public:
  ArgumentsInMemory(Warp& warp, std::uint64_t address, int lane)
      : warp_(warp), address_(address), lane_(lane) {}

  std::uint64_t read(std::size_t offset, std::size_t bytes) override {
    std::uint64_t value = 0;
    std::memcpy(&value,
                find(warp_, Target{Space::generic, address_ + offset, bytes, Access::read}, lane_),
                bytes);
    return value;
  }
  std::string read_text(std::uint64_t address) override {
    return address == 0 ? "(null)" : text_at(warp_, address, lane_);
  }

 private:
  Warp& warp_;
  std::uint64_t address_;
  int lane_;
};

// vprintf(format, arguments)
void print(Warp& warp, const Instruction& instruction, Mask mask) {
  ++warp.writes;
  each_lane(mask, [&](int lane) {
    ArgumentsInMemory arguments(warp, argument(warp, instruction, 1, lane), lane);
    warp.block->output +=
        format_printf(text_at(warp, argument(warp, instruction, 0, lane), lane), arguments);
    put_result(warp, instruction, lane, 0, 4);
  });
}

// __assertfail(what, file, line, function, size of a character): all lanes say so, then the kernel ends.
void fail_assertion(Warp& warp, const Instruction& instruction, Mask mask) {
  Block& block = *warp.block;
  std::string first;
  each_lane(mask, [&](int lane) {
    const auto text = [&](std::size_t number) {
      return text_at(warp, argument(warp, instruction, number, lane), lane);
    };
    const Dimensions thread = thread_of(warp, lane);
    char places[160];
    std::snprintf(places, sizeof places, "block: [%u,%u,%u], thread: [%u,%u,%u]", block.index.x,
                  block.index.y, block.index.z, thread.x, thread.y, thread.z);
    const std::string message = text(1) + ":" +
                                std::to_string(argument(warp, instruction, 2, lane, 4)) + ": " +
                                text(3) + ": " + places + " Assertion `" + text(0) + "` failed.";
    if (first.empty()) first = message;
    block.launch.print(message + "\n", true);
  });
  throw LaneFault{Kind::assertion, first, std::countr_zero(mask)};
}

// What kernels have from malloc, in all modules: one may free what another one has taken.
struct Heap {
  std::mutex mutex;
  std::map<std::uint64_t, std::function<void(std::uint64_t)>> owners;
};
Heap& heap() {
  static Heap* const all = new Heap;
  return *all;
}

void allocate(Warp& warp, const Instruction& instruction, Mask mask) {
  const Host& host = warp.block->launch.host;
  ++warp.writes;
  each_lane(mask, [&](int lane) {
    const std::uint64_t bytes = argument(warp, instruction, 0, lane);
    Allocation allocation;
    if (bytes != 0 && bytes < std::uint64_t{1} << 40 && host.allocate)
      allocation = host.allocate(bytes);
    if (allocation.begin != 0) {
      const std::scoped_lock lock(heap().mutex);
      heap().owners[allocation.begin] = host.release;
    }
    put_result(warp, instruction, lane, allocation.begin, 8);
  });
}

void release(Warp& warp, const Instruction& instruction, Mask mask) {
  each_lane(mask, [&](int lane) {
    const std::uint64_t address = argument(warp, instruction, 0, lane);
    if (address == 0) return;
    std::function<void(std::uint64_t)> owner;
    {
      const std::scoped_lock lock(heap().mutex);
      const auto found = heap().owners.find(address);
      if (found == heap().owners.end())
        throw LaneFault{Kind::launch_failure,
                        "free of what malloc of a kernel did not give, or a second time", lane};
      owner = std::move(found->second);
      heap().owners.erase(found);
    }
    warp.memory.forget();
    if (owner) owner(address);
  });
}

struct Builtin {
  Handler run;
  std::size_t places;  // of the result and the arguments
};
const std::map<std::string, Builtin>& builtins() {
  static const std::map<std::string, Builtin> known = {{"vprintf", {print, 3}},
                                                       {"__assertfail", {fail_assertion, 6}},
                                                       {"malloc", {allocate, 2}},
                                                       {"free", {release, 2}}};
  return known;
}

}  // namespace

Handler find_builtin(const std::string& name) {
  const auto found = builtins().find(name);
  return found == builtins().end() ? nullptr : found->second.run;
}

std::size_t builtin_places(const std::string& name) { return builtins().at(name).places; }

}  // namespace simulate_gpus::ptx
