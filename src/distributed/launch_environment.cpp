// SPDX-License-Identifier: MIT
#include "distributed/launch_environment.hpp"

#include <use_gpu/errors.hpp>

#include <charconv>
#include <cstdlib>
#include <limits>

#include "gpu_info/message.hpp"

namespace use_gpu::detail {
namespace {

constexpr const char* k_all = "RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT";

bool is_set(const char* variable) { return std::getenv(variable) != nullptr; }

[[noreturn]] void throw_not_accepted(const char* variable, const std::string& accepted) {
  throw ArgumentError(c10::str("Communicator::join: the environment has ", variable, '=',
                               in_quotes(std::getenv(variable)), "; accepted is ", accepted,
                               ". torchrun sets it; without ", k_all, " the program runs alone."));
}

int integer(const char* variable, int least, int most, const std::string& hint = "") {
  const std::string_view text = std::getenv(variable);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || value < least || value > most) {
    throw_not_accepted(variable, c10::str("a whole number from ", least, " to ", most, hint));
  }
  return value;
}

bool python_bool(const char* variable) {
  if (!is_set(variable)) return false;
  const std::string_view text = std::getenv(variable);
  if (text != "True" && text != "False") throw_not_accepted(variable, "True or False");
  return text == "True";
}

}  // namespace

std::optional<LaunchEnvironment> read_launch_environment() {
  std::vector missing{"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"};
  if (std::erase_if(missing, is_set) == 0) return std::nullopt;
  if (!missing.empty()) {
    throw ArgumentError(c10::str("Communicator::join: ", c10::Join(", ", missing),
                                 " missing in the environment, but others of ", k_all,
                                 " are set. Start the program with torchrun, set all five, or, to "
                                 "run alone, none."));
  }
  constexpr int k_most = std::numeric_limits<int>::max();
  LaunchEnvironment launch{};
  launch.size = integer("WORLD_SIZE", 1, k_most);
  launch.rank = integer("RANK", 0, launch.size - 1, ", less than WORLD_SIZE");
  launch.local_rank = integer("LOCAL_RANK", 0, launch.size - 1, ", less than WORLD_SIZE");
  launch.address = std::getenv("MASTER_ADDR");
  if (launch.address.empty()) throw_not_accepted("MASTER_ADDR", "a host's name or address");
  launch.port = static_cast<std::uint16_t>(integer("MASTER_PORT", 1, 65535));
  launch.agent_serves = python_bool("TORCHELASTIC_USE_AGENT_STORE");
  if (is_set("TORCHELASTIC_RESTART_COUNT"))
    launch.restarts = integer("TORCHELASTIC_RESTART_COUNT", 0, k_most);
  return launch;
}

}  // namespace use_gpu::detail
