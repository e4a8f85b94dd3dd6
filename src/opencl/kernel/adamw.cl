/* adamw: a launch has one tensor of the list. Each element is read once and written once. A work-item alone has vectors that lie end to end,
 * those of a group have them in turns. */
#include "wide.cl"
#include "adamw.h"

__kernel void adamw_step(TENSOR(param), TENSOR(master), TENSOR(grad), TENSOR(exp_avg), TENSOR(exp_avg_sq),
                         TENSOR(clip_factor), const adamw_numbers k) {
  const bool has_master = is_there(master);
  const memory params = memory_of(param), values = has_master ? memory_of(master) : params, ms = memory_of(exp_avg),
               vs = memory_of(exp_avg_sq), grads = memory_of(grad);
  const float clip = float_or(or_null(clip_factor), 0, 1);
  for (long e = 0, i = vectors_first(ADAMW_EACH); e < ADAMW_EACH && i < k.count; ++e, i += GROUP * LANES) {
    const long n = k.count - i;
    const vf g = load_n(grads, i, k.grad_dtype, n) * clip;
    const vf value = load_n(values, i, has_master ? F32 : T, n);
    const vf m = fma((vf)(k.beta1), load_n(ms, i, F32, n), k.rest1 * g);
    const vf v = fma((vf)(k.beta2), load_n(vs, i, F32, n), k.rest2 * (g * g));
    const vf move = k.rate * m / fma(sqrt(v), (vf)(k.root), (vf)(k.eps));
    const vf updated = fma((vf)(-k.decay), value, value) - move;
    store_n(ms, i, F32, n, m);
    store_n(vs, i, F32, n, v);
    if (has_master) store_n(values, i, F32, n, updated);
    store_n(params, i, T, n, updated);
  }
}

/* ---- clip: sums of squares of numbers of any size, each scaled so that its square is in range (Blue) ---- */

static inline adamw_partial partial_of(pair sum, int power) { return (adamw_partial){sum, power, 0}; }
static inline adamw_partial partial_join(adamw_partial a, adamw_partial b) {
  if (a.sum.high == 0 || b.sum.high == 0) return a.sum.high == 0 ? b : a;
  const adamw_partial high = a.power < b.power ? b : a, low = a.power < b.power ? a : b;
  const int apart = low.power - high.power;
  return partial_of(wide_sum(high.sum, (pair){ldexp(low.sum.high, apart), ldexp(low.sum.low, apart)}), high.power);
}

/* Numbers whose squares are out of range. */
static inline vi is_large(vf x) { return fabs(x) > 0x1p45f; }
static inline vi is_small(vf x) { return fabs(x) < 0x1p-50f && x != 0; }

/* The row that a group, or a work-item, adds up is one of ADAMW_PARTIALS parts of the tensor. */
__kernel void adamw_squares(TENSOR(grad), TENSOR(partials), const adamw_clip_numbers k) {
  ROOM
  enum { UP = 90, DOWN = -100 }; /* powers of two by which small and large numbers are scaled */
  enum { AHEAD = 8 };            /* vectors that are on their way at once */
  vpair large = lanes_none(), middle = large, small = large;
  const long step = GROUP * LANES, all_steps = (k.count - 1) / (AHEAD * step) + 1;
  const long share = ((all_steps - 1) / ADAMW_PARTIALS + 1) * AHEAD * step, begin = row_first() * share;
  for (long i = begin + row_lane() * LANES; i < min(begin + share, k.count); i += AHEAD * step) {
    vf of[AHEAD];
    for (int j = 0; j < AHEAD; ++j) of[j] = load_n(memory_of(grad), i + j * step, k.dtype, k.count - i - j * step);
    vi odd = 0;
    vf squares = 0;
    for (int j = 0; j < AHEAD; ++j) odd |= is_large(of[j]) || is_small(of[j]), squares += of[j] * of[j];
    if (!any_lane(odd)) {
      middle = lanes_add(middle, squares);
      continue;
    }
    for (int j = 0; j < AHEAD; ++j) {
      const vf x = of[j], down = either(is_large(x), x, (vf)(0.0f)) * 0x1p-100f;
      const vf up = either(is_small(x), x, (vf)(0.0f)) * 0x1p90f;
      const vf as_it_is = either(is_large(x) || is_small(x), (vf)(0.0f), x);
      large = lanes_add(large, down * down);
      middle = lanes_add(middle, as_it_is * as_it_is);
      small = lanes_add(small, up * up);
    }
  }
  const triple all = row_triple(((triple){{lanes_sum(small), lanes_sum(middle), lanes_sum(large)}}));
  adamw_partial sum = partial_of(all.of[0], -2 * UP);
  sum = partial_join(sum, partial_of(all.of[1], 0));
  sum = partial_join(sum, partial_of(all.of[2], -2 * DOWN));
  __global adamw_partial *to = (__global adamw_partial *)memory_of(partials) + row_first();
  if (row_leads()) *to = k.first ? sum : partial_join(*to, sum);
}

/* factor = max_norm / norm, also where the norm is beyond f32. */
__kernel void adamw_factor(TENSOR(partials), TENSOR(norm), TENSOR(factor), const adamw_clip_numbers k) {
  __global const adamw_partial *from = (__global const adamw_partial *)memory_of(partials);
  adamw_partial sum = partial_of(one_float(0), 0);
  if (get_global_id(0) > 0) return;
  for (int i = 0; i < ADAMW_PARTIALS && !k.first; ++i) sum = partial_join(sum, from[i]);
  const float root = sqrt(sum.sum.high), length = ldexp(root, sum.power / 2);
  const float over = ldexp(k.max_norm / root, -sum.power / 2);
  FLOATS_OF(norm)[0] = length;
  FLOATS_OF(factor)[0] = isnan(length) ? length : k.max_norm > 0 && length > k.max_norm ? over : 1;
}
