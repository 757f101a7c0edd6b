// SPDX-License-Identifier: MIT
#include "tools/trace/timeline.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "runtime/device_properties.hpp"
#include "runtime/launches.hpp"
#include "runtime/settings.hpp"
#include "tools/trace/trace_file.hpp"

namespace simulate_gpus {
namespace {

using Unit = std::uint64_t;

constexpr Unit k_work = 1000, k_moment = 1, k_submission = 10;

struct Row {
  bool waits_for_default_stream = false;
  Unit free = 0;  // from here on
};

using Place = std::pair<int, int>;  // a process and its row

// Never destroyed: streams are used until the very end of a process.
struct Timeline {
  std::mutex mutex;
  std::set<int> processes;
  std::map<Place, Row> rows;
  std::deque<Unit> clocks;  // of the threads, in the order in which they came
  std::uint64_t arrows = 0;
};

Timeline& timeline() {
  static auto* const timeline = new Timeline;
  return *timeline;
}

void describe(const Place& place, const char* what, const std::string& name) {
  write_trace_event('M', place, field("name", what) + object("args", field("name", name)));
}

void open_process(int process) {
  if (process == k_host_process || !timeline().processes.insert(process).second) return;
  const int card = settings().visible[static_cast<std::size_t>(process)];
  describe({process, k_first_row}, "process_name",
           "cuda:" + std::to_string(process) + " (" + properties_of(card).name + ")");
}

Row& row_at(const Place& place, const std::string& name, bool waits_for_default_stream) {
  const auto [found, is_new] = timeline().rows.try_emplace(place, Row{waits_for_default_stream});
  if (is_new) {
    open_process(place.first);
    describe(place, "thread_name", name);
  }
  return found->second;
}

Place place_of(const CUstream_st& stream) { return {stream.device, k_first_row + stream.number}; }

Row& row_of(const CUstream_st& stream) {
  return row_at(place_of(stream), "stream " + std::to_string(stream.number),
                stream.waits_for_default_stream);
}

// The unit at which all is over that the stream was given, and what it always waits for: the default
// stream and blocking streams wait for each other.
Unit ready(const CUstream_st& stream) {
  Unit unit = row_of(stream).free;
  for (const auto& [place, row] : timeline().rows) {
    if (place.first != stream.device) continue;
    const bool waits = stream.is_default()
                           ? row.waits_for_default_stream
                           : stream.waits_for_default_stream && place.second == k_first_row;
    if (waits) unit = std::max(unit, row.free);
  }
  return unit;
}

int thread_number() {
  thread_local const int number = [] {
    auto& clocks = timeline().clocks;
    const int added = static_cast<int>(clocks.size());
    clocks.push_back(0);
    describe({k_host_process, k_first_row + added}, "thread_name",
             "thread " + std::to_string(added));
    return added;
  }();
  return number;
}

// Where this thread is. Not behind the first thread, which mostly waits for the others: for
// autograd's, say.
Unit& host_clock() {
  auto& clocks = timeline().clocks;
  Unit& clock = clocks[static_cast<std::size_t>(thread_number())];
  return clock = std::max(clock, clocks.front());
}

Place host_place() { return {k_host_process, k_first_row + thread_number()}; }

// When a wait for it is over: after the event and not with it, so that arrows lead forward.
Unit end_of_wait(const Mark& mark) { return mark.unit + 2 * k_moment; }

constexpr const char* k_categories[] = {"copy",      "copy",       "copy",  "copy", "operation",
                                        "operation", "collective", "event", "wait"};

Unit length_of(const Given& given) {
  if (given.kind < Kind::set) return std::max(*given.bytes, k_moment);
  return given.kind == Kind::event || given.kind == Kind::wait ? k_moment : k_work;
}

void write_slice(const Place& place, Unit begin, Unit end, const char* category,
                 const std::string& name, const std::string& arguments = {}) {
  write_trace_event('X', place,
                    field("ts", begin) + field("dur", end - begin) + field("cat", category) +
                        field("name", name) + object("args", arguments));
}

// From the event to the end of a wait, which has a slice of its own: Perfetto takes of two slices the
// one that begins later for the arrow's head, and most waits begin before their event.
void write_arrow(const Mark& mark, const Place& to, Unit end) {
  const std::string fields =
      field("id", ++timeline().arrows) + field("cat", "arrow") + field("name", "event");
  write_slice(to, end - k_moment, end, "arrow", "the event is over");
  write_trace_event('s', {mark.process, mark.row}, field("ts", mark.unit) + fields);
  write_trace_event('f', to, field("ts", end - k_moment) + fields + field("bp", "e"));
}

// Not before `earliest`.
void draw_in(Row& row, const Place& place, Unit earliest, const Given& given) {
  const std::string name = name_of(given);
  if (name.empty()) return;
  const auto* const mark = given.notes.find<SharedMark>();
  const bool is_wait = given.kind == Kind::wait;
  const Unit begin = std::max(row.free, earliest);
  row.free = begin + length_of(given);
  if (is_wait) row.free = std::max(row.free, end_of_wait(**mark));
  std::string arguments;
  if (given.bytes) arguments += field("bytes", *given.bytes);
  if (given.is_pinned) arguments += field("pinned", *given.is_pinned);
  if (!given.call.empty()) arguments += field("call", given.call);
  write_slice(place, begin, row.free, k_categories[static_cast<std::size_t>(given.kind)], name,
              arguments);
  if (is_wait) {
    write_arrow(**mark, place, row.free);
  } else if (mark != nullptr) {
    std::tie((*mark)->process, (*mark)->row, (*mark)->unit) =
        std::tuple(place.first, place.second, begin);
  }
}

// This thread waits until then.
Unit draw_host_wait_until(const char* why, const std::string& name, Unit end) {
  Unit& clock = host_clock();
  const Unit begin = std::exchange(clock, std::max(clock + k_moment, end));
  write_slice(host_place(), begin, clock, "wait", name, field("kind", why));
  flush_trace_file();  // a program that is killed later leaves what it has waited for
  return clock;
}

}  // namespace

std::string name_of(const Given& given) {
  if (given.kernel != nullptr) return kernel_name(given.kernel);
  if (given.kind != Kind::wait) return std::string(given.name);
  const auto* const mark = given.notes.find<SharedMark>();
  return mark ? "waits for an event of " + (*mark)->stream : "";
}

void draw(const CUstream_st& stream, const Given& given) {
  const std::scoped_lock lock(timeline().mutex);
  const Unit given_at = host_clock() += k_submission;
  draw_in(row_of(stream), place_of(stream), std::max(given_at, ready(stream)), given);
}

void draw_launch(const CUstream_st& stream, std::span<const Captured> graph) {
  const std::scoped_lock lock(timeline().mutex);
  const Unit given_at = host_clock() += k_submission;
  const Unit begin = std::max(given_at, ready(stream));
  Row& row = row_of(stream);
  row.free = begin + k_moment;  // the launch, which is around its work, begins first
  const Unit first = row.free;
  for (const auto& [device, number, is_origin, given] : graph) {
    if (is_origin) {
      draw_in(row, place_of(stream), first, given);
      continue;
    }
    // A graph's streams may be any, and busy: they are not these streams, but branches.
    constexpr int k_branches = 1 << 16;
    const Place branch{device, (stream.number + 1) * k_branches + number};
    Row& beside = row_at(
        branch,
        "graph in stream " + std::to_string(stream.number) + ", branch " + std::to_string(number),
        false);
    draw_in(beside, branch, first, given);
  }
  write_slice(place_of(stream), begin, row.free, "graph", "graph launch");
}

void draw_host_wait(const char* why, const std::string& name, const HostWait& wait) {
  const std::scoped_lock lock(timeline().mutex);
  if (wait.stream != nullptr) {
    draw_host_wait_until(why, name, ready(*wait.stream));
  } else if (wait.event != nullptr) {
    const auto* const mark = wait.event->find<SharedMark>();
    const Unit end = draw_host_wait_until(why, name, mark ? end_of_wait(**mark) : 0);
    if (mark != nullptr) write_arrow(**mark, host_place(), end);
  } else {
    Unit end = 0;
    for (const auto& [place, row] : timeline().rows) {
      if (!wait.device || place.first == *wait.device) end = std::max(end, row.free);
    }
    draw_host_wait_until(why, name, end);
  }
}

void draw_memory(int device, const char* what, std::uint64_t bytes) {
  const std::scoped_lock lock(timeline().mutex);
  open_process(device);
  write_trace_event(
      'C', {device, k_first_row},
      field("ts", host_clock()) + field("name", what) + object("args", field("bytes", bytes)));
}

}  // namespace simulate_gpus
