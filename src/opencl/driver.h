/* OpenCL 1.2 by the ICD loader, found at run time. The prototypes are ours, after Khronos's public reference; handles are pointers,
 * enumerations unsigned. */
#ifndef TIGON_OPENCL_DRIVER_H
#define TIGON_OPENCL_DRIVER_H

#include <stdbool.h>
#include <tigon/base.h>

enum {
  CL_SUCCESS = 0,
  CL_DEVICE_NOT_FOUND = -1,
  CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
  CL_OUT_OF_RESOURCES = -5,
  CL_OUT_OF_HOST_MEMORY = -6,
  CL_PLATFORM_NOT_FOUND_KHR = -1001,
};

/* cl_device_type */
#define CL_DEVICE_TYPE_CPU 2
#define CL_DEVICE_TYPE_GPU 4
#define CL_DEVICE_TYPE_ALL 0xffffffff

/* cl_device_info */
enum {
  CL_DEVICE_TYPE = 0x1000,
  CL_DEVICE_VENDOR_ID = 0x1001,
  CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
  CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
  CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
  CL_DEVICE_SINGLE_FP_CONFIG = 0x101b,
  CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
  CL_DEVICE_ENDIAN_LITTLE = 0x1026,
  CL_DEVICE_AVAILABLE = 0x1027,
  CL_DEVICE_COMPILER_AVAILABLE = 0x1028,
  CL_DEVICE_NAME = 0x102b,
  CL_DRIVER_VERSION = 0x102d,
  CL_DEVICE_VERSION = 0x102f,
  CL_DEVICE_EXTENSIONS = 0x1030,
  CL_DEVICE_OPENCL_C_VERSION = 0x103d,
  CL_DEVICE_SVM_CAPABILITIES = 0x1053,
};

/* cl_device_fp_config */
enum {
  CL_FP_DENORM = 1,
  CL_FP_INF_NAN = 2,
  CL_FP_ROUND_TO_NEAREST = 4,
  CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT = 128,
};

/* cl_command_queue_info, cl_command_queue_properties */
enum { CL_QUEUE_CONTEXT = 0x1090, CL_QUEUE_DEVICE = 0x1091, CL_QUEUE_PROPERTIES = 0x1093 };
enum { CL_QUEUE_OUT_OF_ORDER = 1, CL_QUEUE_PROFILING_ENABLE = 2 };

enum { CL_MEM_READ_WRITE = 1, CL_MEM_SVM_FINE_GRAIN = 1 << 10 };         /* cl_mem_flags */
enum { CL_DEVICE_SVM_FINE_GRAIN = 2 };                                   /* cl_device_svm_capabilities: of a buffer */
enum { CL_MEM_SIZE = 0x1102, CL_MEM_CONTEXT = 0x1106 };                  /* cl_mem_info */
enum { CL_PROGRAM_BUILD_LOG = 0x1183 };                                  /* cl_program_build_info */
enum { CL_PROGRAM_BINARY_SIZES = 0x1165, CL_PROGRAM_BINARIES = 0x1166 }; /* cl_program_info */
enum { CL_PROFILING_COMMAND_START = 0x1282, CL_PROFILING_COMMAND_END = 0x1283 };

/* Each is called what the loader calls it, less the prefix. */
typedef struct cl_api {
  int (*get_platform_ids)(unsigned room, void **platforms, unsigned *count);
  int (*get_device_ids)(void *platform, uint64_t type, unsigned room, void **devices, unsigned *count);
  int (*get_device_info)(void *device, unsigned what, size_t size, void *value, size_t *found);
  void *(*create_context)(const intptr_t *properties, unsigned count, void *const *devices, void *notify, void *data,
                          int *code);
  int (*retain_context)(void *context);
  int (*release_context)(void *context);
  void *(*create_command_queue)(void *context, void *device, uint64_t properties, int *code);
  int (*get_command_queue_info)(void *queue, unsigned what, size_t size, void *value, size_t *found);
  int (*retain_command_queue)(void *queue);
  int (*release_command_queue)(void *queue);
  void *(*create_buffer)(void *context, uint64_t flags, size_t bytes, void *host, int *code);
  int (*get_mem_object_info)(void *memory, unsigned what, size_t size, void *value, size_t *found);
  int (*retain_mem_object)(void *memory);
  int (*release_mem_object)(void *memory);
  void *(*create_program_with_source)(void *context, unsigned count, const char **text, const size_t *lengths,
                                      int *code);
  void *(*create_program_with_binary)(void *context, unsigned count, void *const *devices, const size_t *lengths,
                                      const unsigned char **binaries, int *status, int *code);
  int (*build_program)(void *program, unsigned count, void *const *devices, const char *options, void *notify,
                       void *data);
  int (*get_program_info)(void *program, unsigned what, size_t size, void *value, size_t *found);
  int (*get_program_build_info)(void *program, void *device, unsigned what, size_t size, void *value, size_t *found);
  int (*release_program)(void *program);
  void *(*create_kernel)(void *program, const char *name, int *code);
  int (*release_kernel)(void *kernel);
  int (*set_kernel_arg)(void *kernel, unsigned index, size_t size, const void *value);
  int (*enqueue_nd_range_kernel)(void *queue, void *kernel, unsigned dims, const size_t *offset, const size_t *global,
                                 const size_t *local, unsigned waits, void *const *events, void **event);
  int (*enqueue_read_buffer)(void *queue, void *memory, unsigned blocking, size_t offset, size_t bytes, void *to,
                             unsigned waits, void *const *events, void **event);
  int (*enqueue_write_buffer)(void *queue, void *memory, unsigned blocking, size_t offset, size_t bytes,
                              const void *from, unsigned waits, void *const *events, void **event);
  int (*enqueue_copy_buffer)(void *queue, void *from, void *to, size_t from_offset, size_t to_offset, size_t bytes,
                             unsigned waits, void *const *events, void **event);
  int (*enqueue_fill_buffer)(void *queue, void *memory, const void *pattern, size_t pattern_bytes, size_t offset,
                             size_t bytes, unsigned waits, void *const *events, void **event);
  int (*enqueue_marker)(void *queue, unsigned waits, void *const *events, void **event);
  int (*get_event_profiling_info)(void *event, unsigned what, size_t size, void *value, size_t *found);
  int (*wait_for_events)(unsigned count, void *const *events);
  int (*release_event)(void *event);
  int (*finish)(void *queue);
} cl_api;

/* Memory that the host shares, of OpenCL 2.0. */
typedef struct cl_svm_api {
  void *(*alloc)(void *context, uint64_t flags, size_t bytes, unsigned alignment);
  void (*release)(void *context, void *memory);
  int (*set_kernel_arg)(void *kernel, unsigned index, const void *memory);
} cl_svm_api;

/* CLBlastSgemm() of CLBlast, after its public reference: c = alpha a b + beta c. Pitches and offsets are in elements. */
typedef int clblast_sgemm(int layout, int transpose_a, int transpose_b, size_t m, size_t n, size_t k, float alpha,
                          const void *a, size_t a_offset, size_t a_pitch, const void *b, size_t b_offset,
                          size_t b_pitch, float beta, void *c, size_t c_offset, size_t c_pitch, void **queue,
                          void **event);

/* NULL: it is not there, and *reason says why in one sentence. It is looked for until it is found. */
const cl_api *opencl_driver(const char **reason);
/* NULL: a loader of OpenCL 1.2 is there, or none. */
const cl_svm_api *opencl_svm(void);

#endif
