/* The GEMM behind the CPU's linear: our own (gemm_builtin.h, one per instruction set) or a library's, found at run
 * time. */
#ifndef TIGON_CPU_GEMM_H
#define TIGON_CPU_GEMM_H

#include "cpu/cpu.h"

/* Reads TIGON_GEMM, looks for the libraries once per process, and gives the queue its state. INVALID for an unknown
 * name, DEVICE for one that is asked for by name and not there, OUT_OF_MEMORY; *reason is the sentence. */
tigon_status tigon_gemm_open(tigon_queue *queue, const char **reason);
void tigon_gemm_close(tigon_queue *queue);
const char *tigon_gemm_describe(const tigon_queue *queue);

/* A matrix [rows, cols] whose element (i, j) is at data[i * pitch + j]; transposed: at data[j * pitch + i]. */
typedef struct tigon_gemm_matrix {
  const void *data;
  tigon_dtype dtype;
  int64_t pitch;
  bool transposed;
} tigon_gemm_matrix;

/* c[m, n] = a[m, k] b[k, n] + bias[n] + sums[m, n] + (accumulate ? c : 0), summed in f32 and rounded once. */
typedef struct tigon_gemm_problem {
  int64_t m, n, k;
  tigon_gemm_matrix a, b;
  void *c;
  tigon_dtype c_dtype;
  int64_t c_pitch;
  const void *bias; /* may be NULL */
  tigon_dtype bias_dtype;
  const float *sums; /* contiguous, may be NULL */
  bool accumulate;
  bool mirrored; /* a and b have changed places, and c is turned: it has the same bits */
} tigon_gemm_problem;

/* Runs the problem on the library of this queue. False, with nothing done, when it has none or cannot run the problem:
 * the library takes f32 alone, its sizes are 32 bits. */
bool tigon_gemm_library(const tigon_queue *queue, const tigon_gemm_problem *p);

/* Can the queue's library make single tiles of the problem's sums, and: sums[m, n] = a[m0 .., k] b[k, n0 ..], on the
 * calling thread; false when it failed. */
bool tigon_gemm_makes_tiles(const tigon_queue *queue, const tigon_gemm_problem *p);
bool tigon_gemm_tile(const tigon_gemm_problem *p, int64_t m0, int64_t m, int64_t n0, int64_t n, float *sums,
                     int64_t pitch);

/* Scratch memory of one running task, 64-byte aligned: packed blocks and sums. Taken at the start of a task and given
 * back at its end; there is one for every thread of the queue. */
#define TIGON_GEMM_SCRATCH_BYTES (928 << 10)
#define TIGON_GEMM_TILES_BYTES (2752 << 10) /* the variant amx has tiles of 512 x 512 */
void *tigon_gemm_scratch_take(const tigon_queue *queue);
void tigon_gemm_scratch_give(const tigon_queue *queue, void *scratch);

#endif
