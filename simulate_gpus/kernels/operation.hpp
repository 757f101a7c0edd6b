// SPDX-License-Identifier: MIT
//
// An operation of aten, and what its schema says of every call, so that no call looks at names.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKey.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "kernels/arguments.hpp"

namespace simulate_gpus {

struct CpuGap;

/// Operations of this namespace compute on the host what is an operation of aten on a GPU alone: those of its name.
inline constexpr const char* k_own_namespace = "simulate_gpus";

struct Operation {
  Operation(const c10::OperatorHandle& handle, c10::DispatchKey host_key);

  /// The only one of its kind, which stays to the end of the process. Its kernel on the host is that of the key.
  static const Operation& of(const c10::OperatorHandle& handle,
                             c10::DispatchKey host_key = c10::DispatchKey::CPU);
  /// The same by its name.
  static const Operation& of(const char* name, const char* overload = "");

  [[nodiscard]] const c10::FunctionSchema& schema() const { return handle.schema(); }

  /// Whether CUDA's kernel reads a value or a size back, which cannot be captured.
  [[nodiscard]] bool synchronizes(const Values& arguments) const {
    return wait_ == Wait::always || (wait_ == Wait::without_size && arguments.back().isNone());
  }

  c10::OperatorHandle handle;
  c10::OperatorHandle host;  // which has the kernel: as a rule the same
  c10::DispatchKey host_key;
  c10::SmallVector<bool, 16> writes;  // each argument
  bool writes_any = false;
  std::vector<std::optional<std::size_t>> returned;  // by each result: an argument, which it writes
  std::vector<std::size_t> generators;               // the arguments that are
  bool is_index;
  bool is_of_lists;
  bool is_in_float32;      // some of its calls in 16 bits are computed so
  bool is_bound_to_sizes;  // what CUDA's kernel takes depends on sizes and strides too
  bool is_selection;       // masked_select, which reads a size back before it asks for the dtype
  const CpuGap* gap;       // null where the CPU's kernel does what CUDA's does

 private:
  enum class Wait { never, always, without_size };
  Wait wait_;
};

}  // namespace simulate_gpus
