// SPDX-License-Identifier: MIT
#include "communicator/rendezvous.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <use_gpu/communicator.hpp>

#include <algorithm>
#include <future>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "communicator/endpoint.hpp"
#include "messages/error_text.hpp"
#include "messages/message.hpp"

namespace use_gpu::detail {

// How a peer is written as JSON.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Peer, rank, size, address, gpu, needs_own_gpu, mark)

namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;
constexpr std::chrono::milliseconds k_pause(10);  // between two polls

c10::intrusive_ptr<c10d::Store> open_store(const LaunchEnvironment& launch,
                                           std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = launch.port;
  options.timeout = timeout;
  options.waitWorkers = false;
  if (launch.serves()) {
    options.isServer = true;
    options.masterListenFd = listen_at(launch);
  } else {
    wait_for_server(launch, Clock::now() + timeout);
  }
  return c10::make_intrusive<c10d::TCPStore>(launch.address, options);
}

template <class Wanted>
std::string ranks_of(const std::vector<Peer>& peers, const Wanted& wanted) {
  std::vector<int> ranks;
  for (const auto& peer : peers) {
    if (wanted(peer)) ranks.push_back(peer.rank);
  }
  return number_ranges(ranks);
}

// Why those who have come are no group; empty if they are one.
std::string trouble_with(const std::vector<Peer>& came) {
  const auto& first = came.front();
  if (first.rank != 0)
    return "rank 0 has not joined in time. Was it started, with this MASTER_ADDR and MASTER_PORT?";
  for (const auto& peer : came) {
    if (peer.size == first.size) continue;
    return "rank " + std::to_string(peer.rank) + " was started with WORLD_SIZE " +
           std::to_string(peer.size) + ", rank 0 with " + std::to_string(first.size) +
           ". Start all with the same.";
  }
  if (came.size() < static_cast<std::size_t>(first.size)) {
    return "only these ranks joined in time: " + ranks_of(came, [](const Peer&) { return true; }) +
           ". Were all started, with this MASTER_ADDR, MASTER_PORT and WORLD_SIZE?";
  }
  for (const auto& peer : came) {
    const auto shares = [&](const Peer& other) {
      return other.address == peer.address && other.gpu == peer.gpu;
    };
    if (!peer.needs_own_gpu || peer.gpu.empty() || std::ranges::count_if(came, shares) == 1)
      continue;
    return "ranks " + ranks_of(came, shares) +
           " all see only the same GPU. Start one process for each GPU (torchrun "
           "--nproc-per-node), or hide the GPUs from all (CUDA_VISIBLE_DEVICES=).";
  }
  return {};
}

// The protocol. A store may outlive a group: torchrun keeps its own across restarts, and the
// restart count does not identify a group, because each machine's torchrun has its own. So rank 0
// names each group anew. Under that name the ranks store their entries, and rank 0 the list of all.
// A rank that finds a name or a list from before a restart sees that the list has not its mark, and
// looks for a newer name.
class Meeting {
 public:
  Meeting(const LaunchEnvironment& launch, Peer self, Clock::time_point deadline,
          c10::intrusive_ptr<c10d::Store> store)
      : launch_(launch), self_(std::move(self)), deadline_(deadline), store_(std::move(store)) {}

  // Those who have come: all, or those who did until the deadline.
  std::vector<Peer> hold() { return self_.rank == 0 ? lead() : follow(); }

  [[nodiscard]] c10::intrusive_ptr<c10d::Store> store_of_the_group() const {
    return c10::make_intrusive<c10d::PrefixStore>(name_ + "/c10d", store_);
  }

 private:
  static constexpr auto k_newest_name = "use_gpu/group";
  [[nodiscard]] std::string entry(int rank) const { return name_ + '/' + std::to_string(rank); }
  [[nodiscard]] std::string list() const { return name_ + "/list"; }

  std::vector<Peer> lead() {
    come_to("use_gpu/" + self_.mark);
    store_->set(k_newest_name, name_);
    for (int rank = 1; rank < self_.size; ++rank) {
      while (!store_->check({entry(rank)}) && Clock::now() < deadline_)
        std::this_thread::sleep_for(k_pause);
    }
    auto peers = came();
    store_->set(list(), json(peers).dump());
    return peers;
  }

  std::vector<Peer> follow() {
    for (; Clock::now() < deadline_; std::this_thread::sleep_for(k_pause)) {
      if (!store_->check({k_newest_name})) continue;
      const auto newest = store_->get_to_str(k_newest_name);
      if (newest != name_) come_to(newest);
      if (!store_->check({list()})) continue;
      auto peers = json::parse(store_->get_to_str(list())).get<std::vector<Peer>>();
      const auto is_self = [&](const Peer& peer) { return peer.mark == self_.mark; };
      if (std::ranges::any_of(peers, is_self)) return peers;
    }
    auto peers = name_.empty() ? std::vector{self_} : came();
    if (!trouble_with(peers).empty()) return peers;
    throw_not_joined(launch_,
                     "another process has the same rank. Each process needs its own RANK, and "
                     "each group its own MASTER_PORT.");
  }

  void come_to(const std::string& name) {
    name_ = name;
    store_->set(entry(self_.rank), json(self_).dump());
  }

  [[nodiscard]] std::vector<Peer> came() const {
    std::vector<Peer> peers;
    for (int rank = 0; rank < self_.size; ++rank) {
      if (store_->check({entry(rank)}))
        peers.push_back(json::parse(store_->get_to_str(entry(rank))));
    }
    return peers;
  }

  const LaunchEnvironment launch_;
  const Peer self_;
  const Clock::time_point deadline_;
  const c10::intrusive_ptr<c10d::Store> store_;
  std::string name_;
};

Rendezvous meet_now(const LaunchEnvironment& launch, const Peer& self,
                    std::chrono::milliseconds timeout) try {
  const auto deadline = Clock::now() + timeout;
  Meeting meeting(launch, self, deadline, open_store(launch, timeout));
  auto peers = meeting.hold();
  if (const auto trouble = trouble_with(peers); !trouble.empty()) {
    if (launch.serves()) std::this_thread::sleep_for(100 * k_pause);  // the others read the list
    throw_not_joined(launch, trouble);
  }
  return {meeting.store_of_the_group(), std::move(peers)};
} catch (const CommunicatorError&) {
  throw;
} catch (const std::exception& error) {
  throw_not_joined(launch, "no group can be reached there: " + error_cause(error) +
                               ". Is torchrun, or rank 0, still running there?");
}

}  // namespace

Rendezvous meet(const LaunchEnvironment& launch, const Peer& self,
                std::chrono::milliseconds timeout) {
  std::random_device random;
  auto marked = self;
  marked.mark = std::to_string(random()) + '-' + std::to_string(random());
  // On its own thread: LibTorch's client reads without a time-out, so a program there that accepts
  // connections and never replies, or a stopped server, would block it forever.
  std::packaged_task<Rendezvous()> task([=] { return meet_now(launch, marked, timeout); });
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  if (result.wait_for(timeout + std::chrono::seconds(2)) != std::future_status::ready) {
    throw_not_joined(launch, "after " + std::to_string(timeout.count()) +
                                 " ms the program at that port has not answered. Is it torchrun, "
                                 "or rank 0 of this group?");
  }
  return result.get();
}

}  // namespace use_gpu::detail
