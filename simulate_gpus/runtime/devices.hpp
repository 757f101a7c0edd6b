// SPDX-License-Identifier: MIT
#pragma once

namespace simulate_gpus {

/// How many devices are visible.
int num_devices();

/// Whether there is a visible device of that number, and which card it is.
bool exists(int device);
int card_of(int device);

/// The current device of this thread.
int current_device();

/// The current device of this thread, until it sets one.
void prefer_device(int device);

/// The device has a context from now on, and this thread a current one. CUDA makes one when memory,
/// a stream, an event or a kernel needs it.
void make_context(int device);

bool has_context(int device);

/// The device has no context any more, and this thread no current one.
void end_context(int device);

/// Whether a device has a context or had one, made by this process and not by one that forked it.
bool has_used_gpus();

}  // namespace simulate_gpus
