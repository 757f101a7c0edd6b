// SPDX-License-Identifier: MIT
//
// Runs work on several devices at once. One host thread can keep several GPUs busy with large
// products, but not with small ones, which take longer to launch than to compute; and calls that
// wait, such as item() and printing, delay everything after them. So use one thread per device:
//
//   use_gpu::parallel_on(use_gpu::try_all_gpus(), [&](c10::Device device, std::size_t i) {
//     y[i] = net[i]->forward(use_gpu::to_device(x[i], device));
//   });                                             // all work is done here
//
// A bare std::thread does not inherit the caller's settings (grad mode, TransferGuard,
// DefaultDeviceGuard), ends the program if it throws, and uses all CPU threads for each product.
// torch::nn::parallel::parallel_apply calls modules, with one tensor each, in the threads of
// at::parallel_for: it sets no current device, loses the same settings, and runs modules in
// sequence if there are more modules than CPU threads.
//
// Threads: several may call it at once, also from within the work.
#pragma once

#include <c10/core/Device.h>
#include <use_gpu/errors.hpp>

#include <cstddef>
#include <functional>

namespace USE_GPU_EXPORT use_gpu {

/// Calls work(device, entry) for each entry, 0 to devices.size() - 1, in a thread of its own. The
/// thread has the caller's at::ThreadLocalState (grad and inference mode, autocast, this library's
/// scopes). That device is current. An entry alone on its device has the caller's current stream.
/// Entries that share a GPU have a stream of LibTorch's pool each, so that their work can overlap.
/// In both cases the work runs after all that the caller has queued on its current streams.
///
/// What the entries made may be used in any stream afterwards, as all of it is done by then. What an
/// entry allocated in a stream of the pool goes back to that stream: before the last reference to a
/// tensor ends while another stream may still use it, call its record_stream, as always in LibTorch.
///
/// The caller's number of intra-op threads (at::get_num_threads()) is divided among the entries, at
/// least one each. It is set for those threads only. If LibTorch is built without OpenMP, all share
/// one pool as usual. Threads started by work, such as autograd's, have LibTorch's default number.
///
/// Waits: until every thread has ended and its device is synchronized, whatever was thrown.
///
/// Throws: the first error of work, unchanged; every error is logged when it occurs, at level
/// error, with its device. ArgumentError if work is empty, DeviceError if a device is not there;
/// then nothing has started.
void parallel_on(const std::vector<c10::Device>& devices,
                 const std::function<void(c10::Device, std::size_t)>& work);

}  // namespace use_gpu
