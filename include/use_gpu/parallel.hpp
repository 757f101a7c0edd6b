// SPDX-License-Identifier: MIT
//
// Several devices at work at once. One host thread can keep several GPUs busy with large products,
// but not with small ones, whose launching takes longer than their computing; and work that waits,
// as item() and printing do, stops all that comes after it. So one thread for each device:
//
//   use_gpu::parallel_on(use_gpu::try_all_gpus(), [&](c10::Device device, int i) {
//     y[i] = net[i]->forward(use_gpu::to_device(x[i], device));
//   });                                             // here all of it is done
//
// A std::thread alone would forget what the caller has set up (grad mode, TransferGuard,
// DefaultDeviceGuard), end the program when it throws, and take as many CPU threads for each product
// as if it were alone. torch::nn::parallel::parallel_apply calls modules, with one tensor each, in
// the threads of at::parallel_for: it makes no device current, forgets the same, and runs one after
// the other what exceeds the number of CPU threads.
//
// May be called by several threads at once, and from within the work.
#pragma once

#include <c10/core/Device.h>
#include <use_gpu/export.hpp>

#include <functional>
#include <vector>

namespace USE_GPU_EXPORT use_gpu {

/// Calls work(device, entry) for each entry, 0 to devices.size() - 1, in a thread of its own, with
/// the caller's at::ThreadLocalState (grad and inference mode, autocast, this library's scopes),
/// with that device current and, on it, the stream that is the caller's current one: so the work
/// comes after all that the caller has queued there. A device may appear several times; its entries
/// then share that stream.
///
/// Returns when every thread has ended and its device is synchronized, whatever was thrown. The
/// first error is then rethrown unchanged, of whatever type it is; each one is logged, at level
/// error, as it happens, with its device. ArgumentError if work is empty, DeviceError if a device
/// is not there; then nothing has started.
///
/// The caller's number of intra-op threads (at::get_num_threads()) is shared out among the entries,
/// at least one each. It is set for those threads alone. Where LibTorch is built without OpenMP
/// there is one pool, which all share as ever. Threads that work starts, autograd's own among them,
/// have LibTorch's usual number.
void parallel_on(const std::vector<c10::Device>& devices,
                 const std::function<void(c10::Device, int)>& work);

}  // namespace use_gpu
