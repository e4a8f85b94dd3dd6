/* What the rows of all norms share: the sizes of blocks and groups, and the weights of a panel of columns. Sums are f32 within a
 * block of columns and f64 across blocks. So a row of any width keeps its precision, and its bits do not depend on its
 * neighbours. The weights of a panel are widened once and serve all rows of a task; where a row has several panels, a group of
 * rows shares each. */
#ifndef TIGON_CPU_NORM_H
#define TIGON_CPU_NORM_H

#include <math.h>

#include "cpu/kernels.h"
#include "cpu/pair.h"
#include "cpu/simd_math.h"

/* Constant once a body is expanded. */
typedef enum norm_kind { NORM_RMS, NORM_GATED, NORM_ADD_RMS, NORM_LAYER, NORM_MODULATED } norm_kind;

/* Does it subtract the mean; does it add a bias, whose gradient is a second column sum; is y xhat * w and no more? */
TIGON_INLINE bool norm_centers(norm_kind kind) { return kind == NORM_LAYER; }
TIGON_INLINE bool norm_has_bias(norm_kind kind) { return kind == NORM_LAYER || kind == NORM_MODULATED; }
TIGON_INLINE bool norm_is_product(norm_kind kind) { return kind == NORM_RMS || kind == NORM_ADD_RMS; }

enum {
  NORM_BLOCK = 256 * LANES,   /* columns of one f32 partial sum: at most 128 additions in a row */
  NORM_CHAIN = 64 * LANES,    /* columns of 16 additions in a row: more would add up what 16-bit elements lose alike */
  NORM_SAMPLE = 64,           /* columns of a block whose mean is its center */
  NORM_AHEAD = 2048,          /* bytes of the row after the next that are fetched, too */
  NORM_PANEL = 8192,          /* columns whose weights are at hand, a multiple of STEP */
  NORM_GROUP = 4,             /* rows that share a panel's weights, or a sweep over dw's slab */
  NORM_GROUP_BYTES = 1 << 19, /* bytes of a group's inputs; the L2 also has the next group's */
};

/* Rows of a group: as many as the L2 keeps between two sweeps. */
TIGON_INLINE int norm_group_rows(int64_t row_bytes) {
  const int64_t fits = NORM_GROUP_BYTES / row_bytes;
  return fits >= NORM_GROUP ? NORM_GROUP : fits > 1 ? (int)fits : 1;
}

/* A column vector: w + offset, or `absent` where w is NULL; times 1 + scale where scale is not. */
typedef struct norm_weights {
  const void *w;
  tigon_dtype dtype;
  float offset, absent;
  const void *scale;
  tigon_dtype scale_dtype;
} norm_weights;

/* The weights of the columns from `first` in the order of the dtype's pairs. A NaN is one that bf16 can hold; the last step is
 * filled up with anything. */
typedef struct norm_panel {
  int64_t first, cols;    /* cols 0: nothing yet */
  const void *of, *scale; /* what it was made of */
  const float *w;         /* the buffer, or the caller's w where that is the same */
  float least;            /* magnitude; -1: nobody asked */
  float buffer[NORM_PANEL];
} norm_panel;

/* n weights w + offset, which multiply what is there when `times`; `dtype` is that of the rows. */
TIGON_INLINE void norm_widen(float *to, tigon_dtype dtype, tigon_dtype w_dtype, const void *w, int64_t c, int n,
                             float offset, bool times) {
  vf2 v = v2_load(w, c, w_dtype, n);
  v = v2_add(w_dtype == dtype ? v : v2_order(v, dtype), v2_set(offset));
  if (times) v = v2_mul(v, (vf2){vf_load(to), vf_load(to + LANES)});
  vf_store(to, vf_select(vf_nan(v.a), vf_set(NAN), v.a));
  vf_store(to + LANES, vf_select(vf_nan(v.b), vf_set(NAN), v.b));
}
TIGON_INLINE void norm_widen_all(float *to, tigon_dtype dtype, tigon_dtype w_dtype, const void *w, int64_t first,
                                 int64_t n, float offset, bool times) {
  int64_t c = 0;
  for (; c + STEP <= n; c += STEP) norm_widen(to + c, dtype, w_dtype, w, first + c, STEP, offset, times);
  if (c < n) norm_widen(to + c, dtype, w_dtype, w, first + c, (int)(n - c), offset, times);
}
TIGON_INLINE void norm_widen_panel(norm_panel *panel, tigon_dtype dtype, tigon_dtype w_dtype, const void *w,
                                   float offset, bool times) {
  if (w_dtype == TIGON_F32)
    norm_widen_all(panel->buffer, dtype, TIGON_F32, w, panel->first, panel->cols, offset, times);
  else
    norm_widen_all(panel->buffer, dtype, dtype, w, panel->first, panel->cols, offset, times);
}

TIGON_INLINE void norm_load_panel(norm_panel *panel, int64_t first, int64_t cols, tigon_dtype dtype,
                                  const norm_weights *from) {
  if (panel->cols && panel->first == first && panel->of == from->w && panel->scale == from->scale) return;
  panel->first = first, panel->cols = cols - first < NORM_PANEL ? cols - first : NORM_PANEL;
  panel->of = from->w, panel->scale = from->scale;
  panel->w = panel->buffer, panel->least = -1;
  if (!from->w)
    for (int64_t c = 0; c < panel->cols; c += STEP) {
      vf_store(panel->buffer + c, vf_set(from->absent));
      vf_store(panel->buffer + c + LANES, vf_set(from->absent));
    }
  else if (dtype == TIGON_F32 && from->offset == 0 && panel->cols % STEP == 0 && !from->scale)
    panel->w = (const float *)from->w + first;
  else
    norm_widen_panel(panel, dtype, from->dtype, from->w, from->offset, false);
  if (from->scale) norm_widen_panel(panel, dtype, from->scale_dtype, from->scale, 1, true);
}
/* The least magnitude; a NaN and the last, short step count for nothing. */
TIGON_INLINE float norm_panel_least(norm_panel *panel) {
  if (panel->least >= 0) return panel->least;
  vf least = vf_set(INFINITY);
  for (int64_t c = 0; c + LANES <= panel->cols; c += LANES) least = vf_min(vf_abs(vf_load(panel->w + c)), least);
  return panel->least = -vf_max_across(vf_sub(vf_zero(), least));
}
TIGON_INLINE vf2 norm_weight(const float *w, int64_t c) { return (vf2){vf_load(w + c), vf_load(w + c + LANES)}; }

/* silu of a gate of the dtype, and its slope. */
TIGON_INLINE vf norm_silu_of(tigon_dtype dtype, vf z) {
  return dtype == TIGON_F32 ? vf_silu(z) : silu_16(z, silu_exp_16(z));
}
TIGON_INLINE vf norm_slope_of(tigon_dtype dtype, vf z, vf *silu) {
  return dtype == TIGON_F32 ? vf_silu_slope(z, silu) : silu_slope_16(z, silu_exp_16(z), silu);
}
TIGON_INLINE vf2 norm_silu(tigon_dtype dtype, vf2 z) {
  return (vf2){norm_silu_of(dtype, z.a), norm_silu_of(dtype, z.b)};
}
TIGON_INLINE vf2 norm_silu_slope(tigon_dtype dtype, vf2 z, vf2 *silu) {
  return (vf2){norm_slope_of(dtype, z.a, &silu->a), norm_slope_of(dtype, z.b, &silu->b)};
}

#endif
