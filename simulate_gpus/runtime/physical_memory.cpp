// SPDX-License-Identifier: MIT
#include "physical_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdio>
#include <string>

#include "device_memory.hpp"
#include "devices.hpp"
#include "settings.hpp"
#include "tool.hpp"

namespace simulate_gpus {
namespace {

// Not for programs that this one starts. -1 where there are no more files.
int duplicate(int file) { return fcntl(file, F_DUPFD_CLOEXEC, 0); }

}  // namespace

std::shared_ptr<PhysicalMemory> adopt_memory(int file, std::size_t bytes, int device) {
  const int card = settings().visible[static_cast<std::size_t>(device)];
  return std::make_shared<PhysicalMemory>(card, bytes, file, false);
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

PhysicalMemory::~PhysicalMemory() {
  close(file);
  if (!is_counted) return;
  give_back(device_of_card(card), bytes);
  tell(&Tool::allocates, device_of_card(card));
}

std::shared_ptr<PhysicalMemory> simulate_gpus::create_memory(int device, std::size_t bytes) {
  if (!take(device, bytes)) return nullptr;
  const int card = settings().visible[static_cast<std::size_t>(device)];
  // The name tells who imports the memory of which card it is.
  const int file = memfd_create(("simulated GPU " + std::to_string(card)).c_str(), MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    close(file);
    give_back(device, bytes);
    return nullptr;
  }
  auto made = std::make_shared<PhysicalMemory>(card, bytes, file, true);
  tell(&Tool::allocates, device);
  return made;
}

std::shared_ptr<PhysicalMemory> simulate_gpus::import_memory(int file) {
  std::array<char, PATH_MAX> name{};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  int card = -1;
  struct stat status {};
  if (readlink(link.c_str(), name.data(), name.size() - 1) < 0 || fstat(file, &status) != 0 ||
      std::sscanf(name.data(), "/memfd:simulated GPU %d", &card) != 1) {
    return nullptr;
  }
  if (device_of_card(card) < 0) card = card_of(current_device());  // it is hidden here
  const int own = duplicate(file);
  if (own < 0) return nullptr;
  return std::make_shared<PhysicalMemory>(card, static_cast<std::size_t>(status.st_size), own,
                                          false);
}

int simulate_gpus::export_memory(const PhysicalMemory& memory) { return duplicate(memory.file); }

int simulate_gpus::device_of_memory(const PhysicalMemory& memory) {
  return device_of_card(memory.card);
}
