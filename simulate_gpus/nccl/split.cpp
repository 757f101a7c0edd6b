// SPDX-License-Identifier: MIT
//
// A communicator of some ranks of another one.
#include <unistd.h>

#include <algorithm>
#include <exception>

#include "nccl/communicator.hpp"
#include "nccl/launch.hpp"

using namespace simulated_nccl;

namespace {

// What each rank offers to the new communicator of a split.
struct Candidate {
  int key, rank;
  MemoryFile file;
};

// Tells the others what this rank wants of the split, and learns what they do. Those of this color,
// by their keys. Empty if this rank was aborted.
std::vector<Candidate> exchange_colors(Rank& self, std::uint64_t number, int color, int key,
                                       const MemoryFile& own) {
  SharedFile& file = self.file();
  Part& part = file.part(self.rank, number);
  const auto wait_until = [&](const auto& condition) {
    while (!condition() && !self.is_aborted()) {
      const std::uint32_t seen = self.changes().value();
      if (!condition()) self.changes().wait(seen, std::chrono::milliseconds(20));
    }
  };
  wait_until([&] { return part.taken == part.takers; });  // of an operation long ago
  part.call = {.kind = Kind::split};
  part.bytes = 0;
  part.child = {color, key, own.process, own.file};
  part.taken = 0;
  part.takers = static_cast<std::uint32_t>(self.size);
  part.given = number + 1;
  self.changes().change();
  std::vector<Candidate> members;
  for (int rank = 0; rank < self.size; ++rank) {
    const Part& other = file.part(rank, number);
    wait_until([&] { return other.given == number + 1; });
    if (self.is_aborted()) return {};
    if (other.call.kind != Kind::split) {
      self.fail("operation " + std::to_string(number) +
                " of a communicator is ncclCommSplit on rank " + std::to_string(self.rank) +
                ", and " + text_of(other.call) + " on rank " + std::to_string(rank) +
                ". All ranks must make the same calls.");
    }
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
  Rank& self = *comm->rank;
  const std::uint64_t number = self.next_number(Duty::collective, /*peer=*/0);
  const MemoryFile own = MemoryFile::make();
  ncclResult_t result = ncclSuccess;
  try {
    const auto members = exchange_colors(self, number, color, key, own);
    if (color != NCCL_SPLIT_NOCOLOR && !members.empty()) {
      const auto place = std::ranges::find(members, self.rank, &Candidate::rank) - members.begin();
      const OnDevice current(self.device);
      result = join(child, members.front().file, static_cast<int>(members.size()),
                    static_cast<int>(place));
      // All have opened the file when all have joined.
      if (result == ncclSuccess) result = wait_for_all(*(*child)->rank);
      if (*child) (*child)->is_blocking = is_blocking(config);
    }
  } catch (const std::exception& error) {
    result = refuse(error.what(), ncclInvalidUsage);
  }
  for (int rank = 0; rank < self.size; ++rank) {
    Part& part = self.file().part(rank, number);
    if (part.given == number + 1) self.file().take(part);
  }
  close(own.file);
  return result;
}
}
