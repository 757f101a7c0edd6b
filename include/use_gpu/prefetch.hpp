// SPDX-License-Identifier: MIT
//
// The next batches travel to the device while it computes the present one. LibTorch's data loaders
// give batches in pageable host memory, of which each copy waits for the one before and for the
// device; C++ has no counterpart of Python's pin_memory and non_blocking loops.
//
//   for (auto& batch : use_gpu::prefetch(*loader, device)) {      // batch: on the device
//     loss = criterion(net->forward(batch.data), batch.target);
//   }
//
// Takes any loader of LibTorch, or another range, of batches that to_device takes (batch.hpp).
// Starts no thread: a loader with workers reads ahead on its own.
//
// Threads: one at a time.
#pragma once

#include <c10/core/Device.h>
#include <use_gpu/detail/prefetch_range.hpp>
#include <use_gpu/errors.hpp>

namespace USE_GPU_EXPORT use_gpu {
/// A range of the loader's batches on the device, in order, for one `for` loop at a time. While the
/// program uses one batch, the next ones, at most `depth`, are copied: through pinned memory, in a
/// stream of its own. Only the streams that use a batch wait for its copy. Sparse, nested and
/// quantized tensors travel as by to_device. On the CPU the batches pass unchanged, none ahead.
///
/// A batch has the values that it had when the loader gave it, also if the loader refills its
/// tensors. So each tensor is copied: one in host memory once more there, pinned or not; one that is
/// on the device already once there, in the current stream. A type of your own is read ahead too:
/// its to_device must not return tensors that the loader refills.
///
/// A batch may be used in the stream that is current when the loop reaches it. It lives until the
/// loop goes on; its tensors may be kept longer. The loader must live as long as the loop. Leaving
/// the loop early waits for nothing.
///
/// Throws: ArgumentError for a depth below 1, DeviceError if the device is not there. An error of
/// the loader arrives where its batch would, and ends the loop.
template <class Loader>
[[nodiscard]] auto prefetch(Loader& loader, c10::Device device, int depth = 2) {
  return detail::Prefetch<Loader>(loader, device, depth);
}

}  // namespace use_gpu
