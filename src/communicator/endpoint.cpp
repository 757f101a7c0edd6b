// SPDX-License-Identifier: MIT
#include "communicator/endpoint.hpp"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>
#include <use_gpu/communicator.hpp>

#include <array>
#include <cerrno>
#include <memory>
#include <system_error>
#include <thread>

#include "messages/message.hpp"

namespace use_gpu::detail {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// All that MASTER_ADDR resolves to.
Addresses resolve(const LaunchEnvironment& launch, int socket_type) {
  addrinfo hints{};
  hints.ai_socktype = socket_type;
  addrinfo* found = nullptr;
  const int error =
      ::getaddrinfo(launch.address.c_str(), std::to_string(launch.port).c_str(), &hints, &found);
  if (error != 0) {
    throw_not_joined(launch, "MASTER_ADDR " + in_quotes(launch.address) + " does not resolve (" +
                                 ::gai_strerror(error) + ").");
  }
  return {found, ::freeaddrinfo};
}

// A socket for the first address for which `use` returns 0. If there is none, throws the last
// error, as std::system_error.
template <class Use>
int socket_for(const Addresses& addresses, const Use& use) {
  int error = 0;
  for (const auto* a = addresses.get(); a != nullptr; a = a->ai_next) {
    const int socket = ::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
    if (socket >= 0 && use(socket, a->ai_addr, a->ai_addrlen) == 0) return socket;
    error = errno;
    if (socket >= 0) ::close(socket);
  }
  throw std::system_error(error, std::generic_category());
}

}  // namespace

void throw_not_joined(const LaunchEnvironment& launch, const std::string& cause) {
  throw CommunicatorError("Communicator::join: rank " + std::to_string(launch.rank) + " of " +
                          std::to_string(launch.size) + " at " + launch.endpoint() + ": " + cause);
}

std::string local_address(const LaunchEnvironment& launch) {
  sockaddr_storage local{};
  socklen_t size = sizeof(local);
  try {
    // Connecting a datagram socket sends nothing; it asks the system for the route.
    const int socket = socket_for(resolve(launch, SOCK_DGRAM), ::connect);
    ::getsockname(socket, reinterpret_cast<sockaddr*>(&local), &size);
    ::close(socket);
  } catch (const std::system_error& error) {
    throw_not_joined(launch, "there is no route to MASTER_ADDR (" + error.code().message() + ").");
  }
  std::array<char, NI_MAXHOST> text{};
  ::getnameinfo(reinterpret_cast<sockaddr*>(&local), size, text.data(), text.size(), nullptr, 0,
                NI_NUMERICHOST);
  return text.data();
}

int listen_at(const LaunchEnvironment& launch) {
  const auto listen = [](int socket, const sockaddr* address, socklen_t size) {
    const int reuse = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
    return ::bind(socket, address, size) == 0 ? ::listen(socket, SOMAXCONN) : -1;
  };
  try {
    return socket_for(resolve(launch, SOCK_STREAM), listen);
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::address_in_use) {
      throw_not_joined(launch,
                       "the port is taken by another program, so rank 0 cannot serve the group "
                       "there. Choose another MASTER_PORT.");
    }
    throw_not_joined(launch, "rank 0 cannot listen there (" + error.code().message() +
                                 "). MASTER_ADDR has to be an address of the machine of rank 0.");
  }
}

void wait_for_server(const LaunchEnvironment& launch,
                     std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    try {
      ::close(socket_for(resolve(launch, SOCK_STREAM), ::connect));
      return;
    } catch (const std::system_error& error) {
      if (std::chrono::steady_clock::now() > deadline) {
        throw_not_joined(launch, std::string("nothing answered there within the time-out (") +
                                     error.code().message() + "); " +
                                     (launch.agent_serves ? "torchrun" : "rank 0") +
                                     " is not running or not reachable.");
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace use_gpu::detail
