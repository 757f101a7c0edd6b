// SPDX-License-Identifier: MIT
#include "communicator/lifeline.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <exception>
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

// Waits until the socket is ready, or throws at the deadline.
void wait_for(int socket, short event, Clock::time_point deadline, const std::string& whom) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) throw_error(ETIMEDOUT, whom);
    pollfd wanted{socket, event, 0};
    const int ready = ::poll(&wanted, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000)));
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) throw_error(errno, whom);
  }
}

// Without it a machine that loses its power would stay connected, and some firewalls end
// connections that carry nothing.
void keep_alive(int socket) {
  const int on = 1, idle_seconds = 60, interval_seconds = 10, probes = 6;
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof(idle_seconds));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval_seconds, sizeof(interval_seconds));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
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

// The rank that greets on this socket; -1 if nobody does, or somebody else.
int greeted(int socket, Clock::time_point deadline) {
  Greeting received{};
  std::size_t size = 0;
  try {
    while (size < received.size()) {
      wait_for(socket, POLLIN, deadline, "a greeting");
      const auto more = ::recv(socket, received.data() + size, received.size() - size, 0);
      if (more == 0) return -1;
      if (more > 0) size += static_cast<std::size_t>(more);
      if (more < 0 && errno != EINTR && errno != EAGAIN) return -1;
    }
  } catch (const std::system_error&) {
    return -1;
  }
  return rank_of(received);
}

}  // namespace

Lifeline::~Lifeline() {
  const bool in_peace = std::uncaught_exceptions() <= exceptions_;
  for (const int socket : connections_) {
    if (in_peace && socket >= 0) ::send(socket, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
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
    const auto whom = "rank " + std::to_string(lower) + " at " + address;
    const auto where = resolve(address, port);
    const int socket = ::socket(where->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket < 0) throw_error(errno, whom);
    connections_[static_cast<std::size_t>(lower)] = socket;
    keep_alive(socket);
    int error = ::connect(socket, where->ai_addr, where->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS || error == EINTR) {
      wait_for(socket, POLLOUT, deadline, whom);
      socklen_t size = sizeof(error);
      ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0 && ::send(socket, greeting.data(), greeting.size(), MSG_NOSIGNAL) < 0)
      error = errno;
    if (error != 0) throw_error(error, whom);
  }
  const auto is_missing = [&](int other) {
    return connections_[static_cast<std::size_t>(other)] < 0;
  };
  const auto size = static_cast<int>(places.size());
  for (int higher = rank + 1; higher < size;) {
    const auto whom = "rank " + std::to_string(higher);
    if (!is_missing(higher)) {
      ++higher;
      continue;
    }
    wait_for(listener_, POLLIN, deadline, whom);
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) {
      if (errno == EINTR || errno == ECONNABORTED || errno == EAGAIN) continue;
      throw_error(errno, whom);
    }
    const int other = greeted(socket, std::min(deadline, Clock::now() + std::chrono::seconds(5)));
    if (other > rank && other < size && is_missing(other)) {
      connections_[static_cast<std::size_t>(other)] = socket;
      keep_alive(socket);
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
