/* From a front's problem and plan to launches on an NVIDIA GPU. */
#ifndef TIGON_CUDA_CUDA_H
#define TIGON_CUDA_CUDA_H

#include <stdatomic.h>

#include "backend.h"
#include "cuda/driver.h"
#include "slabs.h"

enum {
  CUDA_DEVICES = 16,
  CUDA_CLUSTER = 8, /* blocks; the largest cluster that every device with clusters has */
  CUDA_SCRATCH_BYTES =
      32 << 20,        /* a context's, for what a call hands from launch to launch without a caller's workspace */
  CUDA_TICKETS = 1023, /* with the error flag 4 KiB */
};

/* What hangs on a queue. Of a described device, whose calls are recorded, only sm, l2_bytes, desc and addresses of no memory. */
typedef struct cuda_device {
  const cu_api *cu;
  int index;
  int sm;     /* the code that runs is for this one, at most the GPU's; 90: compute capability 9.0 */
  bool wgmma; /* the code is sm_90a's, with its tensor cores and bulk copies */
  int64_t l2_bytes;
  bool rounds_attention; /* rounds 16-bit weights, where the call does not say exact */
  int device;            /* the driver's */
  void *context;         /* the primary one, which PyTorch and the CUDA runtime use too */
  void *scratch;         /* CUDA_SCRATCH_BYTES of device memory */
  unsigned *tickets;     /* CUDA_TICKETS of device memory, all 0 but while a kernel is at one */
  unsigned ticket;       /* the next one, but for turns */
  void *blaslt;          /* src/cuda/blaslt.c: cuBLASLt's handle */
  void *begin, *end;     /* events, made when time is first taken */
  tigon_device desc;
  char reason[256]; /* why the last call failed */
} cuda_device;

static inline cuda_device *cuda_of(const tigon_queue *queue) { return queue->state; }

/* Device memory that is 0, and that the kernel which it is for leaves so. Calls have them in turns, because captured
 * ones may be replayed beside each other. */
static inline unsigned *cuda_ticket(tigon_queue *queue) {
  cuda_device *device = cuda_of(queue);
  return &device->tickets[device->ticket++ % CUDA_TICKETS];
}

/* ---- kernels ---- */

/* A kernel by the name that it has in its image; the handle serves all devices and is found at the first launch. Only
 * CUDA_KERNEL() makes one, so that it is zero but for these two. */
typedef struct cuda_kernel {
  const char *image; /* "rms_norm": src/cuda/rms_norm.cu */
  const char *name;
  _Atomic(void *) handle;
  _Atomic int shared_bytes[CUDA_DEVICES]; /* dynamic shared memory that was asked for, on a device */
} cuda_kernel;
#define CUDA_KERNEL(image_, name_) \
  { .image = #image_, .name = #name_ }
/* One for each floating-point dtype, in the order of tigon_dtype's f32, f16, bf16: cuda_by_dtype() finds it. */
#define CUDA_KERNELS(image, name) \
  { CUDA_KERNEL(image, name##_f32), CUDA_KERNEL(image, name##_f16), CUDA_KERNEL(image, name##_bf16) }
/* The same without f32's. */
#define CUDA_NARROW_KERNELS(image, name) \
  { {0}, CUDA_KERNEL(image, name##_f16), CUDA_KERNEL(image, name##_bf16) }
static inline cuda_kernel *cuda_by_dtype(cuda_kernel kernels[3], tigon_dtype dtype) {
  return &kernels[dtype - TIGON_F32];
}

typedef struct cuda_shape {
  int64_t blocks;
  int64_t rows;     /* rows of blocks: the grid's second extent, or beyond its limit the second and third; 0 means 1 */
  int threads;      /* a block */
  int shared_bytes; /* dynamic */
  int cluster;      /* blocks of a cluster, 0 or 1: none */
  bool cooperates;  /* its blocks wait for each other (grid_meets()): all must fit the GPU at once */
  bool awaits;      /* it waits for the kernel before itself (kernel/overlap.cuh), and may begin while that ends */
  const char *held; /* for a recorder: how a row is held (docs/glossary.md) */
  int64_t slabs;    /* for a recorder: sums over ranges of rows that a later launch adds up */
} cuda_shape;

/* Launches on the queue's stream, or tells the queue's recorder. `arguments` point at the kernel's parameters, in order. No launch for 0 blocks. */
tigon_status cuda_launch(tigon_queue *queue, cuda_kernel *kernel, cuda_shape shape, void **arguments);
#define CUDA_ARGUMENTS(...) ((void *[]){__VA_ARGS__})

/* Sets queue->reason from a driver's code. */
tigon_status cuda_check(tigon_queue *queue, int code, const char *call);

/* Makes the queue's device current, where it is not; leave() with what enter() said in *pushed. Calls outside cuda_launch() that
 * speak to the driver or to a library stand between the two. */
tigon_status cuda_enter(tigon_queue *queue, bool *pushed);
void cuda_leave(tigon_queue *queue, bool pushed);

/* ---- what kernels may assume ---- */

/* May rows of `t` be read and written 16 bytes at a time? All begin on 16 bytes then. Absent tensors may. */
bool cuda_wide_rows(const tigon_row_space *space, const tigon_rows *t, tigon_dtype dtype);
bool cuda_wide(const void *pointer);
/* Do heads of `t` begin, and have tokens, on a size of `unit` elements? */
bool cuda_wide_heads(const tigon_heads *t, tigon_dtype dtype, int unit);

/* Threads of a team: a power of two from a warp to `most` that is `wanted` at least, where that is possible. */
int cuda_team_for(int64_t wanted, int most);
/* Threads of their block: of `threads` in teams of a warp each, or of one wider team (kernel/team.cuh). */
static inline int cuda_block_for(int team, int threads) { return team > 32 ? team : threads; }

static inline int64_t cuda_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

#endif
