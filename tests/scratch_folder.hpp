// SPDX-License-Identifier: MIT
//
// A temporary folder for one test's files.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace use_gpu::test {

// For thousands of files: in memory, where the system offers that.
inline std::filesystem::path folder_in_memory() {
  const std::filesystem::path in_memory = "/dev/shm";
  return is_directory(in_memory) ? in_memory : std::filesystem::temp_directory_path();
}

class ScratchFolder {
 public:
  explicit ScratchFolder(
      const std::filesystem::path& parent = std::filesystem::temp_directory_path())
      : path_(parent / "use_gpu_test_XXXXXX") {
    std::string name = path_.string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  /// A file of that name in it.
  std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }

  /// How many files it has.
  [[nodiscard]] std::ptrdiff_t files() const {
    return std::distance(std::filesystem::directory_iterator(path_), {});
  }

 private:
  std::filesystem::path path_;
};

}  // namespace use_gpu::test
