// SPDX-License-Identifier: MIT
#include "communicator/lifeline.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

namespace use_gpu::detail {
namespace {

using Clock = std::chrono::steady_clock;
using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// "use_gpu", and the rank in eight digits: what a connection begins with.
constexpr std::string_view k_greeting = "use_gpu ";
using Greeting = std::array<char, 16>;

[[noreturn]] void throw_error(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

Addresses resolve(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    throw_error(EADDRNOTAVAIL, address);
  return {found, ::freeaddrinfo};
}

void limit(int socket, int option, Clock::duration time) {
  const auto us = std::max<std::int64_t>(
      1, std::chrono::duration_cast<std::chrono::microseconds>(time).count());
  const timeval value{us / 1'000'000, us % 1'000'000};
  ::setsockopt(socket, SOL_SOCKET, option, &value, sizeof(value));
}

Greeting greeting_of(int rank) {
  auto digits = std::to_string(rank);
  digits.insert(0, 8 - std::min<std::size_t>(8, digits.size()), '0');
  Greeting greeting;
  std::copy_n(digits.begin(), 8, std::copy(k_greeting.begin(), k_greeting.end(), greeting.begin()));
  return greeting;
}

// The rank that greets; -1 if somebody else has connected.
int rank_of(const Greeting& greeting) {
  const std::string text(greeting.begin(), greeting.end());
  return text.starts_with(k_greeting) ? std::atoi(text.c_str() + k_greeting.size()) : -1;
}

}  // namespace

Lifeline::~Lifeline() {
  for (const int socket : connections_) {
    if (socket >= 0) ::send(socket, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  leave();
}

int Lifeline::listen(const std::string& address) {
  const auto where = resolve(address, 0);
  listener_ = ::socket(where->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  if (listener_ < 0 || ::bind(listener_, where->ai_addr, where->ai_addrlen) != 0 ||
      ::listen(listener_, SOMAXCONN) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    throw_error(errno, "listening at " + address);
  }
  std::array<char, NI_MAXSERV> port{};
  ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, nullptr, 0, port.data(), port.size(),
                NI_NUMERICSERV);
  return std::atoi(port.data());
}

// The lower rank of two accepts.
void Lifeline::connect(int rank, const std::vector<Place>& places, Clock::time_point deadline) {
  connections_.assign(places.size(), -1);
  const auto greeting = greeting_of(rank);
  for (int lower = 0; lower < rank; ++lower) {
    const auto& [address, port] = places[static_cast<std::size_t>(lower)];
    const auto where = resolve(address, port);
    const int socket = ::socket(where->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    connections_[static_cast<std::size_t>(lower)] = socket;
    limit(socket, SO_SNDTIMEO, deadline - Clock::now());
    if (::connect(socket, where->ai_addr, where->ai_addrlen) != 0 ||
        ::send(socket, greeting.data(), greeting.size(), MSG_NOSIGNAL) < 0) {
      throw_error(errno, "rank " + std::to_string(lower) + " at " + address);
    }
  }
  const auto is_missing = [&](int other) {
    return connections_[static_cast<std::size_t>(other)] < 0;
  };
  const auto size = static_cast<int>(places.size());
  for (int higher = rank + 1; higher < size;) {
    if (!is_missing(higher)) {
      ++higher;
      continue;
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd incoming{listener_, POLLIN, 0};
    if (left.count() <= 0 ||
        ::poll(&incoming, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 60'000))) < 0) {
      throw_error(ETIMEDOUT, "rank " + std::to_string(higher));
    }
    if (incoming.revents == 0) continue;
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) continue;
    limit(socket, SO_RCVTIMEO, std::chrono::seconds(5));
    Greeting received{};
    const bool is_whole = ::recv(socket, received.data(), received.size(), MSG_WAITALL) ==
                          static_cast<ssize_t>(received.size());
    const int other = is_whole ? rank_of(received) : -1;
    if (other > rank && other < size && is_missing(other)) {
      connections_[static_cast<std::size_t>(other)] = socket;
    } else {
      ::close(socket);
    }
  }
  ::close(std::exchange(listener_, -1));
}

int Lifeline::lost() {
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    if (connections_[i] < 0) continue;
    char goodbye = 0;
    const auto received = ::recv(connections_[i], &goodbye, 1, MSG_DONTWAIT);
    if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) continue;
    if (received <= 0) return static_cast<int>(i);
    ::close(std::exchange(connections_[i], -1));
  }
  return -1;
}

void Lifeline::leave() noexcept {
  for (int& socket : connections_) {
    if (socket >= 0) ::close(std::exchange(socket, -1));
  }
  if (listener_ >= 0) ::close(std::exchange(listener_, -1));
}

}  // namespace use_gpu::detail
