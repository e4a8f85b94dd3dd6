/* aclnn, CANN's library of operators, found at run time. The prototypes are ours, after its public reference;
 * handles are pointers, enumerations ints. */
#ifndef TIGON_ASCEND_ACLNN_H
#define TIGON_ASCEND_ACLNN_H

#include <tigon/base.h>

enum { ACLNN_F32 = 0, ACLNN_F16 = 1, ACLNN_BF16 = 27 }; /* aclDataType */

enum {
  ACLNN_FORMAT_ND = 2,  /* aclFormat */
  ACLNN_KEEP_DTYPE = 0, /* cubeMathType: products of what comes in, so f32 and not HF32 of f32 */
  ACLNN_KEEP_SUMS =
      -1, /* the f32 sums of 16-bit products as they are; with KEEP_DTYPE some versions round them to 16 bits */
  ACLNN_ALIGNMENT = 32, /* bytes, of a tensor's storage */
};

/* Each is called what the library calls it, less the prefix. A product is planned by mm_get_workspace_size, and
 * enqueued by mm, which takes the executor with it. */
typedef struct aclnn_api {
  void *(*create_tensor)(const int64_t *shape, uint64_t ndim, int dtype, const int64_t *strides, int64_t offset,
                         int format, const int64_t *storage_shape, uint64_t storage_ndim, void *storage);
  int (*destroy_tensor)(const void *tensor);
  int (*set_executor_repeatable)(void *executor); /* whose owner then destroys it */
  int (*destroy_executor)(void *executor);
  int (*mm_get_workspace_size)(const void *a, const void *b, void *c, int8_t cube_math, uint64_t *bytes,
                               void **executor);
  int (*mm)(void *workspace, uint64_t bytes, void *executor, void *stream);
} aclnn_api;

/* The library, looked for until that succeeds once in the process; NULL: it is not there, or is too old. */
const aclnn_api *ascend_aclnn(void);

#endif
