/* OpenBLAS, found at run time. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#if defined(_OPENMP)
#include <omp.h>
#endif

#include "cpu/gemm_found.h"
#include "cpu/gemm_openblas.h"

enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };

static struct {
  atomic_bool found;
  char text[160]; /* "openblas 0.3.21 (SkylakeX)" */
  void (*sgemm)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float *a, int lda,
                const float *b, int ldb, float beta, float *c, int ldc);
  void (*set_num_threads)(int);
  int (*get_num_threads)(void);
} openblas;

/* The library's thread count is one for the process. It is 1 while any of our calls runs, because the tasks are ours,
 * and the caller's own number again after the last of them. */
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

/* Why it is not there. */
static _Thread_local char why_not[160];

/* OpenBLAS waits for memory for as long as there is none, in a call and at the process's end, and ends the process when it
 * cannot start its threads. */
static bool is_safe(void) {
  struct rlimit addresses;
  const char *why = NULL;
  cpu_set_t own;
  const int cores = sched_getaffinity(0, sizeof own, &own) == 0 ? CPU_COUNT(&own) : 1;
  if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY)
    why = "addresses are limited (ulimit -v)";
  else if (tigon_cpu_threads_there(cores) < cores)
    why = "its threads cannot be started (ulimit -u)";
  if (why) snprintf(why_not, sizeof why_not, "openblas is left out: %s", why);
  return !why;
}

static void load(void) {
  if (!is_safe()) return;
  void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *text = dlerror();
    snprintf(why_not, sizeof why_not, "openblas is not there: %s", text ? text : "libopenblas.so.0");
    return;
  }
  char *(*get_config)(void);
  char *(*get_corename)(void);
  *(void **)&get_config = dlsym(library, "openblas_get_config");
  *(void **)&get_corename = dlsym(library, "openblas_get_corename");
  *(void **)&openblas.sgemm = dlsym(library, "cblas_sgemm");
  *(void **)&openblas.set_num_threads = dlsym(library, "openblas_set_num_threads");
  *(void **)&openblas.get_num_threads = dlsym(library, "openblas_get_num_threads");
  const char *config = get_config ? get_config() : "";
  if (!openblas.sgemm || !openblas.set_num_threads || !openblas.get_num_threads ||
      strncmp(config, "OpenBLAS ", 9) != 0) {
    snprintf(why_not, sizeof why_not, "libopenblas.so.0 lacks cblas_sgemm or the control of its threads");
    return;
  }
  if (strstr(config, "USE64BITINT")) {
    snprintf(why_not, sizeof why_not, "libopenblas.so.0 has 64-bit integers, must have 32-bit ones");
    return;
  }
  const char *core = get_corename ? get_corename() : "unknown";
  snprintf(openblas.text, sizeof openblas.text, "openblas %.*s (%.32s)", (int)strcspn(config + 9, " "), config + 9,
           core);
  pthread_atfork(before_fork, after_fork, in_child);
  openblas.found = true;
}

bool tigon_openblas_found(const char **text) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  const bool found = tigon_gemm_found(&openblas.found, &lock, load);
  *text = found ? openblas.text : why_not;
  return found;
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

/* A call's tiles of c are a fixed function of its shape, so the bits do not depend on the threads. */
enum { TILE = 1024, TILE_LEAST = 128, TASKS = 8 };

typedef struct job {
  const tigon_gemm_problem *p;
  int64_t tile_m, tile_n, tiles_n;
} job;

static int leading(const tigon_gemm_matrix *a, int64_t cols) { return (int)(a->pitch > cols ? a->pitch : cols); }

static void task(const void *argument, int64_t index) {
  const job *j = argument;
  const tigon_gemm_problem *p = j->p;
  const int64_t m0 = index / j->tiles_n * j->tile_m, n0 = index % j->tiles_n * j->tile_n;
  const int64_t m = p->m - m0 < j->tile_m ? p->m - m0 : j->tile_m, n = p->n - n0 < j->tile_n ? p->n - n0 : j->tile_n;
  const float *a = (const float *)p->a.data + (p->a.transposed ? m0 : m0 * p->a.pitch);
  const float *b = (const float *)p->b.data + (p->b.transposed ? n0 * p->b.pitch : n0);
  float *c = (float *)p->c + m0 * p->c_pitch + n0;
  const int64_t c_pitch = p->c_pitch > p->n ? p->c_pitch : p->n;
  openblas.sgemm(ROW_MAJOR, p->a.transposed ? TRANSPOSE : NO_TRANSPOSE, p->b.transposed ? TRANSPOSE : NO_TRANSPOSE,
                 (int)m, (int)n, (int)p->k, 1.0f, a, leading(&p->a, p->a.transposed ? p->m : p->k), b,
                 leading(&p->b, p->b.transposed ? p->k : p->n), p->accumulate ? 1.0f : 0.0f, c, (int)c_pitch);
  const float *bias = p->bias;
  for (int64_t i = 0; bias && i < m; ++i)
    for (int64_t v = 0; v < n; ++v) c[i * p->c_pitch + v] += bias[n0 + v];
}

/* A matrix of f32 whose rows do not overlap and whose sizes fit the library's int. */
static bool takes(const tigon_gemm_matrix *a, int64_t rows, int64_t cols) {
  return a->dtype == TIGON_F32 && (rows <= 1 || a->pitch >= cols) && a->pitch <= INT_MAX && rows <= INT_MAX &&
         cols <= INT_MAX;
}

bool tigon_openblas_run(const tigon_queue *queue, const tigon_gemm_problem *p) {
  const tigon_gemm_matrix c = {p->c, p->c_dtype, p->c_pitch, false};
  if (p->k == 0 || p->sums || (p->bias && p->bias_dtype != TIGON_F32) || !takes(&c, p->m, p->n)) return false;
  if (!takes(&p->a, p->a.transposed ? p->k : p->m, p->a.transposed ? p->m : p->k)) return false;
  if (!takes(&p->b, p->b.transposed ? p->n : p->k, p->b.transposed ? p->k : p->n)) return false;
  job j = {p, p->m < TILE ? p->m : TILE, p->n < TILE ? p->n : TILE, 0};
  int64_t tiles_m;
  for (;;) {
    tiles_m = (p->m + j.tile_m - 1) / j.tile_m;
    j.tiles_n = (p->n + j.tile_n - 1) / j.tile_n;
    if (tiles_m * j.tiles_n >= TASKS || (j.tile_m < 2 * TILE_LEAST && j.tile_n < 2 * TILE_LEAST)) break;
    int64_t *larger = j.tile_m > j.tile_n ? &j.tile_m : &j.tile_n;
    *larger = (*larger + 1) / 2;
  }
  const int saved_errno = errno;
#if defined(_OPENMP)
  const int threads = omp_get_max_threads(); /* a library built with OpenMP sets it */
#endif
  enter_single();
  tigon_cpu_parallel(queue, tiles_m * j.tiles_n, task, &j);
  leave_single();
#if defined(_OPENMP)
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
#endif
  errno = saved_errno;
  return true;
}
