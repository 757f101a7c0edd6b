// SPDX-License-Identifier: MIT
//
// A communicator of some ranks of another one.
#include <unistd.h>

#include <algorithm>
#include <exception>

#include "nccl/communicator.hpp"
#include "nccl/launch.hpp"

using namespace simulate_gpus::nccl;

namespace {

// What each rank offers to the new communicator of a split.
struct Candidate {
  int key, rank;
  MemoryFile file;
};

// Tells the others what this rank wants of the split, and learns what they do. Those of this color,
// by their keys. Throws std::runtime_error if the communicator has failed or was aborted.
std::vector<Candidate> exchange_colors(Rank& self, std::uint64_t number, int color, int key,
                                       const MemoryFile& own) {
  SharedFile& file = self.file();
  Part& part = file.part(self.rank, number);
  const auto wait_until = [&](const auto& condition) {
    while (!condition()) {
      const std::uint32_t seen = self.changes().value();
      if (self.is_aborted()) throw std::runtime_error("the communicator was aborted");
      self.throw_if_failed();
      if (!condition()) self.changes().wait(seen, std::chrono::milliseconds(20));
    }
  };
  if (!part.is_free()) self.want_room(Duty::collective, /*peer=*/0, number);
  wait_until([&] { return part.is_free(); });
  file.give(part, number, {.kind = Kind::split}, static_cast<std::uint32_t>(self.size),
            /*begin=*/0, /*bytes=*/0, {color, key, own.process, own.file});
  std::vector<Candidate> members;
  for (int rank = 0; rank < self.size; ++rank) {
    const Part& other = file.part(rank, number);
    wait_until([&] { return other.is_of(number); });
    if (const Call call = other.call.load(); call.kind != Kind::split)
      self.fail_by_difference(number, {.kind = Kind::split}, rank, call);
    if (other.child.color == color)
      members.push_back({other.child.key, rank, {other.child.process, other.child.file}});
  }
  std::ranges::stable_sort(members, {}, &Candidate::key);
  return members;
}

}  // namespace

extern "C" {

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child,
                           ncclConfig_t* config) {
  *child = nullptr;
  if (open_group().depth > 0)
    return refuse("ncclCommSplit between ncclGroupStart and ncclGroupEnd is not simulated");
  const auto kept = comm->rank;  // another thread may abort it, and free comm
  Rank& self = *kept;
  const std::uint64_t number = self.next_number(Duty::collective, /*peer=*/0);
  const MemoryFile own = MemoryFile::make();
  ncclResult_t result = ncclSuccess;
  try {
    const auto members = exchange_colors(self, number, color, key, own);
    if (color != NCCL_SPLIT_NOCOLOR) {
      const auto place = std::ranges::find(members, self.rank, &Candidate::rank) - members.begin();
      const OnDevice current(self.device);
      result = join(child, members.front().file, static_cast<int>(members.size()),
                    static_cast<int>(place));
      if (result == ncclSuccess) {
        (*child)->rank->file().state().id_is_closed = true;  // below, by each rank its own
        (*child)->is_blocking = is_blocking(config);
        // All have opened the file when all have joined.
        result = wait_for_all(*(*child)->rank, &self);
      }
    }
  } catch (const std::exception& error) {
    result = refuse(error.what(), ncclInvalidUsage);
  }
  for (int rank = 0; rank < self.size; ++rank) {
    Part& part = self.file().part(rank, number);
    if (part.is_of(number)) self.file().take(part);
  }
  close(own.file);
  return result;
}
}
