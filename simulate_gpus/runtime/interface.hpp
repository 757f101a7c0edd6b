// SPDX-License-Identifier: MIT
//
// What the simulated CUDA runtime offers beside CUDA's own functions, and beside what tests may call
// (simulate_gpus.h): to the kernels, which need to reach device memory and to order their work in
// streams, and to the stand-ins of the driver and of NVML. Everything may be called from any thread.
#pragma once

#include <driver_types.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "simulate_gpus.h"

/// Thrown by submitted work that cannot be done yet, because another rank has not given its part: it
/// stays at the front of its stream, and is tried again after `wait()`, which may return early.
struct simulated_cuda_not_yet : std::exception {
  explicit simulated_cuda_not_yet(std::function<void()> how) : wait(std::move(how)) {}
  std::function<void()> wait;
};

/// A place in a stream.
struct simulated_cuda_moment {
  std::function<bool()> is_over;
  /// Does the stream's work up to there without waiting for other ranks; whether all is done.
  std::function<bool()> advance;
};

/// Bytes that an operation uses, at the address that programs know.
struct simulated_cuda_range {
  std::uintptr_t begin, end;
  bool writes;
};

/// Where the program asked for something, remembered in a form that is cheap to make.
struct simulated_cuda_place {
  virtual ~simulated_cuda_place() = default;
  /// "train.py:12 (step)"; empty if nothing is known.
  [[nodiscard]] virtual std::string text() const = 0;
};

extern "C" {

/// The host address of the byte that programs know as `address`. Host addresses do not change.
void* simulated_cuda_host_address(const void* address);

/// Whether so many bytes of device memory are read or written: all, but in a dry run only a few.
bool simulated_cuda_touches(std::uint64_t bytes);

/// Begins an operation in a stream. Earlier work of the stream is done first, unless the stream is
/// being captured. Fails, like a launch, after a fork or if a fault was requested
/// (cudaLaunchKernel).
cudaError_t simulated_cuda_begin_operation(cudaStream_t stream);

/// Until the end of its rehearsal this thread begins no work: each launch, copy and memory set fails,
/// and so does each operation that begins. The end says whether there was one.
void simulated_cuda_begin_rehearsal();
bool simulated_cuda_end_rehearsal();
bool simulated_cuda_rehearses();

/// Counts an operation of the stream: now, or at each replay of the graph that is captured from it.
/// `name` is for the trace.
void simulated_cuda_count_operation(cudaStream_t stream, const char* name);

/// Whether what a kernel writes must be hidden from other streams until they wait for it. Not
/// needed while there is only the default stream.
bool simulated_cuda_postpones();

bool simulated_cuda_is_capturing(cudaStream_t stream);

/// Appends work to a stream that is not captured. It runs when a thread waits for it, in that
/// thread, and must not call CUDA.
void simulated_cuda_submit(cudaStream_t stream, const std::function<void()>* work);

/// The same, and gives the moment after that work.
void simulated_cuda_submit_with_moment(cudaStream_t stream, const std::function<void()>* work,
                                       simulated_cuda_moment* moment);

/// Appends a step to the graph that is captured from the stream: each launch calls it with its own
/// stream, to which it submits its work. The capture does not call it.
void simulated_cuda_record_submission(cudaStream_t stream,
                                      const std::function<void(cudaStream_t)>* submit);

/// Whether --check was given. Then each operation of a stream tells which memory it uses, when it is
/// given to the stream, and each that waits inside for what the stream does.
bool simulated_cuda_is_checked();
void simulated_cuda_check_operation(cudaStream_t stream, const char* name,
                                    const simulated_cuda_range* ranges, std::size_t count);
void simulated_cuda_check_host_wait(cudaStream_t stream);

/// How to find the place in the program where this thread is.
void simulated_cuda_set_places(std::shared_ptr<const simulated_cuda_place> (*here)());

/// Counts a collective of the stream, or a message, by its name: as an operation. `text` is for the
/// trace.
void simulated_cuda_count_collective(cudaStream_t stream, const char* name, std::uint64_t bytes,
                                     const char* text);

/// Appends a step to the graph that is captured from the stream. It was already done; `undo`
/// reverts it when the capture ends.
void simulated_cuda_record(cudaStream_t stream, const std::function<void()>* step,
                           const std::function<void()>* undo);

/// Whether LibTorch's memory and operations are to be followed (simulate_gpus --summary, --check,
/// --trace=FILE), by the functions below.
bool simulated_cuda_is_followed();

/// This thread is in an operation, or a scope of the program, until it leaves it.
void simulated_cuda_enter_operation(const char* name);
void simulated_cuda_leave_operation();

/// `attach` is called by this thread, or by an operation of another, when it asks for its device, and
/// again until it returns true. The thread holds none of LibTorch's locks.
void simulated_cuda_attach_to_allocator(bool (*attach)());

/// What became of a block of LibTorch's caching allocator, of as many bytes as were requested: given
/// to the program; freed by it; released to the allocator, which waits for what the program has
/// recorded in other streams.
enum simulated_cuda_block {
  simulated_cuda_block_given,
  simulated_cuda_block_freed,
  simulated_cuda_block_released
};
void simulated_cuda_note_block(int device, const void* address, std::uint64_t bytes,
                               simulated_cuda_block what);

/// The cards: the simulated GPUs before CUDA_VISIBLE_DEVICES hides some and orders the rest.
int simulated_cuda_num_cards();
const char* simulated_cuda_gpu_name();
std::uint64_t simulated_cuda_memory_bytes();
std::uint64_t simulated_cuda_reserved_bytes();  // of these
/// The newest CUDA that the driver runs, as CUDA writes it: 13000 is 13.0.
int simulated_cuda_driver_version();
/// The device index of a card here; -1 if it is hidden.
int simulated_cuda_device_of_card(int card);
/// Writes the card's UUID, as NVML prints it: at most 48 characters.
void simulated_cuda_uuid_of_card(int card, char* uuid);
}
