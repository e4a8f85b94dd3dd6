#ifndef SUM_CL
#define SUM_CL
/* Sums along a row, in two floats, and what kernels that sum over rows besides need. */
#include "common.cl"

#define VPAIR_START ((vpair){(vf)(0.0f), (vf)(0.0f)})
/* Adds what FOR_SUMS() has added up. */
static inlined void vpair_take(vpair *s, vf *part) {
  *s = vpair_add(*s, *part);
  *part = (vf)(0.0f);
}
/* The row's sum, in a kernel with ROOM: all its work-items give what they have. */
#define row_total(v) pair_value(row_pair(pair_of(v)))

/* What normalises a row by xhat = (x - center) * rstd + rest: the mean is center and what f32 cuts off. */
typedef struct moments {
  float mean, center, rest, rstd;
} moments;
/* From the means of x - center and of its square. They lose nothing where center is next to the mean. A row with an Inf or a NaN has the mean
 * `center`, which is the plain sum's. */
static inline moments moments_about(float center, float off, float squares, float eps) {
  const float about = squares - off * off, rstd = 1 / sqrt((about < 0 ? 0 : about) + eps);
  return (moments){isfinite(center) ? center + off : center, center, -off * rstd, rstd};
}

/* Items [*begin, *end) of range `index`, as tigon_range(). */
static inline void range_of(long items, long count, long index, long *begin, long *end) {
  const long base = items / count, extra = items % count;
  *begin = index * base + min(index, extra);
  *end = *begin + base + (index < extra ? 1 : 0);
}

#endif
