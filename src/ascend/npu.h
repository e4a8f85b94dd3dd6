/* An Ascend NPU behind a queue: what the backend `npu` and the launches share. */
#ifndef TIGON_ASCEND_NPU_H
#define TIGON_ASCEND_NPU_H

#include "ascend/acl.h"
#include "backend.h"

enum { ASCEND_FUNCTIONS = 64 };

typedef struct ascend_npu {
  const acl_api *acl;
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

/* Enqueues a kernel of the loaded file; the runtime copies the arguments. */
tigon_status ascend_npu_launch(tigon_queue *queue, ascend_npu *npu, const char *name, const void *arguments,
                               size_t bytes, int64_t blocks);

#endif
