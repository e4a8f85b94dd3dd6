/* The operators of the unfused baseline: one loop an operator over memory, as a framework without fusion runs them. Plain
 * C for the compiler to vectorise (omp simd), once per instruction set, rows shared out by OpenMP; arithmetic in f32, one
 * rounding at each store. Host memory only. */
#ifndef TRAIN_UNFUSED_LOOPS_H
#define TRAIN_UNFUSED_LOOPS_H

#include <stdint.h>
#include <tigon/base.h>

/* A matrix by rows; pitch in elements. */
typedef struct train_matrix {
  void *data;
  int64_t pitch;
} train_matrix;

typedef struct train_loop {
  int64_t rows, cols;
  train_matrix a, b, y; /* in, in, out; y may be a or b */
  const void *w;        /* [cols] the norm's weight */
  float *rstd;          /* [rows] */
  float *slabs;         /* [slab_count, cols] the norm's partial dw */
  int slab_count;
  const int32_t *labels; /* [rows] */
  float eps, scale;
} train_loop;

typedef enum train_loop_kind {
  TRAIN_LOOP_ADD,             /* y = a + b */
  TRAIN_LOOP_MUL,             /* y = a * b */
  TRAIN_LOOP_SILU,            /* y = silu(a) */
  TRAIN_LOOP_SILU_BWD,        /* y = a * silu'(b): a the gradient, b the input */
  TRAIN_LOOP_NORM,            /* y = a * rstd * w, saves rstd */
  TRAIN_LOOP_NORM_BWD,        /* y from a = dy, b = x, w, rstd; slab s sums the dw of its rows */
  TRAIN_LOOP_LOG_SOFTMAX,     /* y (f32) = a - log sum exp a */
  TRAIN_LOOP_LOG_SOFTMAX_BWD, /* y = scale * (exp(a) - onehot(label)), a f32 */
  TRAIN_LOOP_COUNT,
} train_loop_kind;

/* Runs the loop on all rows; dtype f32 or bf16; threads 0: OpenMP's default. */
void train_loop_run(train_loop_kind kind, const train_loop *loop, tigon_dtype dtype, int threads);

#endif
