// SPDX-License-Identifier: MIT
#include "shared_events.hpp"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <list>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "devices.hpp"
#include "interface.hpp"
#include "streams.hpp"

namespace simulate_gpus {
namespace {

// What a slot tells of the last record: its number, counted from 1, and its process, in 24 bits.
constexpr int k_process_bits = 24;
std::uint64_t number_of(std::uint64_t record) { return record >> k_process_bits; }
int process_of(std::uint64_t record) {
  return static_cast<int>(record & ((std::uint64_t{1} << k_process_bits) - 1));
}
std::uint64_t next_after(std::uint64_t record) {
  return (number_of(record) + 1) << k_process_bits | static_cast<std::uint64_t>(getpid());
}

void raise_to(std::atomic<std::uint64_t>& value, std::uint64_t least) {
  for (std::uint64_t now = value; now < least && !value.compare_exchange_weak(now, least);) {
  }
}

// A record of an event, by any process. Those of one event end in their order.
struct Record {
  std::shared_ptr<const SharedEvent> event;
  SharedSlot* slot;
  std::uint64_t record;

  [[nodiscard]] bool is_finished() const {
    return !is_live(*slot, event->name()) || slot->finished >= number_of(record);
  }

  // As the work of a stream.
  void finish() const;

  // Has its process do the work.
  void ask() const;

  // Until it is finished, or for a while.
  void wait(std::chrono::milliseconds most) const {
    const std::uint32_t seen = slot->changes.value();
    if (!is_finished()) slot->changes.wait(seen, most);
  }
};

// A record of this process whose work may not be done.
struct OwnRecord {
  Record record;
  Moment moment;
};

struct OwnRecords {
  std::mutex mutex;
  std::list<OwnRecord> pending;
  std::once_flag served;
};

OwnRecords& own_records() {
  static auto* const records = new OwnRecords;  // never destroyed, as threads use it
  return *records;
}

// Done where it is no longer known.
Moment moment_of(const Record& record) {
  const std::scoped_lock lock(own_records().mutex);
  for (const OwnRecord& each : own_records().pending) {
    if (each.record.slot == record.slot && each.record.record == record.record) return each.moment;
  }
  return {};
}

void Record::finish() const {
  if (is_finished()) return;
  const int process = process_of(record);
  if (process == getpid()) moment_of(*this).finish();
  ask();
  if (is_finished()) return;
  if (!is_running(process)) {
    throw std::runtime_error("process " + std::to_string(process) +
                             ", which recorded a shared event that is waited for, has ended "
                             "before the work that precedes the event was done");
  }
  throw NotYet([*this] { wait(std::chrono::milliseconds(100)); });  // then looks whether it runs
}

void Record::ask() const {
  raise_to(slot->wanted, number_of(record));
  if (SharedWord* const bell = bell_of(process_of(record))) bell->change();
}

// Forgets those that are done. The events are given back without the lock: theirs may be the last reference.
void forget_finished() {
  std::list<OwnRecord> done;
  const std::scoped_lock lock(own_records().mutex);
  auto& pending = own_records().pending;
  for (auto each = pending.begin(); each != pending.end();) {
    const auto next = std::next(each);
    if (each->moment.is_finished()) done.splice(done.end(), pending, each);
    each = next;
  }
}

std::list<OwnRecord> wanted_records() {
  const std::scoped_lock lock(own_records().mutex);
  std::list<OwnRecord> wanted;
  for (const OwnRecord& each : own_records().pending) {
    const Record& record = each.record;
    if (record.slot->wanted >= number_of(record.record)) wanted.push_back(each);
  }
  return wanted;
}

void serve(SharedWord& bell) {
  while (true) {
    const std::uint32_t seen = bell.value();
    bool is_done = true;
    for (const OwnRecord& each : wanted_records()) is_done &= each.moment.try_finish();
    forget_finished();
    // What waits for other ranks, or other processes, is tried again.
    constexpr std::chrono::milliseconds k_until_next_try(1);
    bell.wait(seen, is_done ? std::chrono::milliseconds(0) : k_until_next_try);
  }
}

// Gets no signals: they are the program's.
void start_to_serve(SharedWord& bell) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([&bell] { serve(bell); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

std::shared_ptr<SharedEvent> SharedEvent::make() {
  forget_finished();
  const auto name = take_slot();
  if (!name) return nullptr;
  return std::shared_ptr<SharedEvent>(new SharedEvent(*name, *find_slot(*name)));
}

std::shared_ptr<SharedEvent> SharedEvent::open(const SlotName& name) {
  SharedSlot* const slot = find_slot(name);
  if (!slot || !is_live(*slot, name)) return nullptr;
  return std::shared_ptr<SharedEvent>(new SharedEvent(name, *slot));
}

SharedEvent::~SharedEvent() {
  if (is_own(name_)) free_slot(name_);
}

Moment SharedEvent::record(CUstream_st& stream) {
  forget_finished();
  if (!is_own(name_)) serve_others();
  const std::scoped_lock lock(mutex_);
  if (!is_live(slot_, name_)) return {};  // destroyed by its owner: the slot may be another event's
  std::uint64_t before = slot_.recorded;
  while (!slot_.recorded.compare_exchange_weak(before, next_after(before))) {
  }
  const std::uint64_t record = next_after(before);
  // After an earlier record in another stream, or by another process.
  std::optional<Record> earlier;
  if (number_of(before) > 0 && (before != record_ || moment_.queue != stream.queue))
    earlier = Record{shared_from_this(), &slot_, before};
  submit(stream, [self = shared_from_this(), this, record, earlier] {
    if (earlier) earlier->finish();
    if (!is_live(slot_, name_)) return;
    raise_to(slot_.finished, number_of(record));
    slot_.changes.change();
  });
  record_ = record;
  moment_ = {stream.queue, stream.queue->end()};
  const std::scoped_lock pending_lock(own_records().mutex);
  own_records().pending.push_back({{shared_from_this(), &slot_, record}, moment_});
  return moment_;
}

bool SharedEvent::is_recorded() const { return is_live(slot_, name_) && slot_.recorded > 0; }

// The only work of a queue of its own.
Moment SharedEvent::last() const {
  const Record record{shared_from_this(), &slot_, slot_.recorded};
  if (record.is_finished()) return {};
  const auto queue = std::make_shared<Queue>(current_device());
  queue->submit([record] { record.finish(); });
  return {queue, queue->end()};
}

void SharedEvent::hasten() const {
  const Record record{shared_from_this(), &slot_, slot_.recorded};
  if (record.is_finished() || process_of(record.record) == getpid()) return;
  record.ask();
  record.wait(std::chrono::milliseconds(20));
}

void serve_others() {
  std::call_once(own_records().served, [] {
    if (SharedWord* const bell = own_bell()) start_to_serve(*bell);
  });
}

}  // namespace simulate_gpus
