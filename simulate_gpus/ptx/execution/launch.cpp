#include "ptx/execution/launch.hpp"

#include <algorithm>
#include <cfenv>
#include <deque>
#include <memory>
#include <system_error>
#include <thread>

#include "ptx/execution/block.hpp"

namespace simulate_gpus::ptx {
namespace {

// A block runs until it ends, or for so many turns of its warps: it may wait for blocks that have not begun.
constexpr std::uint64_t turns_alone = 64, instructions_of_a_turn = 50'000,
                        instructions_in_turns = 5'000;
constexpr std::uint64_t most_resident = 2'112;  // 132 multiprocessors have 16 blocks each

// The host's own arithmetic: denormals count, and the nearest number is taken, whatever the program has set.
class UsualArithmetic {
 public:
  UsualArithmetic() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  UsualArithmetic(const UsualArithmetic&) = delete;
  UsualArithmetic& operator=(const UsualArithmetic&) = delete;
  ~UsualArithmetic() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_;
};

class Blocks {
 public:
  explicit Blocks(LaunchState& launch)
      : launch_(launch), is_cooperative_(launch.request.cooperative) {
    const Dimensions grid = launch.request.grid;
    count_ = std::uint64_t{grid.x} * grid.y * grid.z;
  }

  std::uint64_t count() const { return count_; }

  // One thread's work.
  void work() {
    const UsualArithmetic arithmetic;
    try {
      while (std::unique_ptr<Block> block = next()) {
        if (run(*block))
          end(std::move(block));
        else
          suspend(std::move(block));
      }
    } catch (...) {
      const std::scoped_lock lock(launch_.mutex);
      if (!launch_.failure) launch_.failure = std::current_exception();
      launch_.stopped = true;
    }
  }

 private:
  // A block that has not begun, as long as there are any and not too many have; else one that waits.
  std::unique_ptr<Block> next() {
    std::unique_ptr<Block> block;
    std::uint64_t number = 0;
    {
      const std::scoped_lock lock(launch_.mutex);
      if (launch_.stopped) return nullptr;
      const bool may_begin =
          begun_ < count_ && (is_cooperative_ || suspended_.size() < most_resident);
      if (!may_begin) {
        if (suspended_.empty()) return nullptr;
        block = std::move(suspended_.front());
        suspended_.pop_front();
        return block;
      }
      number = begun_++;
      if (!free_.empty()) {
        block = std::move(free_.back());
        free_.pop_back();
      }
    }
    if (block == nullptr) {
      block = std::make_unique<Block>(launch_);
      allocate_block(*block);
    }
    begin_block(*block, number);
    return block;
  }

  bool run(Block& block) {
    const bool in_turns = is_cooperative_ && count_ > 1;
    const std::uint64_t turns = in_turns ? 1 : turns_alone;
    for (std::uint64_t k = 0; k < turns && !launch_.stopped; ++k)
      if (run_block(block, in_turns ? instructions_in_turns : instructions_of_a_turn)) return true;
    return false;
  }

  void end(std::unique_ptr<Block> block) {
    const std::scoped_lock lock(launch_.mutex);
    free_.push_back(std::move(block));
  }
  void suspend(std::unique_ptr<Block> block) {
    const std::scoped_lock lock(launch_.mutex);
    suspended_.push_back(std::move(block));
  }

  LaunchState& launch_;
  bool is_cooperative_;
  std::uint64_t count_ = 0, begun_ = 0;
  std::deque<std::unique_ptr<Block>> suspended_ = {};
  std::vector<std::unique_ptr<Block>> free_ = {};
};

}  // namespace

void run_launch(LaunchState& launch) {
  Blocks blocks(launch);
  const std::uint64_t wanted = launch.request.threads != 0
                                   ? launch.request.threads
                                   : std::max(1U, std::thread::hardware_concurrency());
  const auto threads = static_cast<std::size_t>(std::min(wanted, blocks.count()));
  {
    std::vector<std::jthread> helpers;
    try {
      for (std::size_t k = 1; k < threads; ++k) helpers.emplace_back([&] { blocks.work(); });
    } catch (const std::system_error&) {  // as many as the machine gives
    }
    blocks.work();
  }
  if (launch.failure) std::rethrow_exception(launch.failure);
}

}  // namespace simulate_gpus::ptx
