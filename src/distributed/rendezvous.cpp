// SPDX-License-Identifier: MIT
//
// A store may outlive a group: torchrun keeps its own across restarts, and the restart count does
// not identify a group, because each machine's torchrun has its own. So rank 0 names each group
// anew. Under that name each rank stores its entry, where none is yet; once all have, or in the place
// of those who have not come in time, rank 0 closes the group, and nobody enters any more. A rank
// that finds a name from before a restart sees that the group is not closed, or that its own place
// has not its mark, and looks for a newer name.
#include "distributed/rendezvous.hpp"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <use_gpu/communicator.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>
#include <sstream>
#include <system_error>

#include "core/messages/error_text.hpp"
#include "distributed/own_thread.hpp"
#include "gpu_info/message.hpp"

namespace use_gpu::detail {
namespace {

using Clock = std::chrono::steady_clock;
using Peers = std::vector<Peer>;
using Store = c10::intrusive_ptr<c10d::Store>;

constexpr std::chrono::milliseconds k_pause(10);  // between two polls
constexpr auto k_newest_name = "use_gpu/group";
constexpr auto k_closed = "closed";
constexpr auto k_absent = "-";  // in place of an entry

// CommunicatorError with this rank, the endpoint and the cause.
[[noreturn]] void throw_not_joined(const LaunchEnvironment& launch, const std::string& cause) {
  const bool is_ipv6 = launch.address.find(':') != std::string::npos;
  const auto host = is_ipv6 ? '[' + launch.address + ']' : launch.address;
  throw CommunicatorError(c10::str("Communicator::join: rank ", launch.rank, " of ", launch.size,
                                   " at ", host, ':', launch.port, ": ", cause));
}

// A socket at the first of MASTER_ADDR's addresses that takes one: bound, for LibTorch to listen on, or
// connected to the store's server, once there is one.
int socket_of(const LaunchEnvironment& launch, bool listens, Clock::time_point deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int unresolved =
      ::getaddrinfo(launch.address.c_str(), std::to_string(launch.port).c_str(), &hints, &found);
  if (unresolved != 0) {
    throw_not_joined(launch, c10::str("MASTER_ADDR ", in_quotes(launch.address),
                                      " does not resolve (", ::gai_strerror(unresolved), ")."));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  const auto use = listens ? ::bind : ::connect;
  for (;; std::this_thread::sleep_for(k_pause)) {
    int error = 0;
    for (const auto* a = found; a != nullptr; a = a->ai_next) {
      const int socket = ::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const int reuse = 1;  // a port that a server left a moment ago
      if (socket >= 0 &&
          ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse)) == 0 &&
          use(socket, a->ai_addr, a->ai_addrlen) == 0)
        return socket;
      error = errno;
      if (socket >= 0) ::close(socket);
    }
    const std::system_error why(error, std::generic_category());
    if (listens) {
      throw_not_joined(launch, std::string("rank 0 cannot listen there (") + why.what() +
                                   "). MASTER_ADDR has to be an address of its machine, and "
                                   "MASTER_PORT one that no other program uses.");
    }
    if (Clock::now() > deadline) throw why;
  }
}

// The address of this machine from which MASTER_ADDR is reached: loopback for loopback.
std::string local_address(const LaunchEnvironment& launch, Clock::time_point deadline) {
  const int socket = socket_of(launch, /*listens=*/false, deadline);
  sockaddr_storage local{};
  auto* const address = reinterpret_cast<sockaddr*>(&local);
  socklen_t size = sizeof(local);
  ::getsockname(socket, address, &size);
  ::close(socket);
  std::array<char, NI_MAXHOST> text{};
  ::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return text.data();
}

bool has_mark_of(const Peers& peers, const Peer& self) {
  return std::ranges::find(peers, self.mark, &Peer::mark) != peers.end();
}

// Why those who have come are no group of this process; empty if they are one.
std::string why_no_group(const Peers& came, const Peer& self) {
  const auto& first = came.front();
  if (first.rank != 0)
    return "rank 0 has not joined in time. Was it started, with this MASTER_ADDR and MASTER_PORT?";
  Peers all = came;
  all.push_back(self);  // it may have no place there
  for (const auto& peer : all) {
    if (peer.size == first.size) continue;
    return c10::str("rank ", peer.rank, " was started with WORLD_SIZE ", peer.size,
                    ", rank 0 with ", first.size, ". Start all with the same.");
  }
  if (came.size() < static_cast<std::size_t>(first.size)) {
    std::vector<int> ranks;
    for (const auto& peer : came) ranks.push_back(peer.rank);
    return "only these ranks joined in time: " + number_ranges(ranks) +
           ". Were all started, with this MASTER_ADDR, MASTER_PORT and WORLD_SIZE?";
  }
  if (!has_mark_of(came, self)) {
    return "another process has the same rank. Each process needs its own RANK, and each group its "
           "own MASTER_PORT.";
  }
  for (const auto& peer : came) {
    std::vector<int> sharing;
    for (const auto& other : came) {
      if (other.address == peer.address && other.gpu == peer.gpu) sharing.push_back(other.rank);
    }
    if (!peer.needs_own_gpu || sharing.size() == 1) continue;
    return "ranks " + number_ranges(sharing) +
           " all see only the same GPU. Start one process for each GPU (torchrun "
           "--nproc-per-node), or hide the GPUs from all (CUDA_VISIBLE_DEVICES=).";
  }
  return {};
}

// The keys of the group of that name, which have this rank's entry now, or that of whoever came first.
Store enter(const std::string& name, const Peer& self, const Store& store) {
  Store group = c10::make_intrusive<c10d::PrefixStore>(name, store);
  group->compareSet(std::to_string(self.rank), "",
                    self.mark + ' ' + std::to_string(self.size) + ' ' +
                        std::to_string(self.needs_own_gpu) + ' ' + self.address + ' ' + self.gpu);
  return group;
}

// Those who have come, in a group that has rank 0's entry.
Peers who_came(c10d::Store& group) {
  Peers peers;
  for (int rank = 0; rank == 0 || rank < peers.front().size; ++rank) {
    const auto key = std::to_string(rank);
    const auto entry = group.check({key}) ? group.get_to_str(key) : k_absent;
    if (entry == k_absent) continue;
    auto& peer = peers.emplace_back();
    peer.rank = rank;
    std::istringstream(entry) >> peer.mark >> peer.size >> peer.needs_own_gpu >> peer.address >>
        peer.gpu;
  }
  return peers;
}

// What rank 0 does. The peers are all, or those who have come until the deadline.
Rendezvous lead(const Peer& self, Clock::time_point deadline, const Store& store) {
  const auto name = "use_gpu/" + self.mark;
  const auto group = enter(name, self, store);
  store->set(k_newest_name, name);
  for (int rank = 1; rank < self.size; ++rank) {
    const auto key = std::to_string(rank);
    while (!group->check({key}) && Clock::now() < deadline) std::this_thread::sleep_for(k_pause);
    group->compareSet(key, "", k_absent);
  }
  group->set(k_closed, k_closed);
  return {group, who_came(*group)};
}

// What the others do; as above, or a group without this process.
Rendezvous follow(const Peer& self, Clock::time_point deadline, const Store& store) {
  std::string name;
  Store group;
  for (; Clock::now() < deadline; std::this_thread::sleep_for(k_pause)) {
    if (!store->check({k_newest_name})) continue;
    if (const auto newest = store->get_to_str(k_newest_name); newest != name) {
      name = newest;
      group = enter(name, self, store);
    }
    if (group->check({k_closed}) && has_mark_of(who_came(*group), self)) break;
  }
  return {group, group ? who_came(*group) : Peers{self}};
}

Rendezvous meet_now(const LaunchEnvironment& launch, const std::string& gpu, bool needs_own_gpu,
                    std::chrono::milliseconds timeout) try {
  const auto deadline = Clock::now() + timeout;
  std::random_device random;
  const auto mark = std::to_string(random()) + '-' + std::to_string(random());
  c10d::TCPStoreOptions options{
      .port = launch.port, .isServer = launch.serves(), .waitWorkers = false, .timeout = timeout};
  // Rank 0 serves the store, if torchrun does not, at MASTER_ADDR alone: LibTorch's own socket would
  // listen on every interface. Whoever does not serve waits for the server first: LibTorch would too,
  // but print a page per failed attempt.
  if (launch.serves()) options.masterListenFd = socket_of(launch, /*listens=*/true, deadline);
  auto address = launch.serves() ? "" : local_address(launch, deadline);
  const Store store = c10::make_intrusive<c10d::TCPStore>(launch.address, options);
  if (launch.serves()) address = local_address(launch, deadline);
  const Peer self{launch.rank, launch.size, address, gpu, needs_own_gpu, mark};
  auto [group, peers] = (self.rank == 0 ? lead : follow)(self, deadline, store);
  if (const auto why = why_no_group(peers, self); !why.empty()) {
    if (launch.serves()) std::this_thread::sleep_for(100 * k_pause);  // the others read the entries
    throw_not_joined(launch, why);
  }
  return {c10::make_intrusive<c10d::PrefixStore>("c10d", group), std::move(peers)};
} catch (const CommunicatorError&) {
  throw;
} catch (const std::exception& error) {
  throw_not_joined(launch, "no group can be reached there: " + error_cause(error) + "; " +
                               (launch.agent_serves ? "torchrun" : "rank 0") +
                               " is not running or not reachable.");
}

}  // namespace

Rendezvous meet(const LaunchEnvironment& launch, const std::string& gpu, bool needs_own_gpu,
                std::chrono::milliseconds timeout) {
  // LibTorch's client reads without a time-out, so a program there that accepts connections and
  // never replies, or a stopped server, would block this thread forever.
  auto result = on_own_thread([=] { return meet_now(launch, gpu, needs_own_gpu, timeout); });
  if (result.wait_for(timeout + std::chrono::seconds(2)) != std::future_status::ready) {
    throw_not_joined(launch, c10::str("after ", timeout.count(),
                                      " ms the program at that port has not answered. Is it "
                                      "torchrun, or rank 0 of this group?"));
  }
  return result.get();
}

}  // namespace use_gpu::detail
