/* The CUDA driver, found at run time. The prototypes are ours, after its public reference; handles are pointers,
 * enumerations ints. */
#ifndef TIGON_CUDA_DRIVER_H
#define TIGON_CUDA_DRIVER_H

#include <stdbool.h>
#include <stdint.h>
#include <tigon/base.h>

typedef void *cu_memory; /* CUdeviceptr: an integer there, of as many bits */

enum { CU_SUCCESS = 0, CU_NO_DEVICE = 100, CU_STREAM_NON_BLOCKING = 1 };

/* CUdevice_attribute */
enum {
  CU_ATTRIBUTE_SMS = 16,
  CU_ATTRIBUTE_MEMORY_CLOCK_KHZ = 36,
  CU_ATTRIBUTE_MEMORY_BUS_BITS = 37,
  CU_ATTRIBUTE_L2_BYTES = 38,
  CU_ATTRIBUTE_MAJOR = 75,
  CU_ATTRIBUTE_MINOR = 76,
  CU_ATTRIBUTE_BLOCK_SHARED_BYTES = 97, /* with opt-in */
};

enum { CU_FUNCTION_DYNAMIC_SHARED_BYTES = 8 }; /* CUfunction_attribute */

/* CUlaunchAttribute: an id, and 64 bytes of which a cluster's extent takes the first 12. The others have 1 in the first 4: all blocks run
 * at once, or a kernel begins while the one before it ends. */
enum { CU_LAUNCH_COOPERATIVE = 2, CU_LAUNCH_CLUSTER = 4, CU_LAUNCH_OVERLAPS = 6 };
typedef struct cu_launch_attribute {
  int id;
  char pad[4];
  unsigned value[16];
} cu_launch_attribute;

/* CUlaunchConfig */
typedef struct cu_launch {
  unsigned grid[3], block[3], shared_bytes;
  void *stream;
  cu_launch_attribute *attributes;
  unsigned attribute_count;
} cu_launch;

/* CUtensorMap: how the bulk copy engine of a Hopper GPU finds boxes of a tensor. */
typedef struct cu_tensor_map {
  uint64_t words[16];
} __attribute__((aligned(64))) cu_tensor_map;

/* CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion */
enum { CU_TENSOR_16_BITS = 1, CU_TENSOR_32_BITS = 2, CU_TENSOR_SWIZZLE_128 = 3, CU_TENSOR_L2_256 = 3 };

/* Each is called what the driver calls it, less the prefix and the version of its interface. */
typedef struct cu_api {
  int (*init)(unsigned flags);
  int (*driver_get_version)(int *version);
  int (*get_error_name)(int code, const char **name);
  int (*get_error_string)(int code, const char **text);
  int (*device_get_count)(int *count);
  int (*device_get)(int *device, int index);
  int (*device_get_name)(char *name, int size, int device);
  int (*device_get_attribute)(int *value, int attribute, int device);
  int (*device_primary_ctx_retain)(void **context, int device);
  int (*device_primary_ctx_release)(int device);
  int (*ctx_get_current)(void **context);
  int (*ctx_push_current)(void *context);
  int (*ctx_pop_current)(void **context);
  int (*stream_create)(void **stream, unsigned flags);
  int (*stream_destroy)(void *stream);
  int (*stream_synchronize)(void *stream);
  int (*mem_alloc)(cu_memory *memory, size_t bytes);
  int (*mem_free)(cu_memory memory);
  int (*memcpy_async)(cu_memory to, cu_memory from, size_t bytes, void *stream);
  int (*memset_d8_async)(cu_memory memory, unsigned char value, size_t bytes, void *stream);
  int (*event_create)(void **event, unsigned flags);
  int (*event_destroy)(void *event);
  int (*event_record)(void *event, void *stream);
  int (*event_synchronize)(void *event);
  int (*event_elapsed_time)(float *milliseconds, void *begin, void *end);
  int (*library_load_data)(void **library, const void *image, int *jit, void **jit_values, unsigned jit_count,
                           int *options, void **values, unsigned count);
  int (*library_get_kernel)(void **kernel, void *library, const char *name);
  int (*kernel_set_attribute)(int attribute, int value, void *kernel, int device);
  int (*launch_kernel_ex)(const cu_launch *launch, void *kernel, void **arguments, void **extra);
  int (*tensor_map_encode_tiled)(cu_tensor_map *map, int type, uint32_t rank, cu_memory memory, const uint64_t *extents,
                                 const uint64_t *pitches, const uint32_t *box, const uint32_t *steps, int interleave,
                                 int swizzle, int l2, int fill);
} cu_api;

/* The driver, looked for and initialised until that succeeds once in the process. NULL with one sentence in *reason, which is
 * the calling thread's until the next call. */
const cu_api *cuda_driver(const char **reason);

#endif
