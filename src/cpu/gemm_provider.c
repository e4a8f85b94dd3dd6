/* Which GEMM a queue has, and its state: scratch memory for the built-in one. */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/gemm.h"
#include "cpu/gemm_openblas.h"

typedef struct state {
  bool library; /* openblas, else built-in */
  char sentence[160];
  int slots;
  unsigned char *scratch; /* [slots, TIGON_GEMM_SCRATCH_BYTES] */
  atomic_bool taken[];    /* [slots] */
} state;

/* *library: the text of the library to use, NULL for the built-in. */
static tigon_status choose(const char **library, const char **reason) {
  const char *name = getenv("TIGON_GEMM"), *text;
  const bool any = !name || !*name;
  *library = NULL;
  if (!any && strcmp(name, "builtin") == 0) return TIGON_OK;
  if (any || strcmp(name, "openblas") == 0) {
    const bool found = tigon_openblas_found(&text);
    *(found ? library : reason) = text;
    return found || any ? TIGON_OK : TIGON_ERROR_DEVICE;
  }
  static _Thread_local char sentence[96];
  snprintf(sentence, sizeof sentence, "TIGON_GEMM is \"%.40s\", must be builtin or openblas", name);
  *reason = sentence;
  return TIGON_ERROR_INVALID;
}

tigon_status tigon_gemm_open(tigon_queue *queue, const char **reason) {
  *reason = "";
  const char *library;
  const tigon_status status = choose(&library, reason);
  if (status != TIGON_OK) return status;
  const size_t slots = (size_t)queue->threads;
  state *s = calloc(1, sizeof *s + slots * sizeof *s->taken);
  unsigned char *scratch = s ? aligned_alloc(64, slots * TIGON_GEMM_SCRATCH_BYTES) : NULL;
  if (!scratch) {
    free(s);
    *reason = "out of memory";
    return TIGON_ERROR_OUT_OF_MEMORY;
  }
  s->library = library != NULL;
  s->slots = queue->threads;
  s->scratch = scratch;
  if (library)
    snprintf(s->sentence, sizeof s->sentence, "%s: run_to_run, thread_count (f32); built-in: all grades (bf16, f16)",
             library);
  else
    snprintf(s->sentence, sizeof s->sentence, "built-in: run_to_run, thread_count, batch");
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
        return s->scratch + (size_t)i * TIGON_GEMM_SCRATCH_BYTES;
}

void tigon_gemm_scratch_give(const tigon_queue *queue, void *scratch) {
  state *s = queue->state;
  const size_t i = (size_t)((unsigned char *)scratch - s->scratch) / TIGON_GEMM_SCRATCH_BYTES;
  atomic_store_explicit(&s->taken[i], false, memory_order_release);
}

bool tigon_gemm_library(const tigon_queue *queue, const tigon_gemm_problem *p) {
  return ((const state *)queue->state)->library && tigon_openblas_run(queue, p);
}
