// SPDX-License-Identifier: MIT
#include "files/disk_file.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>

#include "scratch_folder.hpp"

namespace use_gpu::detail {
namespace {

namespace fs = std::filesystem;
using test::ScratchFolder;

void write(const fs::path& file, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  const auto half = bytes.size() / 2;
  write_atomically(file, [&](const WriteAt& write) {
    write(half, bytes.subspan(half));
    write(0, bytes.first(half));
  });
}

std::string read(const fs::path& file) {
  const auto mapped = map_file(file);
  return {reinterpret_cast<const char*>(mapped.bytes.data()), mapped.bytes.size()};
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
    return {};
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

TEST(MappedFile, ReadsAnyPartInPiecesThatItShows) {
  const ScratchFolder folder;
  std::string text(1'000'000, 'a');
  text[700'000] = 'b';
  write(folder / "file", text);
  const auto mapped = map_file(folder / "file");
  using Part = std::pair<std::size_t, std::size_t>;  // begin and size
  for (const auto& [begin, size] : {Part(0, 1'000'000), {1, 3}, {699'999, 300'001}, {5, 0}}) {
    std::string found(size, 'x');
    std::string seen;
    mapped.read(mapped.bytes.subspan(begin, size), reinterpret_cast<std::byte*>(found.data()),
                [&](std::span<const std::byte> piece) {
                  seen.append(reinterpret_cast<const char*>(piece.data()), piece.size());
                });
    EXPECT_EQ(found, text.substr(begin, size));
    EXPECT_EQ(seen, found);
  }
}

TEST(MappedFile, SaysThatItWasCutOffMeanwhile) {
  const ScratchFolder folder;
  write(folder / "file", std::string(10'000, 'a'));
  const auto mapped = map_file(folder / "file");
  fs::resize_file(folder / "file", 5'000);
  std::string into(10'000, 'x');
  EXPECT_EQ(refusal([&] {
              mapped.read(mapped.bytes, reinterpret_cast<std::byte*>(into.data()), [](auto) {});
            }),
            "it was cut off while it was read");
}

mode_t mode_of(const fs::path& file) {
  struct stat status {};
  EXPECT_EQ(::stat(file.c_str(), &status), 0);
  return status.st_mode & 07777U;
}

TEST(WriteAtomically, WritesNewFilesAndReplacesOldOnes) {
  const ScratchFolder folder;
  for (const std::string text : {"a new one", "a longer one than the new one", "short", ""}) {
    write(folder / "file", text);
    EXPECT_EQ(read(folder / "file"), text);
    EXPECT_EQ(folder.files(), 1);
  }
  write(folder / std::string(255, 'x'), "the longest name");
  EXPECT_EQ(read(folder / std::string(255, 'x')), "the longest name");
}

TEST(WriteAtomically, WritesToTheCurrentFolder) {
  const ScratchFolder folder;
  const auto before = fs::current_path();
  fs::current_path(folder / ".");
  write("file", "here");
  fs::current_path(before);
  EXPECT_EQ(read(folder / "file"), "here");
}

TEST(WriteAtomically, KeepsTheModeOfAnOldFileAndGivesNewOnesTheUsual) {
  const ScratchFolder folder;
  for (const mode_t mode : {0600U, 0644U, 0664U, 0400U, 0755U}) {
    write(folder / "file", "old");
    ASSERT_EQ(::chmod((folder / "file").c_str(), mode), 0);
    write(folder / "file", "new");
    EXPECT_EQ(mode_of(folder / "file"), mode);
  }
  const auto before = ::umask(027);
  write(folder / "another", "new");
  ::umask(before);
  EXPECT_EQ(mode_of(folder / "another"), 0640U);
}

TEST(WriteAtomically, FollowsSymbolicLinks) {
  const ScratchFolder folder;
  const ScratchFolder other;
  write(other / "file", "old");
  fs::create_symlink(other / "file", folder / "absolute");
  fs::create_symlink("absolute", folder / "relative");
  write(folder / "relative", "new");
  EXPECT_EQ(read(other / "file"), "new");
  EXPECT_TRUE(fs::is_symlink(folder / "relative"));
  EXPECT_TRUE(fs::is_symlink(folder / "absolute"));
  fs::create_symlink(other / "not yet", folder / "dangling");
  write(folder / "dangling", "made");
  EXPECT_EQ(read(other / "not yet"), "made");
  fs::create_symlink("circle", folder / "circle");
  EXPECT_NE(refusal([&] { write(folder / "circle", "never"); }), "");
  EXPECT_TRUE(fs::is_symlink(folder / "circle"));
}

TEST(WriteAtomically, RefusesWhatIsNoRegularFile) {
  const ScratchFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const auto& file : {folder / "pipe", folder / ".", fs::path("/dev/null")}) {
    EXPECT_EQ(refusal([&] { write(file, "never"); }), "it is not a regular file");
    EXPECT_EQ(refusal([&] { (void)read(file); }), "it is not a regular file");
  }
  EXPECT_TRUE(fs::is_fifo(folder / "pipe"));
  EXPECT_EQ(folder.files(), 1);
}

TEST(WriteAtomically, NamesTheCause) {
  const ScratchFolder folder;
  EXPECT_EQ(refusal([&] { write(folder / "no such" / "file", ""); }),
            "creating a file in its folder: No such file or directory");
  EXPECT_NE(refusal([&] { write("", ""); }), "");
  EXPECT_NE(refusal([&] { write(folder / std::string(256, 'x'), ""); }), "");
  write(folder / "file", "old");
  EXPECT_NE(refusal([&] { write(folder / "file" / "file", ""); }), "");
  EXPECT_EQ(read(folder / "file"), "old");
  EXPECT_EQ(folder.files(), 1);
}

TEST(WriteAtomically, LeavesTheOldFileInAFolderThatMayNotBeWritten) {
  const ScratchFolder folder;
  write(folder / "file", "old");
  ASSERT_EQ(::chmod((folder / ".").c_str(), 0555), 0);
  const auto user = ::geteuid();  // root may write everywhere
  if (user == 0) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  const auto text = refusal([&] { write(folder / "file", "new"); });
  if (user == 0) {
    ASSERT_EQ(::seteuid(user), 0);
  }
  EXPECT_EQ(text, "creating a file in its folder: Permission denied");
  EXPECT_EQ(read(folder / "file"), "old");
  EXPECT_EQ(folder.files(), 1);
}

TEST(WriteAtomically, LeavesTheOldFileOnAFullDisk) {
  const ScratchFolder folder;
  constexpr int k_no_right_to_mount = 77;
  const auto child = ::fork();
  if (child == 0) {  // in a mount namespace of its own, which ends with it
    const bool mounted =
        (::unshare(CLONE_NEWNS) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
        ::mount("tmpfs", (folder / ".").c_str(), "tmpfs", 0, "size=64k") == 0;
    if (!mounted) ::_exit(k_no_right_to_mount);
    write(folder / "file", "old");
    for (const std::size_t size : {65'536U, 70'000U, 1'000'000U}) {
      const auto text = refusal([&] { write(folder / "file", std::string(size, 'x')); });
      EXPECT_EQ(text, "writing it: No space left on device");
      EXPECT_EQ(read(folder / "file"), "old");
      EXPECT_EQ(folder.files(), 1);
    }
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == k_no_right_to_mount)
    GTEST_SKIP() << "needs the right to mount a tmpfs";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace use_gpu::detail
