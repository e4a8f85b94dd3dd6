/* From a front's problem to launches on an OpenCL device. */
#ifndef TIGON_OPENCL_OPENCL_H
#define TIGON_OPENCL_OPENCL_H

#include "backend.h"
#include "opencl/driver.h"
#include "opencl/kernel/shared.h"
#include "opencl/memory.h"
#include "slabs.h"

enum { OPENCL_KERNELS = 512 /* that one context has at most */, OPENCL_DTYPES = 4 /* 0, f32, f16, bf16 */ };
enum { OPENCL_SCRATCH = 1 << 16 };

/* How rows are dealt out. */
typedef enum opencl_model {
  OPENCL_ITEMS,  /* a work-item has rows, and takes wide vectors of them: a CPU */
  OPENCL_GROUPS, /* a work-group has a row: a GPU */
} opencl_model;

typedef enum opencl_subgroups {
  OPENCL_SUBGROUPS_NONE,
  OPENCL_SUBGROUPS_INTEL,
  OPENCL_SUBGROUPS_KHR,
} opencl_subgroups;

/* Entries by the names of slots, in the order of tigon_schema_at(). */
enum {
#define TIGON_SLOT(op, entry) OPENCL_ENTRY_##op##_##entry,
#define TIGON_COMPOSITE(op, entry) TIGON_SLOT(op, entry)
#include "ops.def"
  OPENCL_ENTRIES
};

/* A kernel by the name that it has in its file; the program is built when a device first wants it. */
typedef struct opencl_kernel {
  const char *file; /* "rms_norm": src/opencl/kernel/rms_norm.cl */
  const char *name;
} opencl_kernel;

/* What hangs on a queue. */
typedef struct opencl_device {
  const cl_api *cl;
  void *device, *context, *stream; /* stream: a command queue, in order */
  struct opencl_room *room;        /* programs of this device and context: program.c */
  opencl_model model;
  int64_t lanes, group;       /* elements of a work-item's vector; work-items of a row's group */
  opencl_subgroups subgroups; /* which the variant uses */
  int64_t most_group;
  uint64_t most_bytes;                       /* the limit of one buffer */
  bool divides_exactly, flushes;             /* division and sqrt give the nearest; denormal numbers become 0 */
  const cl_svm_api *svm;                     /* NULL: the host shares no memory with it */
  clblast_sgemm *sgemm;                      /* NULL: all products are our own */
  int index;                                 /* among its backend's devices */
  bool is_checking;                          /* it runs the self-check's calls, which nobody checks */
  bool trust[OPENCL_ENTRIES][OPENCL_DTYPES]; /* needs no more self-check */
  void *sink;                                /* memory that a read pretends to write to */
  void *begin;                               /* an event */
  struct {
    const opencl_kernel *of;
    tigon_dtype dtype;
    void *handle;
  } kernels[OPENCL_KERNELS]; /* a kernel object's arguments are one thread's: each context has its own */
  tigon_device desc;
  char reason[1024]; /* why the last call failed */
} opencl_device;

static inline opencl_device *opencl_of(const tigon_queue *queue) { return queue->state; }
/* OPENCL_SCRATCH bytes of the context, which launches of a call may hand over to later ones of it. */
static inline void *opencl_scratch(const tigon_queue *queue) { return (char *)queue->error_flag + 128; }

/* Work-items of a launch, of which local[] make a group. */
typedef struct opencl_shape {
  int64_t global[2], local[2];
  int64_t local_bytes;
  const char *held;
  int64_t slabs;
} opencl_shape;

/* Launches the kernel of `dtype` on the queue's stream, or tells the queue's recorder. Its parameters are, for each of the `count`
 * addresses of `memory`, a buffer and an offset of 64 bits, which is OPENCL_ABSENT for NULL, then the struct of `bytes` bytes. No launch
 * without work-items. */
tigon_status opencl_launch(tigon_queue *queue, const opencl_kernel *kernel, tigon_dtype dtype, opencl_shape shape,
                           int count, const void *const *memory, const void *numbers, size_t bytes);
#define OPENCL_MEMORY(...) \
  (int)(sizeof(const void *[]){__VA_ARGS__} / sizeof(void *)), (const void *const[]) { __VA_ARGS__ }

/* The place of an address, all of whose tensor is there; INVALID where no buffer has it. */
tigon_status opencl_look_up(tigon_queue *queue, const void *address, opencl_place *place);
/* Sets queue->reason from a driver's code. */
tigon_status opencl_check(tigon_queue *queue, int code, const char *call);
/* The device's kernel of that name, built if it has to be. */
tigon_status opencl_find_kernel(tigon_queue *queue, const opencl_kernel *kernel, tigon_dtype dtype, void **handle);

/* Work-items of rows: some rows each, or a group a row. */
opencl_shape opencl_row_shape(const tigon_queue *queue, int64_t rows);

static inline cl_pitch opencl_pitch(const tigon_rows *t) { return (cl_pitch){{t->pitch[0], t->pitch[1], t->pitch[2]}}; }
static inline int64_t opencl_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

#endif
