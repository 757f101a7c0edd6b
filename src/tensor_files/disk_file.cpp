// SPDX-License-Identifier: MIT
#include "tensor_files/disk_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace use_gpu::detail {
namespace {

namespace fs = std::filesystem;

// The error of the last system call, with what it was for: "opening it: Permission denied".
void throw_unless(bool succeeded, const char* action) {
  if (!succeeded) throw std::system_error(errno, std::generic_category(), action);
}

// A file that is open until this ends.
class FileDescriptor {
 public:
  FileDescriptor(const char* action, const fs::path& file, int flags)
      : fd_(::open(file.c_str(), flags | O_CLOEXEC, 0666)) {
    throw_unless(fd_ >= 0, action);
  }
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  [[nodiscard]] int get() const noexcept { return fd_; }

  // For files that were written: some file systems report write errors only here.
  void close() { throw_unless(::close(std::exchange(fd_, -1)) == 0, "closing it"); }

 private:
  int fd_;
};

void check_regular(bool is_regular) {
  if (!is_regular) throw std::runtime_error("it is not a regular file");
}

// Of fixed length, so that a file with the longest possible name works too.
fs::path temporary_name(const fs::path& folder) {
  std::random_device random;
  return folder /
         (".use_gpu-" + std::to_string(random()) + '-' + std::to_string(random()) + ".tmp");
}

void write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(fd, bytes.data(), bytes.size());
    throw_unless(written >= 0 || errno == EINTR, "writing it");
    if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

}  // namespace

MappedFile map_file(const fs::path& file) {
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  const FileDescriptor opened("opening it", file, O_RDONLY | O_NONBLOCK);
  struct stat status {};
  throw_unless(::fstat(opened.get(), &status) == 0, "reading its size");
  check_regular(S_ISREG(status.st_mode));
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return {};  // cannot be mapped
  void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, opened.get(), 0);
  throw_unless(memory != MAP_FAILED, "mapping it");
  return {{static_cast<const std::byte*>(memory), size},
          {memory, [size](void* mapped) { ::munmap(mapped, size); }}};
}

void write_atomically(const fs::path& file, std::span<const std::span<const std::byte>> parts) {
  const auto old = fs::status(file);  // throws where links are a loop
  check_regular(!fs::exists(old) || fs::is_regular_file(old));
  auto target = file;
  while (fs::is_symlink(target)) target = target.parent_path() / fs::read_symlink(target);
  const auto folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  const auto temporary = temporary_name(folder);
  {
    FileDescriptor opened("creating a file in its folder", temporary, O_WRONLY | O_CREAT | O_EXCL);
    // Removes nothing once it has been renamed.
    const struct Removal {
      const fs::path& file;
      ~Removal() { ::unlink(file.c_str()); }
    } removal{temporary};
    if (fs::exists(old)) fs::permissions(temporary, old.permissions());
    for (const auto part : parts) write_all(opened.get(), part);
    // Before the rename: otherwise a power cut could leave an empty file with that name.
    throw_unless(::fsync(opened.get()) == 0, "flushing it to the disk");
    opened.close();
    throw_unless(::rename(temporary.c_str(), target.c_str()) == 0, "renaming it");
  }
  // Makes the rename durable.
  const FileDescriptor opened("opening its folder", folder, O_RDONLY | O_DIRECTORY);
  // EINVAL: a file system that has nothing to flush there.
  throw_unless(::fsync(opened.get()) == 0 || errno == EINVAL, "flushing its folder to the disk");
}

}  // namespace use_gpu::detail
