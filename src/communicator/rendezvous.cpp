// SPDX-License-Identifier: MIT
#include "communicator/rendezvous.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <use_gpu/communicator.hpp>

#include <future>
#include <numeric>
#include <random>
#include <sstream>
#include <thread>

#include "communicator/endpoint.hpp"
#include "messages/error_text.hpp"
#include "messages/message.hpp"

namespace use_gpu::detail {
namespace {

using Clock = std::chrono::steady_clock;
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

std::string to_text(const Peer& peer) {
  return peer.address + ' ' + (peer.gpu.empty() ? "-" : peer.gpu) + ' ' +
         (peer.needs_own_gpu ? "1 " : "0 ") + std::to_string(peer.lifeline_port) + ' ';
}

std::istream& operator>>(std::istream& in, Peer& peer) {
  in >> peer.address >> peer.gpu >> peer.needs_own_gpu >> peer.lifeline_port;
  if (peer.gpu == "-") peer.gpu.clear();
  return in;
}

std::vector<Peer> read_peers(const std::string& text, int size) {
  std::vector<Peer> peers(static_cast<std::size_t>(size));
  std::istringstream in(text);
  for (auto& peer : peers) in >> peer;
  return peers;
}

// What is wrong if the only GPU that a rank sees is not its own; empty if nothing is.
std::string trouble_with_gpus(const std::vector<Peer>& peers) {
  for (const auto& peer : peers) {
    if (!peer.needs_own_gpu || peer.gpu.empty()) continue;
    std::vector<int> ranks;
    for (int rank = 0; rank < static_cast<int>(peers.size()); ++rank) {
      const auto& other = peers[static_cast<std::size_t>(rank)];
      if (other.address == peer.address && other.gpu == peer.gpu) ranks.push_back(rank);
    }
    if (ranks.size() > 1) {
      return "ranks " + number_ranges(ranks) +
             " all see only the same GPU. Start one process for "
             "each GPU (torchrun --nproc-per-node), or hide the GPUs from all "
             "(CUDA_VISIBLE_DEVICES=).";
    }
  }
  return {};
}

// The protocol. A store may outlive a group: torchrun keeps its own across restarts, and the
// restart count does not identify a group, because each machine's torchrun has its own. So each
// rank stores a new random number (hello); under that number rank 0 stores the group's name, and
// under that name the ranks store their entries and rank 0 the verdict. A dead rank's hello gets a
// reply too, which nobody reads.
class Meeting {
 public:
  Meeting(const LaunchEnvironment& launch, Clock::time_point deadline,
          c10::intrusive_ptr<c10d::Store> store)
      : launch_(launch), deadline_(deadline), store_(std::move(store)) {}

  Rendezvous hold(const Peer& self) {
    std::random_device random;
    const auto number = "use_gpu/" + std::to_string(random()) + '-' + std::to_string(random());
    if (launch_.rank == 0) {
      name_ = number;
    } else {
      store_->set(hello_key(launch_.rank), number);
      name_ = wait_for(number, hello_key);
    }
    if (store_->add(key("count", launch_.rank), 1) > 1)
      throw_not_joined(launch_,
                       "another process has the same rank. Each process needs its own RANK, and "
                       "each group its own MASTER_PORT.");
    store_->set(key("here", launch_.rank), std::to_string(launch_.size) + ' ' + to_text(self));

    const auto verdict =
        launch_.rank == 0 ? gather()
                          : wait_for(key("verdict", 0), [this](int r) { return key("here", r); });
    if (!verdict.starts_with('+')) throw_not_joined(launch_, verdict);
    return {c10::make_intrusive<c10d::PrefixStore>(name_, store_),
            read_peers(verdict.substr(1), launch_.size)};
  }

 private:
  static std::string hello_key(int rank) { return "use_gpu/hello/" + std::to_string(rank); }
  [[nodiscard]] std::string key(const char* what, int rank) const {
    return name_ + '/' + what + '/' + std::to_string(rank);
  }

  [[nodiscard]] static std::string too_late(const std::vector<int>& came) {
    return "only these ranks joined in time: " + number_ranges(came) +
           ". Were all started, with this MASTER_ADDR, MASTER_PORT and WORLD_SIZE?";
  }

  // Waits for this key. At the deadline: an error with the ranks whose keys exist.
  template <class KeyOf>
  std::string wait_for(const std::string& wanted, const KeyOf& key_of) {
    while (!store_->check({wanted})) {
      if (Clock::now() > deadline_) {
        std::vector<int> came;
        for (int rank = 0; rank < launch_.size; ++rank) {
          if (store_->check({key_of(rank)})) came.push_back(rank);
        }
        throw_not_joined(launch_, too_late(came));
      }
      std::this_thread::sleep_for(k_pause);
    }
    return store_->get_to_str(wanted);
  }

  // On rank 0: waits for all and stores the verdict: '+' with their entries, or the error.
  std::string gather() {
    std::string verdict = look_for_all();
    store_->set(key("verdict", 0), verdict);
    if (launch_.serves() && !verdict.starts_with('+'))
      std::this_thread::sleep_for(100 * k_pause);  // so that the others can read it
    return verdict;
  }

  std::string look_for_all() {
    const auto size = static_cast<std::size_t>(launch_.size);
    std::vector<std::string> said(size);
    std::vector<std::string> answered(size);
    std::string wrong;  // reported when all are here
    for (;;) {
      std::vector<int> came;
      for (int rank = 0; rank < launch_.size; ++rank) {
        const auto i = static_cast<std::size_t>(rank);
        if (said[i].empty()) said[i] = look_for(rank, answered[i], wrong);
        if (!said[i].empty()) came.push_back(rank);
      }
      const bool late = Clock::now() > deadline_;
      if (!wrong.empty() && (late || came.size() == size)) return wrong;
      if (came.size() == size) {
        const auto all = std::accumulate(said.begin(), said.end(), std::string());
        const auto trouble = trouble_with_gpus(read_peers(all, launch_.size));
        return trouble.empty() ? '+' + all : trouble;
      }
      if (late) return too_late(came);
      std::this_thread::sleep_for(k_pause);
    }
  }

  // Replies to the rank's hello. Returns its entry, if there is one.
  std::string look_for(int rank, std::string& answered, std::string& wrong) {
    if (rank > 0 && store_->check({hello_key(rank)})) {
      const auto number = store_->get_to_str(hello_key(rank));
      if (number != answered) store_->set(number, name_);
      answered = number;
    }
    if (!store_->check({key("here", rank)})) return {};
    std::istringstream in(store_->get_to_str(key("here", rank)));
    int size = 0;
    Peer peer;
    in >> size >> peer;
    if (size != launch_.size) {
      wrong = "rank " + std::to_string(rank) + " was started with WORLD_SIZE " +
              std::to_string(size) + ", rank 0 with " + std::to_string(launch_.size) +
              ". Start all with the same.";
    }
    return to_text(peer);
  }

  const LaunchEnvironment launch_;
  const Clock::time_point deadline_;
  const c10::intrusive_ptr<c10d::Store> store_;
  std::string name_;
};

}  // namespace

Rendezvous meet(const LaunchEnvironment& launch, const Peer& self,
                std::chrono::milliseconds timeout) {
  std::packaged_task<Rendezvous()> task([=] {
    try {
      const auto deadline = Clock::now() + timeout;
      return Meeting(launch, deadline, open_store(launch, timeout)).hold(self);
    } catch (const CommunicatorError&) {
      throw;
    } catch (const std::exception& error) {
      throw_not_joined(launch, "no group can be reached there: " + error_cause(error) +
                                   ". Is torchrun, or rank 0, still running there?");
    }
  });
  // On its own thread: LibTorch's client reads without a time-out, so a program there that accepts
  // connections and never replies, or a stopped server, would block it forever.
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
