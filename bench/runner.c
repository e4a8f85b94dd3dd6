/* build/libtigon_bench.so, for bench/peers_cpu.py: the cases of `tigon bench`, one call at a time, so that Python can time
 * them in turns with others on the same memory. Plain types only. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/cases.h"
#include "check/internal.h"

#define RUNNER_EXPORT __attribute__((visibility("default")))

typedef struct runner {
  bench_point at;
  tigon_context *context;
  bench_data data;
} runner;

static char sentence[512];

/* NULL, and a sentence, when the library has no such case; rows == 0: the case's own shape. */
RUNNER_EXPORT runner *tigon_bench_open(const char *op, const char *dtype, int64_t rows, int64_t cols, int threads);
RUNNER_EXPORT const char *tigon_bench_sentence(void);
/* One call of "fwd", "bwd" or "full"; 0: it worked. */
RUNNER_EXPORT int tigon_bench_call(runner *r, int mode);
RUNNER_EXPORT void tigon_bench_sizes(const runner *r, int64_t sizes[2]); /* rows, cols */
/* A tensor by the name that the op's check gives it; NULL when the case has none. */
RUNNER_EXPORT const tigon_tensor *tigon_bench_tensor(const runner *r, const char *name);
RUNNER_EXPORT double tigon_bench_bytes(const runner *r, int mode); /* that must move */
RUNNER_EXPORT const char *tigon_bench_variant(const runner *r);
RUNNER_EXPORT void tigon_bench_close(runner *r);

const char *tigon_bench_sentence(void) { return sentence; }

void tigon_bench_close(runner *r) {
  if (!r) return;
  bench_data_close(&r->data);
  tigon_context_destroy(r->context);
  free(r);
}

runner *tigon_bench_open(const char *op, const char *dtype, int64_t rows, int64_t cols, int threads) {
  const tigon_context_desc desc = {.device = "cpu", .threads = threads};
  const tigon_dtype type = tigon_dtype_from_name(dtype);
  const bench_case *chosen = bench_case_find(op);
  runner *r = calloc(1, sizeof *r);
  const char *why = "out of memory";
  if (r && !chosen) why = "the library has no such operator";
  if (r && chosen) {
    r->at.rows = rows ? rows : tigon_dtype_size(type) == 2 ? chosen->rows_16bit : chosen->rows_f32;
    r->at.cols = cols ? cols : chosen->cols;
    r->at.other = bench_other(chosen, &r->at);
    const tigon_status status = tigon_context_create(&desc, &r->context);
    if (status == TIGON_OK && bench_data_open(&r->data, chosen, r->context, type, &r->at, SIZE_MAX) == TIGON_OK)
      return r;
    if (status != TIGON_OK) why = tigon_last_error(NULL);
  }
  snprintf(sentence, sizeof sentence, "%s %s: %s", op, dtype, why);
  tigon_bench_close(r);
  return NULL;
}

int tigon_bench_call(runner *r, int mode) {
  const tigon_status status = bench_call(&r->data, (bench_mode)mode);
  if (status != TIGON_OK) snprintf(sentence, sizeof sentence, "%s", tigon_last_error(r->context));
  return (int)status;
}

void tigon_bench_sizes(const runner *r, int64_t sizes[2]) { sizes[0] = r->at.rows, sizes[1] = r->at.cols; }

const tigon_tensor *tigon_bench_tensor(const runner *r, const char *name) {
  const check *k = &r->data.memory;
  for (int i = 0; i < k->count; ++i)
    if (strcmp(k->buffers[i].name, name) == 0) return &k->buffers[i].tensor;
  return NULL;
}

double tigon_bench_bytes(const runner *r, int mode) { return r->data.mode[mode].bytes; }

const char *tigon_bench_variant(const runner *r) { return tigon_last_variant(r->context); }
