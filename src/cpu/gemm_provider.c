#include "cpu/gemm.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(_OPENMP)
#include <omp.h>
#endif

/* ---- OpenBLAS ---- */

enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };

static struct {
  bool found;
  char name[64]; /* "openblas 0.3.21" */
  char missing[160];
  void (*sgemm)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float *a, int lda,
                const float *b, int ldb, float beta, float *c, int ldc);
  void (*set_num_threads)(int);
  int (*get_num_threads)(void);
} openblas;

/* The library's thread count is one for the process. It is 1 while any of our calls runs, because the tasks are ours, and
 * the caller's own number again after the last of them. */
static struct {
  pthread_mutex_t mutex;
  int users, threads;
} single = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void before_fork(void) { pthread_mutex_lock(&single.mutex); }
static void after_fork(void) { pthread_mutex_unlock(&single.mutex); }
static void in_child(void) {
  single.users = 0; /* those were the parent's */
  pthread_mutex_unlock(&single.mutex);
}

static void load_openblas(void) {
  void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *text = dlerror();
    snprintf(openblas.missing, sizeof openblas.missing, "openblas is not there: %s", text ? text : "libopenblas.so.0");
    return;
  }
  char *(*get_config)(void);
  *(void **)&get_config = dlsym(library, "openblas_get_config");
  *(void **)&openblas.sgemm = dlsym(library, "cblas_sgemm");
  *(void **)&openblas.set_num_threads = dlsym(library, "openblas_set_num_threads");
  *(void **)&openblas.get_num_threads = dlsym(library, "openblas_get_num_threads");
  const char *config = get_config ? get_config() : "";
  if (!openblas.sgemm || !openblas.set_num_threads || !openblas.get_num_threads || strncmp(config, "OpenBLAS ", 9) != 0) {
    snprintf(openblas.missing, sizeof openblas.missing, "libopenblas.so.0 lacks cblas_sgemm or the control of its threads");
    return;
  }
  if (strstr(config, "USE64BITINT")) {
    snprintf(openblas.missing, sizeof openblas.missing, "libopenblas.so.0 has 64-bit integers, must have 32-bit ones");
    return;
  }
  snprintf(openblas.name, sizeof openblas.name, "openblas %.*s", (int)strcspn(config + 9, " "), config + 9);
  pthread_atfork(before_fork, after_fork, in_child);
  openblas.found = true;
}

static void enter_single(void) {
  pthread_mutex_lock(&single.mutex);
  if (single.users++ == 0) {
    single.threads = openblas.get_num_threads();
    if (single.threads != 1) openblas.set_num_threads(1);
  }
  pthread_mutex_unlock(&single.mutex);
}

static void leave_single(void) {
  pthread_mutex_lock(&single.mutex);
  if (single.users > 0 && --single.users == 0 && single.threads != 1) openblas.set_num_threads(single.threads);
  pthread_mutex_unlock(&single.mutex);
}

/* ---- the queue's state ---- */

typedef struct state {
  bool library; /* openblas, else built-in */
  char sentence[96];
  int slots;
  unsigned char *scratch; /* [slots, TIGON_GEMM_SCRATCH_BYTES] */
  atomic_bool taken[];    /* [slots] */
} state;

static tigon_status choose(bool *library, const char **reason) {
  const char *name = getenv("TIGON_GEMM");
  *library = false;
  if (name && strcmp(name, "builtin") == 0) return TIGON_OK;
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (!name || !*name || strcmp(name, "openblas") == 0) {
    pthread_once(&once, load_openblas);
    *library = openblas.found;
    if (openblas.found || !name || !*name) return TIGON_OK;
    *reason = openblas.missing;
    return TIGON_ERROR_DEVICE;
  }
  static _Thread_local char sentence[128];
  snprintf(sentence, sizeof sentence, "TIGON_GEMM is \"%.40s\", must be builtin or openblas", name);
  *reason = sentence;
  return TIGON_ERROR_INVALID;
}

tigon_status tigon_gemm_open(tigon_queue *queue, const char **reason) {
  *reason = "";
  bool library;
  TIGON_TRY(choose(&library, reason));
  const size_t slots = (size_t)queue->threads;
  state *s = calloc(1, sizeof *s + slots * sizeof *s->taken);
  unsigned char *scratch = s ? aligned_alloc(64, slots * TIGON_GEMM_SCRATCH_BYTES) : NULL;
  if (!scratch) {
    free(s);
    *reason = "out of memory";
    return TIGON_ERROR_OUT_OF_MEMORY;
  }
  s->library = library;
  s->slots = queue->threads;
  s->scratch = scratch;
  if (library)
    snprintf(s->sentence, sizeof s->sentence, "%s: run_to_run, thread_count (f32); built-in: all grades (bf16, f16)",
             openblas.name);
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
  for (int i = 0;; i = (i + 1) % s->slots)
    if (!atomic_exchange_explicit(&s->taken[i], true, memory_order_acquire))
      return s->scratch + (size_t)i * TIGON_GEMM_SCRATCH_BYTES;
}

void tigon_gemm_scratch_give(const tigon_queue *queue, void *scratch) {
  state *s = queue->state;
  const size_t i = (size_t)((unsigned char *)scratch - s->scratch) / TIGON_GEMM_SCRATCH_BYTES;
  atomic_store_explicit(&s->taken[i], false, memory_order_release);
}
