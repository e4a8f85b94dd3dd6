/* build/libtigon_bench.so, for bench/peers_cpu.py and bench/peers_cuda.py: the cases of `tigon bench`, one call at a time, so that Python can time
 * them in turns with others on the same memory. Plain types only. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/cases.h"
#include "check/internal.h"

#define RUNNER_EXPORT __attribute__((visibility("default")))

typedef struct runner {
  char op[64];
  bench_mode forward; /* the mode that "fwd" is */
  bench_point at;
  tigon_context *context;
  bench_data data;
} runner;

static char sentence[512];

static bool is_word(const char *name, const char *word, size_t length) {
  return strlen(name) == length && strncmp(name, word, length) == 0;
}

/* NULL, and a sentence, when the library has no such case; rows == 0: the case's own shape. Behind the operator's name may be forms
 * (tests/check/forms.def), attention's softcap (Gemma 2's) and sinks, and an entry that stands for "fwd": "rms_norm+gate+quantised". */
RUNNER_EXPORT runner *tigon_bench_open(const char *op, const char *dtype, int64_t rows, int64_t cols, int threads);
/* The same on a device, on the caller's stream; sizes are those of bench_point, 0: the case's own. */
typedef struct runner_place {
  const char *device;
  void *stream;
  int threads;
} runner_place;
typedef struct runner_sizes {
  int64_t rows, cols, other, head_dim, kv_heads, experts, choices, as_weight;
} runner_sizes;
RUNNER_EXPORT runner *tigon_bench_open_on(const runner_place *place, const char *op, const char *dtype,
                                          const runner_sizes *sizes);
RUNNER_EXPORT const char *tigon_bench_sentence(void);
/* One call of "fwd", "bwd" or "full"; 0: it worked. */
RUNNER_EXPORT int tigon_bench_call(runner *r, int mode);
RUNNER_EXPORT void tigon_bench_sizes(const runner *r, int64_t sizes[2]); /* rows, cols */
/* A tensor by the name that the op's check gives it; NULL when the case has none. */
RUNNER_EXPORT const tigon_tensor *tigon_bench_tensor(const runner *r, const char *name);
RUNNER_EXPORT double tigon_bench_bytes(const runner *r, int mode);     /* that must move */
RUNNER_EXPORT double tigon_bench_flops(const runner *r, int mode);     /* of matrix products */
RUNNER_EXPORT double tigon_bench_workspace(const runner *r, int mode); /* bytes */
RUNNER_EXPORT const char *tigon_bench_gemm(const runner *r);
RUNNER_EXPORT const char *tigon_bench_variant(const runner *r);
RUNNER_EXPORT void tigon_bench_close(runner *r);

const char *tigon_bench_sentence(void) { return sentence; }

void tigon_bench_close(runner *r) {
  if (!r) return;
  bench_data_close(&r->data);
  tigon_context_destroy(r->context);
  free(r);
}

static bool take_option(runner *r, const char *word, size_t length) {
  if (strcmp(r->op, "attention") != 0) return false;
  const bool softcap = is_word("softcap", word, length), sinks = is_word("sinks", word, length);
  if (softcap) r->at.attention.softcap = 50;
  if (sinks) r->at.attention.sinks = true;
  return softcap || sinks;
}

/* Takes `name` apart. NULL: the library does not have all of it. */
static const bench_case *find_case(runner *r, const char *name) {
  size_t length = strcspn(name, "+");
  snprintf(r->op, sizeof r->op, "%.*s", (int)length, name);
  const bench_case *chosen = bench_case_find(r->op);
  for (const char *word = name + length; chosen && *word; word += length) {
    length = strcspn(++word, "+");
    bench_form form = 0;
    bench_mode mode = 0;
    for (; form < BENCH_FORMS && !is_word(bench_form_option(form), word, length); ++form) continue;
    for (; mode < BENCH_MODES && !is_word(bench_mode_name(mode), word, length); ++mode) continue;
    if (mode < BENCH_MODES)
      r->forward = mode;
    else if (form < BENCH_FORMS && chosen->forms & BENCH_BIT(form))
      r->at.forms |= BENCH_BIT(form);
    else if (!take_option(r, word, length))
      chosen = NULL;
  }
  return chosen;
}

runner *tigon_bench_open_on(const runner_place *place, const char *op, const char *dtype, const runner_sizes *sizes) {
  const tigon_context_desc desc = {.device = place->device, .stream = place->stream, .threads = place->threads};
  const tigon_dtype type = tigon_dtype_from_name(dtype);
  runner *r = calloc(1, sizeof *r);
  const bench_case *chosen = r ? find_case(r, op) : NULL;
  const char *why = "out of memory";
  if (r && !chosen) why = "the library has no such operator";
  if (chosen) {
    r->at.rows = sizes->rows, r->at.cols = sizes->cols ? sizes->cols : chosen->cols, r->at.other = sizes->other;
    r->at.head_dim = sizes->head_dim, r->at.kv_heads = sizes->kv_heads;
    r->at.experts = sizes->experts, r->at.choices = sizes->choices;
    if (sizes->as_weight) r->at.forms |= chosen->forms & BENCH_BIT(BENCH_AS_WEIGHT);
    if (!r->at.rows) r->at.rows = tigon_dtype_size(type) == 2 ? chosen->rows_16bit : chosen->rows_f32;
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

runner *tigon_bench_open(const char *op, const char *dtype, int64_t rows, int64_t cols, int threads) {
  return tigon_bench_open_on(&(runner_place){.device = "cpu", .threads = threads}, op, dtype,
                             &(runner_sizes){.rows = rows, .cols = cols});
}

static bench_mode mode_of(const runner *r, int mode) { return mode == BENCH_FWD ? r->forward : (bench_mode)mode; }

int tigon_bench_call(runner *r, int mode) {
  const bool none = r->forward != BENCH_FWD && mode != BENCH_FWD;
  const tigon_status status = none ? TIGON_ERROR_UNSUPPORTED : bench_call(&r->data, mode_of(r, mode));
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

double tigon_bench_bytes(const runner *r, int mode) { return r->data.mode[mode_of(r, mode)].bytes; }

double tigon_bench_flops(const runner *r, int mode) { return r->data.mode[mode_of(r, mode)].flops; }

double tigon_bench_workspace(const runner *r, int mode) {
  return (double)r->data.mode[mode_of(r, mode)].workspace_bytes;
}

const char *tigon_bench_gemm(const runner *r) { return tigon_context_gemm(r->context); }

const char *tigon_bench_variant(const runner *r) { return tigon_last_variant(r->context); }
