/* An Ascend NPU behind a queue: what the backend `npu` and the launches share. */
#ifndef TIGON_ASCEND_NPU_H
#define TIGON_ASCEND_NPU_H

#include "ascend/acl.h"
#include "ascend/aclnn.h"
#include "backend.h"

enum { ASCEND_FUNCTIONS = 64 };

/* A context's memory for aclnn: sums and statistics in f32, aclnn's workspace, and attention's mask, which has a byte for each of
 * 2048 x 2048 pairs. */
enum { ASCEND_SUMS_BYTES = 32 << 20, ASCEND_ACLNN_BYTES = 256 << 20, ASCEND_MASK = 2048 };
enum { ASCEND_PRODUCT_BYTES = ASCEND_SUMS_BYTES + ASCEND_ACLNN_BYTES + ASCEND_MASK * ASCEND_MASK };

typedef struct ascend_npu {
  const acl_api *acl;
  const aclnn_api *aclnn;               /* NULL: no matrix products */
  const aclnn_attention_api *attention; /* NULL: no attention */
  void *products;                       /* ASCEND_PRODUCT_BYTES, with aclnn */
  bool has_mask;                        /* attention's mask is made, or will be before what is enqueued next */
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

/* Enqueues what `call` names: OUT_OF_MEMORY, and the executor is given back, where it wants more workspace than there is. */
tigon_status ascend_aclnn_enqueue(tigon_queue *queue, ascend_npu *npu, const char *call, aclnn_run *run, uint64_t bytes,
                                  void *executor);

/* Enqueues a kernel of the loaded file; the runtime copies the arguments. */
tigon_status ascend_npu_launch(tigon_queue *queue, ascend_npu *npu, const char *name, const void *arguments,
                               size_t bytes, int64_t blocks);

#endif
