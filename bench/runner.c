/* build/libtigon_bench.so, for bench/peers_cpu.py: the cases of `tigon bench`, one call at a time, so that Python can time
 * them in turns with others on the same memory. Plain types only. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define RUNNER_EXPORT __attribute__((visibility("default")))

typedef struct runner {
  const bench_case *chosen;
  bench_data data;
} runner;

static char sentence[512];

/* NULL, and a sentence, when the library has no such case; rows == 0: the case's own shape. */
RUNNER_EXPORT runner *tigon_bench_open(const char *op, const char *dtype, int64_t rows, int64_t cols, int threads);
RUNNER_EXPORT const char *tigon_bench_sentence(void);
/* One call of "fwd", "bwd" or "full"; 0: it worked. */
RUNNER_EXPORT int tigon_bench_call(runner *r, int mode);
RUNNER_EXPORT void tigon_bench_sizes(const runner *r, int64_t sizes[3]); /* rows, cols, other */
/* Memory of the case: 't' tensors, 'c' columns, 'r' rows, 'i' the indices, each as its case in apps/cli uses it. */
RUNNER_EXPORT void *tigon_bench_memory(const runner *r, char kind, int index);
RUNNER_EXPORT double tigon_bench_bytes(const runner *r, int mode); /* that must move */
RUNNER_EXPORT const char *tigon_bench_variant(const runner *r);
RUNNER_EXPORT void tigon_bench_close(runner *r);

const char *tigon_bench_sentence(void) { return sentence; }

void tigon_bench_close(runner *r) {
  if (!r) return;
  tigon_context *context = r->data.context;
  bench_data_close(&r->data);
  tigon_context_destroy(context);
  free(r);
}

static bool prepare(runner *r, const bench_point *at) {
  bench_data *d = &r->data;
  d->rows = at->rows, d->cols = at->cols, d->other = at->other;
  return bench_data_open(d, r->chosen) == TIGON_OK && r->chosen->prepare(d) == TIGON_OK &&
         bench_data_grant(d) == TIGON_OK;
}

runner *tigon_bench_open(const char *op, const char *dtype, int64_t rows, int64_t cols, int threads) {
  const tigon_context_desc desc = {.device = "cpu", .threads = threads};
  const bench_choice choice = {.axis = BENCH_ONE, .rows = rows, .cols = cols, .threads = threads};
  bench_point points[BENCH_MOST_POINTS];
  const tigon_dtype type = tigon_dtype_from_name(dtype);
  runner *r = calloc(1, sizeof *r);
  const char *why = "out of memory";
  if (r && !(r->chosen = bench_case_find(op))) why = "the library has no such operator";
  if (r && r->chosen) {
    r->data.dtype = type;
    bench_points(r->chosen, &choice, type, points);
    if (tigon_context_create(&desc, &r->data.context) == TIGON_OK && prepare(r, points)) return r;
    why = tigon_last_error(r->data.context);
  }
  snprintf(sentence, sizeof sentence, "%s %s: %s", op, dtype, why);
  tigon_bench_close(r);
  return NULL;
}

int tigon_bench_call(runner *r, int mode) {
  const tigon_status status = bench_call(r->chosen, &r->data, (bench_mode)mode);
  if (status != TIGON_OK) snprintf(sentence, sizeof sentence, "%s", tigon_last_error(r->data.context));
  return (int)status;
}

void tigon_bench_sizes(const runner *r, int64_t sizes[3]) {
  sizes[0] = r->data.rows, sizes[1] = r->data.cols, sizes[2] = r->data.other;
}

void *tigon_bench_memory(const runner *r, char kind, int index) {
  switch (kind) {
    case 't': return r->data.tensor[index];
    case 'c': return r->data.column[index];
    case 'r': return r->data.row[index];
    default: return r->data.index;
  }
}

double tigon_bench_bytes(const runner *r, int mode) { return r->data.bytes[mode]; }

const char *tigon_bench_variant(const runner *r) { return tigon_last_variant(r->data.context); }
