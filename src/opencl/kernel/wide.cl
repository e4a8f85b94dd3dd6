/* Arithmetic in two floats, for the few numbers of a row or a call: no kernel has f64. What is not finite has the low part 0. */
#include "math.cl"
#include "wide.h"

static inline float finite_or_0(float x) { return x - x == 0 ? x : 0; }
static inline pair one_float(float x) { return (pair){x, 0}; }

/* Exact, but for overflow. */
static inline pair two_sum(float a, float b) {
  const float sum = a + b;
  return (pair){sum, finite_or_0(LOST(a, b, sum))};
}
static inline pair two_product(float a, float b) {
  const float product = a * b;
  return (pair){product, finite_or_0(fma(a, b, -product))};
}
/* An integer, below 2^48 exactly. */
static inline pair pair_of_count(long n) {
  const float high = (float)n;
  return (pair){high, high < 0x1p63f ? (float)(n - (long)high) : 0};
}
static inline long count_of_pair(pair n) { return (long)n.high + (long)n.low; }

static inline pair wide_sum(pair a, pair b) {
  const pair s = two_sum(a.high, b.high);
  return two_sum(s.high, s.low + (a.low + b.low));
}
static inline pair wide_add(pair a, float b) { return wide_sum(a, one_float(b)); }
static inline pair wide_minus(pair a) { return (pair){-a.high, -a.low}; }
static inline pair wide_difference(pair a, pair b) { return wide_sum(a, wide_minus(b)); }
static inline bool wide_less(pair a, pair b) { return a.high < b.high || (a.high == b.high && a.low < b.low); }

static inline pair wide_mul(pair a, pair b) {
  const pair p = two_product(a.high, b.high);
  return two_sum(p.high, finite_or_0(p.low + fma(a.high, b.low, a.low * b.high)));
}
static inline pair wide_times(pair a, float b) { return wide_mul(a, one_float(b)); }
/* a times a power of two. */
static inline pair wide_scale(pair a, float by) { return (pair){a.high * by, a.low * by}; }
/* 1 / a */
static inline pair wide_inverse(pair a) {
  const float first = 1 / a.high, rest = fma(-a.low, first, fma(-a.high, first, 1.0f));
  return two_sum(first, finite_or_0(rest * first));
}

#define LN2_HIGH 0.693147182f
#define LN2_LOW (-1.90465430e-9f)
/* n ln 2 */
static inline pair ln2_times(float n) { return wide_add(two_product(n, LN2_HIGH), n * LN2_LOW); }

/* e^a within 2^-42 of it, or 2^-148; 0 below -87, Inf from 88.7 on. With s = r / 64 it is 64 times squared what e^s is. */
static inline pair wide_exp(pair a) {
  enum { HALVINGS = 6 };
  if (!(a.high > -87)) return one_float(a.high < 0 ? 0 : a.high);
  if (a.high > 88.7f) return one_float(INFINITY);
  const float n = rint(a.high * 1.44269504f);
  const pair s = wide_scale(wide_difference(a, ln2_times(n)), 1.0f / (1 << HALVINGS)), square = wide_mul(s, s);
  const float rest = square.high * s.high * 0.166666667f * fma(s.high, fma(s.high, 0.05f, 0.25f), 1.0f);
  pair q = wide_add(wide_sum(s, wide_scale(square, 0.5f)), rest); /* e^s - 1 = s + s^2 / 2 + s^3 / 6 + s^4 / 24 + s^5 / 120 */
  for (int i = 0; i < HALVINGS; ++i) q = wide_sum(wide_scale(q, 2), wide_mul(q, q));
  q = wide_add(q, 1);
  return (pair){ldexp(q.high, (int)n), ldexp(q.low, (int)n)};
}

/* log x within 2^-42 (1 + |log x|): x = 2^n m, and log m = y + log(m e^-y) with y near it. */
static inline pair wide_log(pair x) {
  if (!(x.high > 0) || x.high == INFINITY) return one_float(log_one(x.high));
  int n = ilogb(x.high);
  if (ldexp(x.high, -n) > 1.41421356f) ++n;
  const float m = ldexp(x.high, -n), y = log_one(m);
  const pair rest = wide_add(wide_mul((pair){m, ldexp(x.low, -n)}, wide_exp(one_float(-y))), -1);
  return wide_sum(ln2_times((float)n), wide_add(rest, y));
}

/* ---- sums of many: a work-item's vector of them, and the row's ---- */

static inline vpair lanes_add(vpair s, vf x) {
  const vf sum = s.high + x, lost = LOST(s.high, x, sum);
  return (vpair){sum, s.low + either(lost - lost == 0, lost, (vf)(0.0f))};
}
static inline pair lanes_sum(vpair v) {
  float high[LANES], low[LANES];
  store_floats(v.high, 0, high);
  store_floats(v.low, 0, low);
  pair sum = two_sum(high[0], low[0]);
  for (int j = 1; j < LANES; ++j) sum = wide_sum(sum, (pair){high[j], low[j]});
  return sum;
}
static inline vpair lanes_none() { return (vpair){(vf)(0.0f), (vf)(0.0f)}; }
static inline vpair lanes_times(vpair v, float by) { return (vpair){v.high * by, v.low * by}; }

static inline triple triple_sum(triple a, triple b) {
  for (int i = 0; i < 3; ++i) a.of[i] = wide_sum(a.of[i], b.of[i]);
  return a;
}
/* A NaN stays. */
static inline tops tops_of(tops a, tops b) {
  for (int i = 0; i < 2; ++i) a.of[i] = LARGER(a.of[i], b.of[i]);
  return a;
}
#if GROUP == 1
#define row_triple(v) (v)
#define row_tops(v) (v)
#else
TREE(tree_triple, triple, triple, triple_sum)
TREE(tree_tops, tops, tops, tops_of)
#define row_triple(v) tree_triple(space, v)
#define row_tops(v) tree_tops(space, v)
#endif
