/* attention, backward, without atomics: dk and dv by tiles of keys over the queries that see them, dq by tiles of queries over the keys that they
 * see. Either works the scores out anew from lse, and is the same walk: a tile's rows x have two matrices, a (k or q) and b (v or do), and meet
 * those of the other side, y, with p = exp(z - lse) and dz = scale * p (do . v - delta). */
#include "attention_tile.cl"

/* Numbers of a tile's queries. Where lse is -Inf every z is, and z - Inf makes p 0. */
typedef struct query_rows {
  float lse[BLOCK], delta[BLOCK];
} query_rows;

/* What a walk reads and writes: da is dk or dq, db is dv. */
typedef struct tensors {
  memory q, k, v, d_o, da, db;
  __global const float *lse, *delta;
} tensors;
typedef struct tiles {
  tile_floats xs, ys, s, d;
  TILE_MEMORY query_rows *queries;
} tiles;

static inlined void load_queries(TILE_MEMORY query_rows *to, const tensors *of, long at, long step, int count) {
  FOR_SHARE(i, BLOCK) {
    const float own = i < count ? of->lse[at + i * step] : -INFINITY;
    to->lse[i] = own == -INFINITY ? INFINITY : own;
    to->delta[i] = i < count ? of->delta[at + i * step] : 0;
  }
}

/* Scores s and do . v become p and dz. */
static inline void differentiate(const tiles *w, bool of_keys, const attention_numbers *k, const tile_mask *m) {
  TILE_MEMORY const query_rows *of = w->queries;
  FOR_SHARE(i, BLOCK * VECTORS) {
    const int y = i / VECTORS, x = i % VECTORS * LANES, at = y * PITCH + x;
    const vf lse = of_keys ? (vf)(of->lse[y]) : load_floats(0, of->lse + x);
    const vf delta = of_keys ? (vf)(of->delta[y]) : load_floats(0, of->delta + x);
    vf slope;
    const vf z = cap_score(k, load_floats(0, w->s + at) * k->scale, &slope);
    vf p = exp_of(z - lse), dz = p * (load_floats(0, w->d + at) - delta) * (k->scale * slope);
    if (m->masked) {
      const vi seen = seen_by(m, y, x);
      p = either(seen, p, (vf)(0.0f)), dz = either(seen, dz, (vf)(0.0f));
    }
    store_floats(p, 0, w->s + at);
    store_floats(dz, 0, w->d + at);
  }
}

/* A side of the walk: k and v, or q and do. */
typedef struct side {
  head_rows a, b;
} side;

/* to[y][x] = y's row . x's row, over the whole head. */
static inline void multiply_heads(tile_floats to, const tiles *w, const head_rows *y, long y0, int y_rows,
                                  const head_rows *x, long x0, int x_rows, long head_dim) {
  for (long col = 0; col < head_dim; col += CHUNK) {
    const int cols = rest_of(head_dim, col, CHUNK);
    tile_sync();
    load_turned(w->xs, x, x0, x_rows, col, cols);
    load_turned(w->ys, y, y0, y_rows, col, cols);
    tile_sync();
    multiply_rows(to, w->ys, w->xs, cols, col > 0);
  }
}

/* sums += weights times the chunks of y from chunk c0 on. */
static inline void gather_head(vf *sums, tile_floats weights, tile_floats ys, const head_rows *y, long y0,
                               const tile_mask *m, int c0, int chunks, long head_dim) {
  for (int c = 0; c < KEPT && c0 + c < chunks; ++c) {
    const long col = (long)(c0 + c) * CHUNK;
    tile_sync();
    load_straight(ys, y, y0, m->rows, col, rest_of(head_dim, col, CHUNK));
    tile_sync();
    gather(sums + c * EACH * MICRO, weights, ys, 0, m);
  }
}
static inline void store_head(const vf *sums, const head_rows *to, long x0, int count, int c0, int chunks,
                              long head_dim) {
  for (int c = 0; c < KEPT && c0 + c < chunks; ++c) {
    const long col = (long)(c0 + c) * CHUNK;
    store_sums(sums + c * EACH * MICRO, to, x0, count, col, rest_of(head_dim, col, CHUNK), 0);
  }
}

static inline void walk(bool of_keys, const tensors *of, const attention_cuts *cuts, const tiles *w) {
  const attention_numbers *n = cuts->of;
  const long places = of_keys ? n->key_places : n->query_places, heads = of_keys ? n->kv_heads : n->heads;
  const long index = (long)get_group_id(0) / places, place = (long)get_group_id(0) % places;
  long x0, first, last;
  /* under a causal mask, those with most to do first */
  const attention_part part = part_at(cuts, of_keys, of_keys ? place : places - 1 - place, &x0);
  const long rows = of_keys ? part.keys : part.tokens, others = of_keys ? part.tokens : part.keys;
  if (x0 >= rows) return;
  const long b = index / heads, mine = index % heads, group = n->heads / n->kv_heads, kv = of_keys ? mine : mine / group;
  const long h0 = of_keys ? mine * group : mine, h1 = of_keys ? h0 + group : h0 + 1;
  const int count = rest_of(rows, x0, BLOCK), chunks = (int)((n->head_dim + CHUNK - 1) / CHUNK);
  const side keys = {rows_of(of->k, &n->k, b, kv, part.k0, part.step), rows_of(of->v, &n->v, b, kv, part.k0, part.step)};
  const head_rows to_a = of_keys ? rows_of(of->da, &n->dk, b, mine, part.k0, part.step)
                                 : rows_of(of->da, &n->dq, b, mine, part.q0, part.step);
  const head_rows to_b = rows_of(of->db, &n->dv, b, mine, part.k0, part.step);
  const band seen = band_of(&part, n, of_keys);
  range_of(seen, x0, count, others, &first, &last);
  for (int c0 = 0; c0 < chunks; c0 += KEPT) {
    vf sums_a[SUMS], sums_b[SUMS];
    for (int i = 0; i < SUMS; ++i) sums_a[i] = sums_b[i] = 0;
    for (long h = h0; h < h1; ++h) {
      const side queries = {rows_of(of->q, &n->q, b, h, part.q0, part.step),
                            rows_of(of->d_o, &n->d_o, b, h, part.q0, part.step)};
      const side x = of_keys ? keys : queries, y = of_keys ? queries : keys;
      for (long y0 = first; y0 < last; y0 += BLOCK) {
        const tile_mask mask = mask_of(seen, x0, y0, others);
        tile_sync();
        load_queries(w->queries, of, (b * n->heads + h) * n->tokens + part.q0 + (of_keys ? y0 : x0) * part.step, part.step,
                     of_keys ? mask.rows : count);
        multiply_heads(w->s, w, &y.a, y0, mask.rows, &x.a, x0, count, n->head_dim);
        multiply_heads(w->d, w, &y.b, y0, mask.rows, &x.b, x0, count, n->head_dim);
        tile_sync();
        differentiate(w, of_keys, n, &mask);
        gather_head(sums_a, w->d, w->ys, &y.a, y0, &mask, c0, chunks, n->head_dim);
        if (of_keys) gather_head(sums_b, w->s, w->ys, &y.b, y0, &mask, c0, chunks, n->head_dim);
      }
    }
    store_head(sums_a, &to_a, x0, count, c0, chunks, n->head_dim);
    if (of_keys) store_head(sums_b, &to_b, x0, count, c0, chunks, n->head_dim);
  }
}

#define WALK(name, of_keys)                                                                                            \
  __kernel void name(TENSOR(q), TENSOR(k), TENSOR(v), TENSOR(d_o), TENSOR(lse), TENSOR(delta), TENSOR(da), TENSOR(db), \
                     TENSOR(cu_q), TENSOR(cu_k), const attention_numbers n) {                                          \
    TILE_MEMORY float xs[CHUNK * PITCH], ys[CHUNK * PITCH], s[BLOCK * PITCH], d[BLOCK * PITCH];                        \
    TILE_MEMORY query_rows queries;                                                                                    \
    const tiles w = {xs, ys, s, d, &queries};                                                                          \
    const attention_cuts cuts = {memory_of(cu_q), memory_of(cu_k), &n};                                                \
    const tensors of = {memory_of(q),                                                                                  \
                        memory_of(k),                                                                                  \
                        memory_of(v),                                                                                  \
                        memory_of(d_o),                                                                                \
                        memory_of(da),                                                                                 \
                        memory_of(db),                                                                                 \
                        FLOATS_OF(lse),                                                                                \
                        FLOATS_OF(delta)};                                                                             \
    walk(of_keys, &of, &cuts, &w);                                                                                     \
  }
WALK(attention_bwd_keys, true)
WALK(attention_bwd_queries, false)

/* Lanes 0 .. n - 1. */
static inline vi lanes_below(long n) {
  int part[LANES];
  for (int j = 0; j < LANES; ++j) part[j] = j < n ? -1 : 0;
  return load_floats(0, part);
}

/* delta = do . o, [batch, heads, tokens]. */
__kernel void attention_bwd_delta(TENSOR(d_o), TENSOR(o), TENSOR(delta), const attention_numbers n) {
  ROOM
  for (long r = row_first(); r < n.batch * n.heads * n.tokens; r += row_step()) {
    const long t = r % n.tokens, h = r / n.tokens % n.heads, b = r / n.tokens / n.heads;
    const head_rows of_d_o = rows_of(memory_of(d_o), &n.d_o, b, h, t, 1);
    const head_rows of_o = rows_of(memory_of(o), &n.o, b, h, t, 1);
    vf sum = 0;
    FOR_ROW(i, left, n.head_dim) {
      sum = fma(load_n(of_d_o.data, of_d_o.at + i, T, left), load_n(of_o.data, of_o.at + i, T, left), sum);
    }
    const float all = row_sum(sum_of(sum));
    if (row_leads()) FLOATS_OF(delta)[r] = all;
  }
}

/* dsinks = -sum of exp(sink - lse) * delta over batches and queries, a row for a head; in two floats. */
__kernel void attention_bwd_sinks(TENSOR(sinks), TENSOR(lse), TENSOR(delta), TENSOR(dsinks), const attention_numbers n) {
  ROOM
  for (long h = row_first(); h < n.heads; h += row_step()) {
    const float sink = load_one(memory_of(sinks), h, n.sinks_dtype);
    vpair sum = {0, 0};
    for (long b = 0; b < n.batch; ++b) {
      const long first = (b * n.heads + h) * n.tokens;
      FOR_ROW(i, left, n.tokens) {
        const vf lse_of = load_n(memory_of(lse), first + i, F32, left);
        const vf delta_of = load_n(memory_of(delta), first + i, F32, left);
        vf weight = sink == INFINITY ? (vf)(1.0f) : exp_of(sink - lse_of);
        if (sink != INFINITY) weight = either(lse_of == -INFINITY, (vf)(0.0f), weight);
        weight = either(lanes_below(left), weight, (vf)(0.0f));
        sum = vpair_fma(sum, -weight, delta_of);
      }
    }
    const float all = pair_value(row_pair(pair_of(sum)));
    if (row_leads()) store_one(memory_of(dsinks), h, n.dsinks_dtype, all);
  }
}
