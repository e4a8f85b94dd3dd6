/* The seam: what a backend is (tigon_backend), what it can run (tigon_kernels), and what a launcher gets (tigon_queue).
 * Adding a variant is one more tigon_kernels in the backend's list. Adding a backend is one folder, two lines in
 * src/core/registry.c, and its sources in cmake/library.cmake (docs/add-a-backend.md).
 *
 * A tensor is an address, which fronts add to and compare. A device whose memory has handles instead, as OpenCL 1.2's
 * buffers, hands out ranges of addresses, and its context knows which handle has a range: a launcher looks the address up
 * and passes handle and offset to the kernel. So no struct here has an offset beside a pointer. */
#ifndef TIGON_BACKEND_H
#define TIGON_BACKEND_H

#include <stdio.h>
#include <tigon/schema.h>

#include "problem.h"

#define TIGON_BACKEND_ABI 1

typedef struct tigon_backend tigon_backend;

typedef struct ascend_plans ascend_plans; /* ascend/plan/plans.h */

/* What a device says of itself. */
typedef struct tigon_device {
  char name[32];
  int64_t cores;
  int64_t onchip_bytes; /* of shared memory or Unified Buffer that a block may have; 0: a cache manages itself */
  double memory_gbps;   /* of a copy by all cores; 0: it is not known */
} tigon_device;

/* One launch as a recorder is told of it. A backend fills what it knows; 0 and NULL are left out of what is printed. */
typedef struct tigon_launch {
  const char *kernel;   /* as the device's file of kernels names it; the CPU's is its slot's name */
  int64_t grid, block;  /* programs, blocks or tasks; threads that run them: of a block, or of the CPU */
  int64_t onchip_bytes; /* of a block: shared memory, Unified Buffer */
  int cluster;          /* blocks, or tasks, that work on one row together */
  const char *held;     /* one word for where a row is while it is worked on */
  int64_t slabs;        /* sums over ranges of rows that a later launch adds up */
} tigon_launch;

enum { TIGON_MAX_ARGS = 24 };

/* The memory of a tensor, or of the workspace: [low, high). */
typedef struct tigon_extent {
  const tigon_field *field; /* its description */
  const tigon_tensor *tensor;
  uintptr_t low, high;
  bool dense; /* its elements lie end to end */
} tigon_extent;

/* The memory of a call, as the front checked it: all that its launches may touch besides the device's own. */
typedef struct tigon_memory {
  int count;
  tigon_extent of[TIGON_MAX_ARGS];
} tigon_memory;

/* An open device and stream: what a slot needs besides its problem. */
typedef struct tigon_queue {
  const tigon_backend *backend;
  void *state;                /* the backend's own */
  void *stream;               /* the caller's */
  int threads;                /* CPU threads a call may use, >= 1 */
  const tigon_memory *memory; /* of the call at work, or of the last element of its list */
  int32_t *error_flag;        /* device memory of the context, for ops whose caller gave no `error` */
  const char *reason;         /* why the launch that just failed did, one sentence; NULL: it has no more to say */
  /* NULL, or: launchers tell it what they would launch, and launch nothing. Memory of the call is never touched, and
   * tigon_alloc() gives addresses without any. */
  void (*record)(void *to, const tigon_launch *launch);
  void *record_to;
} tigon_queue;

/* A slot's function enqueues the work and returns: DEVICE when the launch itself fails, SCRATCH or INVALID when the device cannot
 * run such a shape, UNSUPPORTED, with nothing written, when it lacks a kernel for such options. Its other one says what workspace
 * that takes: bytes, a multiple of 64, or minus a status. Both leave a sentence in queue->reason when they fail. */
#define TIGON_SLOT(op, entry)                                                                            \
  typedef tigon_status tigon_##op##_##entry##_fn(tigon_queue *, const tigon_##op##_##entry##_problem *); \
  typedef int64_t tigon_##op##_##entry##_bytes(tigon_queue *, const tigon_##op##_##entry##_problem *);
#include "ops.def"

/* One bit per tigon_dtype. */
#define TIGON_BIT(dtype) (1u << (dtype))
#define TIGON_FLOATS (TIGON_BIT(TIGON_F32) | TIGON_BIT(TIGON_F16) | TIGON_BIT(TIGON_BF16))
#define TIGON_INTS (TIGON_BIT(TIGON_I32) | TIGON_BIT(TIGON_I64))

/* What one variant of a backend can run: a function and its dtypes (of the op's first tensor) per slot; a NULL function
 * is UNSUPPORTED. `workspace` NULL: it needs none. `rounded`: the slot's default grade is that (tigon_entry_grade()). */
typedef struct tigon_kernels {
  const char *variant; /* "ref", "scalar", "avx2", "avx512", "cuda", "dav-2201", "opencl" */
  int64_t tile;        /* elements of its smallest tile (a vector's lanes): the check tests around it */
#define TIGON_SLOT(op, entry)                \
  struct {                                   \
    tigon_##op##_##entry##_fn *run;          \
    uint32_t dtypes;                         \
    tigon_##op##_##entry##_bytes *workspace; \
    bool rounded;                            \
  } op##_##entry;
#include "ops.def"
} tigon_kernels;

/* How far a device's own exp, ln, sqrt and division may be from the nearest number, where kernels are written without more than
 * that. */
typedef struct tigon_precision {
  double ulps;  /* of exp, ln and sqrt; of division twice as many */
  bool flushes; /* their results below 2^-126 may be 0 */
} tigon_precision;

/* By a simulator's model. */
typedef struct tigon_model_counts {
  double seconds;
  int64_t bytes_moved;            /* from and to global memory */
  int64_t onchip_bytes, grid;     /* the most that a block had; the most blocks of a launch */
  double vector_share, dma_share; /* of the time of all cores: the vector unit works; data move */
} tigon_model_counts;

struct tigon_backend {
  int abi;          /* TIGON_BACKEND_ABI */
  const char *name; /* "cpu" */
  bool host_memory; /* the host can read and write its tensors, and an op is done when its call returns */
  /* Devices there are; with 0, *reason is one sentence. */
  int (*count)(const char **reason);
  /* The index of a device that is called by name, as 910B4 in "ascend-sim:910B4"; -1: none. NULL: they have numbers only. */
  int (*find)(const char *name);
  const char *(*name_of)(int index); /* the reverse */
  /* Variants that run on this machine, best first, NULL-terminated. */
  const tigon_kernels *const *(*variants)(void);
  const char *variant_variable; /* the environment variable that chooses one; NULL: the best is chosen */
  /* Fills queue->state for device `index`; on an error *reason is one sentence. stream and threads are already set. */
  tigon_status (*open)(int index, tigon_queue *queue, const char **reason);
  /* NULL, or: fills queue->state for a device that need not be here, from a table; for calls that are recorded. The kernels
   * that it would have; NULL: it does not know the name. */
  const tigon_kernels *(*open_described)(const char *name, tigon_queue *queue);
  void (*close)(tigon_queue *queue);
  tigon_status (*sync)(tigon_queue *queue);
  /* Memory for tests, CLI and trainer, never inside an op. */
  tigon_status (*alloc)(tigon_queue *queue, size_t bytes, void **memory);
  void (*free)(tigon_queue *queue, void *memory);
  tigon_status (*copy)(tigon_queue *queue, void *to, const void *from, size_t bytes);
  tigon_status (*fill)(tigon_queue *queue, void *memory, int value, size_t bytes);
  /* For composites: enqueues a copy of `rows` rows of `bytes` within the device's memory, which begin `to_pitch` and `from_pitch`
   * bytes apart; all of these are multiples of 2. NULL: they do without. */
  tigon_status (*copy_rows)(tigon_queue *queue, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                            size_t bytes, int64_t rows);
  const tigon_device *(*describe)(const tigon_queue *queue);
  /* NULL but where a planner cuts calls: what it was asked, for check, bench and tests. */
  ascend_plans *(*plans)(const tigon_queue *queue);
  /* For the check. NULL: they are the nearest numbers, or kernels make up for it. */
  tigon_precision (*precision)(const tigon_queue *queue);
  /* NULL: the host's clock does. Marks the stream's place; without `begin` waits for the end of what was enqueued since and says
   * what that took the device. */
  tigon_status (*time)(tigon_queue *queue, bool begin, double *seconds);
  /* NULL, or for benchmarks: enqueues a plain copy of `bytes`, a multiple of 16, within the device's memory, or without `to` one
   * read of them, which then are all that its caches hold. */
  tigon_status (*stream)(tigon_queue *queue, void *to, const void *from, size_t bytes);
  /* NULL but on a simulator: what its model has counted since the last call with NULL; and its timeline in the Chrome trace format,
   * which begins with a call without a file, and is written by one with. */
  void (*model)(const tigon_queue *queue, tigon_model_counts *counts);
  bool (*trace)(const tigon_queue *queue, FILE *file);
  /* NULL but on a simulator: kernels of the host, and the queue that they run on, for slots that no variant has. They are not this
   * backend's own, so that list, check, bench and tigon_supports() leave them out. */
  const tigon_kernels *(*borrowed)(const tigon_queue *queue, tigon_queue **host);
  /* One sentence for tigon_context_gemm(). */
  const char *(*gemm)(const tigon_queue *queue);
};

/* All backends of this build in the order of inference; NULL past the end. */
const tigon_backend *tigon_backend_at(int index);
const tigon_backend *tigon_backend_find(const char *name);

/* One row of the list that ops.def makes. */
typedef struct tigon_entry {
  const char *op, *entry;
  bool composite;
} tigon_entry;

/* The i-th entry of ops.def, NULL past the end. */
const tigon_entry *tigon_entry_at(int index);
/* The dtypes that `kernels` has for the i-th entry, 0 without a kernel; for a composite, of the slots that it calls. */
uint32_t tigon_entry_dtypes(const tigon_kernels *kernels, int index);
/* Of an entry with the option `exact`, how it computes without it in 16-bit dtypes: "rounded" or "exact". NULL: it has no such option. */
const char *tigon_entry_grade(const tigon_kernels *kernels, int index);

#endif
