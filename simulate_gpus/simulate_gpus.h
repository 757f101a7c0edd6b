/* SPDX-License-Identifier: MIT
 *
 * What the simulated CUDA runtime tells a program's tests. They run without it too, so nothing is linked: they find
 * each function with dlsym(RTLD_DEFAULT, ...), which gives NULL where the GPUs are not simulated. Everything may be
 * called from any thread. "device" is CUDA's index, after CUDA_VISIBLE_DEVICES. */
#ifndef SIMULATE_GPUS_H
#define SIMULATE_GPUS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A row of the summary: "host to device copies", "stream synchronizations" ... */
uint64_t simulated_cuda_count(const char* row);

/* Has each line of the trace (simulate_gpus --trace) given to that function instead of printed; to none if NULL. One
 * call at a time. */
void simulated_cuda_set_trace(void (*line)(const char* text));

/* Replaces the faults of the environment (SIMULATE_GPUS_FAULTS), and restarts the counts of calls. */
void simulated_cuda_set_faults(const char* faults);
/* The last function that failed by request since then; NULL for none. */
const char* simulated_cuda_failed_function(void);

/* Whether kernels are counted and not computed (simulate_gpus --dry-run). */
bool simulated_cuda_is_dry_run(void);

/* Whether the device has a context, and whether this thread has a current one. */
bool simulated_cuda_has_context(int device);
bool simulated_cuda_thread_has_context(void);

uint64_t simulated_cuda_allocated_bytes(int device);
/* What can still be allocated there. */
uint64_t simulated_cuda_free_bytes(int device);
/* Changes what other processes use there. */
void simulated_cuda_set_bytes_of_others(int device, uint64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
