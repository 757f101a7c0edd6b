// SPDX-License-Identifier: MIT
//
// How a rank notices that another one has ended. Gloo notices it too, but not always: it loses the
// error of a send that its own thread has begun, and then waits until the time-out.
#pragma once

#include <chrono>
#include <exception>
#include <string>
#include <vector>

namespace use_gpu::detail {

/// One connection to each other rank, which carries a goodbye and nothing else: where it is closed
/// without one, that process has ended, or left because of an error. A child that a process has
/// forked keeps it open. For one thread at a time.
class Lifeline {
 public:
  Lifeline() = default;
  /// Says goodbye, unless an exception ends the scope.
  ~Lifeline();
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  /// Listens at this address of the machine. Returns the port. std::system_error.
  int listen(const std::string& address);

  struct Place {
    std::string address;
    int port;
  };
  /// Connects with all other ranks, which do the same at that time. std::system_error, at the
  /// latest at the deadline.
  void connect(int rank, const std::vector<Place>& places,
               std::chrono::steady_clock::time_point deadline);

  /// A rank that has gone without a goodbye; -1 if there is none.
  [[nodiscard]] int lost();

  /// Closes the connections without a goodbye.
  void leave() noexcept;

 private:
  int exceptions_ = std::uncaught_exceptions();  // when it was made
  int listener_ = -1;
  std::vector<int> connections_;  // by rank; -1: itself, or said goodbye
};

}  // namespace use_gpu::detail
