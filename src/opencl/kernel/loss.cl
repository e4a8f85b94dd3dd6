/* What kernels of losses have in common: labels, logits, and sums of exponentials over a row that is read once. */
#include "wide.cl"
#include "loss.h"

static inline void put_long(memory m, long i, long x) {
  if (m) ((__global long *)m)[i] = x;
}

/* Row r's label; -1: it does not count. */
static inline long label_at(const label_rule *rule, memory labels, long r, bool *out_of_range) {
  const long label = load_int(labels, r, rule->dtype);
  const bool ignored = rule->has_ignore && label == rule->ignore_index;
  *out_of_range = !ignored && rule->limit && (label < 0 || label >= rule->limit);
  return ignored || *out_of_range ? -1 : rule->limit ? label : 0;
}

/* ---- vectors ---- */

/* True in the first n lanes. */
static inlined vi first_lanes(long n) {
  if (n >= LANES) return (vi)(-1);
  int part[LANES];
  for (int j = 0; j < LANES; ++j) part[j] = j < n ? -1 : 0;
  return PASTE(vload, LANES)(0, part);
}
/* The largest lane; NaN does not count. */
static inline float largest_of(vf v) {
  float part[LANES];
  store_floats(v, 0, part);
  for (int half_of = LANES / 2; half_of > 0; half_of /= 2)
    for (int j = 0; j < half_of; ++j) part[j] = fmax(part[j], part[j + half_of]);
  return part[0];
}
/* v with x in place of lane `at`, if there is one. */
static inline vf with_lane(vf v, long at, float x) {
  if (at < 0 || at >= LANES) return v;
  float part[LANES];
  store_floats(v, 0, part);
  part[at] = x;
  return load_floats(0, part);
}

/* ---- logits ---- */

/* z is this times map->times. */
static inline vf capped(const logit_map *map, vf x) {
  return map->cap > 0 ? map->cap * tanh_of(x * map->argument.high) : x;
}
static inline vf capped_slope(const logit_map *map, vf x, vf *slope) {
  *slope = (vf)(1.0f);
  return map->cap > 0 ? map->cap * tanh_slope_of(x * map->argument.high, slope) : x;
}

/* A reference is a rounded logit. So is a huge logit before it is taken off: what rounding loses of it is huge, too, and e^(z - reference) of the
 * largest one would be 0 or Inf. */
#define HUGE_LOGIT 0x1p20f
static inline vf above(const logit_map *map, vf z, float reference) {
  if (fabs(reference) > HUGE_LOGIT) return z * map->times - reference;
  return fma(z, (vf)(map->times), (vf)(-reference));
}
static inline pair logit_product(float x, float times) {
  const pair z = two_product(x, times);
  return fabs(z.high) > HUGE_LOGIT ? one_float(z.high) : z;
}

/* One x in two floats; the slope is the cap's. */
typedef struct one_logit {
  pair z, slope;
} one_logit;
static inline one_logit logit_of(const logit_map *map, float x) {
  if (map->cap == 0) return (one_logit){logit_product(x, map->times), {1, 0}};
  const pair u = wide_times(map->argument, x), e = wide_exp(wide_scale(u, u.high < 0 ? 2 : -2));
  const pair inverse = wide_inverse(wide_add(e, 1)), far = wide_mul(wide_add(wide_minus(e), 1), inverse);
  const float square = u.high * u.high, bend = u.high * square * fma(square, 0.133333333f, -0.333333333f);
  const pair tanh = fabs(u.high) < 0.02f ? wide_add(u, bend) : u.high < 0 ? wide_minus(far) : far;
  return (one_logit){wide_times(wide_times(tanh, map->cap), map->times), wide_mul(wide_mul(wide_scale(e, 4), inverse), inverse)};
}

/* ---- sums of e^(z - reference) over a row: the reference is the logit of some x met so far, at most 16 below the largest ---- */

#define EXP_LOW (-87.33654f) /* below it nothing is added to the moment, where 0 * -Inf is 0 */
#define SHIFT_LOW (-1000.0f)

/* A work-item's. */
typedef struct exponentials {
  vf largest; /* the largest x of each lane; NaN does not count */
  vi turn;    /* which of the work-item's vectors has it first; of a batch, its first one */
  float reference, limit; /* an x above the limit moves the reference */
  vpair sum, moment;      /* moment: of e^d * d with d = z - reference */
} exponentials;

static inline exponentials no_exponentials(const logit_map *map) {
  return (exponentials){(vf)(-INFINITY), (vi)(0), -map->cap * map->times, -INFINITY, lanes_none(), lanes_none()};
}

static inline void move_reference(const logit_map *map, exponentials *s) {
  const float top = largest_of(s->largest), reference = capped(map, (vf)(top)).s0 * map->times;
  const bool first = s->limit == -INFINITY;
  s->limit = isfinite(reference) ? top + map->slack : INFINITY;
  if (!isfinite(reference)) return;
  const float shift = fmax(s->reference - reference, SHIFT_LOW), factor = exp_one(shift);
  s->reference = reference;
  if (first && map->cap == 0) return; /* nothing but -Inf and NaN so far; under a cap -Inf counts */
  s->moment.high = fma(s->sum.high, (vf)(shift), s->moment.high);
  s->moment = lanes_times(s->moment, factor);
  s->sum = lanes_times(s->sum, factor);
}

static inline void look_at(exponentials *s, vf x, int turn) {
  const vi more = x > s->largest;
  s->largest = either(more, x, s->largest);
  s->turn = select(s->turn, (vi)(turn), more);
}

/* Moves a copy: what a call has the address of is in memory, and not in registers. */
static inlined void follow(const logit_map *map, exponentials *s) {
  if (!unlikely(any_lane(s->largest > s->limit))) return;
  exponentials moved = *s;
  move_reference(map, &moved);
  *s = moved;
}

/* Adds the lanes of x that are `here`, or all. */
static inlined void add_exponentials(const logit_map *map, exponentials *s, vf x, int turn, bool all, vi here, bool moment) {
  if (!all) x = either(here, x, (vf)(-INFINITY));
  look_at(s, x, turn);
  follow(map, s);
  const vf d = above(map, capped(map, x), s->reference);
  vf e = exp_to_64_of(at_most_of(64.0f, d));
  if (!all) e = either(here, e, (vf)(0.0f));
  s->sum = vpair_add(s->sum, e);
  if (moment) s->moment = vpair_add(s->moment, e * fmax(d, (vf)(EXP_LOW)));
}

/* Adds whole vectors, without a cap, under one test and with one sum in two floats. A term is too large by 2^-124 at most. */
enum { BATCH = 4 };
static inlined void add_batch(const logit_map *map, exponentials *s, const vf x[BATCH], int turn, bool moment) {
  vf d[BATCH], e[BATCH];
  vf most = s->largest;
#pragma unroll
  for (int j = 0; j < BATCH; ++j) most = larger(most, x[j]);
  look_at(s, most, turn);
  follow(map, s);
  if (unlikely(fabs(s->reference) > HUGE_LOGIT)) {
#pragma unroll
    for (int j = 0; j < BATCH; ++j) d[j] = above(map, x[j], s->reference);
  } else {
#pragma unroll
    for (int j = 0; j < BATCH; ++j) d[j] = fma(x[j], (vf)(map->times), (vf)(-s->reference));
  }
#pragma unroll
  for (int j = 0; j < BATCH; ++j) e[j] = exp_near_of(d[j]);
  s->sum = vpair_add(s->sum, (e[0] + e[1]) + (e[2] + e[3]));
  if (!moment) return;
#pragma unroll
  for (int j = 0; j < BATCH; ++j) e[j] *= fmax(d[j], (vf)(EXP_LOW));
  s->moment = vpair_add(s->moment, (e[0] + e[1]) + (e[2] + e[3]));
}

/* The row's, and another sum. lse: NaN where there is one, and else the logit of the largest x where that is not finite. */
typedef struct row_exponentials {
  float top, reference; /* top: the largest logit */
  pair sum, moment, other, log_sum, lse;
} row_exponentials;

static inlined row_exponentials join_exponentials(const logit_map *map, room space, const exponentials *s, pair other) {
  const bool moved = s->limit > -INFINITY || map->cap > 0;
  const tops t = row_tops(((tops){{largest_of(s->largest), moved ? s->reference : -INFINITY}}));
  pair sum = lanes_sum(s->sum), own = lanes_sum(s->moment);
  const float shift = moved ? fmax(s->reference - t.of[1], SHIFT_LOW) : 0;
  if (shift != 0 && isfinite(sum.high)) {
    const float factor = exp_one(shift);
    own = wide_times(wide_sum(own, wide_times(sum, shift)), factor);
    sum = wide_times(sum, factor);
  }
  const triple all = row_triple(((triple){{sum, own, other}}));
  row_exponentials e = {capped(map, (vf)(t.of[0])).s0 * map->times, t.of[1], all.of[0], all.of[1], all.of[2]};
  e.log_sum = wide_log(e.sum);
  e.lse = isnan(e.sum.high) ? one_float(NAN) : isfinite(e.top) ? wide_add(e.log_sum, e.reference) : one_float(e.top);
  return e;
}

/* ---- sums by one group ---- */

/* The sum of what TOTAL_ITEMS work-items have. */
static inlined pair total_of(__local pair *tree, pair v) {
  const int at = (int)get_local_id(0);
  barrier(CLK_LOCAL_MEM_FENCE);
  tree[at] = v;
  for (int half_of = TOTAL_ITEMS / 2; half_of > 0; half_of /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (at < half_of) tree[at] = wide_sum(tree[at], tree[at + half_of]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  return tree[0];
}
