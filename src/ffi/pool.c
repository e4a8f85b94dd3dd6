/* The pool is one reserved range of addresses, cut into blocks: a request gets the first free block that is large
 * enough, and neighbours that are free become one block. Pages come when they are first written, huge ones where the
 * system has them. */
#include "ffi/pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGE = 4096, HUGE = 2 << 20, SMALLEST = 64 << 20 /* that is tried when more is refused */, PAUSE = 64 };

static struct {
  pthread_mutex_t lock;
  bool opened;
  char *base;      /* beginning of the range; NULL: none was reserved */
  size_t writable; /* bytes from there on */
  /* Taken: before the first block and behind the last one, by address. */
  tigon_pool_block ends;
  tigon_pool_stats stats;
  /* Nanoseconds: a window's length and the present one's begin. The most that was in use in it, and in the last one. */
  int64_t span, window, peaks[2];
  int unmarked; /* blocks that are given back without a mark before one is tried again */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .ends = {.taken = true, .before = &pool.ends, .after = &pool.ends}};

static uintptr_t up(uintptr_t bytes, size_t to) { return (bytes + to - 1) / to * to; }
static int64_t at_most(int64_t a, size_t b) { return a < (int64_t)b ? a : (int64_t)b; }

static int64_t nanoseconds(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* ---- trimming; the pool is locked ---- */

/* Takes the pages of a free block, all but `left` of its warm bytes. */
static void cool(tigon_pool_block *block, size_t left) {
  const size_t bytes = block->warm - left;
  madvise(block->data + left, bytes, MADV_DONTNEED);
  block->warm = left;
  pool.stats.idle -= (int64_t)bytes, pool.stats.trimmed += (int64_t)bytes;
}

/* Takes at least so many bytes of pages from free blocks. The last blocks are needed least. */
static void trim(int64_t bytes) {
  for (tigon_pool_block *b = pool.ends.before; b != &pool.ends && bytes > 0; b = b->before) {
    if (b->taken || b->warm == 0) continue;
    const size_t all = b->warm;
    size_t left = all - (size_t)at_most(bytes, all);
    const size_t within = (uintptr_t)(b->data + left) % HUGE;
    left -= within < left ? within : left; /* a huge page stays whole */
    cool(b, left);
    bytes -= (int64_t)(all - left);
  }
}

/* No thread of the pool's own trims: each call looks whether a window has ended. */
static void trim_excess(void) {
  const int64_t now = nanoseconds(CLOCK_MONOTONIC_COARSE), gone = now - pool.window, used = pool.stats.in_use;
  if (used > pool.peaks[0]) pool.peaks[0] = used;
  if (gone < pool.span) return;
  if (gone >= 2 * pool.span) pool.peaks[0] = pool.peaks[1] = used; /* a whole window had no call */
  const int64_t needed = pool.peaks[0] > pool.peaks[1] ? pool.peaks[0] : pool.peaks[1];
  trim(used + pool.stats.idle - needed);
  pool.peaks[1] = pool.peaks[0], pool.peaks[0] = used, pool.window = now;
}

/* ---- fork ---- */

static void before_fork(void) { pthread_mutex_lock(&pool.lock); }
static void after_fork(void) { pthread_mutex_unlock(&pool.lock); }

/* The child lets go of free blocks, whose pages it would have to copy. The parent then writes them without a copy. */
static void in_child(void) {
  for (tigon_pool_block *b = pool.ends.after; b != &pool.ends; b = b->after)
    if (!b->taken && b->warm) cool(b, 0);
  pthread_mutex_unlock(&pool.lock);
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(before_fork, after_fork, in_child); }

/* ---- the range; the pool is locked ---- */

static void open_pool(void) {
  pool.opened = true;
  tigon_pool_block *all = malloc(sizeof *all);
  size_t bytes = up((uintptr_t)pool.stats.limit, HUGE);
  char *base = MAP_FAILED;
  for (; all && bytes; bytes = bytes > SMALLEST ? up(bytes / 2, HUGE) : 0) {
    base = mmap(NULL, bytes + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base != MAP_FAILED) break;
  }
  if (base == MAP_FAILED) {
    free(all);
    pool.stats.limit = 0;
    return;
  }
  pool.base = base + (up((uintptr_t)base, HUGE) - (uintptr_t)base);
  madvise(pool.base, bytes, MADV_HUGEPAGE);
  *all = (tigon_pool_block){.data = pool.base, .bytes = bytes, .before = &pool.ends, .after = &pool.ends};
  pool.ends.before = pool.ends.after = all;
  pool.stats.limit = (int64_t)bytes;
  pool.window = nanoseconds(CLOCK_MONOTONIC_COARSE);
}

/* Makes the range writable up to this address: only such memory counts where the system does not overcommit. */
static bool reach(const char *end) {
  if ((size_t)(end - pool.base) <= pool.writable) return true;
  const size_t bytes = up((uintptr_t)(end - pool.base), HUGE);
  if (mprotect(pool.base + pool.writable, bytes - pool.writable, PROT_READ | PROT_WRITE) != 0) return false;
  pool.writable = bytes;
  return true;
}

/* ---- blocks; the pool is locked ---- */

/* Makes one block of two free neighbours. */
static void merge(tigon_pool_block *block) {
  tigon_pool_block *after = block->after;
  const size_t warm = after->warm ? block->bytes + after->warm : block->warm;
  pool.stats.idle += (int64_t)warm - (int64_t)(block->warm + after->warm);
  block->bytes += after->bytes, block->warm = warm, block->after = after->after;
  after->after->before = block;
  free(after);
}

/* Cuts a free block after so many bytes. */
static bool cut(tigon_pool_block *block, size_t bytes) {
  tigon_pool_block *rest = bytes < block->bytes ? malloc(sizeof *rest) : NULL;
  if (!rest) return bytes == block->bytes;
  *rest = (tigon_pool_block){
      .data = block->data + bytes, .bytes = block->bytes - bytes, .before = block, .after = block->after};
  if (block->warm > bytes) rest->warm = block->warm - bytes, block->warm = bytes;
  block->bytes = bytes;
  block->after->before = rest, block->after = rest;
  return true;
}

static tigon_pool_block *take(size_t bytes) {
  tigon_pool_block *b = pool.ends.after;
  while (b != &pool.ends && (b->taken || b->bytes < bytes)) b = b->after;
  if (b == &pool.ends || !reach(b->data + bytes) || !cut(b, bytes)) {
    ++pool.stats.refused;
    return NULL;
  }
  tigon_pool_stats *stats = &pool.stats;
  ++*(b->warm == bytes ? &stats->warm : &stats->cold);
  stats->idle -= (int64_t)b->warm, stats->in_use += (int64_t)bytes;
  if (stats->in_use > stats->peak_in_use) stats->peak_in_use = stats->in_use;
  b->taken = true;
  return b;
}

/* ---- calls ---- */

void tigon_pool_set(size_t bytes, double seconds) {
  pthread_mutex_lock(&pool.lock);
  if (!pool.base) pool.stats.limit = (int64_t)bytes;
  pool.span = (int64_t)(seconds * 1e9);
  pthread_mutex_unlock(&pool.lock);
}

tigon_pool_block *tigon_pool_take(size_t bytes) {
  pthread_mutex_lock(&pool.lock);
  if (!pool.opened) open_pool();
  tigon_pool_block *block = bytes && bytes <= (size_t)pool.stats.limit ? take(up(bytes, PAGE)) : NULL;
  trim_excess();
  pthread_mutex_unlock(&pool.lock);
  return block;
}

/* Lets the system take the block's pages when it needs some, also from a process that makes no further call. That costs
 * next to nothing with huge pages, and as much as an operator with small ones: then it is left out for a while. */
static void mark(const tigon_pool_block *block) {
  if (__atomic_load_n(&pool.unmarked, __ATOMIC_RELAXED) > 0) {
    __atomic_fetch_sub(&pool.unmarked, 1, __ATOMIC_RELAXED);
    return;
  }
  char *begin = block->data + (up((uintptr_t)block->data, HUGE) - (uintptr_t)block->data);
  const int64_t bytes = (block->data + block->bytes - begin) / HUGE * HUGE;
  if (bytes <= 0) return;
  const int64_t start = nanoseconds(CLOCK_MONOTONIC);
  madvise(begin, (size_t)bytes, MADV_FREE);
  const int64_t bound = 10000 + bytes / 128; /* 8 us for 1 MiB; small pages take 50, huge ones 0.5 */
  if (nanoseconds(CLOCK_MONOTONIC) - start > bound) __atomic_store_n(&pool.unmarked, PAUSE, __ATOMIC_RELAXED);
}

void tigon_pool_give(tigon_pool_block *block) {
  mark(block);
  pthread_mutex_lock(&pool.lock);
  trim_excess();
  block->taken = false, block->warm = block->bytes;
  pool.stats.in_use -= (int64_t)block->bytes, pool.stats.idle += (int64_t)block->bytes;
  if (!block->after->taken) merge(block);
  if (!block->before->taken) merge(block->before);
  pthread_mutex_unlock(&pool.lock);
}

void tigon_pool_trim(void) {
  pthread_mutex_lock(&pool.lock);
  trim(pool.stats.idle);
  pthread_mutex_unlock(&pool.lock);
}

tigon_pool_stats tigon_pool_read(void) {
  pthread_mutex_lock(&pool.lock);
  const tigon_pool_stats stats = pool.stats;
  pthread_mutex_unlock(&pool.lock);
  return stats;
}
