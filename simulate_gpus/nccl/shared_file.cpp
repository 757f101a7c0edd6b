// SPDX-License-Identifier: MIT
#include "nccl/shared_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

namespace simulate_gpus::nccl {
namespace {

constexpr std::uint64_t k_bytes_of_rank = std::uint64_t{1} << 52;  // the file has holes

[[noreturn]] void throw_last_error(const char* action) {
  throw std::system_error(errno, std::generic_category(), action);
}

// Calls `transfer`, pread or pwrite, until all bytes are through.
void transfer_all(const auto& transfer, int file, auto* memory, std::size_t bytes,
                  std::uint64_t begin, const char* action) {
  while (bytes > 0) {
    const ssize_t done = transfer(file, memory, bytes, static_cast<off_t>(begin));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) throw_last_error(action);
    memory += done;
    begin += static_cast<std::uint64_t>(done);
    bytes -= static_cast<std::size_t>(done);
  }
}

}  // namespace

MemoryFile MemoryFile::make() { return {getpid(), memfd_create("simulated NCCL", MFD_CLOEXEC)}; }

int MemoryFile::open() const {
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(file);
  return ::open(path.c_str(), O_RDWR | O_CLOEXEC);
}

void SharedCall::store(const Call& call) {
  const auto at = [](auto value, int bit) { return static_cast<std::uint64_t>(value) << bit; };
  what_ = at(call.kind, 0) | at(call.type, 8) | at(call.reduction, 16) | at(call.root, 32);
  count_ = call.count;
}

Call SharedCall::load() const {
  const std::uint64_t what = what_;
  return {.kind = static_cast<Kind>(what & 0xff),
          .type = static_cast<ncclDataType_t>(what >> 8 & 0xff),
          .reduction = static_cast<int>(what >> 16 & 0xffff),
          .root = static_cast<int>(what >> 32),
          .count = count_};
}

SharedFile::SharedFile(int file, int ranks) : file_(file), ranks_(ranks) {
  if (file < 0) throw std::runtime_error("the process that made the unique id has ended");
  const auto count = static_cast<std::uint64_t>(ranks);
  mapped_bytes_ = whole_pages(sizeof(State) + sizeof(Part) * k_parts * count * (1 + count));
  void* memory = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(first_byte_of(ranks))) == 0) {
    memory = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file,
                  /*offset=*/0);
  }
  if (memory == MAP_FAILED) {
    const int error = errno;
    close(file);
    throw std::system_error(error, std::generic_category(), "mapping the communicator's file");
  }
  state_ = static_cast<State*>(memory);
  parts_ = reinterpret_cast<Part*>(state_ + 1);
}

SharedFile::~SharedFile() {
  munmap(state_, mapped_bytes_);
  close(file_);
}

SharedFile::RankState& SharedFile::state_of(int rank) {
  return state_->rank[static_cast<std::size_t>(rank)];
}

Part& SharedFile::part(int rank, std::uint64_t number) {
  return parts_[static_cast<std::uint64_t>(rank) * k_parts + number % k_parts];
}

Part& SharedFile::message(int from, int to, std::uint64_t number) {
  const int pair = ranks_ + from * ranks_ + to;  // after the ranks' parts
  return parts_[static_cast<std::uint64_t>(pair) * k_parts + number % k_parts];
}

// The first such range is that of the state and the parts.
std::uint64_t SharedFile::first_byte_of(int rank) {
  return k_bytes_of_rank * static_cast<std::uint64_t>(rank + 1);
}

std::uint64_t SharedFile::whole_pages(std::uint64_t bytes) {
  constexpr std::uint64_t k_page = 4096;
  return (bytes + k_page - 1) / k_page * k_page;
}

void SharedFile::write(std::uint64_t begin, const void* from, std::size_t bytes) {
  transfer_all(pwrite, file_, static_cast<const char*>(from), bytes, begin,
               "writing what a rank gives");
}

void SharedFile::read(std::uint64_t begin, void* to, std::size_t bytes) {
  transfer_all(pread, file_, static_cast<char*>(to), bytes, begin, "reading what a rank gave");
}

void SharedFile::give(Part& part, std::uint64_t number, const Call& call, std::uint32_t takers,
                      std::uint64_t begin, std::uint64_t bytes, const Part::Child& child) {
  part.given = 0;  // who compares the last call sees that it is over
  part.call.store(call);
  part.begin = begin;
  part.bytes = bytes;
  part.child = child;
  part.taken = 0;
  part.takers = takers;
  part.given = number + 1;
  state_->changes.change();
}

void SharedFile::take(Part& part) {
  // Once all have taken it, its owner may use it again.
  const std::uint32_t takers = part.takers;
  if (++part.taken == takers) state_->changes.change();
}

void SharedFile::free(std::uint64_t begin, std::uint64_t bytes) {
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
            static_cast<off_t>(bytes));
}

}  // namespace simulate_gpus::nccl
