/* An Ascend NPU behind a queue: what the backend `npu` and the launches share. */
#ifndef TIGON_ASCEND_NPU_H
#define TIGON_ASCEND_NPU_H

#include "ascend/acl.h"
#include "ascend/aclnn.h"
#include "backend.h"

enum { ASCEND_FUNCTIONS = 64 };

/* Of a context's memory for matrix products: f32 sums, and what aclnn may take as its workspace. */
enum { ASCEND_SUMS_BYTES = 32 << 20, ASCEND_ACLNN_BYTES = 64 << 20 };
enum { ASCEND_PRODUCT_BYTES = ASCEND_SUMS_BYTES + ASCEND_ACLNN_BYTES };

typedef struct ascend_npu {
  const acl_api *acl;
  const aclnn_api *aclnn; /* NULL: no matrix products */
  void *products;         /* ASCEND_PRODUCT_BYTES, with aclnn */
  int32_t index;
  void *stream; /* the caller's, or our own */
  bool owns_stream;
  void *binary, *image; /* the loaded kernels; the file's bytes, where the runtime takes those */
  struct {
    const char *name;
    void *function;
  } functions[ASCEND_FUNCTIONS]; /* as launches met them */
  int function_count;
  void *begin, *end; /* events, made when time is first taken */
  char reason[256];  /* why the last call failed */
} ascend_npu;

/* OK, or the status of a call that returned `code`, with queue->reason. */
tigon_status ascend_check(tigon_queue *queue, ascend_npu *npu, int code, const char *call);
/* Makes the queue's device the thread's current one; *before is what ascend_leave() makes it again. */
tigon_status ascend_enter(tigon_queue *queue, ascend_npu *npu, int32_t *before);
void ascend_leave(const ascend_npu *npu, int32_t before);

/* Enqueues a kernel of the loaded file; the runtime copies the arguments. */
tigon_status ascend_npu_launch(tigon_queue *queue, ascend_npu *npu, const char *name, const void *arguments,
                               size_t bytes, int64_t blocks);

#endif
