// SPDX-License-Identifier: MIT
//
// NCCL of simulated GPUs, called as LibTorch's c10d calls it. Ranks are threads here; the programs in
// nccl_programs.py have processes.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

void check(cudaError_t code) { ASSERT_EQ(code, cudaSuccess) << cudaGetErrorString(code); }
void check(ncclResult_t code) { ASSERT_EQ(code, ncclSuccess) << ncclGetLastError(nullptr); }

// Elements of a dtype on the current device.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t count, T value = T(0.0f)) : Buffer(std::vector<T>(count, value)) {}
  explicit Buffer(const std::vector<T>& values) : count_(values.size()) {
    check(cudaMalloc(&memory_, std::max<std::size_t>(1, bytes())));
    check(cudaMemcpy(memory_, values.data(), bytes(), cudaMemcpyHostToDevice));
  }
  ~Buffer() { cudaFree(memory_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] T* data() const { return static_cast<T*>(memory_); }
  // Does not wait for any stream but that one.
  [[nodiscard]] std::vector<T> values(cudaStream_t stream = nullptr) const {
    std::vector<T> values(count_);
    check(cudaMemcpyAsync(values.data(), memory_, bytes(), cudaMemcpyDeviceToHost, stream));
    check(cudaStreamSynchronize(stream));
    return values;
  }

 private:
  [[nodiscard]] std::size_t bytes() const { return count_ * sizeof(T); }
  std::size_t count_;
  void* memory_ = nullptr;
};

cudaStream_t make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

// Runs `body(rank, communicator)` on that many ranks: a thread and a device each.
void on_ranks(int size, const std::function<void(int, ncclComm_t&)>& body) {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      check(cudaSetDevice(rank));
      ncclComm_t comm = nullptr;
      check(ncclCommInitRank(&comm, size, id, rank));
      body(rank, comm);
      check(ncclCommDestroy(comm));
    });
  }
  for (auto& thread : threads) thread.join();
}

template <class T>
constexpr ncclDataType_t k_type = std::is_same_v<T, std::int8_t>     ? ncclInt8
                                  : std::is_same_v<T, std::uint8_t>  ? ncclUint8
                                  : std::is_same_v<T, std::int32_t>  ? ncclInt32
                                  : std::is_same_v<T, std::int64_t>  ? ncclInt64
                                  : std::is_same_v<T, __half>        ? ncclFloat16
                                  : std::is_same_v<T, __nv_bfloat16> ? ncclBfloat16
                                  : std::is_same_v<T, float>         ? ncclFloat32
                                                                     : ncclFloat64;

// ---- Random programs. Each rank knows what all ranks give, so it knows what it must get.

enum Kind {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  all_to_all,
  gather,
  scatter,
  ring,
  k_kinds
};

struct Step {
  int kind, type, reduction, root, shift, stream;
  std::size_t count;
  bool in_place, is_grouped, waits;
};

std::vector<Step> random_program(std::mt19937& random, int size) {
  const auto below = [&](int end) {
    return static_cast<int>(random() % static_cast<unsigned>(end));
  };
  std::vector<Step> program(static_cast<std::size_t>(1 + below(8)));
  for (auto& step : program) {
    step = {.kind = below(k_kinds),
            .type = below(8),
            .reduction = below(4),  // the average of integers is another test's
            .root = below(size),
            .shift = below(size),
            .stream = below(2),
            .count = below(8) == 0 ? static_cast<std::size_t>(below(40'000))
                                   : static_cast<std::size_t>(below(50)),
            .in_place = below(2) == 0,
            .is_grouped = below(3) == 0,
            .waits = below(4) == 0};
  }
  return program;
}

// What a rank gives: small numbers, whose sums and products every dtype holds exactly.
double given(std::size_t step, int rank, std::size_t i) {
  return static_cast<double>((step * 7 + static_cast<std::size_t>(rank) * 3 + i * 5) % 4);
}

// How many elements a rank has as input, and what it gets.
std::size_t input_count(const Step& step, int size) {
  const bool one_for_each =
      step.kind == reduce_scatter || step.kind == all_to_all || step.kind == scatter;
  return step.count * (one_for_each ? static_cast<std::size_t>(size) : 1);
}

std::vector<double> expected(const Step& step, std::size_t index, int rank, int size) {
  const auto own = static_cast<std::size_t>(rank) * step.count;
  const auto reduced = [&](std::size_t i) {
    double value = given(index, 0, i);
    for (int other = 1; other < size; ++other) {
      const double next = given(index, other, i);
      value = step.reduction == ncclProd  ? value * next
              : step.reduction == ncclMax ? std::max(value, next)
              : step.reduction == ncclMin ? std::min(value, next)
                                          : value + next;
    }
    return value;
  };
  std::vector<double> values;
  const auto add = [&](int from, std::size_t begin) {
    for (std::size_t i = 0; i < step.count; ++i) values.push_back(given(index, from, begin + i));
  };
  const auto add_reduced = [&](std::size_t begin) {
    for (std::size_t i = 0; i < step.count; ++i) values.push_back(reduced(begin + i));
  };
  switch (step.kind) {
    case all_reduce:
      add_reduced(0);
      break;
    case reduce:
      if (rank == step.root) add_reduced(0);
      break;
    case reduce_scatter:
      add_reduced(own);
      break;
    case broadcast:
      add(step.root, 0);
      break;
    case scatter:
      add(step.root, own);
      break;
    case ring:
      add((rank + size - step.shift) % size, 0);
      break;
    case gather:
      if (rank != step.root) break;
      [[fallthrough]];
    case all_gather:
      for (int other = 0; other < size; ++other) add(other, 0);
      break;
    default:
      for (int other = 0; other < size; ++other) add(other, own);
  }
  return values;
}

struct Context {
  int rank, size;
  ncclComm_t comm;
  std::vector<cudaStream_t> streams;
  std::vector<std::function<void()>> checks;
};

template <class T>
void enqueue(const Step& step, std::size_t index, Context& context) {
  const auto [rank, size] = std::pair(context.rank, context.size);
  std::vector<T> input;
  for (std::size_t i = 0; i < input_count(step, size); ++i)
    input.push_back(static_cast<T>(static_cast<float>(given(index, rank, i))));
  const auto wanted = expected(step, index, rank, size);
  const auto from = std::make_shared<Buffer<T>>(input);
  const bool in_place =
      step.in_place && (step.kind == all_reduce || step.kind == reduce || step.kind == broadcast);
  const auto to =
      in_place ? from : std::make_shared<Buffer<T>>(std::max(wanted.size(), std::size_t{1}));
  const auto stream = context.streams[static_cast<std::size_t>(step.stream)];
  const auto reduction = static_cast<ncclRedOp_t>(step.reduction);
  const auto comm = context.comm;
  const auto call = [&] {
    switch (step.kind) {
      case all_reduce:
        return ncclAllReduce(from->data(), to->data(), step.count, k_type<T>, reduction, comm,
                             stream);
      case reduce:
        return ncclReduce(from->data(), to->data(), step.count, k_type<T>, reduction, step.root,
                          comm, stream);
      case reduce_scatter:
        return ncclReduceScatter(from->data(), to->data(), step.count, k_type<T>, reduction, comm,
                                 stream);
      case broadcast:
        return ncclBroadcast(from->data(), to->data(), step.count, k_type<T>, step.root, comm,
                             stream);
      case scatter:
        return ncclScatter(from->data(), to->data(), step.count, k_type<T>, step.root, comm,
                           stream);
      case gather:
        return ncclGather(from->data(), to->data(), step.count, k_type<T>, step.root, comm, stream);
      case all_gather:
        return ncclAllGather(from->data(), to->data(), step.count, k_type<T>, comm, stream);
      case all_to_all:
        return ncclAlltoAll(from->data(), to->data(), step.count, k_type<T>, comm, stream);
      default:
        check(ncclGroupStart());
        check(ncclSend(from->data(), step.count, k_type<T>, (rank + step.shift) % size, comm,
                       stream));
        check(ncclRecv(to->data(), step.count, k_type<T>, (rank + size - step.shift) % size, comm,
                       stream));
        return ncclGroupEnd();
    }
  };
  check(call());
  context.checks.emplace_back([=, kept = from] {  // to free memory is to wait for its device
    const auto values = to->values(stream);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_EQ(static_cast<double>(static_cast<float>(values[i])), wanted[i])
          << "step " << index << ", kind " << step.kind << ", type " << step.type << ", element "
          << i << ", rank " << rank << " of " << size;
    }
  });
}

void run_program(const std::vector<Step>& program, int rank, int size, ncclComm_t comm) {
  Context context{rank, size, comm, {make_stream(), make_stream()}, {}};
  bool in_group = false;
  const auto end_group = [&] {
    if (std::exchange(in_group, false)) check(ncclGroupEnd());
  };
  for (std::size_t i = 0; i < program.size(); ++i) {
    const Step& step = program[i];
    if (step.is_grouped && !in_group) {
      check(ncclGroupStart());
      in_group = true;
    } else if (!step.is_grouped) {
      end_group();
    }
    constexpr void (*k_enqueue[])(const Step&, std::size_t, Context&) = {
        enqueue<std::int8_t>, enqueue<std::uint8_t>,  enqueue<std::int32_t>, enqueue<std::int64_t>,
        enqueue<__half>,      enqueue<__nv_bfloat16>, enqueue<float>,        enqueue<double>};
    k_enqueue[step.type](step, i, context);
    if (step.waits && !in_group) check(cudaStreamSynchronize(context.streams[0]));
  }
  end_group();
  for (const auto& values_are_right : context.checks) values_are_right();
  for (auto* stream : context.streams) check(cudaStreamDestroy(stream));
}

TEST(RandomPrograms, GiveWhatTheHostComputes) {
  const char* const wanted = std::getenv("SIMULATED_NCCL_PROGRAMS");
  const int programs = wanted ? std::atoi(wanted) : 60;
  for (int seed = 0; seed < programs; ++seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const int size = 2 + static_cast<int>(random() % 3);
    const auto program = random_program(random, size);
    SCOPED_TRACE("seed " + std::to_string(seed));
    on_ranks(size, [&](int rank, ncclComm_t comm) { run_program(program, rank, size, comm); });
    ASSERT_FALSE(testing::Test::HasFailure());
  }
}

// ---- What a real GPU does only sometimes

TEST(Streams, ShowTheOldValueWithoutAWait) {
  std::barrier both_have_looked(2);
  on_ranks(2, [&](int, ncclComm_t comm) {
    auto* const stream = make_stream();
    auto* const other = make_stream();
    const Buffer<float> x(4, 1);
    check(ncclAllReduce(x.data(), x.data(), 4, ncclFloat32, ncclSum, comm, stream));
    EXPECT_EQ(x.values(other)[0], 1);
    both_have_looked.arrive_and_wait();  // what one rank waits for may be done for both
    EXPECT_EQ(x.values(stream)[0], 2);
  });
}

TEST(Ranks, ThatMakeOtherCallsGetAnErrorThatNamesBoth) {
  on_ranks(2, [](int rank, ncclComm_t comm) {
    auto* const stream = make_stream();
    const Buffer<float> x(4);
    if (rank == 0) {
      check(ncclBroadcast(x.data(), x.data(), 4, ncclFloat32, 1, comm, stream));
    } else {
      check(ncclBroadcast(x.data(), x.data(), 4, ncclFloat32, 0, comm, stream));
    }
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    const std::string text = ncclGetLastError(comm);
    EXPECT_NE(text.find("root 1 on rank 0"), text.npos) << text;
    EXPECT_NE(text.find("root 0 on rank 1"), text.npos) << text;
    ncclResult_t error = ncclSuccess;
    check(ncclCommGetAsyncError(comm, &error));
    EXPECT_EQ(error, ncclInvalidUsage);
  });
}

TEST(Ranks, OfOneGpuAreRefused) {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      ncclComm_t comm = nullptr;
      EXPECT_EQ(ncclCommInitRank(&comm, 2, id, rank), ncclInvalidUsage);
      EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("Duplicate GPU"), std::string::npos);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Abort, EndsAWaitForOthers) {
  on_ranks(2, [](int rank, ncclComm_t& comm) {
    if (rank == 1) return;  // never calls
    auto* const stream = make_stream();
    const Buffer<float> x(4);
    check(ncclAllReduce(x.data(), x.data(), 4, ncclFloat32, ncclSum, comm, stream));
    std::thread aborting([&] { check(ncclCommAbort(std::exchange(comm, nullptr))); });
    check(cudaStreamSynchronize(stream));
    aborting.join();
  });
}

}  // namespace
