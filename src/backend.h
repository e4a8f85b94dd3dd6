/* The seam between operators and backends: a backend (tigon_backend), its kernels (tigon_kernels), and what a launcher gets
 * (tigon_queue). Adding a variant is one more tigon_kernels in the backend's list. Adding a backend is one folder, two lines
 * in src/core/registry.c, and its sources in cmake/library.cmake (docs/add-a-backend.md).
 *
 * A tensor is an address. Fronts add to addresses and compare them. Some devices have handles instead, such as OpenCL 1.2's
 * buffers. Such a backend hands out ranges of addresses, and its context knows the handle of each range. A launcher looks the
 * address up and passes handle and offset to the kernel. So no struct here has an offset beside a pointer. */
#ifndef TIGON_BACKEND_H
#define TIGON_BACKEND_H

#include <stdio.h>
#include <tigon/schema.h>

#include "problem.h"

#define TIGON_BACKEND_ABI 1

typedef struct tigon_backend tigon_backend;

typedef struct ascend_plans ascend_plans; /* ascend/plan/plans.h */

/* A device's description of itself. */
typedef struct tigon_device {
  char name[32];
  int64_t cores;
  int64_t onchip_bytes; /* shared memory or Unified Buffer that a block may have; 0: only caches */
  double memory_gbps;   /* speed of a copy by all cores; 0: unknown */
  double tflops;        /* products in 16 bits, by the maker; 0: unknown */
} tigon_device;

/* One launch, as a recorder gets it. A backend fills what it knows. 0 and NULL are not printed. */
typedef struct tigon_launch {
  const char *kernel;   /* its name in the device's file of kernels; on the CPU the slot's name */
  int64_t grid, block;  /* programs, blocks or tasks; threads of a block, or of the CPU */
  int64_t onchip_bytes; /* shared memory or Unified Buffer of a block */
  int cluster;          /* blocks, or tasks, that work on one row together */
  const char *held;     /* where a row is between two reads, one word: docs/glossary.md */
  int64_t slabs;        /* sums over ranges of rows, which a later launch adds up */
} tigon_launch;

enum { TIGON_MAX_ARGS = 24 };

/* The memory of a tensor, or of the workspace: [low, high). */
typedef struct tigon_extent {
  const tigon_field *field; /* its description */
  const tigon_tensor *tensor;
  uintptr_t low, high;
  bool dense; /* its elements lie end to end */
} tigon_extent;

/* The memory of a call, as the front checked it. Besides the device's own memory its launches may touch nothing else. */
typedef struct tigon_memory {
  int count;
  tigon_extent of[TIGON_MAX_ARGS];
} tigon_memory;

/* An open device and stream. A slot gets it beside its problem. */
typedef struct tigon_queue {
  const tigon_backend *backend;
  void *state;                /* the backend's own */
  void *stream;               /* the caller's */
  const char *variant;        /* variant of the context's kernels */
  int threads;                /* CPU threads a call may use, >= 1 */
  const tigon_memory *memory; /* memory of the current call, or of the last element of its list */
  int32_t *error_flag;        /* device memory of the context, for ops whose caller gave no `error` */
  const char *reason;         /* why the last failed launch failed, one sentence; NULL: it is not known */
  /* NULL, or a recorder: launchers tell it what they would launch, and launch nothing. The call's memory is never touched, and
   * tigon_alloc() gives addresses without memory. */
  void (*record)(void *to, const tigon_launch *launch);
  void *record_to;
} tigon_queue;

/* A slot's function enqueues the work. Its errors are:
 *   DEVICE              the launch itself failed
 *   SCRATCH, INVALID    the device cannot run such a shape
 *   UNSUPPORTED         there is no kernel for such options; nothing was written
 * A slot's second function returns the workspace of a call: bytes, a multiple of 64, or minus a status. When they fail, both
 * leave a sentence in queue->reason. */
#define TIGON_SLOT(op, entry)                                                                            \
  typedef tigon_status tigon_##op##_##entry##_fn(tigon_queue *, const tigon_##op##_##entry##_problem *); \
  typedef int64_t tigon_##op##_##entry##_bytes(tigon_queue *, const tigon_##op##_##entry##_problem *);
#include "ops.def"

/* One bit per tigon_dtype. */
#define TIGON_BIT(dtype) (1u << (dtype))
#define TIGON_FLOATS (TIGON_BIT(TIGON_F32) | TIGON_BIT(TIGON_F16) | TIGON_BIT(TIGON_BF16))
#define TIGON_INTS (TIGON_BIT(TIGON_I32) | TIGON_BIT(TIGON_I64))

/* The kernels of one variant of a backend: per slot a function and the dtypes (of the op's first tensor) that it takes. A NULL
 * function is UNSUPPORTED. `workspace` NULL: the slot needs none. `rounded`: the slot's default grade is "rounded"
 * (tigon_entry_grade()). */
typedef struct tigon_kernels {
  const char *variant; /* "ref", "scalar", "avx2", "avx512", "cuda", "dav-2201", "opencl-groups" */
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

/* The errors of a device's own exp, ln, sqrt and division, for kernels that do not correct them. */
typedef struct tigon_precision {
  double ulps;  /* for exp, ln and sqrt; for division twice as many */
  bool flushes; /* their results below 2^-126 may be 0 */
  bool no_f64;  /* kernels work in two floats where others have f64 */
} tigon_precision;

/* What a simulator's model has counted. */
typedef struct tigon_model_counts {
  double seconds;
  int64_t bytes_moved;            /* from and to global memory */
  int64_t onchip_bytes, grid;     /* the most bytes of a block; the most blocks of a launch */
  double vector_share, dma_share; /* shares of all cores' time: the vector unit works; data move */
} tigon_model_counts;

struct tigon_backend {
  int abi;          /* TIGON_BACKEND_ABI */
  const char *name; /* "cpu" */
  bool host_memory; /* the host can read and write its tensors, and an op is done when its call returns */
  /* The number of devices. If it is 0, *reason says why in one sentence. */
  int (*count)(const char **reason);
  /* The index of the device with a name, such as 910B4 in "ascend-sim:910B4"; -1: none. NULL: devices have only numbers. */
  int (*find)(const char *name);
  const char *(*name_of)(int index); /* the inverse of find */
  /* Variants that run on this machine, best first, NULL-terminated. */
  const tigon_kernels *const *(*variants)(void);
  const char *variant_variable; /* the environment variable that chooses one; NULL: the best is chosen */
  /* Fills queue->state for device `index`. On an error *reason is one sentence. stream and threads are already set. */
  tigon_status (*open)(int index, tigon_queue *queue, const char **reason);
  /* NULL, or for recorded calls: fills queue->state from a table, for a device that may be absent. Returns the kernels that it
   * would have, or NULL if the name is unknown. */
  const tigon_kernels *(*open_described)(const char *name, tigon_queue *queue);
  void (*close)(tigon_queue *queue);
  tigon_status (*sync)(tigon_queue *queue);
  /* Memory for tests, CLI and trainer, never inside an op. */
  tigon_status (*alloc)(tigon_queue *queue, size_t bytes, void **memory);
  void (*free)(tigon_queue *queue, void *memory);
  tigon_status (*copy)(tigon_queue *queue, void *to, const void *from, size_t bytes);
  tigon_status (*fill)(tigon_queue *queue, void *memory, int value, size_t bytes);
  /* For composites: enqueues a copy of `rows` rows of `bytes` each within the device's memory. The rows begin `to_pitch` and
   * `from_pitch` bytes apart. All of these are multiples of 2. NULL: composites do without it. */
  tigon_status (*copy_rows)(tigon_queue *queue, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                            size_t bytes, int64_t rows);
  const tigon_device *(*describe)(const tigon_queue *queue);
  /* The plans that a planner was asked for, for check, bench and tests. NULL: the backend has no planner. */
  ascend_plans *(*plans)(const tigon_queue *queue);
  /* For the check. NULL: results are the nearest numbers, or kernels correct them. */
  tigon_precision (*precision)(const tigon_queue *queue);
  /* NULL: the host's clock is used. With `begin` it marks a place in the stream. Without, it waits for the end of the work
   * enqueued since, and returns the time that this work took the device. */
  tigon_status (*time)(tigon_queue *queue, bool begin, double *seconds);
  /* NULL, or for benchmarks: enqueues a plain copy of `bytes`, a multiple of 16, within the device's memory. If `to` is NULL, it
   * reads `bytes` once, so that the device's caches hold only that data. */
  tigon_status (*stream)(tigon_queue *queue, void *to, const void *from, size_t bytes);
  /* Only on a simulator, else NULL. model: what the model has counted since the last call with NULL. trace: the timeline in the
   * Chrome trace format. A call without a file begins it, and a call with a file writes it. */
  void (*model)(const tigon_queue *queue, tigon_model_counts *counts);
  bool (*trace)(const tigon_queue *queue, FILE *file);
  /* Only on a simulator, else NULL: kernels of the host, and the queue that they run on, for slots that no variant has. They are
   * not this backend's own, so list, check, bench and tigon_supports() leave them out. */
  const tigon_kernels *(*borrowed)(const tigon_queue *queue, tigon_queue **host);
  /* NULL, or why the device refuses the i-th entry in a dtype: one sentence from its self-check, or NULL if it does not refuse it.
   * With `run` a self-check that has not run yet is run. */
  const char *(*refused)(tigon_queue *queue, int entry, tigon_dtype dtype, bool run);
  /* One sentence for tigon_context_gemm(). */
  const char *(*gemm)(const tigon_queue *queue);
  /* The best variant for device `index`. NULL: the first of variants(). */
  const tigon_kernels *(*best)(int index);
  /* Whether the queue's device can run a variant. NULL: it runs all. */
  bool (*runs)(const tigon_queue *queue, const tigon_kernels *kernels);
  /* What the device's compiler is told of the queue's variant. NULL: variants differ by their slots' functions. */
  const char *(*built)(const tigon_queue *queue);
};

static inline bool tigon_queue_runs(const tigon_queue *queue, const tigon_kernels *kernels) {
  return !queue->backend->runs || queue->backend->runs(queue, kernels);
}

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
/* The dtypes that `kernels` has for the i-th entry; 0 without a kernel. A composite has those of the slots that it calls. */
uint32_t tigon_entry_dtypes(const tigon_kernels *kernels, int index);
/* How an entry with the option `exact` computes without it in 16-bit dtypes: "rounded" or "exact". NULL: it has no such option. */
const char *tigon_entry_grade(const tigon_kernels *kernels, int index);

#endif
