// SPDX-License-Identifier: MIT
//
// An open file that closes itself, and the error of a system call, which says what was tried.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace use_gpu::detail {

/// std::system_error of the last system call, with what it was for: "opening it: Permission
/// denied".
[[noreturn]] inline void throw_errno(const char* action) {
  throw std::system_error(errno, std::generic_category(), action);
}

class FileDescriptor {
 public:
  /// Takes the result of open(). std::system_error if it is an error.
  FileDescriptor(int fd, const char* action) : fd_(fd) {
    if (fd_ < 0) throw_errno(action);
  }
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  [[nodiscard]] int get() const noexcept { return fd_; }

  /// For files that were written: some file systems report write errors only here.
  void close() {
    if (::close(std::exchange(fd_, -1)) != 0) throw_errno("closing it");
  }

 private:
  int fd_;
};

}  // namespace use_gpu::detail
