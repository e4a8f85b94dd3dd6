/* Host memory that stays warm from one call to the next. Fresh memory costs a page fault for every page, which for a
 * large output takes several times as long as the operator (docs/lab/cpu_memory.md). */
#ifndef TIGON_FFI_POOL_H
#define TIGON_FFI_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tigon/base.h>

/* A part of the pool's address range. */
typedef struct tigon_pool_block tigon_pool_block;
struct tigon_pool_block {
  char *data;
  size_t bytes;
  size_t warm; /* in a free block: only this many of its first bytes may have pages */
  bool taken;
  tigon_pool_block *before, *after; /* by address */
};

typedef struct tigon_pool_stats {
  int64_t limit;       /* bytes that the pool may hold */
  int64_t in_use;      /* bytes of taken blocks */
  int64_t idle;        /* bytes of free blocks that may have pages */
  int64_t peak_in_use; /* the largest in_use so far */
  int64_t warm;        /* blocks that were taken and had all their pages */
  int64_t cold;        /* blocks that were taken and had not */
  int64_t refused;     /* blocks for which there was no room */
  int64_t trimmed;     /* bytes whose pages went back to the system */
} tigon_pool_stats;

/* Sets the bytes that the pool may hold, and after how many seconds memory counts as idle. Memory that no call of the last one
 * to two such spans needed goes back to the system at the next call. The first block reserves the bytes' addresses; later calls
 * change the seconds alone. */
TIGON_API void tigon_pool_set(size_t bytes, double seconds);

/* At least so many bytes, at a page's begin; what they hold is not defined. NULL: no room. Any thread. */
tigon_pool_block *tigon_pool_take(size_t bytes);

/* Any thread. The system may take the pages of a free block whenever it is short of memory. */
void tigon_pool_give(tigon_pool_block *block);

/* Gives the pages of all free blocks back to the system. */
TIGON_API void tigon_pool_trim(void);

TIGON_API tigon_pool_stats tigon_pool_read(void);

#endif
