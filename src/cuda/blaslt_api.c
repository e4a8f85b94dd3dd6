#include "cuda/blaslt_api.h"

#include "core/outside.h"

/* The newest first; one that the process has already, PyTorch's for one, is found by these names wherever it lies. */
static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", NULL};

#define BLASLT(name, member) \
  { #name, offsetof(blaslt_api, member) }
static const tigon_symbol symbols[] = {
    BLASLT(cublasLtGetVersion, get_version),
    BLASLT(cublasLtGetStatusName, get_status_name),
    BLASLT(cublasLtCreate, create),
    BLASLT(cublasLtDestroy, destroy),
    BLASLT(cublasLtMatmulDescCreate, matmul_desc_create),
    BLASLT(cublasLtMatmulDescDestroy, matmul_desc_destroy),
    BLASLT(cublasLtMatmulDescSetAttribute, matmul_desc_set_attribute),
    BLASLT(cublasLtMatrixLayoutCreate, matrix_layout_create),
    BLASLT(cublasLtMatrixLayoutDestroy, matrix_layout_destroy),
    BLASLT(cublasLtMatmulPreferenceCreate, matmul_preference_create),
    BLASLT(cublasLtMatmulPreferenceDestroy, matmul_preference_destroy),
    BLASLT(cublasLtMatmulPreferenceSetAttribute, matmul_preference_set_attribute),
    BLASLT(cublasLtMatmulAlgoGetHeuristic, matmul_algo_get_heuristic),
    BLASLT(cublasLtMatmul, matmul),
};

static blaslt_api api;
static tigon_outside library = {names, symbols, sizeof symbols / sizeof *symbols, &api, PTHREAD_MUTEX_INITIALIZER,
                                false};

const blaslt_api *cuda_blaslt_library(void) { return tigon_outside_api(&library); }
