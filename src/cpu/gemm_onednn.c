/* oneDNN's bf16 GEMM, found at run time: several times our own where the CPU has AMX. It allocates inside the call and
 * takes denormals for 0 there, so it runs only when asked for by name. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#if defined(_OPENMP)
#include <omp.h>
#endif

#include "cpu/gemm_found.h"
#include "cpu/gemm_onednn.h"

/* The start of dnnl_version_t. */
typedef struct version {
  int major, minor, patch;
} version;

static struct {
  atomic_bool found;
  char text[160]; /* "onednn 2.6.3" */
  int (*gemm)(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const void *a,
              int64_t lda, const void *b, int64_t ldb, float beta, float *c, int64_t ldc);
} onednn;

/* Why it is not there. */
static _Thread_local char why_not[160];

static void load(void) {
  void *library = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *text = dlerror();
    snprintf(why_not, sizeof why_not, "onednn is not there: %s", text ? text : "libdnnl.so.2");
    return;
  }
  const version *(*get_version)(void);
  *(void **)&get_version = dlsym(library, "dnnl_version");
  *(void **)&onednn.gemm = dlsym(library, "dnnl_gemm_bf16bf16f32");
  const version *v = get_version ? get_version() : NULL;
  if (!onednn.gemm || !v || v->major != 2) {
    snprintf(why_not, sizeof why_not, "libdnnl.so.2 lacks dnnl_gemm_bf16bf16f32 or is not version 2");
    return;
  }
  snprintf(onednn.text, sizeof onednn.text, "onednn %d.%d.%d", v->major, v->minor, v->patch);
  onednn.found = true;
}

bool tigon_onednn_found(const char **text) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  const bool found = tigon_gemm_found(&onednn.found, &lock, load);
  *text = found ? onednn.text : why_not;
  return found;
}

static int64_t leading(const tigon_gemm_matrix *a, int64_t cols) { return a->pitch > cols ? a->pitch : cols; }

/* A bf16 matrix whose rows do not overlap. */
static bool takes(const tigon_gemm_matrix *a, int64_t rows, int64_t cols) {
  return a->dtype == TIGON_BF16 && (rows <= 1 || a->pitch >= cols);
}

bool tigon_onednn_takes(const tigon_gemm_problem *p) {
  return p->k > 0 && takes(&p->a, p->a.transposed ? p->k : p->m, p->a.transposed ? p->m : p->k) &&
         takes(&p->b, p->b.transposed ? p->n : p->k, p->b.transposed ? p->k : p->n);
}

bool tigon_onednn_tile(const tigon_gemm_problem *p, int64_t m0, int64_t m, int64_t n0, int64_t n, float *sums,
                       int64_t pitch) {
  const uint16_t *a = (const uint16_t *)p->a.data + (p->a.transposed ? m0 : m0 * p->a.pitch);
  const uint16_t *b = (const uint16_t *)p->b.data + (p->b.transposed ? n0 * p->b.pitch : n0);
  const int saved_errno = errno;
#if defined(_OPENMP)
  const int threads = omp_get_max_threads(); /* the library would take as many for this tile */
  omp_set_num_threads(1);
#endif
  const int status = onednn.gemm(p->a.transposed ? 'T' : 'N', p->b.transposed ? 'T' : 'N', m, n, p->k, 1.0f, a,
                                 leading(&p->a, p->a.transposed ? p->m : p->k), b,
                                 leading(&p->b, p->b.transposed ? p->k : p->n), 0.0f, sums, pitch);
#if defined(_OPENMP)
  omp_set_num_threads(threads);
#endif
  errno = saved_errno;
  return status == 0;
}
