// SPDX-License-Identifier: MIT
#include "nccl/rank.hpp"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "nccl/errors.hpp"

namespace simulate_gpus::nccl {
namespace {

int current_device() {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) throw std::runtime_error("no GPU can be used");
  return device;
}

// Starts a thread that gets no signals: they are the program's.
void start_thread(std::function<void()> work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(std::move(work)).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

Rank::Rank(const MemoryFile& shared, int own_rank, int count)
    : rank(own_rank),
      size(count),
      device(current_device()),
      shared_(shared),
      file_(shared.open(), count) {}

std::shared_ptr<Rank> Rank::join(const MemoryFile& shared, int rank, int size) {
  const std::shared_ptr<Rank> self(new Rank(shared, rank, size));
  auto& state = self->file_.state();
  int known = 0;
  if (!state.ranks.compare_exchange_strong(known, size) && known != size) {
    throw std::invalid_argument("this rank was told that there are " + std::to_string(size) +
                                " ranks, another one " + std::to_string(known));
  }
  auto& own = self->file_.state_of(rank);
  std::array<char, 16> bus_id{};
  cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), self->device);
  if (own.is_taken.exchange(true))
    throw std::invalid_argument("another one has rank " + std::to_string(rank));
  own.bus_id = bus_id;
  own.has_joined = true;
  state.changes.change();
  start_thread([self] { self->serve(); });
  return self;
}

bool Rank::have_all_joined() {
  for (int other = 0; other < size; ++other) {
    if (!file_.state_of(other).has_joined) return false;
  }
  return true;
}

std::string Rank::duplicate_gpu() {
  const auto& own = file_.state_of(rank).bus_id;
  for (int other = 0; other < size; ++other) {
    if (other == rank || file_.state_of(other).bus_id != own) continue;
    return "Duplicate GPU detected : rank " + std::to_string(rank) + " and rank " +
           std::to_string(other) + " both on CUDA device " + own.data();
  }
  return {};
}

std::uint64_t Rank::next_number(Duty duty, int peer) {
  const std::scoped_lock lock(mutex_);
  const auto place = static_cast<std::size_t>(peer);
  switch (duty) {
    case Duty::send:
      return sent_[place]++;
    case Duty::receive:
      return received_[place]++;
    default:
      return collectives_++;
  }
}

// Memory that is there already takes half the time to write.
std::uint64_t Rank::room_for(std::uint64_t bytes, const Part& part, std::uint64_t number) {
  constexpr std::uint64_t k_most_kept = std::uint64_t{64} << 20;
  const std::uint64_t needed = SharedFile::whole_pages(bytes);
  const std::scoped_lock lock(mutex_);
  const auto fits = [&](const Room& room) {
    return room.bytes >= needed && room.bytes <= 2 * needed && room.is_free();
  };
  auto room = std::ranges::find_if(rooms_, fits);
  if (room == rooms_.end()) {
    const std::uint64_t begin = SharedFile::first_byte_of(rank) + written_;
    room = rooms_.insert(room, {begin, needed, &part, number});
    written_ += needed;
  }
  room->part = &part;
  room->number = number;
  const std::uint64_t begin = room->begin;
  std::uint64_t kept = 0;
  std::erase_if(rooms_, [&](const Room& each) {
    if (!each.is_free()) return false;
    kept += each.bytes;
    if (kept <= k_most_kept) return false;
    file_.free(each.begin, each.bytes);
    return true;
  });
  return begin;
}

std::atomic<std::uint64_t>& Rank::wanted(int of, Duty duty, int peer) {
  Wanted& all = file_.state_of(of).wanted;
  const auto place = static_cast<std::size_t>(peer);
  switch (duty) {
    case Duty::send:
      return all.sent_to[place];
    case Duty::receive:
      return all.received_from[place];
    default:
      return all.collectives;
  }
}

bool Rank::is_wanted(const Owed& owed) { return wanted(rank, owed.duty, owed.peer) > owed.number; }

void Rank::owe(Owed owed) {
  const Owed copy = owed;
  {
    const std::scoped_lock lock(mutex_);
    while (!owed_.empty() && owed_.front().moment.is_over()) owed_.pop_front();
    owed_.push_back(std::move(owed));
  }
  // Another rank may have wanted it before the thread could find it.
  if (is_wanted(copy)) file_.state_of(rank).bell.change();
}

std::vector<Owed> Rank::still_owed(bool only_wanted) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(owed_, [](const Owed& each) { return each.moment.is_over(); });
  std::vector<Owed> owed;
  std::ranges::copy_if(owed_, std::back_inserter(owed), [&](const Owed& each) {
    return only_wanted ? is_wanted(each) : !each.only_makes_room;
  });
  return owed;
}

void Rank::want(int other, Duty duty, std::uint64_t number) {
  auto& count = wanted(other, duty, rank);
  std::uint64_t before = count;
  while (before <= number && !count.compare_exchange_weak(before, number + 1)) {
  }
  if (before <= number) file_.state_of(other).bell.change();
}

void Rank::want_room(Duty duty, int peer, std::uint64_t number) {
  if (duty == Duty::send) return want(peer, Duty::receive, number - SharedFile::k_parts);
  for (int other = 0; other < size; ++other) want(other, Duty::collective, number);
}

bool Rank::pay(bool only_wanted) {
  bool all = true;
  for (const Owed& each : still_owed(only_wanted)) all = each.moment.advance() && all;
  return all || is_aborted_;
}

void Rank::serve() {
  pthread_setname_np(pthread_self(), "simulate_gpus");
  SharedWord& bell = file_.state_of(rank).bell;
  while (true) {
    const std::uint32_t rung = bell.value(), changed = changes().value();
    if (has_left_) return;  // it has rung then
    if (pay(/*only_wanted=*/true)) {
      bell.wait(rung);
    } else {  // it needs something of others, or of a thread of the program
      changes().wait(changed, std::chrono::milliseconds(2));
    }
  }
}

void Rank::fail(const std::string& what) {
  auto& state = file_.state();
  if (!state.is_failing.exchange(true)) {
    what.copy(state.failure.data(), state.failure.size() - 1);
    state.has_failed = true;
    state.changes.change();
  }
  refuse_in_nccl(ncclInvalidUsage, what);
  throw std::runtime_error("NCCL: " + what);
}

void Rank::fail_by_difference(std::uint64_t number, const Call& own, int other_rank,
                              const Call& other) {
  fail("operation " + std::to_string(number) + " of a communicator is " + text_of(own) +
       " on rank " + std::to_string(rank) + ", and " + text_of(other) + " on rank " +
       std::to_string(other_rank) + ". All ranks must make the same calls.");
}

std::string Rank::failure() {
  auto& state = file_.state();
  return state.has_failed ? state.failure.data() : "";
}

void Rank::throw_if_failed() {
  if (const auto what = failure(); !what.empty()) {
    refuse_in_nccl(ncclInvalidUsage, what);
    throw std::runtime_error("NCCL: " + what);
  }
}

void Rank::abort() {
  is_aborted_ = true;
  changes().change();
}

void Rank::leave() {
  if (shared_.process == getpid() && have_all_joined() &&
      !file_.state().id_is_closed.exchange(true)) {
    close(shared_.file);
  }
  has_left_ = true;
  file_.state_of(rank).bell.change();
}

int Rank::make_reduction(const Scalar& scalar) {
  const std::scoped_lock lock(mutex_);
  reductions_[next_reduction_] = scalar;
  return next_reduction_++;
}

std::optional<Scalar> Rank::made_reduction(int number) {
  const std::scoped_lock lock(mutex_);
  const auto made = reductions_.find(number);
  return made == reductions_.end() ? std::nullopt : std::optional(made->second);
}

void Rank::destroy_reduction(int number) {
  const std::scoped_lock lock(mutex_);
  reductions_.erase(number);
}

}  // namespace simulate_gpus::nccl
