/* aclnn, CANN's library of operators, found at run time. The prototypes are ours, after its public reference;
 * handles are pointers, enumerations ints. */
#ifndef TIGON_ASCEND_ACLNN_H
#define TIGON_ASCEND_ACLNN_H

#include <tigon/base.h>

enum { ACLNN_F32 = 0, ACLNN_F16 = 1, ACLNN_U8 = 4, ACLNN_BF16 = 27 }; /* aclDataType */

enum {
  ACLNN_FORMAT_ND = 2,  /* aclFormat */
  ACLNN_KEEP_DTYPE = 0, /* cubeMathType: products of what comes in, so f32 and not HF32 of f32 */
  ACLNN_KEEP_SUMS =
      -1, /* the f32 sums of 16-bit products as they are; with KEEP_DTYPE some versions round them to 16 bits */
  ACLNN_ALIGNMENT = 32, /* bytes, of a tensor's storage */
};

/* What enqueues an operator that is planned: it takes the executor with it. */
typedef int aclnn_run(void *workspace, uint64_t bytes, void *executor, void *stream);

/* Each is called what the library calls it, less the prefix. */
typedef struct aclnn_api {
  void *(*create_tensor)(const int64_t *shape, uint64_t ndim, int dtype, const int64_t *strides, int64_t offset,
                         int format, const int64_t *storage_shape, uint64_t storage_ndim, void *storage);
  int (*destroy_tensor)(const void *tensor);
  int (*set_executor_repeatable)(void *executor); /* whose owner then destroys it */
  int (*destroy_executor)(void *executor);
  int (*mm_get_workspace_size)(const void *a, const void *b, void *c, int8_t cube_math, uint64_t *bytes,
                               void **executor);
  aclnn_run *mm;
} aclnn_api;

/* aclnnFlashAttentionScore, which writes max, sum and out, and its gradient, which writes dq, dk and dv. before, after: keys that a
 * query sees besides its own; shift, the masks, prefix and softmax may be NULL. */
typedef struct aclnn_attention_api {
  int (*score_get_workspace_size)(const void *q, const void *k, const void *v, const void *shift, const void *drop_mask,
                                  const void *padding_mask, const void *mask, const void *prefix, double scale,
                                  double keep, int64_t before, int64_t after, int64_t heads, char *layout,
                                  int64_t precise, int64_t sparse, const void *max, const void *sum,
                                  const void *softmax, const void *out, uint64_t *bytes, void **executor);
  aclnn_run *score;
  int (*grad_get_workspace_size)(const void *q, const void *k, const void *v, const void *d_out, const void *shift,
                                 const void *drop_mask, const void *padding_mask, const void *mask, const void *max,
                                 const void *sum, const void *softmax, const void *out, const void *prefix,
                                 double scale, double keep, int64_t before, int64_t after, int64_t heads, char *layout,
                                 int64_t precise, int64_t sparse, const void *dq, const void *dk, const void *dv,
                                 const void *d_shift, uint64_t *bytes, void **executor);
  aclnn_run *grad;
} aclnn_attention_api;

/* The libraries, looked for until that succeeds once in the process; NULL: one is not there, or is too old. */
const aclnn_api *ascend_aclnn(void);
const aclnn_attention_api *ascend_aclnn_attention(void);

/* A tensor of up to four dimensions, from its strides in elements. An address off the alignment is an offset, and the stride of an
 * extent of 1 is free. NULL: aclnn gave none. */
void *ascend_aclnn_tensor(const aclnn_api *aclnn, const void *data, int dtype, int ndim, const int64_t *shape,
                          const int64_t *strides);
int ascend_aclnn_dtype(tigon_dtype dtype);

#endif
