// SPDX-License-Identifier: MIT
#include "tensor_files/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <stdexcept>

#include "tensor_files/file_descriptor.hpp"

namespace use_gpu::detail {

MappedFile::MappedFile(const std::filesystem::path& file) {
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  const FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC),
                              "opening it");
  struct stat status {};
  if (::fstat(opened.get(), &status) != 0) throw_errno("reading its size");
  if (!S_ISREG(status.st_mode)) throw std::runtime_error("it is not a regular file");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;  // cannot be mapped
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, opened.get(), 0);
  if (memory == MAP_FAILED) throw_errno("mapping it");
  bytes_ = {static_cast<const std::byte*>(memory), size};
}

MappedFile::~MappedFile() {
  // munmap does not change the memory, but takes a non-const pointer.
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace use_gpu::detail
