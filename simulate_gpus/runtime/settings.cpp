// SPDX-License-Identifier: MIT
#include "settings.hpp"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "interface.hpp"

namespace simulate_gpus {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

template <class Number>
Number number(std::string_view text, Number otherwise) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty() ? value
                                                                                   : otherwise;
}

// The card that an entry of CUDA_VISIBLE_DEVICES names, by index or by the start of its UUID; -1
// for none.
int named_card(std::string_view entry, int num_cards) {
  if (entry.starts_with("GPU-")) {
    for (int card = 0; card < num_cards; ++card) {
      if (uuid_of_card(card).starts_with(entry)) return card;
    }
    return -1;
  }
  const int card = number(entry, -1);
  return card < num_cards ? card : -1;
}

// As the driver reads it: the list ends before the first entry that names no card; a card named
// twice hides all.
std::vector<int> visible_cards(int num_cards) {
  std::vector<int> visible;
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) {
    for (int card = 0; card < num_cards; ++card) visible.push_back(card);
    return visible;
  }
  std::istringstream entries(list);
  for (std::string entry; std::getline(entries, entry, ',');) {
    std::erase(entry, ' ');
    const int card = named_card(entry, num_cards);
    if (card < 0) break;
    if (std::ranges::count(visible, card) > 0) return {};
    visible.push_back(card);
  }
  return visible;
}

Settings read() {
  Settings settings;
  settings.num_cards = std::clamp(number(variable("SIMULATE_GPUS"), 0), 0, k_most_gpus);
  settings.memory_bytes = number(variable("SIMULATE_GPUS_MEMORY"), std::uint64_t{8} << 30);
  if (const auto* const gpu = find_gpu_profile(variable("SIMULATE_GPUS_GPU"))) {
    settings.gpu = *gpu;
    settings.reserved_bytes = gpu->bytes_of_context;
  }
  settings.summary = !variable("SIMULATE_GPUS_SUMMARY").empty();
  settings.dry_run = !variable("SIMULATE_GPUS_DRY_RUN").empty();
  settings.deterministic = !variable("SIMULATE_GPUS_DETERMINISTIC").empty();
  settings.trace = !variable("SIMULATE_GPUS_TRACE").empty();
  settings.trace_file = variable("SIMULATE_GPUS_TRACE_FILE");
  settings.check = !variable("SIMULATE_GPUS_CHECK").empty();
  std::istringstream ignored{std::string(variable("SIMULATE_GPUS_IGNORE"))};
  for (std::string name; std::getline(ignored, name, ',');)
    settings.ignored_operations.push_back(name);
  settings.driver_version = number(variable("SIMULATE_GPUS_DRIVER_VERSION"), CUDART_VERSION);
  std::istringstream others{std::string(variable("SIMULATE_GPUS_MEMORY_OF_OTHERS"))};
  for (std::string bytes; std::getline(others, bytes, ',');)
    settings.memory_of_others.push_back(number(bytes, std::uint64_t{0}));
  settings.visible = visible_cards(settings.num_cards);
  return settings;
}

}  // namespace

std::array<unsigned char, 16> card_uuid(int card) {
  std::array<unsigned char, 16> uuid{'s', 'i', 'm', 'u', 'l', 'a', 't', 'e', 'd'};
  uuid[0] = static_cast<unsigned char>(card);  // first, so that a short prefix names one card
  return uuid;
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

const Settings& simulate_gpus::settings() {
  static const auto* const settings = new Settings(read());  // never destroyed: used at exit
  return *settings;
}

bool simulate_gpus::touches(std::uint64_t bytes) {
  return !settings().dry_run || bytes <= k_most_bytes_in_dry_run;
}

std::string simulate_gpus::uuid_of_card(int card) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (const unsigned char byte : card_uuid(card)) {
    text += {digits[byte >> 4], digits[byte & 15]};
    if (const auto size = text.size() - 4; size == 8 || size == 13 || size == 18 || size == 23) {
      text += '-';
    }
  }
  return text;
}

int simulate_gpus::device_of_card(int card) {
  const auto& visible = settings().visible;
  const auto found = std::ranges::find(visible, card);
  return found == visible.end() ? -1 : static_cast<int>(found - visible.begin());
}

bool simulated_cuda_is_dry_run() { return settings().dry_run; }
