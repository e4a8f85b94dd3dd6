#ifndef NORM_CL
#define NORM_CL
/* Rows of the norms forward. A row of x is read twice, the second time from a cache: for its statistics, and for y; layer_norm's three times.
 * A tensor that is not there is NULL. Without scale and shift a norm is rms_norm; layer_norm's b is a shift that all rows share. */
#include "math.cl"
#include "norm.h"
#include "sum.cl"

/* w + offset of n columns; 1 without w. */
static inline vf norm_weight(memory w, int dtype, float offset, long i, long n) {
  return w ? load_n(w, i, dtype, n) + offset : (vf)(1.0f);
}

typedef struct norm_fwd_memory {
  memory x, w, z, residual, s, y, rstd, mean, scale, shift;
} norm_fwd_memory;

/* Where a row begins in its tensors. */
typedef struct norm_row {
  memory in;
  long from, y, z, scale, shift;
  moments of;
} norm_row;

static inlined void norm_moments(const norm_fwd_memory *m, const norm_fwd_numbers *k, norm_row *row, room space) {
  const float cols = (float)k->cols;
  vpair all = VPAIR_START, sums = VPAIR_START, squares = VPAIR_START;
  vf some = 0, square = 0;
  FOR_SUMS(i, n, k->cols, vpair_take(&all, &some)) {
    ask_for(m->y, row->y + i, T);
    some += load_n(row->in, row->from + i, T, n);
  }
  const float center = row_total(all) / cols;
  FOR_SUMS(i, n, k->cols, (vpair_take(&sums, &some), vpair_take(&squares, &square))) {
    const vf d = first_or(load_n(row->in, row->from + i, T, n) - center, n, 0);
    some += d, square = fma(d, d, square);
  }
  const float off = row_total(sums) / cols;
  row->of = moments_about(center, off, row_total(squares) / cols, k->eps);
}

/* The root mean square of x, or of x + residual, which goes to s. */
static inlined void norm_root(const norm_fwd_memory *m, const norm_fwd_numbers *k, long r, norm_row *row, room space) {
  const long x = row->from, residual = m->residual ? row_offset(&k->space, &k->residual, r) : 0;
  if (m->residual) row->in = m->s, row->from = row_offset(&k->space, &k->s, r);
  vpair squares = VPAIR_START;
  vf some = 0;
  FOR_SUMS(i, n, k->cols, vpair_take(&squares, &some)) {
    vf v = load_n(m->x, x + i, T, n);
    if (m->y) ask_for(m->y, row->y + i, T);
    if (m->residual) {
      v = rounded(v + load_n(m->residual, residual + i, T, n));
      store_n(m->s, row->from + i, T, n, v);
    }
    some = fma(v, v, some);
  }
  const float mean = row_total(squares) / (float)k->cols;
  row->of.rstd = 1 / sqrt((k->casting == CASTING_NONE ? rounded_one(mean) : mean) + k->eps);
  if (k->casting == CASTING_NONE) row->of.rstd = rounded_one(row->of.rstd);
}

static inlined norm_row norm_start(const bool centers, const norm_fwd_memory *m, const norm_fwd_numbers *k,
                                  long r, room space) {
  const long group = r / k->share;
  norm_row row = {.in = m->x, .from = row_offset(&k->space, &k->x, r), .y = row_offset(&k->space, &k->y, r)};
  if (m->z) row.z = row_offset(&k->space, &k->z, r);
  if (m->scale) row.scale = row_offset(&k->groups, &k->scale, group);
  if (m->shift) row.shift = row_offset(&k->groups, &k->shift, group);
  if (centers)
    norm_moments(m, k, &row, space);
  else
    norm_root(m, k, r, &row, space);
  if (row_leads()) put_float(m->rstd, r, row.of.rstd);
  if (centers && row_leads()) put_float(m->mean, r, row.of.mean);
  return row;
}

/* y before it is rounded. */
static inlined vf norm_value(const bool centers, const norm_fwd_memory *m, const norm_fwd_numbers *k,
                            const norm_row *row, long i, long n) {
  vf v = load_n(row->in, row->from + i, T, n), w = norm_weight(m->w, k->w_dtype, k->w_offset, i, n);
  v = centers ? fma(v - row->of.center, (vf)(row->of.rstd), (vf)(row->of.rest)) : v * row->of.rstd;
  if (k->casting != CASTING_GEMMA) v = rounded(v);
  if (m->scale) w *= 1 + load_n(m->scale, row->scale + i, k->scale_dtype, n);
  v = m->shift ? fma(v, w, load_n(m->shift, row->shift + i, k->shift_dtype, n)) : v * w;
  return m->z ? v * silu(load_n(m->z, row->z + i, T, n)) : v;
}

static inlined void norm_fwd(const bool centers, const norm_fwd_memory *m, const norm_fwd_numbers *k, room space) {
  for (long r = row_first(); r < k->space.rows; r += row_step()) {
    const norm_row row = norm_start(centers, m, k, r, space);
    const long after = row_offset(&k->space, &k->x, row_after(r, k->space.rows));
    FOR_ROW(i, n, k->cols) {
      ask_for(m->x, after + i, T);
      store_n(m->y, row.y + i, T, n, norm_value(centers, m, k, &row, i, n));
    }
  }
}

#define NORM_FWD_KERNEL(name, centers)                                                                       \
  __kernel void name(TENSOR(x), TENSOR(w), TENSOR(z), TENSOR(residual), TENSOR(s), TENSOR(y), TENSOR(rstd),  \
                     TENSOR(mean), TENSOR(scale), TENSOR(shift), const norm_fwd_numbers k) {                 \
    ROOM                                                                                                     \
    const norm_fwd_memory m = {or_null(x), or_null(w),    or_null(z),    or_null(residual), or_null(s),      \
                               or_null(y), or_null(rstd), or_null(mean), or_null(scale),    or_null(shift)}; \
    norm_fwd(centers, &m, &k, space);                                                                        \
  }

#endif
