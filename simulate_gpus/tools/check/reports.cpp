// SPDX-License-Identifier: MIT
#include "tools/check/reports.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "runtime/current_operation.hpp"
#include "runtime/settings.hpp"

namespace simulate_gpus {
namespace {

struct Reports {
  std::mutex mutex;
  std::set<std::string> told;
  std::size_t num_ignored = 0;
  std::vector<Bug> untold;
  std::atomic<bool> has_untold = false;
};

Reports& reports() {
  static auto* const reports =
      new Reports;  // never destroyed: used until the very end of a process
  return *reports;
}

std::string text_of(const CheckedOperation& operation) {
  const std::string place = operation.place ? operation.place->text() : "";
  return operation.name + " in " + operation.where + (place.empty() ? "" : " at " + place);
}

bool is_ignored(const CheckedOperation& operation) {
  return std::ranges::count(settings().ignored_operations, operation.name) > 0;
}

}  // namespace

std::shared_ptr<const CheckedOperation> operation_here(std::string name, std::string where) {
  return std::make_shared<const CheckedOperation>(
      CheckedOperation{std::move(name), std::move(where), place_here()});
}

std::string text_of_race(const Access& earlier, bool earlier_wrote, const Access& later,
                         bool writes, std::optional<int> device) {
  std::string text = earlier_wrote ? writes ? " both write" : " write and read" : " read and write";
  text += " the same memory of " +
          (device ? "cuda:" + std::to_string(*device) : std::string("the host"));
  if (device && earlier.block != later.block && earlier.block != 0) {
    return text +
           ", which got another tensor meanwhile: call record_stream() before a tensor is freed "
           "that another stream still uses";
  }
  return text +
         ", and nothing orders them: let one stream wait for an event of the other, or "
         "synchronize";
}

void report(const Bug& bug) {
  const bool ignored = is_ignored(*bug.first) || is_ignored(*bug.second);
  const std::string line =
      bug.kind + (": " + text_of(*bug.first)) + " and " + text_of(*bug.second) + bug.text;
  const std::scoped_lock lock(reports().mutex);
  if (ignored) {
    ++reports().num_ignored;
  } else if (reports().told.insert(line).second) {
    std::fprintf(stderr, "simulate_gpus: %s\n", line.c_str());
  }
}

void report_later(Bug bug) {
  const std::scoped_lock lock(reports().mutex);
  reports().untold.push_back(std::move(bug));
  reports().has_untold = true;
}

void tell_reports() {
  if (!reports().has_untold) return;
  std::vector<Bug> untold;
  {
    const std::scoped_lock lock(reports().mutex);
    untold.swap(reports().untold);
    reports().has_untold = false;
  }
  for (const Bug& bug : untold) report(bug);
}

bool end_reports() {
  tell_reports();
  const std::scoped_lock lock(reports().mutex);
  const std::size_t count = reports().told.size();
  std::string line = count == 0   ? "nothing"
                     : count == 1 ? "1 bug"
                                  : std::to_string(count) + " bugs";
  if (reports().num_ignored > 0)
    line += " (ignored: " + std::to_string(reports().num_ignored) + ")";
  std::fprintf(stderr, "simulate_gpus: --check found %s\n", line.c_str());
  return count == 0;
}

}  // namespace simulate_gpus
