/* A row is a token of a sequence, with all heads of q and k. Its work-items have vectors of pairs, then vectors of what passes through. q and k
 * are read once; cos and sin once for each of a work-item's vectors. */
#include "common.cl"
#include "rope.h"

typedef struct tables {
  memory cosine, sine;
  long at[ROPE_AXES]; /* the token's row of each axis's table */
  bool legal;         /* its positions are in range */
} tables;

static inline int axis_of(const rope_numbers *k, long pair) {
  for (int axis = 1; axis < k->axes; ++axis)
    if (pair >= k->of[axis].first && pair < k->of[axis].end && (pair - k->of[axis].first) % k->of[axis].step == 0)
      return axis;
  return 0;
}

static inline void find_rows(const rope_numbers *k, memory ids, bool has_ids, long r, tables *of) {
  const long b = r / k->tokens, t = r % k->tokens;
  of->legal = true;
  for (int axis = 0; axis < k->axes; ++axis) {
    const long id = axis * k->position_axis_pitch + b * k->position_pitch + t;
    const long row = has_ids ? load_int(ids, id, k->position_dtype) : t;
    of->legal = of->legal && row >= 0 && row < k->table_rows;
    of->at[axis] = of->legal ? axis * k->table_axis_pitch + b * k->table_batch_pitch + row * k->table_pitch : 0;
  }
}

/* The table's numbers of n pairs from i on. */
static inline vf of_pairs(const rope_numbers *k, const tables *of, memory table, long i, long n) {
  if (!of->legal) return (vf)(NAN);
  if (k->axes == 1 && k->table_step == 1) return load_n(table, of->at[0] + i, k->table_dtype, n);
  float part[LANES];
  for (int j = 0; j < LANES; ++j)
    part[j] = j < n ? load_one(table, of->at[axis_of(k, i + j)] + (i + j) * k->table_step, k->table_dtype) : 0;
  return load_floats(0, part);
}

/* Heads of a token, where they come from and go to: the first one's elements, and each next one of a work-item's. */
typedef struct heads {
  memory from, to;
  long x, y, x_step, y_step, count;
} heads;

/* n pairs from i on of each head, in `wide` vectors. */
static inlined void turn(const rope_numbers *k, const tables *of, heads h, long i, long n, const int wide) {
  vf c[ROPE_WIDE], s[ROPE_WIDE];
#pragma unroll
  for (int w = 0; w < wide; ++w) {
    c[w] = of_pairs(k, of, of->cosine, i + w * LANES, n - w * LANES);
    s[w] = of_pairs(k, of, of->sine, i + w * LANES, n - w * LANES) * k->sign;
  }
  for (; k->interleaved && h.count > 0; --h.count, h.x += h.x_step, h.y += h.y_step)
#pragma unroll
    for (int w = 0; w < wide; ++w) {
      const long x = h.x + 2 * (i + w * LANES), y = h.y + 2 * (i + w * LANES), left = 2 * (n - w * LANES);
      vf low = load_n(h.from, x, T, left), high = load_n(h.from, x + LANES, T, left - LANES);
      const vf u = (vf)(low.even, high.even), v = (vf)(low.odd, high.odd);
      const vf a = fma(-v, s[w], u * c[w]), b = fma(u, s[w], v * c[w]);
      low.even = a.lo, low.odd = b.lo, high.even = a.hi, high.odd = b.hi;
      store_n(h.to, y, T, left, low);
      store_n(h.to, y + LANES, T, left - LANES, high);
    }
  for (; h.count > 0; --h.count, h.x += h.x_step, h.y += h.y_step)
#pragma unroll
    for (int w = 0; w < wide; ++w) {
      const long at = i + w * LANES, left = n - w * LANES;
      const vf u = load_n(h.from, h.x + at, T, left), v = load_n(h.from, h.x + k->pairs + at, T, left);
      store_n(h.to, h.y + at, T, left, fma(-v, s[w], u * c[w]));
      store_n(h.to, h.y + k->pairs + at, T, left, fma(u, s[w], v * c[w]));
    }
}
static inline void pass(const tables *of, heads h, long i, long n) {
  for (; h.count > 0; --h.count, h.x += h.x_step, h.y += h.y_step)
    store_n(h.to, h.y + i, T, n, of->legal ? load_n(h.from, h.x + i, T, n) : (vf)(NAN));
}

static inline long head_at(const rope_numbers *k, const rope_heads *h, long r, long head) {
  return r / k->tokens * h->batch + r % k->tokens * h->token + head * h->head;
}

/* A work-item has one vector of many heads, so that it reads the tables once. One alone has several, so that it goes through memory in order. */
static inline void turn_heads(const rope_numbers *k, const tables *of, memory from, const rope_heads *in, memory to,
                              const rope_heads *out, long r) {
  const long turned = (k->pairs + LANES - 1) / LANES, rest = k->head_dim - 2 * k->pairs;
  const long each = turned + (rest + LANES - 1) / LANES; /* vectors of a head */
  const long side = min(each, (long)GROUP), beside = GROUP / side, first = row_lane() / side;
  if (first >= beside || first >= in->heads) return;
  const heads h = {from, to, head_at(k, in, r, first), head_at(k, out, r, first), beside * in->head,
                   beside * out->head, (in->heads - first + beside - 1) / beside};
  long vector = row_lane() % side;
  for (; IS_ALONE && (vector + ROPE_WIDE) * LANES <= k->pairs; vector += ROPE_WIDE)
    turn(k, of, h, vector * LANES, ROPE_WIDE * LANES, ROPE_WIDE);
  for (; vector < each; vector += side) {
    const long i = vector * LANES, past = (vector - turned) * LANES;
    if (i + LANES <= k->pairs)
      turn(k, of, h, i, LANES, 1);
    else if (vector < turned)
      turn(k, of, h, i, k->pairs - i, 1);
    else
      pass(of, h, 2 * k->pairs + past, rest - past);
  }
}

__kernel void rope(TENSOR(q), TENSOR(k), TENSOR(cosine), TENSOR(sine), TENSOR(positions), TENSOR(q_out), TENSOR(k_out),
                   TENSOR(error), const rope_numbers n) {
  for (long r = row_first(); r < n.rows; r += row_step()) {
    tables of = {.cosine = memory_of(cosine), .sine = memory_of(sine)};
    find_rows(&n, memory_of(positions), is_there(positions), r, &of);
    if (!of.legal && is_there(error) && row_leads()) *(__global int *)memory_of(error) = 1;
    turn_heads(&n, &of, memory_of(q), &n.q, memory_of(q_out), &n.q_out, r);
    if (is_there(k)) turn_heads(&n, &of, memory_of(k), &n.k, memory_of(k_out), &n.k_out, r);
  }
}
