/* The two memories: what may be touched, what is initialised, and what orders one access after another. UB is watched in blocks
 * of 32 bytes, global memory in ranges. */
#include <stdlib.h>
#include <string.h>

#include "ascend/sim/core.h"

/* ---- what orders two accesses ---- */

static const char *const hazard_names[] = {[SIM_READ_AFTER_WRITE] = "a read after a write",
                                           [SIM_WRITE_AFTER_READ] = "a write after a read",
                                           [SIM_WRITE_AFTER_WRITE] = "a write after a write"};

/* Access `sequence` of pipe `other` is not known to be done when i begins. */
static void fail_order(tigon_sim *sim, const sim_instruction *i, sim_pipe other, int64_t sequence, tigon_sim_rule rule,
                       const char *memory, uint64_t address) {
  char earlier[96] = "an instruction far behind", fix[160];
  if (sequence > sim->done[other] - SIM_HISTORY) {
    const sim_done *done = &sim->history[other][sequence % SIM_HISTORY];
    snprintf(earlier, sizeof earlier, "instruction %lld (%s, line %d)", (long long)done->number, done->where.what,
             done->where.line);
  }
  if (other == i->pipe)
    snprintf(fix, sizeof fix, "sync_pipe(PIPE_%s) between the two", tigon_sim_pipe_name(other));
  else
    snprintf(fix, sizeof fix,
             "sync_set(PIPE_%s, PIPE_%s, id) after that one and sync_wait(PIPE_%s, PIPE_%s, id) before this",
             tigon_sim_pipe_name(other), tigon_sim_pipe_name(i->pipe), tigon_sim_pipe_name(other),
             tigon_sim_pipe_name(i->pipe));
  tigon_sim_fail(sim, i, rule, address,
                 "%s on %s touches %s at 0x%llx, and nothing orders it after %s on %s: %s. Fix: %s", i->where.what,
                 tigon_sim_pipe_name(i->pipe), memory, (unsigned long long)address, earlier, tigon_sim_pipe_name(other),
                 hazard_names[rule], fix);
}

/* ---- the Unified Buffer ---- */

static uint32_t most(const uint32_t *shadow, uint32_t first, uint32_t last) {
  uint32_t value = 0;
  for (uint32_t b = first; b <= last; ++b) value = shadow[b] > value ? shadow[b] : value;
  return value;
}

/* Fewer instructions than most(): accesses are counted from 0, and there are less than 2^31 of a pipe's. */
static bool any_after(const uint32_t *shadow, uint32_t first, uint32_t last, int64_t known) {
  const int32_t limit = (int32_t)known;
  int32_t after = 0;
  for (uint32_t b = first; b <= last; ++b) after |= (int32_t)shadow[b] > limit ? 1 : 0;
  return after != 0;
}

static void fill(uint32_t *shadow, uint32_t first, uint32_t last, uint32_t value) {
  for (uint32_t b = first; b <= last; ++b) shadow[b] = value;
}

/* The first block whose access is not known to be done, in bytes. */
static uint64_t culprit(const uint32_t *shadow, uint32_t first, uint32_t last, int64_t known) {
  while (first < last && shadow[first] <= known) ++first;
  return (uint64_t)first * UB_BLOCK;
}

static bool ordered(tigon_sim *sim, const sim_instruction *i, uint32_t first, uint32_t last, bool write) {
  const int64_t *known = sim->known[i->pipe];
  for (int k = 1; k <= SIM_PIPES; ++k) { /* the pipe itself last: a flag from another one orders that, too */
    const int q = ((int)i->pipe + k) % SIM_PIPES;
    const bool scalar = q == PIPE_S && i->pipe == PIPE_S; /* in order by itself */
    if (scalar || sim->done[q] <= known[q]) continue;     /* all that it has done is known */
    /* What these two pipes do not do is not looked for. */
    if (q != PIPE_MTE3 && any_after(sim->wrote[q], first, last, known[q])) {
      fail_order(sim, i, (sim_pipe)q, most(sim->wrote[q], first, last),
                 write ? SIM_WRITE_AFTER_WRITE : SIM_READ_AFTER_WRITE, "UB",
                 culprit(sim->wrote[q], first, last, known[q]));
      return false;
    }
    if (write && q != PIPE_MTE2 && any_after(sim->read[q], first, last, known[q])) {
      fail_order(sim, i, (sim_pipe)q, most(sim->read[q], first, last), SIM_WRITE_AFTER_READ, "UB",
                 culprit(sim->read[q], first, last, known[q]));
      return false;
    }
  }
  return true;
}

bool tigon_sim_touch_ub(tigon_sim *sim, const sim_instruction *i, int64_t at, int64_t bytes, bool write, bool mark) {
  if (bytes <= 0) return true;
  const uint32_t first = (uint32_t)at / UB_BLOCK, last = (uint32_t)(at + bytes - 1) / UB_BLOCK;
  if (mark) {
    fill(write ? sim->wrote[i->pipe] : sim->read[i->pipe], first, last, (uint32_t)sim->done[i->pipe]);
    if (write) memset(sim->written + at, 1, (size_t)bytes);
    if (at + bytes > sim->touched) sim->touched = (uint32_t)(at + bytes);
    return true;
  }
  if (at + bytes > sim->ub_bytes) {
    tigon_sim_fail(sim, i, SIM_UB_OVERFLOW, (uint64_t)at,
                   "%s %s %lld bytes of UB at 0x%llx, beyond its end at 0x%x. Fix: smaller tiles, as the plan's "
                   "onchip_bytes counts them",
                   i->where.what, write ? "writes" : "reads", (long long)bytes, (unsigned long long)at, sim->ub_bytes);
    return false;
  }
  const uint8_t *hole = write ? NULL : memchr(sim->written + at, 0, (size_t)bytes);
  if (hole) {
    tigon_sim_fail(
        sim, i, SIM_UNINITIALISED, (uint64_t)(hole - sim->written),
        "%s reads %lld bytes of UB at 0x%llx, and nothing has written 0x%llx. Fix: load or v_duplicate it first, "
        "or take fewer elements",
        i->where.what, (long long)bytes, (unsigned long long)at, (unsigned long long)(hole - sim->written));
    return false;
  }
  return ordered(sim, i, first, last, write);
}

uint32_t tigon_sim_alloc(sim_where where, ub_arena *ub, int64_t bytes) {
  tigon_sim *sim = tigon_sim_now;
  const sim_instruction i = {.where = where, .number = sim->issued + 1};
  const int64_t at = ub->used, end = at + (bytes + UB_BLOCK - 1) / UB_BLOCK * UB_BLOCK;
  if (bytes < 0 || end > sim->ub_bytes) {
    tigon_sim_fail(sim, &i, SIM_UB_OVERFLOW, (uint64_t)at,
                   "%s wants %lld bytes of UB at 0x%llx, and there are %u in all. Fix: smaller tiles, as the plan's "
                   "onchip_bytes counts them",
                   where.what, (long long)bytes, (unsigned long long)at, sim->ub_bytes);
    return 0;
  }
  ub->used = (uint32_t)end;
  return (uint32_t)at;
}

/* ---- the scalar pipe's own accesses ---- */

static char *scalar_access(sim_where where, uint32_t at, bool write) {
  tigon_sim *sim = tigon_sim_now;
  if (sim->stopped) return NULL;
  const sim_instruction i = {.where = where, .number = ++sim->issued, .pipe = PIPE_S};
  const int64_t sequence = ++sim->done[PIPE_S];
  tigon_sim_scalar_work(sim, 1);
  sim->history[PIPE_S][sequence % SIM_HISTORY] = (sim_done){where, i.number};
  if (!tigon_sim_touch_ub(sim, &i, at, 4, write, false)) return NULL;
  tigon_sim_touch_ub(sim, &i, at, 4, write, true);
  return (char *)sim->ub + at;
}

float tigon_sim_read(sim_where where, uint32_t at) {
  const char *from = scalar_access(where, at, false);
  float value = 0;
  if (from) memcpy(&value, from, sizeof value);
  return value;
}

void tigon_sim_write(sim_where where, uint32_t at, float value) {
  char *to = scalar_access(where, at, true);
  if (to) memcpy(to, &value, sizeof value);
}

int32_t tigon_sim_read_i32(sim_where where, uint32_t at) {
  const char *from = scalar_access(where, at, false);
  int32_t value = 0;
  if (from) memcpy(&value, from, sizeof value);
  return value;
}

void tigon_sim_write_i32(sim_where where, uint32_t at, int32_t value) {
  char *to = scalar_access(where, at, true);
  if (to) memcpy(to, &value, sizeof value);
}

/* ---- global memory ---- */

/* The last access of `ranges` after `known` that meets [begin, end); 0 if there is none. Drops accesses that `all` already knows. */
static int64_t unordered(sim_ranges *ranges, const char *begin, const char *end, int64_t known, int64_t all) {
  int64_t kept = 0, found = 0;
  for (int64_t r = 0; r < ranges->count; ++r) {
    const sim_range range = ranges->list[r];
    if (range.sequence <= all) continue;
    ranges->list[kept++] = range;
    if (range.sequence > known && range.begin < end && begin < range.end) found = range.sequence;
  }
  ranges->count = kept;
  return found;
}

static void note_range(tigon_sim *sim, sim_ranges *ranges, const char *begin, const char *end, int64_t sequence) {
  void *list = ranges->list;
  if (!tigon_sim_grow(sim, &list, ranges->count, &ranges->capacity, sizeof *ranges->list)) return;
  ranges->list = list;
  ranges->list[ranges->count++] = (sim_range){begin, end, sequence};
}

/* Ranges of one block that follow each other are one. */
static void note_touch(tigon_sim *sim, sim_touches *touches, const sim_instruction *i, const char *begin,
                       const char *end) {
  sim_touch *last = touches->count ? &touches->list[touches->count - 1] : NULL;
  if (last && last->block == sim->block && last->end == begin) {
    last->end = end;
    return;
  }
  void *list = touches->list;
  if (!tigon_sim_grow(sim, &list, touches->count, &touches->capacity, sizeof *touches->list)) return;
  touches->list = list;
  touches->list[touches->count++] = (sim_touch){begin, end, sim->block, i->number, i->where.line};
}

static void fail_outside(tigon_sim *sim, const sim_instruction *i, int64_t bytes, bool write) {
  const sim_buffer *nearest = NULL;
  for (int b = 0; b < sim->buffer_count; ++b)
    if (sim->buffers[b].start <= i->memory && (!nearest || sim->buffers[b].start > nearest->start))
      nearest = &sim->buffers[b];
  tigon_sim_fail(
      sim, i, SIM_OUTSIDE_BUFFER, (uintptr_t)i->memory,
      "%s %s %lld bytes of global memory at %p, in no buffer of this launch; the nearest before it is %s, %lld bytes "
      "from %p. Fix: cut rows and columns off at the task's end, or register the buffer",
      i->where.what, write ? "writes" : "reads", (long long)bytes, (const void *)i->memory,
      nearest ? nearest->name : "none", nearest ? (long long)nearest->bytes : 0,
      nearest ? (const void *)nearest->start : NULL);
}

bool tigon_sim_touch_memory(tigon_sim *sim, const sim_instruction *i, bool write) {
  const int64_t bytes = i->rows * i->row_bytes;
  const char *begin = i->memory, *end = begin + bytes;
  const sim_buffer *buffer = tigon_sim_buffer_of(sim, begin, bytes, 0);
  if (!buffer) return fail_outside(sim, i, bytes, write), false;
  if (!tigon_sim_buffer_of(sim, begin, bytes, write ? SIM_WRITES : SIM_READS)) {
    tigon_sim_fail(sim, i, SIM_OUTSIDE_BUFFER, (uintptr_t)begin,
                   "%s %s %s, which this launch only %s. Fix: the right pointer, or register it for both",
                   i->where.what, write ? "writes" : "reads", buffer->name, write ? "reads" : "writes");
    return false;
  }
  const int64_t *known = sim->known[i->pipe];
  /* A load is of interest to later stores alone, a store to both. */
  const int64_t loads_done = sim->known[PIPE_MTE3][PIPE_MTE2];
  const int64_t load_of_store = sim->known[PIPE_MTE2][PIPE_MTE3], store_of_store = sim->known[PIPE_MTE3][PIPE_MTE3];
  const int64_t stores_done = load_of_store < store_of_store ? load_of_store : store_of_store;
  const int64_t store = unordered(&sim->stores, begin, end, known[PIPE_MTE3], stores_done);
  if (store) {
    fail_order(sim, i, PIPE_MTE3, store, write ? SIM_WRITE_AFTER_WRITE : SIM_READ_AFTER_WRITE, buffer->name,
               (uintptr_t)begin);
    return false;
  }
  const int64_t load = write ? unordered(&sim->loads, begin, end, known[PIPE_MTE2], loads_done) : 0;
  if (load) {
    fail_order(sim, i, PIPE_MTE2, load, SIM_WRITE_AFTER_READ, buffer->name, (uintptr_t)begin);
    return false;
  }
  note_range(sim, write ? &sim->stores : &sim->loads, begin, end, sim->done[i->pipe]);
  note_touch(sim, write ? &sim->all_writes : &sim->all_reads, i, begin, end);
  return true;
}

/* ---- between blocks ---- */

static int by_begin(const void *a, const void *b) {
  const sim_touch *x = a, *y = b;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

static void fail_sharing(tigon_sim *sim, const sim_touch *writer, const sim_touch *other, const char *does) {
  const sim_instruction at = {.where = {"", "the kernel", other->line}, .number = other->number};
  const char *where = writer->begin > other->begin ? writer->begin : other->begin;
  const sim_buffer *buffer = tigon_sim_buffer_of(sim, where, 1, 0);
  sim->block = other->block;
  tigon_sim_fail(
      sim, &at, SIM_SHARED_ADDRESS, (uintptr_t)where,
      "%s %s at byte %lld, and block %lld writes there too (instruction %lld, line %d): blocks run in any order. Fix: "
      "tasks that do not overlap, or a second launch for what depends on the first",
      does, buffer ? buffer->name : "memory", buffer ? (long long)(where - buffer->start) : 0, (long long)writer->block,
      (long long)writer->number, writer->line);
}

/* The last of the sorted touches that begins before `end`, or -1. */
static int64_t before(const sim_touches *sorted, const char *end) {
  int64_t low = 0, high = sorted->count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (sorted->list[middle].begin < end)
      low = middle + 1;
    else
      high = middle;
  }
  return low - 1;
}

void tigon_sim_check_sharing(tigon_sim *sim) {
  sim_touches *writes = &sim->all_writes;
  if (writes->count == 0 || sim->blocks == 1) return;
  qsort(writes->list, (size_t)writes->count, sizeof *writes->list, by_begin);
  /* Merges what one block wrote, so that ranges are disjoint when no two blocks meet. */
  int64_t kept = 0;
  for (int64_t w = 1; w < writes->count; ++w) {
    sim_touch *last = &writes->list[kept];
    const sim_touch *next = &writes->list[w];
    if (next->begin >= last->end) {
      writes->list[++kept] = *next;
    } else if (next->block != last->block) {
      fail_sharing(sim, last, next, "it writes");
      return;
    } else if (next->end > last->end) {
      last->end = next->end;
    }
  }
  writes->count = kept + 1;
  for (int64_t r = 0; r < sim->all_reads.count; ++r) {
    const sim_touch *read = &sim->all_reads.list[r];
    for (int64_t w = before(writes, read->end); w >= 0 && writes->list[w].end > read->begin; --w)
      if (writes->list[w].block != read->block) {
        fail_sharing(sim, &writes->list[w], read, "it reads");
        return;
      }
  }
}

/* ---- loads and stores ---- */

static bool transfer_is_sane(tigon_sim *sim, const sim_instruction *i, int size) {
  if (i->rows < 1 || i->rows > 4095 || i->row_bytes < 1 || i->row_bytes > 2097151) {
    tigon_sim_fail(sim, i, SIM_REPEAT, 0,
                   "%s has %lld rows of %lld bytes, can have 1..4095 of 1..2097151. Fix: several calls", i->where.what,
                   (long long)i->rows, (long long)i->row_bytes);
    return false;
  }
  if (i->d.at % UB_BLOCK != 0) {
    tigon_sim_fail(sim, i, SIM_MISALIGNED, i->d.at,
                   "%s: UB address 0x%x must be a multiple of %d. Fix: rows and tiles that are "
                   "multiples of 32 bytes",
                   i->where.what, i->d.at, UB_BLOCK);
    return false;
  }
  if ((uintptr_t)i->memory % (unsigned)size != 0) {
    tigon_sim_fail(sim, i, SIM_MISALIGNED, (uintptr_t)i->memory,
                   "%s: global address %p must be a multiple of the element's %d bytes. Fix: the right pointer",
                   i->where.what, (const void *)i->memory, size);
    return false;
  }
  return true;
}

static void transfer(sim_where where, sim_kind kind, uint32_t at, char *memory, int64_t rows, int64_t cols, int size) {
  tigon_sim *sim = tigon_sim_now;
  sim_instruction i = {.where = where,
                       .kind = kind,
                       .pipe = kind == SIM_LOAD ? PIPE_MTE2 : PIPE_MTE3,
                       .d = {.at = at, .size = (uint8_t)size},
                       .memory = memory,
                       .rows = rows,
                       .row_bytes = cols * size,
                       .number = sim->issued + 1};
  if (!sim->stopped && transfer_is_sane(sim, &i, size)) tigon_sim_issue(sim, &i);
}

void tigon_sim_load(sim_where where, uint32_t to, char *from, int64_t rows, int64_t cols, int size) {
  transfer(where, SIM_LOAD, to, from, rows, cols, size);
}

void tigon_sim_store(sim_where where, char *to, uint32_t from, int64_t rows, int64_t cols, int size) {
  transfer(where, SIM_STORE, from, to, rows, cols, size);
}

bool tigon_sim_run_transfer(tigon_sim *sim, const sim_instruction *i) {
  const bool load = i->kind == SIM_LOAD;
  const int64_t pitch = (i->row_bytes + UB_BLOCK - 1) / UB_BLOCK * UB_BLOCK;
  if (!tigon_sim_touch_memory(sim, i, !load)) return false;
  for (int mark = 0; mark < 2; ++mark) /* a store's rows leave holes where a row is not a multiple of 32 bytes */
    for (int64_t r = 0; r < i->rows; ++r) {
      const bool whole = load || pitch == i->row_bytes;
      const int64_t bytes = whole ? i->rows * pitch : i->row_bytes;
      if (!tigon_sim_touch_ub(sim, i, i->d.at + r * pitch, bytes, load, mark)) return false;
      if (whole) break;
    }
  for (int64_t r = 0; r < i->rows; ++r) {
    uint8_t *ub = sim->ub + i->d.at + r * pitch;
    char *memory = i->memory + r * i->row_bytes;
    if (load) {
      memcpy(ub, memory, (size_t)i->row_bytes);
      memset(ub + i->row_bytes, 0, (size_t)(pitch - i->row_bytes));
    } else {
      memcpy(memory, ub, (size_t)i->row_bytes);
    }
  }
  *(load ? &sim->counters.bytes_loaded : &sim->counters.bytes_stored) += i->rows * i->row_bytes;
  return true;
}
