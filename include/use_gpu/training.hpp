// SPDX-License-Identifier: MIT
//
// A training loop's state: an optimizer's tensors belong where its parameters are, and all that the
// next step depends on fits in one file; another process, on any device, continues from it:
//
//   use_gpu::place(net, device);
//   use_gpu::place(adam);                                     // its momenta follow
//   use_gpu::save_training(net, adam, {.step = step}, "training.safetensors");
//   const auto state = use_gpu::load_training(net, adam, "training.safetensors");
//   for (auto step = state.step; step < steps; ++step) ...    // as if nothing had happened
//
// All of LibTorch's optimizers are known: Adagrad, Adam, AdamW, LBFGS, RMSprop, SGD.
//
// Threads: one at a time for one network or optimizer.
#pragma once

#include <use_gpu/errors.hpp>
#include <use_gpu/mixed_precision.hpp>
#include <use_gpu/module_ref.hpp>

namespace USE_GPU_EXPORT use_gpu {

/// Moves each tensor of the optimizer's state to its parameter's device, in few large transfers;
/// its dtype stays. All or nothing. Call it after place(net, device), which does not know the
/// optimizer; otherwise step() ends in "at least two devices".
///
/// Waits: for what it moves from or to the host.
///
/// Throws: ArgumentError for an optimizer that is not LibTorch's own.
///
/// Chapter: "let the trainer support GPU".
void place(torch::optim::Optimizer& optimizer);

/// What the program counts itself. LibTorch's schedulers keep their count private, so it is not
/// saved: make a new scheduler, and let it step as often.
struct TrainingState {
  std::int64_t step = 0;                       ///< as the program counts
  std::optional<GradScalerState> scaler = {};  ///< GradScaler::state(), where there is one
};

/// Writes a safetensors file, which Python reads, with the network's parameters and buffers, the
/// optimizer's state and the options of its groups, the state of the CPU's random generator and of
/// those of the network's other devices, and `state`. Gradients are not saved. Atomic, as
/// save_parameters.
///
/// Waits: for the devices, and until the file is on the disk.
///
/// Throws: FileError and ParameterError as save_parameters, and ParameterError for an optimizer with
/// parameters that are not in the network; ArgumentError for an optimizer that is not LibTorch's.
void save_training(ConstModuleRef net, const torch::optim::Optimizer& optimizer,
                   const TrainingState& state, const std::filesystem::path& file);

/// Reads a file of save_training into a network and an optimizer that are built as the saved ones were, and
/// placed, on any devices. On the same kind of device the next steps have the same bits.
///
/// The CPU's random generator continues where it was. So does the generator of the network's first
/// GPU, as that of the saved network's first GPU, and so on. Generators without a counterpart in
/// the file are left alone.
///
/// Waits: for the devices.
///
/// Throws: before anything changes: FileError if the file cannot be read or is damaged;
/// ParameterError if it does not fit, with all that is missing or different in differences(), of the
/// network, the kind of optimizer, its groups and its state. ArgumentError as save_training.
TrainingState load_training(ModuleRef net, torch::optim::Optimizer& optimizer,
                            const std::filesystem::path& file);

}  // namespace use_gpu
