/* The sweep of tensors with more than 2^31 elements. On a host their inputs are one block's pages mapped over and over, so that
 * memory is for outputs only. A few rows by themselves have inputs that lie in the whole's. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check/internal.h"
#include "check/sweep.h"
#include "core/context.h"

/* ---- memory ---- */

static char *map(size_t bytes, int protection) {
  char *p = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) abort();
  madvise(p, bytes, MADV_HUGEPAGE); /* most of the time goes into the faults of pages */
  return p;
}

static char *map_repeated(size_t bytes, size_t block) {
  const int file = memfd_create("tigon-block", 0);
  char *p = map(bytes, PROT_NONE);
  if (file < 0 || ftruncate(file, (off_t)block)) abort();
  for (size_t at = 0; at < bytes; at += block)
    if (mmap(p + at, bytes - at < block ? bytes - at : block, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
             0) == MAP_FAILED)
      abort();
  close(file);
  return p;
}

/* In a device's own memory. */
static void make_away(const check *k, check_buffer *b, check_role role, const char *from) {
  void *memory = NULL;
  k->timed->held += b->bytes;
  if (k->timed->held > k->timed->most || tigon_alloc(k->context, b->bytes, &memory) != TIGON_OK) return;
  b->start = memory;
  if (role == CHECK_ROLE_OUT) (void)tigon_fill(k->context, memory, from ? 0xff : 0, b->bytes);
  if (role == CHECK_ROLE_INOUT && from) (void)tigon_copy(k->context, memory, from, b->bytes);
}

check_buffer *check_huge_buffer(check *k, const char *name, const tigon_tensor *t, check_role role, bool *fresh) {
  check_buffer *b = check_add_buffer(k);
  const size_t size = tigon_dtype_size(t->dtype), page = (size_t)sysconf(_SC_PAGESIZE);
  *b = (check_buffer){.name = name, .bytes = (size_t)check_elements(t) * size};
  const check_twist *w = k->twist;
  const tigon_tensor *whole = w->whole ? &w->whole->buffers[k->count - 1].tensor : NULL;
  const char *from = whole ? (const char *)whole->data + check_elements_before(k, t) * (int64_t)size : NULL;
  *fresh = role != CHECK_ROLE_OUT && !whole;
  if (whole && role == CHECK_ROLE_IN) {
    b->start = (char *)from;
    return b;
  }
  if (check_is_away(k)) {
    make_away(k, b, role, from);
    *fresh = *fresh && b->start;
    return b;
  }
  b->map_bytes = (b->bytes + page) / page * page;
  if (role == CHECK_ROLE_IN) {
    b->map = map_repeated(b->map_bytes, CHECK_BLOCK * size - page); /* no power of two: an offset cut off shows */
  } else {
    k->timed->held += b->map_bytes;
    if (k->timed->held > k->timed->most) b->map_bytes = page, *fresh = false; /* nobody calls it */
    b->map = map(b->map_bytes, PROT_READ | PROT_WRITE);
  }
  b->start = b->map;
  /* What is never written shows: the whole's is 0 there. */
  if (whole && role == CHECK_ROLE_OUT && b->map_bytes >= b->bytes) memset(b->start, 0xff, b->bytes);
  if (whole && role == CHECK_ROLE_INOUT && b->map_bytes >= b->bytes) memcpy(b->start, from, b->bytes);
  return b;
}

/* ---- runs ---- */

/* Rows of a part; on a GPU few rows have other sums than many. */
enum { PARTS = 3, PART = 64, PART_AWAY = 1024 };

typedef struct run {
  check k;
  check_twist twist;
  check_timed timed;
} run;

/* Makes the tensors and arguments; false where memory is short. */
static bool open_run(run *r, const check_target *target, int option, tigon_context *context,
                     const int64_t dims[CHECK_DIMS], const check *whole, int64_t first) {
  const size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
  *r = (run){.twist = {.whole = whole, .first = first}, .timed = {.most = memory / 16 * (whole ? 5 : 9)}};
  r->k = (check){.context = context,
                 .entry = target->entry,
                 .dtype = target->dtype,
                 .option = option,
                 .seed = 1,
                 .timed = &r->timed,
                 .twist = &r->twist};
  memcpy(r->k.dims, dims, sizeof r->k.dims);
  check_entry_run(&r->k);
  bool fits = r->timed.args && r->timed.held <= r->timed.most;
  for (int i = 0; i < r->k.count; ++i) fits = fits && (r->k.buffers[i].start || !r->k.buffers[i].bytes);
  return fits;
}

static void call(run *r) {
  const tigon_status status = check_entry_call(r->k.entry, r->k.context, r->timed.args);
  if (status != TIGON_OK) check_fail(&r->k, "%s: %s", tigon_status_name(status), tigon_last_error(r->k.context));
}

static void close_run(run *r) {
  for (int i = 0; i < r->k.count; ++i) { /* a host's tensors are mapped here, or the whole's */
    const check_buffer *b = &r->k.buffers[i];
    const bool borrowed = r->twist.whole && b->role == CHECK_ROLE_IN;
    if (b->role == CHECK_ROLE_SCRATCH)
      free(b->start);
    else if (b->role == CHECK_ROLE_WORKSPACE || (check_is_away(&r->k) && !borrowed))
      tigon_free(r->k.context, b->start);
  }
  check_release(&r->k);
  free(r->timed.args);
}

static bool has_long_indices(const check *k) {
  for (int i = 0; i < k->count; ++i)
    if (k->buffers[i].tensor.dtype == TIGON_I64) return true;
  return false;
}

static void check_parts(const check_target *target, const check_pair *pair, run *whole, const int64_t *firsts,
                        int count, int64_t rows, check_tally *tally) {
  run part[PARTS];
  int64_t dims[CHECK_DIMS];
  memcpy(dims, whole->k.dims, sizeof dims);
  dims[0] = rows;
  bool fits[PARTS];
  for (int i = 0; i < count; ++i) {
    fits[i] = open_run(&part[i], target, whole->k.option, pair->context, dims, &whole->k, firsts[i]);
    if (fits[i]) call(&part[i]);
  }
  call(whole);
  for (int i = 0; i < count; ++i) {
    check *k = &part[i].k;
    if (whole->k.failure[0]) memcpy(k->failure, whole->k.failure, sizeof k->failure);
    if (fits[i] && (k->failure[0] || check_same_rows(k, &whole->k, firsts[i])))
      check_count(tally, k->failure, "o%d, %lld rows from row %lld of %lld", k->option, (long long)rows,
                  (long long)firsts[i], (long long)whole->k.dims[0]);
    close_run(&part[i]);
  }
}

/* Options whose rows do not depend on each other: one with 32-bit indices or none, one with 64-bit indices. */
static void sweep_size(const check_target *target, const check_pair *pair, check_size size, check_tally *tally) {
  int64_t dims[CHECK_DIMS];
  if (!check_dims(target->entry, size, dims)) return;
  const bool is_away = !pair->context->queue.backend->host_memory;
  const int64_t n = dims[0], rows = size == CHECK_WIDE ? 1 : is_away ? PART_AWAY : PART;
  const int64_t firsts[PARTS] = {n - rows, 0, n / 2};
  bool done[2] = {false, false};
  for (int option = 0; option < check_op_at(target->entry)->options; ++option) {
    if (!check_rows_apart(target->entry, option)) continue;
    run whole;
    const bool fits = open_run(&whole, target, option, pair->context, dims, NULL, 0), kind = has_long_indices(&whole.k);
    if (fits && !done[kind]) {
      check_parts(target, pair, &whole, firsts, size == CHECK_HUGE ? PARTS : 1, rows, tally);
      done[kind] = true;
    }
    close_run(&whole);
  }
}

/* With the kernels that the device takes by itself; what has no room in memory is left out. */
void check_sweep_huge(const check_target *target, check_tally *tally) {
  const tigon_context_desc desc = {.device = target->device};
  check_pair pair = check_pair_open(target, 2);
  tigon_context *own;
  if (tigon_context_create(&desc, &own)) abort();
  const bool simulated = own->queue.backend->host_memory && strcmp(target->device, "cpu") != 0;
  if (own->kernels == target->kernels && !simulated) {
    sweep_size(target, &pair, CHECK_HUGE, tally);
    sweep_size(target, &pair, CHECK_WIDE, tally);
  }
  tigon_context_destroy(own);
  check_pair_close(&pair);
}
