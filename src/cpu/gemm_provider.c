/* Which GEMM a queue has, and its state: scratch memory for the built-in one. */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/gemm.h"
#include "cpu/gemm_onednn.h"
#include "cpu/gemm_openblas.h"

typedef enum library { BUILT_IN, OPENBLAS, ONEDNN } library;

typedef struct state {
  library library;
  char sentence[192];
  int slots;
  size_t slot_bytes;
  unsigned char *scratch; /* [slots, slot_bytes] */
  atomic_bool taken[];    /* [slots] */
} state;

static bool has_tiles(const tigon_queue *queue) { return strcmp(queue->variant, "amx") == 0; }

/* On OK *text is the library's name and version, else the sentence. */
static tigon_status choose(const tigon_queue *queue, library *chosen, const char **text) {
  const char *name = getenv("TIGON_GEMM");
  const bool any = !name || !*name;
  /* docs/op/linear.md has both GEMMs' rates */
  const bool is_fast = strncmp(queue->variant, "avx512", 6) == 0 || has_tiles(queue);
  *chosen = BUILT_IN;
  *text = "";
  if (any ? is_fast : strcmp(name, "builtin") == 0) return TIGON_OK;
  if (any || strcmp(name, "openblas") == 0) {
    if (tigon_openblas_found(text)) *chosen = OPENBLAS;
    return any || *chosen == OPENBLAS ? TIGON_OK : TIGON_ERROR_DEVICE;
  }
  if (strcmp(name, "onednn") == 0) {
    if (tigon_onednn_found(text)) *chosen = ONEDNN;
    return *chosen == ONEDNN ? TIGON_OK : TIGON_ERROR_DEVICE;
  }
  static _Thread_local char sentence[96];
  snprintf(sentence, sizeof sentence, "TIGON_GEMM is \"%.40s\", must be builtin, openblas or onednn", name);
  *text = sentence;
  return TIGON_ERROR_INVALID;
}

static void describe(state *s, const char *text) {
  const size_t size = sizeof s->sentence;
  if (s->library == OPENBLAS)
    snprintf(s->sentence, size, "%.90s: run_to_run, thread_count (f32); built-in: all grades (bf16, f16)", text);
  else if (s->library == ONEDNN)
    snprintf(s->sentence, size, "%.90s: run_to_run, thread_count (bf16); built-in: all grades (f32, f16)", text);
  else
    snprintf(s->sentence, size, "built-in: run_to_run, thread_count, batch");
}

tigon_status tigon_gemm_open(tigon_queue *queue, const char **reason) {
  library chosen;
  const char *text;
  const tigon_status status = choose(queue, &chosen, &text);
  *reason = text;
  if (status != TIGON_OK) return status;
  const size_t slots = (size_t)queue->threads;
  const size_t slot_bytes = has_tiles(queue) ? TIGON_GEMM_TILES_BYTES : TIGON_GEMM_SCRATCH_BYTES;
  state *s = calloc(1, sizeof *s + slots * sizeof *s->taken);
  unsigned char *scratch = s ? aligned_alloc(64, slots * slot_bytes) : NULL;
  if (!scratch) {
    free(s);
    static _Thread_local char sentence[96];
    snprintf(sentence, sizeof sentence, "%zu bytes for the products of %d threads are not there", slots * slot_bytes,
             queue->threads);
    *reason = sentence;
    return TIGON_ERROR_OUT_OF_MEMORY;
  }
  s->library = chosen;
  s->slots = queue->threads;
  s->slot_bytes = slot_bytes;
  s->scratch = scratch;
  describe(s, text);
  queue->state = s;
  return TIGON_OK;
}

void tigon_gemm_close(tigon_queue *queue) {
  state *s = queue->state;
  if (!s) return;
  free(s->scratch);
  free(s);
  queue->state = NULL;
}

const char *tigon_gemm_describe(const tigon_queue *queue) { return ((const state *)queue->state)->sentence; }

void *tigon_gemm_scratch_take(const tigon_queue *queue) {
  state *s = queue->state;
  for (;; sched_yield())
    for (int i = 0; i < s->slots; ++i)
      if (!atomic_exchange_explicit(&s->taken[i], true, memory_order_acquire))
        return s->scratch + (size_t)i * s->slot_bytes;
}

void tigon_gemm_scratch_give(const tigon_queue *queue, void *scratch) {
  state *s = queue->state;
  const size_t i = (size_t)((unsigned char *)scratch - s->scratch) / s->slot_bytes;
  atomic_store_explicit(&s->taken[i], false, memory_order_release);
}

static bool runs_on(const tigon_queue *queue, library which) { return ((const state *)queue->state)->library == which; }

bool tigon_gemm_library(const tigon_queue *queue, const tigon_gemm_problem *p) {
  return runs_on(queue, OPENBLAS) && tigon_openblas_run(queue, p);
}

bool tigon_gemm_makes_tiles(const tigon_queue *queue, const tigon_gemm_problem *p) {
  return runs_on(queue, ONEDNN) && tigon_onednn_takes(p);
}

bool tigon_gemm_tile(const tigon_gemm_problem *p, int64_t m0, int64_t m, int64_t n0, int64_t n, float *sums,
                     int64_t pitch) {
  return tigon_onednn_tile(p, m0, m, n0, n, sums, pitch);
}
