// SPDX-License-Identifier: MIT
//
// What a save leaves when one of its system calls fails, or the program is killed in it; and what a
// load does when a file cannot be opened, looked at or read. This program brings its own versions of
// the calls, which take the place of the C library's in the libraries too; they do what was asked,
// except the one that is to fail.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <unistd.h>
#include <use_gpu/errors.hpp>
#include <use_gpu/parameter_file.hpp>
#include <use_gpu/tensor_file.hpp>
#include <use_gpu/training.hpp>

#include <csignal>
#include <cstdarg>
#include <fstream>
#include <iostream>

#include "scratch_folder.hpp"
#include "support.hpp"

namespace {

enum class Fault { none, fail, short_call, kill_before, kill_half_way, kill_after };

Fault fault = Fault::none;
int fault_at = 0;    // which call, counted from 1
int calls_seen = 0;  // since the fault was set
bool armed = false;

// Whether this call is the one.
bool is_due() { return armed && ++calls_seen == fault_at; }

// The call, done as the fault wants it. `half` does a part of it.
template <class Call, class Half>
auto done(const Call& call, const Half& half) -> decltype(call()) {
  if (!is_due()) return call();
  switch (fault) {
    case Fault::kill_before:
      ::raise(SIGKILL);
      break;
    case Fault::kill_half_way:
      half();
      ::raise(SIGKILL);
      break;
    case Fault::kill_after:
      call();
      ::raise(SIGKILL);
      break;
    case Fault::short_call:
      return half();
    case Fault::fail:
      errno = EIO;
      return -1;
    case Fault::none:
      break;
  }
  return call();
}

template <class Call>
auto done(const Call& call) -> decltype(call()) {
  return done(call, call);
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return done([&] { return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode)); });
}
ssize_t pread(int fd, void* bytes, size_t size, off_t place) {
  return done([&] { return ::syscall(SYS_pread64, fd, bytes, size, place); },
              [&] { return ::syscall(SYS_pread64, fd, bytes, (size + 1) / 2, place); });
}
ssize_t pwrite(int fd, const void* bytes, size_t size, off_t place) {
  return done([&] { return ::syscall(SYS_pwrite64, fd, bytes, size, place); },
              [&] { return ::syscall(SYS_pwrite64, fd, bytes, (size + 1) / 2, place); });
}
int fsync(int fd) {
  return done([&] { return static_cast<int>(::syscall(SYS_fsync, fd)); });
}
int fchmodat(int folder, const char* path, mode_t mode, int) noexcept {
  return done([&] { return static_cast<int>(::syscall(SYS_fchmodat, folder, path, mode)); });
}
int close(int fd) {
  return done([&] { return static_cast<int>(::syscall(SYS_close, fd)); });
}
int fstat(int fd, struct stat* status) noexcept {
  return done([&] { return static_cast<int>(::syscall(SYS_fstat, fd, status)); });
}
int rename(const char* from, const char* to) noexcept {
  return done([&] { return static_cast<int>(::syscall(SYS_rename, from, to)); });
}
}

namespace use_gpu {
namespace {

using test::ScratchFolder;

constexpr int k_tensors = 40;

struct ValuedNet : torch::nn::Module {
  explicit ValuedNet(float value) {
    for (int i = 0; i < k_tensors; ++i)
      register_buffer("b" + std::to_string(i), torch::full({1000}, value));
  }
  // The one value that all have; nothing if they differ.
  std::optional<float> value() const {
    const auto all = torch::cat(buffers());
    const auto first = all[0].item<float>();
    return (all == first).all().item<bool>() ? std::optional(first) : std::nullopt;
  }
};

// Runs it with that fault at that call; gives the number of calls.
template <class Work>
int calls_with(Fault how, int at, const Work& work) {
  fault = how;
  fault_at = at;
  calls_seen = 0;
  armed = true;
  try {
    work();
    armed = false;
  } catch (...) {
    armed = false;
    throw;
  }
  return calls_seen;
}

// The functions that save.
struct Save {
  const char* name;
  void (*save)(const ValuedNet& net, const std::filesystem::path& file);

  int with(Fault how, int at, const ValuedNet& net, const std::filesystem::path& file) const {
    return calls_with(how, at, [&] { save(net, file); });
  }
  [[nodiscard]] int calls() const {
    const ScratchFolder folder;
    const ValuedNet net(1);
    save(net, folder / "net");
    return with(Fault::none, 0, net, folder / "net");
  }
};

const Save k_saves[] = {
    {"SaveParameters",
     [](const ValuedNet& net, const std::filesystem::path& file) { save_parameters(net, file); }},
    {"SaveTensors",
     [](const ValuedNet& net, const std::filesystem::path& file) {
       std::map<std::string, at::Tensor> tensors;
       for (const auto& x : net.named_buffers()) tensors.emplace(x.key(), x.value());
       save_tensors(tensors, file);
     }},
    {"SaveTraining", [](const ValuedNet& net, const std::filesystem::path& file) {
       const torch::optim::SGD sgd(std::vector<at::Tensor>(), 0.1);
       save_training(net, sgd, {}, file);
     }}};

class Saving : public testing::TestWithParam<Save> {};

INSTANTIATE_TEST_SUITE_P(By, Saving, testing::ValuesIn(k_saves),
                         [](const auto& one) { return std::string(one.param.name); });

std::optional<float> loaded(const std::filesystem::path& file) {
  ValuedNet net(-1);
  const auto names = [](const std::string& name) {  // of a training file the network's alone
    const bool of_training = name.starts_with("network.");
    return of_training ? name.substr(8) : name.starts_with("b") ? name : "";
  };
  load_parameters(net, file, {.rename = names});
  return net.value();
}

TEST_P(Saving, LeavesTheOldFileOrTheNewOneWhenACallFails) {
  const int calls = GetParam().calls();
  ASSERT_GT(calls, k_tensors);
  int failures = 0;
  for (int at = 1; at <= calls; ++at) {
    const ScratchFolder folder;
    const auto file = folder / "net";
    save_parameters(ValuedNet(1), file);
    bool failed = false;
    try {
      GetParam().with(Fault::fail, at, ValuedNet(2), file);
    } catch (const FileError& error) {
      failed = true;
      EXPECT_EQ(error.file(), file);
      EXPECT_TRUE(test::has(error.what(), file.string())) << error.what();
      EXPECT_TRUE(test::has(error.what(), "Input/output error")) << error.what();
    }
    failures += failed ? 1 : 0;
    const auto found = loaded(file);
    EXPECT_TRUE(found == 2.F || (failed && found == 1.F)) << "call " << at;
    EXPECT_EQ(folder.files(), 1) << "call " << at;
  }
  EXPECT_GE(failures, calls - 1) << "only closing the folder may fail unnoticed";
}

TEST_P(Saving, GoesOnAfterShortWrites) {
  const int calls = GetParam().calls();
  for (int at = 1; at <= calls; ++at) {
    const ScratchFolder folder;
    GetParam().with(Fault::short_call, at, ValuedNet(2), folder / "net");
    EXPECT_EQ(loaded(folder / "net"), 2.F) << "call " << at;
  }
}

TEST_P(Saving, LeavesTheOldFileOrTheNewOneWhenItIsKilled) {
  const int calls = GetParam().calls();
  int moments = 0;
  int old_ones = 0;
  for (int at = 1; at <= calls; ++at) {
    for (const auto how : {Fault::kill_before, Fault::kill_half_way, Fault::kill_after}) {
      const ScratchFolder folder;
      const auto file = folder / "net";
      save_parameters(ValuedNet(1), file);
      const auto child = ::fork();
      if (child == 0) {
        GetParam().with(how, at, ValuedNet(2), file);
        ::_exit(0);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "call " << at;
      const auto found = loaded(file);
      EXPECT_TRUE(found == 1.F || found == 2.F) << "call " << at;
      old_ones += found == 1.F ? 1 : 0;
      ++moments;
    }
  }
  std::cout << "killed at " << moments << " moments: " << old_ones
            << " times the old file, else the new one\n";
  EXPECT_GE(moments, 100);
}

// An index and two files: opened, looked at and closed, and the two read.
TEST(LoadTensors, GivesAllOrAnErrorWhenACallFails) {
  const ScratchFolder folder;
  save_tensors({{"a", torch::ones({2})}}, folder / "1");
  save_tensors({{"b", torch::ones({2})}}, folder / "2");
  std::ofstream(folder / "index.json") << R"({"weight_map":{"a":"1","b":"2"}})";
  const auto load = [&] { EXPECT_EQ(load_tensors(folder / "index.json").size(), 2U); };
  const int calls = calls_with(Fault::none, 0, load);
  ASSERT_GE(calls, 11);
  int failures = 0;
  for (int at = 1; at <= calls; ++at) {
    try {
      calls_with(Fault::fail, at, load);
    } catch (const FileError& error) {
      ++failures;
      EXPECT_TRUE(test::has(error.what(), (folder / "index.json").string())) << error.what();
      EXPECT_TRUE(test::has(error.what(), "Input/output error")) << error.what();
    }
  }
  EXPECT_GE(failures, 8) << "closing a file that was read may fail unnoticed";
  for (int at = 1; at <= calls; ++at) calls_with(Fault::short_call, at, load);
}

}  // namespace
}  // namespace use_gpu
