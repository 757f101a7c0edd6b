// SPDX-License-Identifier: MIT
#include "tensor_files/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdio>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>

#include "tensor_files/file_descriptor.hpp"

namespace use_gpu::detail {
namespace {

namespace fs = std::filesystem;

// The end of the chain of symbolic links; it need not exist.
fs::path followed(fs::path file) {
  constexpr int k_most_links = 40;  // Linux's own limit
  std::error_code ignored;          // what cannot be asked now cannot be written later
  for (int links = 0; fs::is_symlink(fs::symlink_status(file, ignored)); ++links) {
    if (links == k_most_links) throw std::runtime_error("it is a loop of symbolic links");
    file = file.parent_path() / fs::read_symlink(file);
  }
  return file;
}

// The mode of an existing file; nothing where there is none.
std::optional<mode_t> mode_of(const fs::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) {
    if (errno == ENOENT) return std::nullopt;
    throw_errno("looking for the old file");
  }
  if (!S_ISREG(status.st_mode)) throw std::runtime_error("it is not a regular file");
  return status.st_mode & mode_t{07777};
}

// Of fixed length, so that a file with the longest possible name works too.
fs::path temporary_name(const fs::path& folder) {
  std::random_device random;
  return folder /
         (".use_gpu-" + std::to_string(random()) + '-' + std::to_string(random()) + ".tmp");
}

// A new file that is removed unless move_to() succeeds.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& folder)
      : name_(temporary_name(folder)),
        opened_(::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666),
                "creating a file in its folder") {}
  ~TemporaryFile() {
    if (!name_.empty()) ::unlink(name_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void set_mode(mode_t mode) {
    if (::fchmod(opened_.get(), mode) != 0) throw_errno("setting its mode");
  }

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto written = ::write(opened_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno != EINTR) throw_errno("writing it");
      if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }

  // Flush before the rename: otherwise a power cut could leave an empty file with that name.
  void move_to(const fs::path& file) {
    if (::fsync(opened_.get()) != 0) throw_errno("flushing it to the disk");
    opened_.close();
    if (::rename(name_.c_str(), file.c_str()) != 0) throw_errno("renaming it");
    name_.clear();
  }

 private:
  fs::path name_;
  FileDescriptor opened_;
};

// Flushing the folder makes the rename durable.
void flush_folder(const fs::path& folder) {
  const FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                              "opening its folder");
  // EINVAL: a file system that has nothing to flush there.
  if (::fsync(opened.get()) != 0 && errno != EINVAL) throw_errno("flushing its folder to the disk");
}

}  // namespace

void write_atomically(const fs::path& file, std::span<const std::span<const std::byte>> parts) {
  const auto target = followed(file);
  const auto folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  const auto old_mode = mode_of(target);
  {
    TemporaryFile temporary(folder);
    if (old_mode) temporary.set_mode(*old_mode);
    for (const auto part : parts) temporary.write(part);
    temporary.move_to(target);
  }
  flush_folder(folder);
}

}  // namespace use_gpu::detail
