/* AscendCL, the runtime of an Ascend NPU, found at run time. The prototypes are ours, after its public reference (CANN, "aclrt" API);
 * handles are pointers, enumerations ints. */
#ifndef TIGON_ASCEND_ACL_H
#define TIGON_ASCEND_ACL_H

#include <tigon/base.h>

enum {
  ACL_OK = 0,
  ACL_REPEAT_INITIALIZE = 100002, /* what aclInit says when someone else in the process was first */
  ACL_MALLOC_HUGE_FIRST = 0,      /* aclrtMemMallocPolicy */
  ACL_COPY_BY_ADDRESS = 4,        /* aclrtMemcpyKind: the runtime sees where each address lies */
};

/* Each is called what the runtime calls it, less the prefix. NULL: this runtime has none, where that is allowed. */
typedef struct acl_api {
  const char *library; /* "libacl_rt.so" */
  int (*init)(const char *config);
  int (*get_device_count)(uint32_t *count);
  int (*set_device)(int32_t device);
  int (*get_device)(int32_t *device);
  const char *(*get_soc_name)(void);
  int (*create_stream)(void **stream);
  int (*destroy_stream)(void *stream);
  int (*synchronize_stream)(void *stream);
  int (*malloc)(void **memory, size_t bytes, int policy);
  int (*free)(void *memory);
  int (*memcpy_async)(void *to, size_t most, const void *from, size_t bytes, int kind, void *stream);
  int (*memset_async)(void *memory, size_t most, int32_t value, size_t bytes, void *stream);
  int (*binary_load_from_file)(const char *path, void *options, void **binary); /* or else from data */
  int (*binary_load_from_data)(const void *data, size_t bytes, const void *options, void **binary);
  int (*binary_unload)(void *binary);
  int (*binary_get_function)(void *binary, const char *name, void **function);
  int (*launch_kernel_with_host_args)(void *function, uint32_t blocks, void *stream, void *config, void *arguments,
                                      size_t bytes, void *holders, size_t holder_count);
  int (*create_event)(void **event);
  int (*destroy_event)(void *event);
  int (*record_event)(void *event, void *stream);
  int (*synchronize_event)(void *event);
  int (*event_elapsed_time)(float *milliseconds, void *begin, void *end);
} acl_api;

/* The runtime, looked for and initialised until that succeeds once in the process; it is never finalised, because others may use
 * it. NULL with one sentence in *reason, which is the calling thread's until the next call. */
const acl_api *ascend_acl(const char **reason);

/* "ACL_ERROR_RT_MEMORY_ALLOCATION" for 207001; "an unknown code" for one that the reference does not have. */
const char *ascend_acl_name(int code);
/* What a code is to Tigon: OK, OUT_OF_MEMORY or DEVICE. */
tigon_status ascend_acl_status(int code);

#endif
