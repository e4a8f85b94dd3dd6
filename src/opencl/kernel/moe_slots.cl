/* What of fused_moe is no product: rows of slots between the products, which are read once, sums over a token's choices and an expert's slots. */
#include "math.cl"
#include "moe.h"

/* ---- the gate ---- */

typedef struct gate_pair {
  vf a, b;
} gate_pair;

/* Columns j .. j + n - 1 of the gate and of up, of a row of pre that begins at `at`. */
static inline gate_pair load_gate(memory pre, long at, long j, long n, const moe_numbers *k) {
  if (!k->interleaved) return (gate_pair){load_n(pre, at + j, T, n), load_n(pre, at + k->inner + j, T, n)};
  float both[2 * LANES], a[LANES], b[LANES];
  store_floats(load_n(pre, at + 2 * j, T, 2 * n), 0, both);
  store_floats(load_n(pre, at + 2 * j + LANES, T, 2 * n - LANES), 0, both + LANES);
  for (int i = 0; i < LANES; ++i) a[i] = both[2 * i], b[i] = both[2 * i + 1];
  return (gate_pair){load_floats(0, a), load_floats(0, b)};
}
static inline void store_gate(memory pre, long at, long j, long n, const moe_numbers *k, gate_pair g) {
  if (!k->interleaved) {
    store_n(pre, at + j, T, n, g.a);
    store_n(pre, at + k->inner + j, T, n, g.b);
    return;
  }
  float both[2 * LANES], a[LANES], b[LANES];
  store_floats(g.a, 0, a);
  store_floats(g.b, 0, b);
  for (int i = 0; i < LANES; ++i) both[2 * i] = a[i], both[2 * i + 1] = b[i];
  store_n(pre, at + 2 * j, T, 2 * n, load_floats(0, both));
  if (2 * n > LANES) store_n(pre, at + 2 * j + LANES, T, 2 * n - LANES, load_floats(0, both + LANES));
}

/* The activation and its slope by the gate's argument; a NaN is not beyond a clamp. */
static inline vf activate(const moe_numbers *k, vf a, vf *slope) {
  const vf u = k->gate_mult * either(a > k->limit, (vf)(k->limit), a);
  vf value;
  *slope = k->gelu ? gelu_slope(gelu_tanh_tail(u), u, &value) : silu_slope(u, &value);
  return value;
}
static inline vf up_of(const moe_numbers *k, vf b) {
  return either(b > k->limit, (vf)(k->limit), either(b < -k->limit, (vf)(-k->limit), b)) + k->up_offset;
}

/* c, or w * c, of each row of pre. */
__kernel void moe_gate(TENSOR(pre), TENSOR(c), TENSOR(w), TENSOR(first), TENSOR(slot), const moe_numbers k) {
  const long none = ((__global const int *)memory_of(first))[k.order.experts];
  for (long r = row_first(); r < k.order.slots; r += row_step()) {
    const long at = r * 2 * k.inner;
    if (r >= none) {
      if (k.clears) FOR_ROW(i, n, 2 * k.inner) store_n(memory_of(pre), at + i, T, n, 0);
      continue;
    }
    const long s = ((__global const int *)memory_of(slot))[r];
    const float weight = k.weighted ? load_one(memory_of(w), s, k.w_dtype) : 1;
    FOR_ROW(j, n, k.inner) {
      const gate_pair g = load_gate(memory_of(pre), at, j, n, &k);
      vf slope;
      const vf value = activate(&k, g.a, &slope) * k.down_mult * up_of(&k, g.b);
      store_n(memory_of(c), r * k.inner + j, T, n, value * weight);
    }
  }
}

static inline long expert_at(__global const int *first, long experts, long position) {
  long e = 0, past = experts;
  while (past - e > 1) {
    const long middle = e + (past - e) / 2;
    if (first[middle] <= position)
      e = middle;
    else
      past = middle;
  }
  return e;
}

/* This work-item's part of dy . the bias of down. */
static inline vf bias_dot(memory dy, memory bias, long row, long expert, const moe_numbers *k) {
  vf sum = 0;
  const long at = row_offset(&k->space, &k->to, row);
  FOR_ROW(i, n, k->cols) {
    sum = fma(load_n(dy, at + i, T, n), load_n(bias, expert * k->cols + i, k->bias_dtype, n), sum);
  }
  return sum;
}

/* dpre, which may lie where pre does, w * c, and dw where it is wanted, of d, in f32. bias: where dw has a sum of it. */
__kernel void moe_slopes(TENSOR(d), TENSOR(pre), TENSOR(dpre), TENSOR(c), TENSOR(w), TENSOR(dw), TENSOR(dy), TENSOR(bias),
                         TENSOR(first), TENSOR(slot), const moe_numbers k) {
  ROOM
  __global const int *const firsts = (__global const int *)memory_of(first);
  const long none = firsts[k.order.experts];
  for (long r = row_first(); r < k.order.slots; r += row_step()) {
    const long s = ((__global const int *)memory_of(slot))[r], at = r * 2 * k.inner;
    if (r >= none) {
      if (is_there(dw) && row_leads()) store_one(memory_of(dw), s, k.to_dtype, 0);
      continue;
    }
    const float weight = load_one(memory_of(w), s, k.w_dtype);
    vf dot = 0;
    FOR_ROW(j, n, k.inner) {
      const vf of_d = load_n(memory_of(d), r * k.inner + j, F32, n), by_down = of_d * weight * k.down_mult;
      gate_pair g = load_gate(memory_of(pre), at, j, n, &k);
      vf slope;
      const vf value = activate(&k, g.a, &slope), up = up_of(&k, g.b), c_of = value * k.down_mult * up;
      dot = fma(of_d, c_of, dot);
      g.a = either(g.a > k.limit, (vf)(0.0f), by_down * up * slope * k.gate_mult);
      g.b = either(fabs(g.b) > k.limit, (vf)(0.0f), by_down * value);
      store_gate(memory_of(dpre), at, j, n, &k, g);
      store_n(memory_of(c), r * k.inner + j, T, n, c_of * weight);
    }
    if (!is_there(dw)) continue;
    if (is_there(bias))
      dot += bias_dot(memory_of(dy), memory_of(bias), s / k.order.top_k, expert_at(firsts, k.order.experts, r), &k);
    const float all = row_sum(sum_of(dot));
    if (row_leads()) store_one(memory_of(dw), s, k.to_dtype, all);
  }
}

/* ---- sums ---- */

/* to[t] = the sum, in order, of the shares of token t's choices, [slots, cols] by position. */
__kernel void moe_combine(TENSOR(shares), TENSOR(to), TENSOR(first), TENSOR(position), const moe_numbers k) {
  const long none = ((__global const int *)memory_of(first))[k.order.experts];
  __global const int *const positions = (__global const int *)memory_of(position);
  for (long t = row_first(); t < k.space.rows; t += row_step()) {
    const long at = row_offset(&k.space, &k.to, t);
    FOR_ROW(i, n, k.cols) {
      vf sum = 0;
      for (long choice = 0; choice < k.order.top_k; ++choice) {
        const long r = positions[t * k.order.top_k + choice];
        if (r < none) sum += load_n(memory_of(shares), r * k.cols + i, T, n);
      }
      store_n(memory_of(to), at + i, T, n, sum);
    }
  }
}

/* to[e] = the sum over expert e's positions of rows, times w where `weighted`: a work-item has a vector of columns. */
__kernel void moe_sums(TENSOR(from), TENSOR(to), TENSOR(w), TENSOR(first), TENSOR(slot), const moe_numbers k) {
  enum { AT_ONCE = 64 }; /* rows that are summed by themselves */
  __global const int *const slots = (__global const int *)memory_of(slot);
  const long e = (long)get_global_id(1), c = (long)get_global_id(0) * LANES, at = e * k.cols + c;
  const long begin = ((__global const int *)memory_of(first))[e], end = ((__global const int *)memory_of(first))[e + 1];
  if (c >= k.cols || (k.accumulate && begin == end)) return;
  vf total = 0;
  for (long r0 = begin; r0 < end; r0 += AT_ONCE) {
    vf part = 0;
    for (long r = r0; r < min(r0 + AT_ONCE, end); ++r) {
      const long row = k.from.of_tokens ? row_offset(&k.space, &k.from.pitch, slots[r] / k.order.top_k)
                                        : r * k.from.pitch.of[2];
      const vf v = load_n(memory_of(from), row + c, T, k.cols - c);
      part = k.weighted ? fma((vf)(load_one(memory_of(w), slots[r], k.w_dtype)), v, part) : part + v;
    }
    total += part;
  }
  if (k.accumulate) total += load_n(memory_of(to), at, k.to_dtype, k.cols - c);
  store_n(memory_of(to), at, k.to_dtype, k.cols - c, total);
}
