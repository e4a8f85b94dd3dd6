/* cuBLASLt, found at run time. The prototypes are ours, after its public reference; handles are pointers, enumerations ints. */
#ifndef TIGON_CUDA_BLASLT_API_H
#define TIGON_CUDA_BLASLT_API_H

#include <tigon/base.h>

enum {
  BLASLT_SUCCESS = 0,
  BLASLT_INVALID_VALUE = 7,
  BLASLT_NOT_SUPPORTED = 15,
  BLASLT_COMPUTE_F32 = 68,  /* cublasComputeType_t: products and sums in f32, no TF32 */
  BLASLT_REDUCE_IN_F32 = 2, /* cublasLtReductionScheme_t: parts of a sum are handed over in f32 */
  BLASLT_EPILOGUE_BIAS = 4, /* cublasLtEpilogue_t */
  BLASLT_R_F32 = 0,         /* cudaDataType */
  BLASLT_R_F16 = 2,
  BLASLT_R_BF16 = 14,
};

/* cublasLtMatmulDescAttributes_t */
enum { BLASLT_DESC_TRANSPOSE_A = 3, BLASLT_DESC_TRANSPOSE_B = 4, BLASLT_DESC_EPILOGUE = 7, BLASLT_DESC_BIAS = 8 };

/* cublasLtMatmulPreferenceAttributes_t; ALIGNMENT_A is followed by B, C and D. */
enum { BLASLT_PREFER_WORKSPACE = 1, BLASLT_PREFER_REDUCTION = 3, BLASLT_PREFER_ALIGNMENT_A = 5 };

typedef struct blaslt_algorithm {
  uint64_t data[8];
} blaslt_algorithm;

/* cublasLtMatmulHeuristicResult_t */
typedef struct blaslt_found {
  blaslt_algorithm algorithm;
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
} blaslt_found;

/* Each is called what the library calls it, less the prefix. Matrices are column by column. */
typedef struct blaslt_api {
  size_t (*get_version)(void); /* 130101: 13.1.1 */
  const char *(*get_status_name)(int status);
  int (*create)(void **handle);
  int (*destroy)(void *handle);
  int (*matmul_desc_create)(void **desc, int compute, int scale_type);
  int (*matmul_desc_destroy)(void *desc);
  int (*matmul_desc_set_attribute)(void *desc, int attribute, const void *value, size_t bytes);
  int (*matrix_layout_create)(void **layout, int type, uint64_t rows, uint64_t cols, int64_t pitch);
  int (*matrix_layout_destroy)(void *layout);
  int (*matmul_preference_create)(void **preference);
  int (*matmul_preference_destroy)(void *preference);
  int (*matmul_preference_set_attribute)(void *preference, int attribute, const void *value, size_t bytes);
  int (*matmul_algo_get_heuristic)(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference,
                                   int most, blaslt_found *found, int *count);
  int (*matmul)(void *handle, void *desc, const void *alpha, const void *a_data, void *a, const void *b_data, void *b,
                const void *beta, const void *c_data, void *c, void *d_data, void *d, const blaslt_algorithm *algorithm,
                void *workspace, size_t workspace_bytes, void *stream);
} blaslt_api;

/* The library, looked for until that succeeds once in the process; NULL: it is not there, or is too old. */
const blaslt_api *cuda_blaslt_library(void);

#endif
