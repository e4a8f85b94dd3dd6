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
  ACL_LOAD_MAGIC = 2,             /* aclrtBinaryLoadOptionType: which kind of core the kernels are for */
  ACL_VECTOR_CORES = 201,         /* aclrtDevAttr: vector cores of a device */
  ACL_UB_BYTES = 204,             /* aclrtDevAttr: bytes of UB of a vector core */
  ACL_VECTOR_CORES_OLD = 1,       /* aclDeviceInfo, of aclGetDeviceCapability */
};
#define ACL_MAGIC_VECTOR_CORE 0x41415246u

/* aclrtBinaryLoadOption, aclrtBinaryLoadOptions. */
typedef struct acl_load_option {
  int type;
  union {
    uint32_t magic, reserved[4];
  } value;
} acl_load_option;
typedef struct acl_load_options {
  acl_load_option *options;
  size_t count;
} acl_load_options;

/* Each is called what the runtime calls it, less the prefix. NULL: this runtime has none, where that is allowed. */
typedef struct acl_api {
  const char *library; /* "libacl_rt.so" */
  int (*init)(const char *config);
  int (*get_device_count)(uint32_t *count);
  int (*set_device)(int32_t device);
  int (*get_device)(int32_t *device);
  const char *(*get_soc_name)(void);
  int (*get_version)(int32_t *major, int32_t *minor, int32_t *patch);
  int (*create_stream)(void **stream);
  int (*destroy_stream)(void *stream);
  int (*synchronize_stream)(void *stream);
  int (*malloc)(void **memory, size_t bytes, int policy);
  int (*free)(void *memory);
  int (*memcpy_async)(void *to, size_t most, const void *from, size_t bytes, int kind, void *stream);
  int (*memset_async)(void *memory, size_t most, int32_t value, size_t bytes, void *stream);
  int (*binary_load_from_file)(const char *path, acl_load_options *options, void **binary); /* or else from data */
  int (*binary_load_from_data)(const void *data, size_t bytes, const acl_load_options *options, void **binary);
  int (*binary_unload)(void *binary);
  int (*binary_get_function)(void *binary, const char *name, void **function);
  int (*launch_kernel_with_host_args)(void *function, uint32_t blocks, void *stream, void *config, void *arguments,
                                      size_t bytes, void *holders, size_t holder_count); /* or else the next four */
  int (*kernel_args_init)(void *function, void **list);
  int (*kernel_args_append)(void *list, void *argument, size_t bytes, void **handle);
  int (*kernel_args_finalize)(void *list);
  int (*launch_kernel_with_config)(void *function, uint32_t blocks, void *stream, void *config, void *list,
                                   void *reserved);
  int (*get_device_info)(uint32_t device, int attribute, int64_t *value);
  int (*get_device_capability)(uint32_t device, int information, int64_t *value);
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
