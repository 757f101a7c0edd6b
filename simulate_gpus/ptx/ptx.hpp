// Kernels of programs: executes PTX on the CPU. Nothing here includes CUDA or LibTorch.
//
//   auto module = ptx::load(text, host);             // throws Error: invalid PTX, or something that is not offered
//   module->resolve("kernel");                       // as early as that: what its launch would refuse
//   module->launch({.kernel = "kernel", .grid = {4}, .block = {128}, .parameters = bytes});
//
// The library is opened when a program brings its first kernel: `simulate_gpus_ptx_load` is the name to look up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace simulate_gpus {
namespace ptx {  // seen by whoever opens the library

// What becomes of an error in CUDA, by the name that cudaError_t has for it.
enum class Kind {
  invalid_ptx,  // cudaErrorInvalidPtx: the text is malformed
  not_offered,  // cudaErrorNotSupported: a GPU takes it, the simulation does not
  not_found,  // cudaErrorSymbolNotFound: no kernel, no variable of that name, an unresolved function
  invalid_value,       // cudaErrorInvalidValue: a launch that does not fit the kernel
  out_of_memory,       // cudaErrorMemoryAllocation
  illegal_address,     // cudaErrorIllegalAddress
  misaligned_address,  // cudaErrorMisalignedAddress
  assertion,           // cudaErrorAssert
  launch_failure,  // cudaErrorLaunchFailure: trap, a write to constants, a second free, grid.sync() without its launch
  timeout,  // cudaErrorLaunchTimeout: an endless wait
};

// Kinds from illegal_address on are faults of a running kernel: on a GPU the context is lost.
class Error : public std::runtime_error {
 public:
  Error(Kind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

struct Dimensions {
  std::uint32_t x = 1, y = 1, z = 1;
};
// Its text names kernel, block, thread, PTX line and, where the PTX has it, the line of the source.
class Fault : public Error {
 public:
  Fault(Kind kind, const std::string& text, Dimensions in_block, Dimensions of_thread)
      : Error(kind, text), block(in_block), thread(of_thread) {}
  Dimensions block, thread;
};

// Device memory as programs address it. All functions but `print` may be called from several threads at once.
struct Allocation {
  std::uint64_t begin = 0, end = 0;  // as the program addresses it; nothing if both are 0
  std::byte* host = nullptr;         // where `begin` is
};
struct Host {
  std::function<Allocation(std::uint64_t address)>
      find;  // what holds this address: of the device, peers, pinned memory
  std::function<Allocation(std::size_t bytes)>
      allocate;  // for variables and malloc of kernels, aligned to 256 bytes
  std::function<void(std::uint64_t begin)> release;                  // what allocate gave
  std::function<void(std::string_view text, bool to_stderr)> print;  // of printf and assert
};

struct Parameter {
  std::size_t offset = 0, bytes = 0, alignment = 1;
};
struct Attributes {
  std::vector<Parameter> parameters;
  std::size_t parameter_bytes = 0;
  std::size_t static_shared_bytes = 0, constant_bytes = 0, local_bytes = 0;  // local: of a thread
  std::uint32_t max_threads = 1024;               // of a block: .maxntid and .reqntid
  std::uint32_t required_threads[3] = {0, 0, 0};  // .reqntid, or zeros
  std::uint32_t registers = 0;    // an estimate, from the registers that are alive at once
  std::uint32_t ptx_version = 0;  // 80 of ".version 8.0"
  std::uint32_t target = 0;       // 90 of ".target sm_90a"
};
struct Variable {
  std::uint64_t address = 0;  // as the program addresses it
  std::size_t bytes = 0;
  bool is_constant = false;
};
// The lowest and the highest byte of an allocation that a launch has read or written.
struct Touched {
  std::uint64_t begin = 0, end = 0;
  bool read = false, written = false;
};

struct Launch {
  std::string kernel = {};
  Dimensions grid = {}, block = {};
  std::size_t dynamic_shared_bytes = 0;
  std::vector<std::byte> parameters = {};
  bool cooperative = false;  // all blocks are alive at once, and may wait for each other
  std::uint32_t multiprocessors = 132;
  std::uint32_t threads =
      0;  // of the host; 0: as many as it has; 1: blocks in order, and so are float atomics
  // Instructions of a block that only repeats itself while nothing else writes: after so many it ends by a timeout.
  std::uint64_t endless_after = std::uint64_t{1} << 32;
  std::vector<Touched>* touched = nullptr;  // filled where it is wanted; that costs time
};

class Module {
 public:
  virtual ~Module() = default;
  virtual std::vector<std::string> kernels() const = 0;
  virtual std::vector<std::pair<std::string, Variable>> variables() const = 0;
  virtual bool has_kernel(const std::string& kernel) const = 0;
  // Throws: Error (not_found, and what `resolve` throws).
  virtual Attributes attributes(const std::string& kernel) = 0;
  // Lowers the kernel, once. Throws: Error (not_offered and its like, with kernel, instruction and PTX line).
  virtual void resolve(const std::string& kernel) = 0;
  // Throws: Error (not_found).
  virtual Variable variable(const std::string& name) const = 0;
  // Executes all of it. Several launches of a module may run at once. Throws: Fault, and what `resolve` throws.
  virtual void launch(const Launch& launch) = 0;
};

// The PTX of one module. Its variables are allocated and filled at once, and released with it.
std::shared_ptr<Module> load(std::string_view text, const Host& host);

}  // namespace ptx
}  // namespace simulate_gpus

// The same for whoever opens the library: the caller owns the module. Throws: Error.
extern "C" [[gnu::visibility("default")]] simulate_gpus::ptx::Module* simulate_gpus_ptx_load(
    const char* text, std::size_t bytes, const simulate_gpus::ptx::Host& host);
