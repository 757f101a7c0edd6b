// SPDX-License-Identifier: MIT
#include "kernels/compute.hpp"

#include <ATen/ATen.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <ranges>
#include <string>
#include <utility>

#include "kernels/accesses.hpp"
#include "kernels/arguments.hpp"
#include "kernels/deterministic.hpp"
#include "kernels/host_arguments.hpp"
#include "kernels/host_call.hpp"
#include "kernels/host_tensors.hpp"
#include "kernels/inside_kernel.hpp"
#include "kernels/operand_checks.hpp"
#include "kernels/rehearsal.hpp"
#include "runtime/interface.hpp"
#include "runtime/settings.hpp"

namespace simulate_gpus {
namespace {

// The last values of the stack, which has no others as a rule: then no memory is needed.
Values taken(std::size_t count, torch::jit::Stack* stack) {
  return stack->size() == count ? std::exchange(*stack, {}) : torch::jit::pop(*stack, count);
}

void give(Values results, torch::jit::Stack* stack) {
  if (stack->empty()) {
    *stack = std::move(results);
  } else {
    std::ranges::move(results, std::back_inserter(*stack));
  }
}

// Some of the CPU's operations in place give their tensor another size.
void check_size_in_place(const HostCall& call, const Values& arguments, const at::Tensor& written,
                         const at::Tensor& host) {
  if (written.is_nested() || written.sizes() == host.sizes()) return;
  const auto is_read = [&](std::size_t i) {
    bool has_it = false;
    for_each_tensor(arguments[i], [&](const at::Tensor& x) { has_it |= x.is_same(written); });
    return has_it && !call.operation->writes[i];
  };
  const std::string& name = call.operation->schema().name();
  if (name == "aten::addbmm_") return;  // so does CUDA's
  const bool is_in_place = name.ends_with('_');
  if (!is_in_place && std::ranges::none_of(std::views::iota(0U, arguments.size()), is_read)) return;
  rehearse(call.operation->handle, arguments);
  TORCH_CHECK(false,
              "Simulated GPUs refuse an output that is also an input and changes its size, from ",
              written.sizes(), " to ", host.sizes());
}

// Whether the view is still one, as most operations in place leave it: of the same memory and size.
bool is_still_view(const at::Tensor& tensor, const at::Tensor& host) {
  return is_strided(tensor) && tensor.numel() > 0 && are_equal(tensor.sizes(), host.sizes()) &&
         tensor.is_conj() == host.is_conj() &&
         host_address(tensor.const_data_ptr()) == host.const_data_ptr();
}

// Makes CUDA tensors of the results, and says what is to be written into them and into arguments. A result may be written at once
// unless that is to happen apart.
Writes to_device(const Values& arguments, const HostCall& call, bool apart, Values& results) {
  Writes writes;
  const auto update = [&](const at::Tensor& tensor, const at::Tensor& host) {
    if (!tensor.defined() || !tensor.is_cuda() || is_still_view(tensor, host)) return;
    check_size_in_place(call, arguments, tensor, host);
    update_device_tensor(tensor, host, writes);
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!call.operation->writes[i]) continue;
    if (arguments[i].isTensor()) {
      update(arguments[i].toTensor(), call.arguments[i].toTensor());
    } else {
      for_each_pair(arguments[i], call.arguments[i], update);
    }
  }
  for (std::size_t r = 0; r < results.size(); ++r) {
    if (const auto argument = call.operation->returned[r]) {
      results[r] = arguments[*argument];
    } else if (apart || !results[r].isTensor() || !move_to_device(results[r].toTensor())) {
      results[r] = with_tensors(
          results[r], [&](const at::Tensor& host) { return make_device_tensor(host, writes); });
    }
  }
  return writes;
}

// Of an output that got another size the CPU's kernel has allocated memory, which the view would keep until its next use.
void forget_resized(const Values& arguments, const HostCall& call) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!call.operation->writes[i] || !arguments[i].isTensor()) continue;
    const at::Tensor &tensor = arguments[i].toTensor(), &host = call.arguments[i].toTensor();
    const bool is_view = tensor.defined() && tensor.is_cuda() && host.has_storage();
    if (is_view && host.storage().data_ptr().get_context() != nullptr)
      host.unsafeGetTensorImpl()->release_resources();
  }
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
    const InsideKernel inside;
    const Values fresh = call();
    for (std::size_t r = 0; r < results.size(); ++r) {
      for_each_pair(results[r], fresh[r], [&](const at::Tensor& target, const at::Tensor& value) {
        if (value.defined() && value.numel() > 0 && target.data_ptr() != value.data_ptr()) {
          write({{target, value}});
        }
      });
    }
  };
}

}  // namespace

void compute(const Operation& operation, torch::jit::Stack* stack) {
  if (rehearses()) return call_kept_kernel(operation.handle, operation.host_key, stack);
  Values arguments = taken(operation.writes.size(), stack);
  const auto ordinary = operation.is_index ? std::nullopt : device_of_ordinary(arguments);
  const c10::Device device = ordinary ? *ordinary : device_of(arguments);
  const OnDevice on_device(device);
  if (!ordinary) {
    at::globalContext().lazyInitDevice(c10::kCUDA);  // by the first operation, of no tensor
    check_operands(operation.handle, arguments, device);
  }
  if (operation.is_index) {
    prepare_indices(arguments);
    // LibTorch looks at the values after its indices.
    check_operands(operation.handle, arguments, device);
  }
  if (!ordinary) check_dtypes(operation, arguments);
  check_deterministic(operation.schema(), arguments);

  cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device.index()).stream();
  const bool captured = is_captured(stream);
  const bool apart = captured || postpones();
  const bool is_watched = has_tools();
  if (is_watched && !captured && wants_parts()) tell_parts(parts_of(operation.handle, arguments));
  const cudaError_t refused = begin_operation(stream);
  if (refused != cudaSuccess) C10_CUDA_CHECK(refused);  // slow, also on success
  const bool waits = operation.synchronizes(arguments);
  if (waits && captured) C10_CUDA_CHECK(cudaStreamSynchronize(stream));
  if (waits && !captured) announce_wait(stream);

  const InsideKernel inside;
  HostCall call{&operation, host_arguments(operation, arguments, apart)};
  if (!operation.generators.empty()) add_generators(call, arguments, device);
  Values results = results_of(call, arguments, captured);
  Writes writes = to_device(arguments, call, apart, results);
  if (captured || is_watched) tell_operation(stream, operation.schema().name());
  if (is_watched && settings().check) {
    check_accesses(stream, operation, arguments, results);
    if (waits && !captured) tell_inner_wait(stream);
  }
  if (writes.empty() && !captured) {
    // Done in place.
  } else if (!apart) {
    write(writes);
    if (operation.writes_any) forget_resized(arguments, call);
  } else if (captured) {
    writes = on_host(std::move(writes));
    HostCall direct{&operation, host_arguments(operation, arguments, /*apart=*/false),
                    std::move(call.generators), call.wanted, std::move(call.known)};
    auto replay = replay_of(std::move(direct), results);
    auto undo = [before = copies_of(writes)] { write(before); };
    write(writes);
    record(stream, std::move(replay), std::move(undo));
  } else {
    submit(stream, [writes = on_host(std::move(writes))] { write(writes); });
  }
  give(std::move(results), stack);
}

torch::jit::Stack compute(const char* name, torch::jit::Stack arguments) {
  compute(Operation::of(name), &arguments);
  return arguments;
}

void ComputingKernel::operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet,
                                 torch::jit::Stack* stack) {
  const auto* operation = operation_.load(std::memory_order_acquire);
  if (operation == nullptr) {
    operation = &Operation::of(handle, host_key_);
    operation_.store(operation, std::memory_order_release);
  }
  compute(*operation, stack);
}

}  // namespace simulate_gpus
