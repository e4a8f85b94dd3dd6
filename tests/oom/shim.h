/* Memory that runs out on purpose. shim.c takes the place of libc's allocators. A program links it, or has it in LD_PRELOAD.
 *
 * These can fail: malloc, calloc, realloc, aligned_alloc, posix_memalign, mmap, pthread_create and dlopen. The caller must be
 * the program, libtigon, a stand-in driver, libc, jansson, PCRE2 or utf8proc. So strdup(), fopen() and json_load() fail, too.
 *
 * These cannot fail:
 * - allocations of other libraries, of which libgomp and OpenBLAS would end the process;
 * - allocations of the loader, and stacks of threads;
 * - pages that the system gives late;
 * - memory that a real driver takes. */
#ifndef TIGON_OOM_SHIM_H
#define TIGON_OOM_SHIM_H

#include <stdbool.h>

/* From now on allocations count. The nth fails (0: none), and with `rest` all after it. */
void oom_begin(long nth, bool rest);
/* Allocations since then. */
long oom_end(void);
/* Allocations between the two calls do not count. */
void oom_pause(bool pauses);
/* Blocks that were allocated since the first oom_watch() and not given back. Negative: there were too many to count. */
void oom_watch(void);
long oom_alive(void);

/* A process with LD_PRELOAD reads its environment. OOM_NTH says which allocation fails. With OOM_REST all after it fail, too.
 * OOM_COUNT is a file that gets the number of allocations at the end. With OOM_OF one library's allocations count. */

#endif
