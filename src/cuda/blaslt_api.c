#include "cuda/blaslt_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

/* The newest first; one that the process has already, PyTorch's for one, is found by these names wherever it lies. */
static const char *const libraries[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
enum { LIBRARIES = sizeof libraries / sizeof *libraries };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static blaslt_api api;
static bool ready;

#define BLASLT_FUNCTIONS(X)                                                  \
  X("cublasLtGetVersion", get_version)                                       \
  X("cublasLtGetStatusName", get_status_name)                                \
  X("cublasLtCreate", create)                                                \
  X("cublasLtDestroy", destroy)                                              \
  X("cublasLtMatmulDescCreate", matmul_desc_create)                          \
  X("cublasLtMatmulDescDestroy", matmul_desc_destroy)                        \
  X("cublasLtMatmulDescSetAttribute", matmul_desc_set_attribute)             \
  X("cublasLtMatrixLayoutCreate", matrix_layout_create)                      \
  X("cublasLtMatrixLayoutDestroy", matrix_layout_destroy)                    \
  X("cublasLtMatmulPreferenceCreate", matmul_preference_create)              \
  X("cublasLtMatmulPreferenceDestroy", matmul_preference_destroy)            \
  X("cublasLtMatmulPreferenceSetAttribute", matmul_preference_set_attribute) \
  X("cublasLtMatmulAlgoGetHeuristic", matmul_algo_get_heuristic)             \
  X("cublasLtMatmul", matmul)

static bool resolve(void *library, blaslt_api *made) {
  void *symbol;
#define BLASLT_RESOLVE(name, member)                  \
  if (!(symbol = dlsym(library, name))) return false; \
  memcpy(&made->member, &symbol, sizeof made->member);
  BLASLT_FUNCTIONS(BLASLT_RESOLVE)
#undef BLASLT_RESOLVE
  return true;
}

static bool load(void) {
  for (int i = 0; i < LIBRARIES; ++i) {
    void *library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
    if (library && resolve(library, &api)) return true;
    if (library) dlclose(library);
  }
  return false;
}

const blaslt_api *cuda_blaslt_library(void) {
  pthread_mutex_lock(&lock);
  if (!ready) ready = load();
  const bool there = ready;
  pthread_mutex_unlock(&lock);
  return there ? &api : NULL;
}
