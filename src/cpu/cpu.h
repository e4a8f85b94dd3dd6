/* The CPU room's common header: running tasks on threads, and the sizes that kernels share. */
#ifndef TIGON_CPU_CPU_H
#define TIGON_CPU_CPU_H

#include "backend.h"
#include "slabs.h"

/* How many of `wanted` threads this process can have at once, the caller's own included. They are started and ended to find
 * out, once: libgomp ends the process when it cannot start one. */
int tigon_cpu_threads_there(int wanted);

/* Runs task(argument, 0 .. tasks - 1) on up to queue->threads threads, in any order, each once. Every thread works with
 * the default floating-point state and gives the caller's back. In a child of fork(), tasks run on the caller's thread. */
void tigon_cpu_parallel(const tigon_queue *queue, int64_t tasks, void (*task)(const void *argument, int64_t index),
                        const void *argument);
/* The same for tasks that may be small: on as many threads as the `bytes` that they move in all are worth. */
void tigon_cpu_parallel_bytes(const tigon_queue *queue, int64_t tasks, int64_t bytes,
                              void (*task)(const void *argument, int64_t index), const void *argument);

/* Ranges of rows whose sums are slabs: 32 feed 1, 2, 4, 8, 16 and 32 threads evenly and more than saturate the memory of any CPU
 * socket of today. A fixed number, so that bits do not depend on the threads. 32 slabs of dw cost 1 % of the traffic of rms_norm
 * backward at 2048 rows. */
enum { TIGON_CPU_TASKS = 32 };

/* Tells a recorder how many tasks share a row and how many slabs there are, 0: none, for the launches that follow. */
static inline void tigon_cpu_note(const tigon_queue *queue, int64_t share, int64_t slabs) {
  const tigon_launch note = {.cluster = (int)share, .slabs = slabs};
  if (queue->record) queue->record(queue->record_to, &note);
}

/* Bytes that are worth a thread: with two, rms_norm backward breaks even between 96 and 192 KiB on an AMD EPYC. */
enum { TIGON_CPU_THREAD_BYTES = 64 << 10 };

/* Do the outputs of a call that moves this many bytes go past the caches (non-temporal stores)? Four times a usual core's
 * L2: what is smaller is likely to be read again from a cache. The last-level cache does not count, because a virtual
 * machine shows all of it and owns little. */
static inline bool tigon_cpu_streams(int64_t bytes) { return bytes >= INT64_C(8) << 20; }

/* Do this CPU and its operating system have what the variant needs? */
bool tigon_cpu_has_avx2(void);
bool tigon_cpu_has_avx512(void);
bool tigon_cpu_has_avx512_bf16(void);
bool tigon_cpu_has_amx(void);

/* Tasks for rows that are independent: a fixed function of the shape. Each is worth starting, and where there are many
 * rows long enough that the first one, which nobody prefetched, does not count. */
static inline int64_t tigon_cpu_row_tasks(int64_t rows, int64_t bytes_per_row) {
  const int64_t least = TIGON_CPU_THREAD_BYTES, most = 4 << 20, share = rows * bytes_per_row / 32;
  const int64_t bytes = share < least ? least : share > most ? most : share;
  const int64_t per_task = bytes_per_row > 0 ? 1 + bytes / bytes_per_row : rows > 0 ? rows : 1;
  return (rows + per_task - 1) / per_task;
}

#endif
