/* A row is a token of a sequence, with all heads of q and k. Its work-items have vectors of pairs, then vectors of what passes through. q and k
 * are read once; cos and sin once for each head, out of a cache. */
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

/* n pairs from i on of the head at x become those of the head at y. */
static inline void turn(const rope_numbers *k, const tables *of, memory from, long x, memory to, long y, long i) {
  const long n = k->pairs - i;
  const vf c = of_pairs(k, of, of->cosine, i, n), s = of_pairs(k, of, of->sine, i, n) * k->sign;
  vf u, v;
  if (k->interleaved) {
    const vf low = load_n(from, x + 2 * i, T, 2 * n), high = load_n(from, x + 2 * i + LANES, T, 2 * n - LANES);
    u = (vf)(low.even, high.even), v = (vf)(low.odd, high.odd);
  } else {
    u = load_n(from, x + i, T, n), v = load_n(from, x + k->pairs + i, T, n);
  }
  const vf a = fma(-v, s, u * c), b = fma(u, s, v * c);
  if (k->interleaved) {
    vf low, high;
    low.even = a.lo, low.odd = b.lo, high.even = a.hi, high.odd = b.hi;
    store_n(to, y + 2 * i, T, 2 * n, low);
    store_n(to, y + 2 * i + LANES, T, 2 * n - LANES, high);
  } else {
    store_n(to, y + i, T, n, a);
    store_n(to, y + k->pairs + i, T, n, b);
  }
}

static inline long head_at(const rope_numbers *k, const rope_heads *h, long r, long head) {
  return r / k->tokens * h->batch + r % k->tokens * h->token + head * h->head;
}

static inline void turn_heads(const rope_numbers *k, const tables *of, memory from, const rope_heads *in, memory to,
                              const rope_heads *out, long r) {
  const long turned = (k->pairs + LANES - 1) / LANES, rest = k->head_dim - 2 * k->pairs;
  const long each = turned + (rest + LANES - 1) / LANES; /* vectors of a head */
  for (long e = row_lane(); e < in->heads * each; e += GROUP) {
    const long head = e / each, vector = e % each;
    const long x = head_at(k, in, r, head), y = head_at(k, out, r, head);
    if (vector < turned) {
      turn(k, of, from, x, to, y, vector * LANES);
    } else {
      const long i = (vector - turned) * LANES, at = 2 * k->pairs + i;
      store_n(to, y + at, T, rest - i, of->legal ? load_n(from, x + at, T, rest - i) : (vf)(NAN));
    }
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
