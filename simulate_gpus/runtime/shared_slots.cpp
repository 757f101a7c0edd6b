// SPDX-License-Identifier: MIT
#include "shared_slots.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

namespace simulate_gpus {
namespace {

constexpr std::uint32_t k_slots = 1 << 16;
constexpr char k_file[] = "simulated GPU's slots";

struct SlotFile {
  std::atomic<std::uint64_t>
      id;  // at random: another file of a process with the same number has another
  SharedWord bell;
  std::array<SharedSlot, k_slots> slots;
};

// Never destroyed: LibTorch frees events until the very end of a process.
struct SlotFiles {
  std::mutex mutex;
  SlotFile* own = nullptr;
  std::vector<std::uint32_t> free;  // own slots that were used before
  std::uint32_t used = 0;
  std::uint64_t last_serial = 0;
  std::map<int, SlotFile*> of_others;
};

SlotFiles& slot_files() {
  static auto* const files = new SlotFiles;
  return *files;
}

SlotFile* map_slots(int file) {
  void* const mapped =
      mmap(nullptr, sizeof(SlotFile), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<SlotFile*>(mapped);
}

// The file stays open for others.
SlotFile* make_slots() {
  const int file = memfd_create(k_file, MFD_CLOEXEC);
  std::uint64_t id = 0;
  if (file < 0 || ftruncate(file, sizeof(SlotFile)) != 0 ||
      getrandom(&id, sizeof id, 0) != sizeof id) {
    return nullptr;
  }
  SlotFile* const slots = map_slots(file);
  if (slots) slots->id = id;
  return slots;
}

// Looks through the files that the process has open, which may end meanwhile.
SlotFile* open_slots(int process) {
  namespace fs = std::filesystem;
  try {
    for (const auto& each : fs::directory_iterator("/proc/" + std::to_string(process) + "/fd")) {
      std::error_code closed;
      const std::string name = fs::read_symlink(each.path(), closed);
      if (!name.starts_with(std::string("/memfd:") + k_file)) continue;
      const int file = open(each.path().c_str(), O_RDWR | O_CLOEXEC);
      if (file < 0) continue;
      SlotFile* const slots = map_slots(file);
      close(file);
      return slots;
    }
  } catch (const fs::filesystem_error&) {
  }
  return nullptr;
}

// With the lock, as the next.
SlotFile* own_slots() {
  if (!slot_files().own) slot_files().own = make_slots();
  return slot_files().own;
}

SlotFile* slots_of(int process) {
  if (process == getpid()) return slot_files().own;
  auto& known = slot_files().of_others[process];
  if (!known) known = open_slots(process);
  return known;
}

}  // namespace

std::optional<SlotName> take_slot() {
  SlotFiles& files = slot_files();
  const std::scoped_lock lock(files.mutex);
  if (!own_slots() || (files.free.empty() && files.used == k_slots)) return std::nullopt;
  const std::uint32_t number = files.free.empty() ? files.used++ : files.free.back();
  if (!files.free.empty()) files.free.pop_back();
  SharedSlot& slot = files.own->slots[number];
  slot.recorded = slot.finished = slot.wanted = 0;
  slot.serial = ++files.last_serial;
  return SlotName{getpid(), number, files.own->id, files.last_serial};
}

void free_slot(const SlotName& name) {
  SlotFiles& files = slot_files();
  const std::scoped_lock lock(files.mutex);
  SharedSlot& slot = files.own->slots[name.number];
  slot.serial = 0;
  slot.changes.change();  // nobody waits for it any more
  files.free.push_back(name.number);
}

SharedSlot* find_slot(const SlotName& name) {
  const std::scoped_lock lock(slot_files().mutex);
  if (name.number >= k_slots) return nullptr;
  SlotFile* file = slots_of(name.process);
  if (file && file->id != name.file) {  // of a process that had the same number
    slot_files().of_others.erase(name.process);
    file = slots_of(name.process);
  }
  return file && file->id == name.file ? &file->slots[name.number] : nullptr;
}

bool is_own(const SlotName& name) {
  const std::scoped_lock lock(slot_files().mutex);
  return name.process == getpid() && slot_files().own && slot_files().own->id == name.file;
}

SharedWord* bell_of(int process) {
  const std::scoped_lock lock(slot_files().mutex);
  SlotFile* const file = slots_of(process);
  return file ? &file->bell : nullptr;
}

SharedWord* own_bell() {
  const std::scoped_lock lock(slot_files().mutex);
  SlotFile* const file = own_slots();
  return file ? &file->bell : nullptr;
}

bool is_running(int process) {
  const auto file = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (file < 0) return errno != ESRCH && kill(process, 0) == 0;  // of a kernel before 5.3
  pollfd ends{.fd = file, .events = POLLIN, .revents = 0};
  const bool has_ended = poll(&ends, 1, 0) > 0;  // also where nobody has waited for it yet
  close(file);
  return !has_ended;
}

int open_file_of(int process, int file) {
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(file);
  return open(path.c_str(), O_RDWR | O_CLOEXEC);
}

}  // namespace simulate_gpus
