// SPDX-License-Identifier: MIT
//
// What the runtime offers beside CUDA's own functions, and beside what tests may call (simulate_gpus.h): to the
// kernels, which need to reach device memory and to order their work in streams, and to the stand-ins of the
// driver and of NCCL; settings.hpp has what all of them ask for. Everything may be called from any thread.
#pragma once

#include <driver_types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "simulate_gpus.h"

namespace simulate_gpus {

/// Thrown by submitted work that cannot be done yet, because another rank has not given its part: it
/// stays at the front of its stream, and is tried again after `wait()`, which may return early.
struct NotYet : std::exception {
  explicit NotYet(std::function<void()> how) : wait(std::move(how)) {}
  std::function<void()> wait;
};

/// A place in a stream.
struct StreamMoment {
  std::function<bool()> is_over;
  /// Does the stream's work up to there without waiting for other ranks; whether all is done.
  std::function<bool()> advance;
};

/// Bytes that an operation uses, at the address that programs know.
struct MemoryRange {
  std::uintptr_t begin, end;
  bool writes;
};

/// Of a kernel of CUDA: how many blocks, each of how many threads.
struct LaunchSize {
  std::array<unsigned, 3> grid, block;
  std::size_t shared_bytes;  ///< as given to the launch
};

/// What a stream is given (given.hpp).
struct Given;

/// Where the program asked for something, remembered in a form that is cheap to make.
struct ProgramPlace {
  virtual ~ProgramPlace() = default;
  /// "train.py:12 (step)"; empty if nothing is known.
  [[nodiscard]] virtual std::string text() const = 0;
};

/// What became of a block of LibTorch's caching allocator: given to the program; freed by it; released
/// to the allocator, which waits for what the program has recorded in other streams.
enum class BlockChange { given, freed, released };

inline namespace interface {  // what the library exports

/// Why a function is refused: "cudaMallocAsync is not offered by simulated GPUs". The first time the
/// process says so on stderr too, as few programs look at all their errors.
[[nodiscard]] std::string not_offered(const std::string& function);

/// How a function begins that is not the runtime's: fails after a fork, without a device, after a kernel's fault, and
/// where the program asked for a fault.
[[nodiscard]] cudaError_t enter_call(const char* function);

/// A memory set of `count` values of `size` bytes, 2 or 4, which the driver has and the runtime lacks.
[[nodiscard]] cudaError_t set_values(void* address, unsigned value, std::size_t size,
                                     std::size_t count, cudaStream_t stream, bool waits);

/// Does all work of all streams, as cudaFree does.
void finish_all_work();

/// The call of a function that is not the runtime's, told to tools from its beginning to its end.
class ToldCall {
 public:
  explicit ToldCall(const char* function);
  ~ToldCall();
  ToldCall(const ToldCall&) = delete;
  ToldCall& operator=(const ToldCall&) = delete;

 private:
  bool is_watched_;
};

/// What the functions of compiled models jump to, in the order of LibTorch's header.
[[nodiscard]] std::span<void*> compiled_calls();

/// The whole name of a CUDA kernel, as it was compiled (mangled), which stays; null for what is none.
[[nodiscard]] const char* compiled_name(const void* kernel);

/// The host address of the byte that programs know as `address`. Host addresses do not change.
[[nodiscard]] void* host_address(const void* address);

/// The allocation in which an address lies; null for none. No other has its number, which is 0 for what is mapped by
/// the functions below.
struct AllocatedRange {
  const void* begin = nullptr;
  std::size_t bytes = 0;
  std::uint64_t id = 0;
};
[[nodiscard]] AllocatedRange range_at(const void* address);

/// Begins an operation in a stream. Earlier work of the stream is done first, unless the stream is
/// being captured. Fails, like a launch, after a fork or if a fault was requested
/// (cudaLaunchKernel).
[[nodiscard]] cudaError_t begin_operation(cudaStream_t stream);

/// Memory of a GPU that is mapped at addresses that a program reserves: the driver's cuMem... functions, with its
/// handles. Nothing is done where false, null or -1 is returned.
struct PhysicalMemory;
[[nodiscard]] std::shared_ptr<PhysicalMemory> create_memory(int device, std::size_t bytes);
[[nodiscard]] int export_memory(const PhysicalMemory& memory);  // a file
[[nodiscard]] std::shared_ptr<PhysicalMemory> import_memory(int file);
[[nodiscard]] int device_of_memory(const PhysicalMemory& memory);
[[nodiscard]] std::shared_ptr<PhysicalMemory> memory_at(const void* address);
[[nodiscard]] void* reserve_addresses(std::size_t bytes);
[[nodiscard]] bool free_addresses(void* address, std::size_t bytes);
[[nodiscard]] bool map_memory(void* address, std::size_t bytes, std::size_t offset,
                              const std::shared_ptr<PhysicalMemory>& memory);
[[nodiscard]] bool unmap_memory(void* address, std::size_t bytes);
[[nodiscard]] bool set_access(const void* address, std::size_t bytes, bool is_accessible);

/// Until the end of its rehearsal this thread begins no work: launches, memory sets and copies to a
/// device do nothing; copies to the host and the operations of simulated kernels fail. The end says
/// whether one did. What a stream would be given is appended to `given`, which may be null.
void begin_rehearsal(std::vector<Given>* given = nullptr);
bool end_rehearsal();
[[nodiscard]] bool rehearses();

/// Whether what a kernel writes must be hidden from other streams until they wait for it. Not
/// needed while there is only the default stream.
[[nodiscard]] bool postpones();

[[nodiscard]] bool is_captured(cudaStream_t stream);

/// Appends work to a stream that is not captured. It runs when a thread waits for it, in that
/// thread, and must not call CUDA.
void submit(cudaStream_t stream, std::function<void()> work);

/// The same, and the moment after that work.
[[nodiscard]] StreamMoment submit_with_moment(cudaStream_t stream, std::function<void()> work);

/// Appends a step to the graph that is captured from the stream. It was already done; `undo`
/// reverts it when the capture ends.
void record(cudaStream_t stream, std::function<void()> step, std::function<void()> undo);

/// Appends a step to the graph that is captured from the stream: each launch calls it with its own
/// stream, to which it submits its work. The capture does not call it.
void record_submission(cudaStream_t stream, std::function<void(cudaStream_t)> submit);

/// Tells the tools of an operation of the stream: now, or at each launch of the graph that is captured
/// from it. Where nothing is captured and there is none, nobody listens.
[[nodiscard]] bool has_tools();
void tell_operation(cudaStream_t stream, std::string_view name);

/// Whether a tool asks for the parts of operations, which takes time.
[[nodiscard]] bool wants_parts();
/// Tells what LibTorch's own code would give to the stream for the operation that this thread begins: kernels, copies, memory
/// sets, and an operation without a name or a kernel for what nobody knows.
void tell_parts(const std::vector<Given>& parts);

/// The same for a collective, or a message. `call` is what the program called.
void tell_collective(cudaStream_t stream, std::string_view name, std::uint64_t bytes,
                     std::string_view call);

/// For --check each operation of a stream tells which memory it uses, when it is given to the stream,
/// and each that waits inside for what the stream does.
void tell_uses(cudaStream_t stream, std::string_view name, std::span<const MemoryRange> ranges);
void tell_inner_wait(cudaStream_t stream);

/// Does what streams were given, as far as no other rank has to give its part: a GPU would have by now.
void advance_streams();

/// How to find the place in the program where this thread is.
void set_places(std::shared_ptr<const ProgramPlace> (*here)());

/// Where LibTorch is followed (Settings::is_followed): this thread is in an operation, or a scope of the
/// program, until it leaves it.
void enter_operation(const char* name);
void leave_operation();

/// `attach` is called by this thread, or by an operation of another, when it asks for its device, and
/// again until it returns true. The thread holds none of LibTorch's locks.
void attach_to_allocator(bool (*attach)());

/// Of as many bytes as were requested.
void tell_block(int device, const void* address, std::uint64_t bytes, BlockChange change);

}  // namespace interface
}  // namespace simulate_gpus
