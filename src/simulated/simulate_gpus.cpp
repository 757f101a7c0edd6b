// SPDX-License-Identifier: MIT
#include <use_gpu/errors.hpp>
#include <use_gpu/simulated.hpp>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "../message.hpp"
#include "backend.hpp"

namespace use_gpu {
namespace {

constexpr const char* k_variable = "USE_GPU_SIMULATED_GPUS";

// Runs when the library is loaded, before main(). An unset or empty variable asks for nothing, as 0
// does; a wrong one must not be taken for "no GPU", and nobody is there yet to catch an exception.
const bool g_environment_read = [] {
  const char* const value = std::getenv(k_variable);
  if (value == nullptr || *value == '\0') return true;
  const std::string_view text(value);
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error == std::errc() && end == text.data() + text.size() && count >= 0 &&
      count <= simulated::k_most_devices) {
    if (count > 0) simulate_gpus(count);
    return true;
  }
  std::fprintf(stderr, "use_gpu: %s is %s, but must be a number of GPUs from 0 to %d\n", k_variable,
               in_quotes(text).c_str(), simulated::k_most_devices);
  std::_Exit(2);
}();

}  // namespace

void simulate_gpus(int count) {
  if (count < 1 || count > simulated::k_most_devices) {
    throw ArgumentError("simulate_gpus(" + std::to_string(count) + "): the number must be 1 to " +
                        std::to_string(simulated::k_most_devices) + ".");
  }
  if (simulated::device_count() > 0) {
    throw ArgumentError("simulate_gpus(" + std::to_string(count) + "): there are " +
                        std::to_string(simulated::device_count()) +
                        " already, and LibTorch cannot change that; call it once, or set " +
                        k_variable + ".");
  }
  c10::register_privateuse1_backend("sim");
  simulated::register_allocator();
  simulated::register_hooks();
  simulated::set_device_count(count);
}

}  // namespace use_gpu
