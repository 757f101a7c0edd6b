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
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
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
  const int rank = context.rank, size = context.size;
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
  const char* const wanted = std::getenv("SIMULATE_GPUS_NCCL_PROGRAMS");
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

// ---- What the programs have not

std::vector<float> sum_over(ncclComm_t comm, float value) {
  auto* const stream = make_stream();
  const Buffer<float> x(3, value);
  check(ncclAllReduce(x.data(), x.data(), 3, ncclFloat32, ncclSum, comm, stream));
  return x.values(stream);
}

TEST(Split, MakesACommunicatorOfEachColor) {
  on_ranks(4, [](int rank, ncclComm_t comm) {
    ncclComm_t part = nullptr;
    check(ncclCommSplit(comm, rank % 2, /*key=*/-rank, &part, nullptr));
    int size = 0, own_rank = -1;
    check(ncclCommCount(part, &size));
    check(ncclCommUserRank(part, &own_rank));
    EXPECT_EQ(size, 2);
    EXPECT_EQ(own_rank, rank < 2 ? 1 : 0) << "the keys order them";
    EXPECT_EQ(sum_over(part, static_cast<float>(rank)), std::vector<float>(3, rank % 2 ? 4 : 2));
    EXPECT_EQ(sum_over(comm, static_cast<float>(rank)), std::vector<float>(3, 6));
    check(ncclCommDestroy(part));
    // Who has no color takes part, and gets nothing.
    check(ncclCommSplit(comm, rank == 0 ? NCCL_SPLIT_NOCOLOR : 0, rank, &part, nullptr));
    EXPECT_EQ(part == nullptr, rank == 0);
    if (part) {
      EXPECT_EQ(sum_over(part, 1), std::vector<float>(3, 3));
    }
    check(ncclCommDestroy(part));
  });
}

template <class T>
std::vector<T> reduced(ncclComm_t comm, ncclRedOp_t reduction, T value) {
  auto* const stream = make_stream();
  const Buffer<T> x(std::vector<T>(2, value));
  check(ncclAllReduce(x.data(), x.data(), 2, k_type<T>, reduction, comm, stream));
  return x.values(stream);
}

TEST(Reductions, Average) {
  on_ranks(3, [](int rank, ncclComm_t comm) {
    EXPECT_EQ(reduced(comm, ncclAvg, static_cast<float>(rank)), std::vector<float>(2, 1));
    EXPECT_EQ(reduced(comm, ncclAvg, rank * 0.5), std::vector<double>(2, 0.5));
    EXPECT_EQ(reduced(comm, ncclAvg, rank), std::vector<int>(2, 1));
    // 256 + 1 + 1 in float32, rounded once.
    const auto narrow = reduced(comm, ncclAvg, __nv_bfloat16(rank == 0 ? 256.0f : 1.0f));
    EXPECT_EQ(static_cast<float>(narrow[0]), 86);
  });
}

TEST(Reductions, MultiplyBeforeTheyAdd) {
  on_ranks(2, [](int rank, ncclComm_t comm) {
    float factor = static_cast<float>(rank) + 2;  // each rank has its own
    ncclRedOp_t of_host, of_device;
    check(ncclRedOpCreatePreMulSum(&of_host, &factor, ncclFloat32, ncclScalarHostImmediate, comm));
    const Buffer<float> on_device(1, 10);
    check(ncclRedOpCreatePreMulSum(&of_device, on_device.data(), ncclFloat32, ncclScalarDevice,
                                   comm));
    factor = 0;  // read already
    EXPECT_EQ(reduced(comm, of_host, 1.0f), std::vector<float>(2, 5));
    EXPECT_EQ(reduced(comm, of_device, 1.0f), std::vector<float>(2, 20));
    check(ncclRedOpDestroy(of_host, comm));
    check(ncclRedOpDestroy(of_device, comm));
  });
}

TEST(Graphs, DoTheirCollectivesAtEachLaunch) {
  on_ranks(2, [](int rank, ncclComm_t comm) {
    auto* const stream = make_stream();
    const Buffer<float> x(2, static_cast<float>(rank + 1));
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t launchable = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    check(ncclAllReduce(x.data(), x.data(), 2, ncclFloat32, ncclSum, comm, stream));
    check(cudaStreamEndCapture(stream, &graph));
    EXPECT_EQ(x.values(stream)[0], rank + 1) << "a capture does nothing";
    check(cudaGraphInstantiateWithFlags(&launchable, graph, 0));
    for (int launch = 0; launch < 3; ++launch) check(cudaGraphLaunch(launchable, stream));
    EXPECT_EQ(x.values(stream), std::vector<float>(2, 12));  // 3, 6, 12
    check(cudaGraphExecDestroy(launchable));
    check(cudaGraphDestroy(graph));
  });
}

TEST(Communicators, ThatDoNotBlockBecomeReady) {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id));
  std::barrier first_has_returned(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      check(cudaSetDevice(rank));
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      ncclComm_t comm = nullptr;
      if (rank == 1) first_has_returned.arrive_and_wait();
      const ncclResult_t result = ncclCommInitRankConfig(&comm, 2, id, rank, &config);
      ncclResult_t state = result;
      if (rank == 0) {
        EXPECT_EQ(result, ncclInProgress);
        check(ncclCommGetAsyncError(comm, &state));
        EXPECT_EQ(state, ncclInProgress) << "rank 1 has not called yet";
        first_has_returned.arrive_and_wait();
      }
      while (state == ncclInProgress) check(ncclCommGetAsyncError(comm, &state));
      check(state);
      EXPECT_EQ(sum_over(comm, 1), std::vector<float>(3, 2));
      check(ncclCommDestroy(comm));
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Calls, ThatCannotBeMadeAreRefusedWithTheReason) {
  on_ranks(2, [](int rank, ncclComm_t comm) {
    const Buffer<float> x(1);
    EXPECT_EQ(ncclBroadcast(x.data(), x.data(), 1, ncclFloat32, 2, comm, nullptr),
              ncclInvalidArgument);
    EXPECT_EQ(std::string(ncclGetLastError(comm)), "ncclBroadcast: there is no rank 2 among 2");
    EXPECT_EQ(sum_over(comm, static_cast<float>(rank)), std::vector<float>(3, 1)) << "all goes on";
  });
}

TEST(Reductions, TakeTheNumberOfANumberAndANan) {
  on_ranks(2, [](int rank, ncclComm_t comm) {
    for (const int with_nan : {0, 1}) {
      const float value = rank == with_nan ? std::nanf("") : 1;
      EXPECT_EQ(reduced(comm, ncclMax, value), std::vector<float>(2, 1));
      EXPECT_EQ(reduced(comm, ncclMin, value), std::vector<float>(2, 1));
    }
  });
}

TEST(Groups, MayHaveMoreCallsThanThereIsRoomFor) {
  constexpr std::size_t k_calls = 1300;
  on_ranks(2, [](int rank, ncclComm_t comm) {
    auto* const stream = make_stream();
    const Buffer<int> sums(k_calls, rank), received(k_calls), sent(k_calls, rank);
    check(ncclGroupStart());
    for (std::size_t i = 0; i < k_calls; ++i) {
      check(ncclAllReduce(sums.data() + i, sums.data() + i, 1, ncclInt32, ncclSum, comm, stream));
      check(ncclSend(sent.data() + i, 1, ncclInt32, 1 - rank, comm, stream));
      check(ncclRecv(received.data() + i, 1, ncclInt32, 1 - rank, comm, stream));
    }
    check(ncclGroupEnd());
    EXPECT_EQ(sums.values(stream), std::vector<int>(k_calls, 1));
    EXPECT_EQ(received.values(stream), std::vector<int>(k_calls, 1 - rank));
  });
}

// Nobody waits for the receiver's work, but the sender's needs its room.
TEST(Ranks, ThatAreFarAheadGetRoom) {
  std::barrier sender_is_done(2);
  on_ranks(2, [&](int rank, ncclComm_t comm) {
    auto* const stream = make_stream();
    const Buffer<int> x(1, rank + 5);
    for (int i = 0; i < 1100; ++i) {
      check(ncclBroadcast(x.data(), x.data(), 1, ncclInt32, 0, comm, stream));
      check(rank == 0 ? ncclSend(x.data(), 1, ncclInt32, 1, comm, stream)
                      : ncclRecv(x.data(), 1, ncclInt32, 0, comm, stream));
    }
    if (rank == 0) check(cudaStreamSynchronize(stream));
    sender_is_done.arrive_and_wait();
    EXPECT_EQ(x.values(stream)[0], 5);
  });
}

TEST(Communicators, LeaveNoFileOpen) {
  const auto open_files = [] {
    const auto begin = std::filesystem::directory_iterator("/proc/self/fd");
    return std::distance(begin, std::filesystem::directory_iterator());
  };
  const auto use = [](int rank, ncclComm_t comm) {
    ncclComm_t part = nullptr;
    check(ncclCommSplit(comm, 0, rank, &part, nullptr));
    sum_over(part, 1);
    check(ncclCommDestroy(part));
  };
  on_ranks(2, use);
  const auto before = open_files();
  for (int i = 0; i < 20; ++i) on_ranks(2, use);
  // A rank's own thread may still be leaving.
  for (int wait = 0; wait < 100 && open_files() > before; ++wait)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_LE(open_files(), before);
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

// c10d's watchdog looks for failures in a thread of its own, and asks of no communicator.
TEST(Ranks, ThatMakeOtherCallsAreNamedToAnyThread) {
  on_ranks(2, [](int rank, ncclComm_t comm) {
    const Buffer<float> x(4);
    check(ncclReduce(x.data(), x.data(), 4, ncclFloat32, ncclSum, rank, comm, nullptr));
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaErrorLaunchFailure);
    std::thread([&] {
      ncclResult_t error = ncclSuccess;
      check(ncclCommGetAsyncError(comm, &error));
      EXPECT_EQ(error, ncclInvalidUsage);
      const std::string text = ncclGetLastError(nullptr);
      EXPECT_NE(text.find("ncclReduce of 4 float32, sum, root 0 on rank 0"), text.npos) << text;
      EXPECT_NE(text.find("ncclReduce of 4 float32, sum, root 1 on rank 1"), text.npos) << text;
    }).join();
  });
}

TEST(Ranks, ThatCannotGiveTheirPartTellAll) {
  std::barrier all_have_memory(2);  // making it waits for a stream, and would be told the error
  on_ranks(2, [&](int rank, ncclComm_t comm) {
    auto* const stream = make_stream();
    const Buffer<float> x(4);
    all_have_memory.arrive_and_wait();
    const float* const from = rank == 0 ? nullptr : x.data();
    check(ncclAllReduce(from, x.data(), 4, ncclFloat32, ncclSum, comm, stream));
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    EXPECT_NE(std::string(ncclGetLastError(comm)).find("writing what a rank gives"),
              std::string::npos)
        << ncclGetLastError(comm);
  });
}

TEST(Split, OfRanksThatMakeAnotherCallIsAnError) {
  on_ranks(2, [](int rank, ncclComm_t comm) {
    auto* const stream = make_stream();
    const Buffer<float> x(4);
    if (rank == 0) {
      ncclComm_t part = nullptr;
      EXPECT_EQ(ncclCommSplit(comm, 0, rank, &part, nullptr), ncclInvalidUsage);
    } else {
      check(ncclAllReduce(x.data(), x.data(), 4, ncclFloat32, ncclSum, comm, stream));
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    }
    EXPECT_NE(std::string(ncclGetLastError(comm)).find("ncclCommSplit on rank 0"),
              std::string::npos)
        << ncclGetLastError(comm);
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
