// SPDX-License-Identifier: MIT
#include "files/disk_file.hpp"

#include <c10/util/ScopeExit.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>

namespace use_gpu::detail {
namespace {

namespace fs = std::filesystem;

constexpr const char* k_not_regular = "it is not a regular file";

// The error of the last system call, with what it was for: "opening it: Permission denied".
void throw_unless(bool succeeded, const char* action) {
  if (!succeeded) throw std::system_error(errno, std::generic_category(), action);
}

void write_all(int fd, std::size_t place, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto written = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(place));
    throw_unless(written >= 0 || errno == EINTR, "writing it");
    if (written < 0) continue;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    place += static_cast<std::size_t>(written);
  }
}

}  // namespace

void MappedFile::read(std::span<const std::byte> some, std::byte* into,
                      const std::function<void(std::span<const std::byte>)>& see) const {
  constexpr std::size_t k_cached_bytes = std::size_t{256} << 10;
  while (!some.empty()) {
    const auto got =
        ::pread(*fd, into, std::min(some.size(), k_cached_bytes), some.data() - bytes.data());
    throw_unless(got >= 0 || errno == EINTR, "reading it");
    if (got == 0) throw std::runtime_error("it was cut off while it was read");
    if (got < 0) continue;
    see({into, static_cast<std::size_t>(got)});
    some = some.subspan(static_cast<std::size_t>(got));
    into += got;
  }
}

MappedFile map_file(const fs::path& file, bool may_be_written) {
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  const std::shared_ptr<const int> fd(
      new int(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)), [](const int* opened) {
        ::close(*opened);
        delete opened;
      });
  throw_unless(*fd >= 0, "opening it");
  struct stat status {};
  throw_unless(::fstat(*fd, &status) == 0, "reading its size");
  if (!S_ISREG(status.st_mode)) throw std::runtime_error(k_not_regular);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return {};  // cannot be mapped
  const int access = may_be_written ? PROT_READ | PROT_WRITE : PROT_READ;
  void* const memory = ::mmap(nullptr, size, access, MAP_PRIVATE | MAP_NORESERVE, *fd, 0);
  throw_unless(memory != MAP_FAILED, "mapping it");
  return {{static_cast<const std::byte*>(memory), size},
          {memory, [size](void* mapped) { ::munmap(mapped, size); }},
          fd};
}

void write_atomically(const fs::path& file, const std::function<void(const WriteAt&)>& write) {
  const auto old = fs::status(file);  // throws where links are a loop
  if (fs::exists(old) && !fs::is_regular_file(old)) throw std::runtime_error(k_not_regular);
  auto target = file;
  while (fs::is_symlink(target)) target = target.parent_path() / fs::read_symlink(target);
  const auto folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  // A short name, so that a file with the longest possible one works too.
  const auto temporary = folder / (".use_gpu-" + std::to_string(std::random_device()()) + ".tmp");
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  throw_unless(fd >= 0, "creating a file in its folder");
  // Removes nothing once it has been renamed.
  const auto removal = c10::make_scope_exit([&] { ::unlink(temporary.c_str()); });
  auto closing = c10::make_scope_exit([=] { ::close(fd); });
  if (fs::exists(old)) fs::permissions(temporary, old.permissions());
  write([=](std::size_t place, std::span<const std::byte> bytes) { write_all(fd, place, bytes); });
  // Before the rename: otherwise a power cut could leave an empty file with that name.
  throw_unless(::fsync(fd) == 0, "flushing it to the disk");
  closing.release();
  throw_unless(::close(fd) == 0, "closing it");  // some file systems report write errors only here
  throw_unless(::rename(temporary.c_str(), target.c_str()) == 0, "renaming it");
  // Makes the rename durable.
  const int folder_fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  throw_unless(folder_fd >= 0, "opening its folder");
  const auto closing_folder = c10::make_scope_exit([=] { ::close(folder_fd); });
  // EINVAL: a file system that has nothing to flush there.
  throw_unless(::fsync(folder_fd) == 0 || errno == EINVAL, "flushing its folder to the disk");
}

}  // namespace use_gpu::detail
