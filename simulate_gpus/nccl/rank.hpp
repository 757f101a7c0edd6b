// SPDX-License-Identifier: MIT
//
// One rank of a communicator: what it has in common with the others, and what it owes them.
//
// A stream's work waits until something needs it, and that may be another rank. So each rank has a
// thread that sleeps until the bell rings, and then does its streams' work up to what others want:
// what it gives, and the receipt of messages that their sender waits for. Never more, so that what
// a rank takes stays old until its own program waits.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "nccl/reduction.hpp"
#include "nccl/shared_file.hpp"
#include "runtime/interface.hpp"

namespace simulate_gpus::nccl {

/// Something that others may want of a rank.
enum class Duty { collective, send, receive };

/// A rank's duty in an operation, which is in a stream.
struct Owed {
  Duty duty;
  int peer;  // of a message
  std::uint64_t number;
  StreamMoment moment;           // in the stream, after that
  bool only_makes_room = false;  // for a rank that is far ahead
};

/// Of one part, or free.
struct Room {
  std::uint64_t begin, bytes;
  const Part* part;
  std::uint64_t number;  // of the operation

  [[nodiscard]] bool is_free() const {
    const std::uint64_t given = part->given;
    return given > number + 1 || (given == number + 1 && part->is_free());
  }
};

/// Thread-safe.
class Rank : public std::enable_shared_from_this<Rank> {
 public:
  /// Of the current device, in the communicator of that file. If this process made it, it is closed
  /// when a rank here leaves. Throws std::runtime_error, or std::invalid_argument where the others
  /// know the communicator otherwise. `size` is at most k_most_ranks, `rank` less than it.
  static std::shared_ptr<Rank> join(const MemoryFile& shared, int rank, int size);

  const int rank, size, device;

  [[nodiscard]] SharedFile& file() { return file_; }
  [[nodiscard]] SharedWord& changes() { return file_.state().changes; }

  [[nodiscard]] bool have_all_joined();
  /// Why these ranks are no communicator: two are on one GPU. Empty if all is well.
  [[nodiscard]] std::string duplicate_gpu();

  /// The number of the next operation: of all collectives, or of the messages to or from a rank.
  std::uint64_t next_number(Duty duty, int peer);
  /// Where in the file this rank writes that many bytes, which will be that part of an operation.
  std::uint64_t room_for(std::uint64_t bytes, const Part& part, std::uint64_t number);

  /// Others may want that from now on.
  void owe(Owed owed);
  /// Another rank's duty is needed now.
  void want(int other, Duty duty, std::uint64_t number);
  /// This rank cannot give its part of an operation before the others have taken that of an earlier
  /// one, which has the same place.
  void want_room(Duty duty, int peer, std::uint64_t number);
  /// Does what this rank owes, or only what others wait for; false if some cannot be done yet.
  bool pay(bool only_wanted);

  /// The communicator is broken: all ranks' operations fail from now on, with that text. Throws it.
  [[noreturn]] void fail(const std::string& what);
  /// The same where the ranks' calls of an operation differ.
  [[noreturn]] void fail_by_difference(std::uint64_t number, const Call& own, int other_rank,
                                       const Call& other);
  /// What is thrown breaks the communicator.
  void or_fail(const auto& action) {
    try {
      action();
    } catch (const std::exception& error) {
      fail(error.what());
    }
  }
  /// That text, of whichever rank; empty if there is none.
  [[nodiscard]] std::string failure();
  void throw_if_failed();

  /// Operations of this rank do nothing any more, and nothing of it waits.
  void abort();
  [[nodiscard]] bool is_aborted() const { return is_aborted_; }
  /// Ends its thread.
  void leave();

  /// A reduction that the program made, and its number as an ncclRedOp_t.
  int make_reduction(const Scalar& scalar);
  [[nodiscard]] std::optional<Scalar> made_reduction(int number);
  void destroy_reduction(int number);

 private:
  Rank(const MemoryFile& shared, int rank, int size);
  void serve();
  [[nodiscard]] std::atomic<std::uint64_t>& wanted(int of, Duty duty, int peer);
  [[nodiscard]] bool is_wanted(const Owed& owed);
  /// What is owed, or only what others wait for.
  std::vector<Owed> still_owed(bool only_wanted);

  const MemoryFile shared_;
  SharedFile file_;
  std::atomic<bool> is_aborted_ = false, has_left_ = false;
  std::mutex mutex_;  // guards what follows
  std::deque<Owed> owed_;
  std::uint64_t collectives_ = 0, written_ = 0;
  std::vector<Room> rooms_;
  std::array<std::uint64_t, k_most_ranks> sent_{}, received_{};
  std::map<int, Scalar> reductions_;
  int next_reduction_ = ncclNumOps;
};

}  // namespace simulate_gpus::nccl
