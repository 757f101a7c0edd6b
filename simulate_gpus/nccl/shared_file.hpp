// SPDX-License-Identifier: MIT
//
// What the ranks of a communicator share: a file in memory that each maps. It has no name: the
// unique id tells which process has it open, and as what. So nothing is left behind, and the size
// of /dev/shm does not matter.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "nccl/call.hpp"
#include "runtime/settings.hpp"
#include "runtime/shared_word.hpp"

namespace simulate_gpus::nccl {

/// NCCL refuses two ranks on one GPU.
constexpr int k_most_ranks = simulate_gpus::k_most_gpus;

/// A call that is read while its owner may already write the next one.
class SharedCall {
 public:
  void store(const Call& call);
  [[nodiscard]] Call load() const;

 private:
  std::atomic<std::uint64_t> what_, count_;
};

/// What one rank tells the others about one operation, and where what it gives lies in the file.
struct Part {
  std::atomic<std::uint64_t> given;          // 1 + the number of the operation; 0: none
  std::atomic<std::uint32_t> takers, taken;  // how many ranks read it, and how many have
  SharedCall call;
  std::uint64_t begin, bytes;
  struct Child {
    int color, key, process, file;
  } child;  // of a split: the file that this rank offers to the new communicator

  [[nodiscard]] bool is_of(std::uint64_t number) const { return given == number + 1; }
  /// Whether all have read what was there before.
  [[nodiscard]] bool is_free() const { return taken == takers; }
};

/// How many operations others wait for, by what a rank does in them.
struct Wanted {
  std::atomic<std::uint64_t> collectives;
  std::array<std::atomic<std::uint64_t>, k_most_ranks> sent_to, received_from;
};

/// A file in memory that a process has open: others find it by both numbers.
struct MemoryFile {
  int process, file;

  static MemoryFile make();
  /// Opens it again, here; -1 if the process has ended.
  [[nodiscard]] int open() const;
};

/// All zeros is the initial state of everything in the file.
class SharedFile {
 public:
  /// Maps an open file, and closes it at the end. std::runtime_error if that fails.
  SharedFile(int file, int ranks);
  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  struct RankState {
    std::array<char, 16> bus_id;
    std::atomic<bool> is_taken, has_joined;
    SharedWord bell;  // rung when another rank wants something of this one
    Wanted wanted;
  };
  struct State {
    std::atomic<int> ranks;
    std::atomic<bool> id_is_closed;  // of the file itself, in the process that made it
    SharedWord changes;              // whenever a rank has joined, given, taken or failed
    std::atomic<bool> is_failing, has_failed;
    std::array<char, 400> failure;  // written once, by the rank that set is_failing
    std::array<RankState, k_most_ranks> rank;
  };
  [[nodiscard]] State& state() { return *state_; }
  [[nodiscard]] RankState& state_of(int rank);

  /// The place of a rank's part in a collective, and of a message from one rank to another. It is
  /// used again k_parts operations later.
  static constexpr std::uint64_t k_parts = 512;
  [[nodiscard]] Part& part(int rank, std::uint64_t number);
  [[nodiscard]] Part& message(int from, int to, std::uint64_t number);

  /// Where a rank may write: from here on, as far as it likes, but nowhere twice.
  [[nodiscard]] static std::uint64_t first_byte_of(int rank);
  /// What one part takes of the file, so that it can be freed alone.
  [[nodiscard]] static std::uint64_t whole_pages(std::uint64_t bytes);
  void write(std::uint64_t begin, const void* from, std::size_t bytes);
  void read(std::uint64_t begin, void* to, std::size_t bytes);

  /// Tells all ranks of a part, whose bytes are written.
  void give(Part& part, std::uint64_t number, const Call& call, std::uint32_t takers,
            std::uint64_t begin, std::uint64_t bytes, const Part::Child& child = {});
  /// A rank has read the part.
  void take(Part& part);
  /// Gives memory back.
  void free(std::uint64_t begin, std::uint64_t bytes);

 private:
  int file_, ranks_;
  std::size_t mapped_bytes_;
  State* state_;
  Part* parts_;
};

}  // namespace simulate_gpus::nccl
