/* Views of a case's memory, and its figures: what the case functions share. */
#ifndef TIGON_BENCH_VIEWS_H
#define TIGON_BENCH_VIEWS_H

#include "bench.h"

static inline size_t element(const bench_data *d) { return tigon_dtype_size(d->dtype); }

/* Bytes of one [rows, cols] tensor, and of f32 scalars. */
static inline double wide_bytes(const bench_data *d) { return (double)d->rows * (double)d->cols * (double)element(d); }
static inline double f32_bytes(int64_t count) { return 4.0 * (double)count; }

static inline tigon_tensor wide(const bench_data *d, int i) {
  return tigon_tensor_2d(d->tensor[i], d->dtype, d->rows, d->cols);
}
static inline tigon_tensor column(const bench_data *d, int i) {
  return tigon_tensor_1d(d->column[i], TIGON_F32, d->cols);
}
static inline tigon_tensor row(const bench_data *d, int i) { return tigon_tensor_1d(d->row[i], TIGON_F32, d->rows); }
static inline tigon_tensor scalar(const bench_data *d, int i) { return tigon_tensor_1d(d->row[i], TIGON_F32, 1); }
static inline tigon_tensor indices(const bench_data *d) { return tigon_tensor_1d(d->index, TIGON_I64, d->rows); }

static inline void set_bytes(bench_data *d, double fwd, double bwd) {
  d->bytes[BENCH_FWD] = fwd;
  d->bytes[BENCH_BWD] = bwd;
  d->bytes[BENCH_FULL] = fwd + bwd;
}

static inline void set_flops(bench_data *d, double fwd, double bwd) {
  d->flops[BENCH_FWD] = fwd;
  d->flops[BENCH_BWD] = bwd;
  d->flops[BENCH_FULL] = fwd + bwd;
}

/* A model's heads; else heads of 128 where cols allows, else 64, else one, and a quarter as many of k where that divides. */
static inline void heads(const bench_data *d, int64_t widest, int64_t *hq, int64_t *hk, int64_t *width) {
  *width = d->head_dim ? d->head_dim : widest >= 128 && d->cols % 128 == 0 ? 128 : d->cols % 64 == 0 ? 64 : d->cols;
  *hq = d->cols / *width;
  *hk = d->kv_heads ? d->kv_heads : *hq % 4 == 0 ? *hq / 4 : *hq;
}

#endif
