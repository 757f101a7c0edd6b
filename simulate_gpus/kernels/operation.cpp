// SPDX-License-Identifier: MIT
#include "kernels/operation.hpp"

#include <ATen/ATen.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "kernels/accesses.hpp"
#include "kernels/arguments.hpp"
#include "kernels/deterministic.hpp"
#include "kernels/host_arguments.hpp"
#include "kernels/host_call.hpp"
#include "kernels/host_tensors.hpp"
#include "kernels/inside_kernel.hpp"
#include "kernels/operand_checks.hpp"
#include "kernels/random.hpp"
#include "kernels/rehearsal.hpp"
#include "runtime/interface.hpp"
#include "runtime/settings.hpp"

namespace simulate_gpus {
namespace {

// An operation with its arguments as the CPU's kernel takes them.
struct HostCall {
  c10::OperatorHandle operation;
  c10::DispatchKey key;
  Values arguments;
  std::vector<std::pair<std::size_t, std::function<at::Generator()>>> generators;
  bool is_of_wider_dtype = false;

  [[nodiscard]] Values operator()() const {
    const InsideKernel inside;
    torch::jit::Stack stack = arguments;
    for (const auto& [index, make] : generators) stack[index] = make();
    call_on_host(operation, key, is_of_wider_dtype, &stack);
    return stack;
  }
};

// The call, on views of device memory. `apart`: outputs go to copies.
HostCall make_call(const c10::OperatorHandle& operation, c10::DispatchKey key,
                   const Values& arguments, bool apart) {
  const InsideKernel inside;
  return {operation, key, host_arguments(operation.schema(), arguments, apart), {}};
}

// Whether nothing is drawn: the operation fills an empty tensor, or makes one.
bool draws_nothing(const Values& arguments) {
  const c10::IValue& first = arguments[0];
  return first.isTensor() ? first.toTensor().numel() == 0 : first.isInt() && first.toInt() == 0;
}

void add_generators(HostCall& call, const Values& arguments, c10::Device device) {
  const auto& declared = call.operation.schema().arguments();
  for (std::size_t i = 0; i < declared.size(); ++i) {
    if (declared[i].name() != "generator") continue;
    if (draws_nothing(arguments)) {  // then any generator will do
      call.arguments[i] = c10::IValue();
      continue;
    }
    call.generators.emplace_back(
        i, take_turn(arguments[i].isGenerator() ? std::optional(arguments[i].toGenerator())
                                                : std::nullopt,
                     device));
  }
}

// The call's results for numbers that every operation takes: 0 as an index, 1 as a probability. None
// where it refuses these too.
std::optional<Values> results_of_plain_numbers(HostCall call) {
  const InsideKernel inside;
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    if (writes_argument(call.operation.schema(), i)) continue;
    call.arguments[i] = with_tensors(call.arguments[i], [](const at::Tensor& x) {
      if (!x.defined() || x.scalar_type() == at::kBool) return x;
      return at::isIntegralType(x.scalar_type(), false) ? at::zeros_like(x) : at::ones_like(x);
    });
  }
  try {
    return call();
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

// A capture needs results for their shapes alone: the values of an index may be there only once the
// graph is launched. What the CPU refuses else a GPU may refuse too, with another text.
// What it computes in a wider dtype is what a GPU's kernel takes for certain, and what the failed call has not begun.
Values results_of(HostCall& call, const Values& arguments, bool captured) {
  std::exception_ptr refusal;
  try {
    return call();
  } catch (const c10::Error& error) {
    if (captured) {
      if (auto results = results_of_plain_numbers(call)) return *std::move(results);
    }
    const Rehearsal rehearsal = rehearse(call.operation, arguments);
    const std::string_view text = error.what_without_backtrace();
    const std::string& name = call.operation.schema().name();
    const bool is_list_in_place = name.starts_with("aten::_foreach_") && name.ends_with('_');
    if (rehearsal != Rehearsal::complete || is_list_in_place ||
        text.find("not implemented for '") == text.npos)
      throw;
    refusal = std::current_exception();
  }
  call.is_of_wider_dtype = true;
  try {
    return call();
  } catch (const c10::Error&) {  // of a dtype that the program does not know
    std::rethrow_exception(refusal);
  }
}

// Some of the CPU's operations in place give their tensor another size.
void check_size_in_place(const HostCall& call, const Values& arguments, const at::Tensor& written,
                         const at::Tensor& host) {
  if (written.is_nested() || written.sizes() == host.sizes()) return;
  const auto is_read = [&](std::size_t i) {
    return !writes_argument(call.operation.schema(), i) && arguments[i].isTensor() &&
           arguments[i].toTensor().is_same(written);
  };
  const bool is_in_place = call.operation.schema().name().ends_with('_');
  if (!is_in_place && std::ranges::none_of(std::views::iota(0U, arguments.size()), is_read)) return;
  rehearse(call.operation, arguments);
  TORCH_CHECK(false,
              "Simulated GPUs refuse an output that is also an input and changes its size, from ",
              written.sizes(), " to ", host.sizes());
}

// The results as CUDA tensors, and what is to be written into them and into arguments.
Values device_results(const c10::FunctionSchema& schema, const Values& arguments,
                      const HostCall& call, const Values& host_results, c10::Device device,
                      Writes& writes) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!writes_argument(schema, i)) continue;
    std::vector<at::Tensor> tensors, hosts;
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
    for_each_tensor(call.arguments[i], [&](const at::Tensor& host) { hosts.push_back(host); });
    for (std::size_t k = 0; k < tensors.size(); ++k) {
      if (tensors[k].defined() && tensors[k].is_cuda()) {
        check_size_in_place(call, arguments, tensors[k], hosts[k]);
        update_device_tensor(tensors[k], hosts[k], writes);
      }
    }
  }
  Values results;
  for (std::size_t r = 0; r < host_results.size(); ++r) {
    if (const auto argument = returned_argument(schema, schema.returns()[r])) {
      results.push_back(arguments[*argument]);
    } else {
      results.push_back(with_tensors(host_results[r], [&](const at::Tensor& host) {
        return make_device_tensor(host, device, writes);
      }));
    }
  }
  return results;
}

// Whether CUDA's kernel reads a value or a size back, which cannot be captured.
bool synchronizes(const c10::OperatorHandle& operation, c10::DispatchKey host_key,
                  const Values& arguments) {
  if (is_index_operation(operation.schema())) return false;  // for masks it calls nonzero
  const std::string& name = operation.schema().name();
  if (name == "aten::repeat_interleave") return arguments.back().isNone();  // its output's size
  return host_key == c10::DispatchKey::SparseCPU || host_key == c10::DispatchKey::SparseCsrCPU ||
         name.starts_with("aten::_to_sparse") || operation.hasTag(at::Tag::data_dependent_output) ||
         operation.hasTag(at::Tag::dynamic_output_shape);
}

// What LibTorch does before it waits for a value: torch.cuda.set_sync_debug_mode, and listeners.
void announce_wait(cudaStream_t stream) {
  c10::cuda::warn_or_error_on_sync();  // does nothing unless it is asked to
  if (const auto* listener = c10::impl::GPUTrace::get_trace()) {
    (*listener)->trace_gpu_stream_synchronization(c10::kCUDA,
                                                  reinterpret_cast<std::uintptr_t>(stream));
  }
}

// The targets' current values.
Writes copies_of(const Writes& writes) {
  const InsideKernel inside;
  Writes copies;
  for (const auto& [view, value] : writes) copies.emplace_back(view, view.clone());
  return copies;
}

// What each replay does: the call, on the same memory, and a copy of its results to the original
// results.
std::function<void()> replay_of(HostCall call, Values results) {
  for (c10::IValue& result : results) {
    result = with_tensors(result, [](const at::Tensor& tensor) { return host_view(tensor); });
  }
  return [call = std::move(call), results = std::move(results)] {
    const Values fresh = call();
    const InsideKernel inside;
    for (std::size_t r = 0; r < results.size(); ++r) {
      std::vector<at::Tensor> targets;
      for_each_tensor(results[r], [&](const at::Tensor& target) { targets.push_back(target); });
      std::size_t next = 0;
      for_each_tensor(fresh[r], [&](const at::Tensor& value) {
        const at::Tensor& target = targets[next++];
        if (value.defined() && value.numel() > 0 && target.data_ptr() != value.data_ptr()) {
          write({{target, value}});
        }
      });
    }
  };
}

}  // namespace

void compute(const c10::OperatorHandle& operation, c10::DispatchKey host_key,
             torch::jit::Stack* stack) {
  if (rehearses()) return call_kept_kernel(operation, host_key, stack);
  const c10::FunctionSchema& schema = operation.schema();
  Values arguments = torch::jit::pop(*stack, schema.arguments().size());
  const c10::Device device = device_of(arguments);
  const c10::cuda::CUDAGuard guard(device);
  check_operands(operation, arguments, device);
  if (is_index_operation(schema)) {
    prepare_indices(arguments);
    check_operands(operation, arguments, device);  // LibTorch looks at the values after its indices
  }
  check_dtypes(operation, arguments);
  check_deterministic(schema, arguments);

  cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device.index()).stream();
  const bool captured = is_captured(stream);
  const bool apart = captured || postpones();
  C10_CUDA_CHECK(begin_operation(stream));
  const bool waits = synchronizes(operation, host_key, arguments);
  if (waits && captured) C10_CUDA_CHECK(cudaStreamSynchronize(stream));
  if (waits && !captured) announce_wait(stream);

  HostCall call = make_call(operation, host_key, arguments, apart);
  add_generators(call, arguments, device);
  const Values host_results = results_of(call, arguments, captured);
  Writes writes;
  Values results;
  {
    const InsideKernel inside;
    results = device_results(schema, arguments, call, host_results, device, writes);
  }
  tell_operation(stream, schema.name());
  if (settings().check) {
    check_accesses(stream, schema, arguments, results);
    if (waits && !captured) tell_inner_wait(stream);
  }
  if (captured) {
    HostCall direct = make_call(operation, host_key, arguments, /*apart=*/false);
    direct.generators = std::move(call.generators);
    direct.is_of_wider_dtype = call.is_of_wider_dtype;
    auto replay = replay_of(std::move(direct), results);
    auto undo = [before = copies_of(writes)] { write(before); };
    write(writes);
    record(stream, std::move(replay), std::move(undo));
  } else if (apart && !writes.empty()) {
    submit(stream, [writes = std::move(writes)] { write(writes); });
  } else {
    write(writes);
  }
  for (c10::IValue& result : results) stack->push_back(std::move(result));
}

torch::jit::Stack compute(const char* name, torch::jit::Stack arguments) {
  compute(c10::Dispatcher::singleton().findSchemaOrThrow(name, ""), c10::DispatchKey::CPU,
          &arguments);
  return arguments;
}

}  // namespace simulate_gpus
