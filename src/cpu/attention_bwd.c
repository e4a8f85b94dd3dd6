/* attention's backward. dk and dv are worked out by tiles of 64 keys, which lie across the lanes, over the queries that see them.
 * There are two ways to dq, with the same bits. In one pass, a task takes a whole key and value head and adds each tile's part
 * to dq. Where that gives the threads too few tasks, dq has a pass of its own by tiles of 64 queries, which works every score
 * out a second time. */
#include <math.h>
#include <string.h>

#include "cpu/attention.h"
#include "cpu/simd_math.h"

/* One task's tiles: 64 keys, or in dq's own pass 64 queries, across the lanes; the other side in rows. */
typedef struct scratch {
  block a[WIDE], b[WIDE];               /* k and v (q and do), transposed: [head_dim][lanes] */
  block da[WIDE], db[WIDE];             /* dk and dv (dq, unused), transposed */
  packed a_rows, b_rows;                /* q and do (k and v): [rows][head_dim] */
  packed lane_rows;                     /* k: [keys][head_dim] */
  packed sum;                           /* sums of dq: [queries][head_dim] */
  block p, ds;                          /* [rows][lanes]: exp(z - lse); scale * dz */
  float minus_lse[BLOCK], delta[BLOCK]; /* numbers of the tile's queries */
} scratch;

/* One task's place: query head h, key and value head kv, and the columns [d0, d1) of the outputs. */
typedef struct place {
  const tigon_attention_bwd_problem *p;
  int64_t b, h, kv, d0, d1;
  int64_t warm; /* rows below it were read lately */
  bool past;    /* outputs go past the caches */
} place;

/* q, o, do and dq; k, v, dk and dv. */
static bool past_caches(const tigon_attention_bwd_problem *p) {
  return tigon_cpu_streams(4 * p->batch * p->head_dim * v_size(p->dtype) *
                           (p->tokens * p->q.heads + p->keys * p->k.heads));
}

static source block_of(const place *at, const tigon_heads *heads, int64_t head, int64_t token, int rows, int64_t d) {
  return head_block(heads, at->p->dtype, at->b, token, head, rows, at->p->head_dim, d);
}

/* The next turn of up to WIDE blocks of the head; a place starts with none. */
static bool next_turn(place *at) {
  at->d0 = at->d1;
  at->d1 = at->p->head_dim - at->d0 < WIDE * BLOCK ? at->p->head_dim : at->d0 + WIDE * BLOCK;
  return at->d0 < at->p->head_dim;
}

/* ---- delta and lse ---- */

TIGON_INLINE void delta_rows(tigon_dtype dtype, const source *a, const source *b, int64_t cols, float *delta,
                             int64_t step) {
  for (int r = 0; r < a->rows; ++r) {
    const int64_t at_a = r * a->pitch, at_b = r * b->pitch;
    vf sum = vf_zero();
    int64_t c = 0;
    for (; c + LANES <= cols; c += LANES)
      sum = vf_fma(v_load(a->data, at_a + c, dtype), v_load(b->data, at_b + c, dtype), sum);
    const int n = (int)(cols - c);
    if (n > 0) sum = vf_fma(v_load_n(a->data, at_a + c, dtype, n), v_load_n(b->data, at_b + c, dtype, n), sum);
    delta[r * step] = vf_sum(sum);
  }
}

/* The place of query t0's value of head h in lse or delta; the next one's is `dilation` behind it. */
static int64_t query_at(const place *at, int64_t t0) {
  return (at->b * at->p->q.heads + at->h) * at->p->cuts.tokens + t0 * at->p->cuts.dilation;
}

static void make_delta(const place *at, int64_t t0) {
  const tigon_attention_bwd_problem *p = at->p;
  const int rows = block_count(p->tokens, t0);
  const source d_o = block_of(at, &p->d_o, at->h, t0, rows, 0), o = block_of(at, &p->o, at->h, t0, rows, 0);
  float *delta = p->delta + query_at(at, t0);
  TIGON_FOR_DTYPE(p->dtype, delta_rows, &d_o, &o, p->head_dim, delta, p->cuts.dilation);
}

/* lse, negative, and delta of the queries from t0. Where lse is -inf every z is, and z - inf makes p 0; so it does past the
 * last query. */
static void load_statistics(const place *at, int64_t t0, scratch *w) {
  const int count = block_count(at->p->tokens, t0);
  const float *lse = at->p->lse + query_at(at, t0), *delta = at->p->delta + query_at(at, t0);
  const int64_t step = at->p->cuts.dilation;
  for (int i = 0; i < BLOCK; ++i) {
    w->minus_lse[i] = i < count && lse[i * step] != -INFINITY ? -lse[i * step] : -INFINITY;
    w->delta[i] = i < count ? delta[i * step] : 0;
  }
}

/* ---- the products of a tile ---- */

/* One operand of the scores: which heads, and which of them. */
typedef struct side {
  const tigon_heads *heads;
  int64_t head;
} side;

/* s = rows . lanes over the whole head, for the groups of a tile. `lanes` holds the transposed side, unless the head is wider
 * than WIDE blocks: then it is transposed anew. `total` rows there are. */
static void score_tile(const place *at, const tile *t, const span *spans, side row, side lane, block *lanes,
                       int64_t total, packed *rows, float *s) {
  const bool again = at->p->head_dim > WIDE * BLOCK, cold = t->y0 + BLOCK >= at->warm && t->rows == BLOCK;
  for (int64_t d = 0; d < at->p->head_dim; d += BLOCK) {
    const source r = block_of(at, row.heads, row.head, t->y0, t->rows, d);
    const source l = block_of(at, lane.heads, lane.head, t->x0, t->lanes, d);
    float *to = lanes[again ? 0 : d / BLOCK];
    if (again) TIGON_CPU(attention_pack_transposed)(&l, to);
    TIGON_CPU(attention_pack)(&r, cold ? block_count(total, t->y0 + BLOCK) : 0, rows);
    for (int g = 0; g * GROUP < t->lanes; ++g) TIGON_CPU(attention_multiply)
    (rows->rows + spans[g].begin * BLOCK, to + g * GROUP, r.cols, s + spans[g].begin * BLOCK + g * GROUP, BLOCK,
     spans[g].end - spans[g].begin, d > 0);
  }
}

/* p = exp(z - lse), z of p by the map, and ds = p * (ds - delta) * the map's slope for a group; both 0 where a lane does not
 * see a row. Queries are lanes or, with `by_row`, rows. */
TIGON_INLINE void differentiate_rows(bool masked, bool capped, bool by_row, const tile *t, span s, int lane0,
                                     score_map map, scratch *w) {
  const edges e = group_edges(t, lane0);
  const vf times = vf_set(map.scale);
  for (int y = s.begin; y < s.end; ++y)
    for (int v = 0; v < VECTORS; ++v) {
      const int lane = lane0 + v * LANES;
      float *p = w->p + y * BLOCK + lane, *ds = w->ds + y * BLOCK + lane;
      const vf minus = by_row ? vf_set(w->minus_lse[y]) : vf_load(w->minus_lse + lane);
      const vf delta = by_row ? vf_set(w->delta[y]) : vf_load(w->delta + lane);
      vf steep = vf_set(1.0f), weight;
      if (capped)
        weight = vf_exp(vf_add(cap_scores(map, vf_mul(vf_load(p), times), &steep), minus));
      else
        weight = vf_exp(vf_fma(vf_load(p), times, minus));
      vf slope = vf_mul(vf_mul(weight, vf_sub(vf_load(ds), delta)), capped ? vf_mul(times, steep) : times);
      if (masked) weight = seen_or(&e, v, y, weight, vf_zero()), slope = seen_or(&e, v, y, slope, vf_zero());
      vf_store(p, weight);
      vf_store(ds, slope);
    }
}

TIGON_INLINE void differentiate(bool by_row, const tile *t, const span *spans, score_map map, scratch *w) {
  for (int g = 0; g * GROUP < t->lanes; ++g) {
    if (map.cap > 0)
      differentiate_rows(true, true, by_row, t, spans[g], g * GROUP, map, w);
    else if (spans[g].masked)
      differentiate_rows(true, false, by_row, t, spans[g], g * GROUP, map, w);
    else
      differentiate_rows(false, false, by_row, t, spans[g], g * GROUP, map, w);
  }
}

/* out [head_dim][lanes] += rows^T . s for the columns [d0, d1). A head of one block has its rows still packed. */
static void gather_tile(const place *at, const tile *t, const span *spans, side row, const float *s, packed *rows,
                        block *out) {
  for (int64_t d = at->d0; d < at->d1; d += BLOCK) {
    const source r = block_of(at, row.heads, row.head, t->y0, t->rows, d);
    if (at->p->head_dim > BLOCK) TIGON_CPU(attention_pack)(&r, 0, rows);
    for (int g = 0; g * GROUP < t->lanes; ++g) {
      const int lane0 = g * GROUP, cols = round_up(r.cols, UNIT), begin = spans[g].begin;
      float *to = out[(d - at->d0) / BLOCK] + lane0;
      if (spans[g].end == begin) continue;
      if (rows->finite || !spans[g].masked) TIGON_CPU(attention_multiply_transposed)
      (rows->rows + begin * BLOCK, s + begin * BLOCK + lane0, spans[g].end - begin, to, cols, NULL);
      else TIGON_CPU(attention_multiply_masked)(t, spans[g], lane0, rows->rows, s + lane0, to, cols, NULL);
    }
  }
}

/* The lanes of the tile that some row of [y, y + count) sees. */
static void rows_lanes(const tile *t, int y, int count, int *begin, int *end) {
  *begin = t->lanes, *end = 0;
  for (int row = y; row < y + count; ++row) {
    int first, last;
    row_lanes(t, row, &first, &last);
    if (first >= last) continue;
    *begin = first < *begin ? first : *begin;
    *end = last > *end ? last : *end;
  }
}

/* sum [rows][head_dim] += ds [rows][lanes] . lane_rows [lanes][head_dim], one block of columns: all rows at once, or unit by
 * unit when not every row sees every lane. */
static void scatter(const tile *t, bool masked, int cols, scratch *w, float *sum, int64_t pitch) {
  const int step = masked ? UNIT : round_up(t->rows, UNIT);
  for (int y = 0; y < t->rows; y += step) {
    int begin = 0, end = t->lanes;
    if (masked) rows_lanes(t, y, UNIT, &begin, &end);
    for (int c = 0; c < cols && begin < end; c += GROUP) TIGON_CPU(attention_multiply)
    (w->ds + y * BLOCK + begin, w->lane_rows.rows + begin * BLOCK + c, end - begin, sum + y * pitch + c, pitch, step,
     true);
  }
}

/* The same where lane_rows has an Inf or NaN that must not reach rows which do not see it: row by row. */
static void scatter_masked(const tile *t, int cols, scratch *w, float *sum) {
  for (int y = 0; y < t->rows; ++y) {
    int begin, end;
    row_lanes(t, y, &begin, &end);
    for (int c = 0; c < cols && begin < end; c += LANES) {
      vf part = vf_zero();
      for (int x = begin; x < end; ++x)
        part = vf_fma(vf_set(w->ds[y * BLOCK + x]), vf_load(w->lane_rows.rows + x * BLOCK + c), part);
      vf_store(sum + y * BLOCK + c, vf_add(vf_load(sum + y * BLOCK + c), part));
    }
  }
}

/* sums [queries][head_dim] += ds . k for the columns [d0, d1), in place where whole vectors and units fit. */
static void scatter_tile(const place *at, const tile *t, const span *spans, const tigon_heads *sums, scratch *w) {
  bool masked = false;
  for (int g = 0; g * GROUP < t->lanes; ++g) masked = masked || spans[g].masked || spans[g].begin == spans[g].end;
  for (int64_t d = at->d0; d < at->d1; d += BLOCK) {
    const source s = head_block(sums, TIGON_F32, at->b, t->y0, at->h, t->rows, at->p->head_dim, d);
    if (at->p->head_dim > BLOCK) {
      const source k = block_of(at, &at->p->k, at->kv, t->x0, t->lanes, d);
      TIGON_CPU(attention_pack)(&k, 0, &w->lane_rows);
    }
    const bool fast = w->lane_rows.finite || !masked;
    if (fast && s.cols % GROUP == 0 && s.rows % UNIT == 0) {
      scatter(t, masked, s.cols, w, s.data, s.pitch);
      continue;
    }
    TIGON_CPU(attention_pack)(&s, 0, &w->sum);
    if (fast)
      scatter(t, masked, s.cols, w, w->sum.rows, BLOCK);
    else
      scatter_masked(t, s.cols, w, w->sum.rows);
    TIGON_CPU(attention_unpack)(w->sum.rows, &s);
  }
}

/* ---- dk and dv by tiles of keys ---- */

static void load_lanes(const place *at, side a, side b, int64_t x0, int lanes, scratch *w) {
  for (int64_t d = 0; d < at->p->head_dim && at->p->head_dim <= WIDE * BLOCK; d += BLOCK) {
    const source to_a = block_of(at, a.heads, a.head, x0, lanes, d), to_b = block_of(at, b.heads, b.head, x0, lanes, d);
    TIGON_CPU(attention_pack_transposed)(&to_a, w->a[d / BLOCK]);
    TIGON_CPU(attention_pack_transposed)(&to_b, w->b[d / BLOCK]);
  }
}

static void clear_blocks(const place *at, block *blocks) {
  memset(blocks, 0, (size_t)((at->d1 - at->d0 + BLOCK - 1) / BLOCK) * sizeof *blocks);
}

static void store_blocks(const place *at, const tigon_heads *heads, int64_t head, int64_t x0, int lanes,
                         block *blocks) {
  for (int64_t d = at->d0; d < at->d1; d += BLOCK) {
    const source to = block_of(at, heads, head, x0, lanes, d);
    TIGON_CPU(attention_unpack_transposed)(blocks[(d - at->d0) / BLOCK], &to, NULL, at->past);
  }
}

/* The part of dk and dv, and of dq when `dq` is there, that a tile's scores give. */
static void key_tile(const place *at, const tile *t, const tigon_heads *dq, scratch *w) {
  const tigon_attention_bwd_problem *p = at->p;
  const side k = {&p->k, at->kv}, v = {&p->v, at->kv}, q = {&p->q, at->h}, d_o = {&p->d_o, at->h};
  span spans[BLOCK / GROUP];
  for (int g = 0; g * GROUP < t->lanes; ++g) spans[g] = group_span(t, g * GROUP);
  load_statistics(at, t->y0, w);
  score_tile(at, t, spans, q, k, w->a, p->tokens, &w->a_rows, w->p);
  score_tile(at, t, spans, d_o, v, w->b, p->tokens, &w->b_rows, w->ds);
  differentiate(true, t, spans, score_map_of(p->scale, p->softcap), w);
  gather_tile(at, t, spans, d_o, w->p, &w->b_rows, w->db);
  gather_tile(at, t, spans, q, w->ds, &w->a_rows, w->da);
  if (dq) scatter_tile(at, t, spans, dq, w);
}

/* dk and dv of the 64 keys at j0, from the query heads of the group in order. Returns one past the last query read. */
static int64_t key_block(place *at, int64_t j0, const tigon_heads *dq, scratch *w) {
  const tigon_attention_bwd_problem *p = at->p;
  const int64_t group = p->q.heads / p->k.heads;
  const band seen = band_mirrored(band_of(p->tokens, p->keys, p->causal, p->window));
  const int lanes = block_count(p->keys, j0);
  int64_t begin, end;
  tile_range(seen, j0, lanes, p->tokens, &begin, &end);
  load_lanes(at, (side){&p->k, at->kv}, (side){&p->v, at->kv}, j0, lanes, w);
  const source k = block_of(at, &p->k, at->kv, j0, lanes, 0);
  if (dq && p->head_dim <= BLOCK) TIGON_CPU(attention_pack)(&k, 0, &w->lane_rows);
  clear_blocks(at, w->da);
  clear_blocks(at, w->db);
  for (at->h = at->kv * group; at->h < (at->kv + 1) * group; ++at->h)
    for (int64_t y0 = begin; y0 < end; y0 += BLOCK) {
      const tile t = {.seen = seen, .x0 = j0, .y0 = y0, .lanes = lanes, .rows = block_count(p->tokens, y0)};
      key_tile(at, &t, dq, w);
    }
  store_blocks(at, &p->dk, at->kv, j0, lanes, w->da);
  store_blocks(at, &p->dv, at->kv, j0, lanes, w->db);
  return end;
}

/* ---- parts ---- */

static tigon_attention_bwd_problem part_of(const tigon_attention_bwd_problem *p, const tigon_attention_part *part) {
  const int64_t q0 = part->q0, k0 = part->k0, step = part->step;
  tigon_attention_bwd_problem n = *p;
  n.tokens = part->tokens, n.keys = part->keys;
  n.q = narrowed(p->q, p->dtype, q0, step), n.o = narrowed(p->o, p->dtype, q0, step);
  n.d_o = narrowed(p->d_o, p->dtype, q0, step), n.dq = narrowed(p->dq, p->dtype, q0, step);
  n.k = narrowed(p->k, p->dtype, k0, step), n.v = narrowed(p->v, p->dtype, k0, step);
  n.dk = narrowed(p->dk, p->dtype, k0, step), n.dv = narrowed(p->dv, p->dtype, k0, step);
  n.lse += q0, n.delta += q0;
  return n;
}

/* ---- one pass ---- */

typedef struct one_pass {
  const tigon_attention_bwd_problem *p;
  tigon_heads dq; /* f32 */
} one_pass;

/* A part's dq, f32, dk and dv of one head of keys; `p` is narrowed to it. */
static void one_pass_part(const tigon_attention_bwd_problem *p, const tigon_heads *dq, place at, scratch *w) {
  const int64_t group = p->q.heads / p->k.heads;
  at.p = p;
  for (at.h = at.kv * group; at.h < (at.kv + 1) * group; ++at.h)
    for (int64_t t = 0; t < p->tokens; ++t) {
      if (t % BLOCK == 0) make_delta(&at, t);
      memset(tigon_head(dq, sizeof(float), at.b, t, at.h), 0, (size_t)p->head_dim * sizeof(float));
    }
  while (next_turn(&at))
    for (int64_t j0 = 0; j0 < p->keys; j0 += BLOCK) {
      const int64_t end = key_block(&at, j0, dq, w);
      at.warm = end > at.warm ? end : at.warm;
    }
  if (!p->own) return;
  for (at.h = at.kv * group; at.h < (at.kv + 1) * group; ++at.h)
    for (int64_t t = 0; t < p->tokens; t += BLOCK)
      for (int64_t d = 0; d < p->head_dim; d += BLOCK) {
        const source to = block_of(&at, &p->dq, at.h, t, block_count(p->tokens, t), d);
        const source from = head_block(dq, TIGON_F32, at.b, t, at.h, to.rows, p->head_dim, d);
        TIGON_CPU(attention_pack)(&from, 0, &w->sum);
        TIGON_CPU(attention_unpack)(w->sum.rows, &to);
      }
}

static void one_pass_task(const void *argument, int64_t index) {
  const one_pass *o = argument;
  const tigon_attention_bwd_problem *p = o->p;
  const place at = {.b = index / p->k.heads, .kv = index % p->k.heads, .past = past_caches(p)};
  _Alignas(64) scratch w;
  for (int64_t s = 0; s < tigon_attention_segments(&p->cuts); ++s)
    for (int64_t r = 0; r < p->cuts.dilation; ++r) {
      const tigon_attention_part part = tigon_attention_part_of(&p->cuts, s, r);
      const tigon_attention_bwd_problem own = part_of(p, &part);
      const tigon_heads dq = narrowed(o->dq, TIGON_F32, part.q0, part.step);
      one_pass_part(&own, &dq, at, &w);
    }
}

/* ---- two passes ---- */

/* dq of 64 queries: queries are lanes. */
static void query_task(const void *argument, int64_t index) {
  const tigon_attention_bwd_problem *whole = argument;
  const int64_t places = tigon_attention_places(&whole->cuts, false, BLOCK), head = index / places;
  int64_t t0;
  tigon_attention_part part;
  if (!find_rows(&whole->cuts, false, places - 1 - index % places, &part, &t0)) return;
  const tigon_attention_bwd_problem own = part_of(whole, &part), *p = &own;
  const band seen = band_of(p->tokens, p->keys, p->causal, p->window);
  const int lanes = block_count(p->tokens, t0);
  place at = {.p = p,
              .b = head / p->q.heads,
              .h = head % p->q.heads,
              .warm = t0 + BLOCK < p->tokens ? p->keys : 0,
              .past = past_caches(whole)};
  at.kv = at.h / (p->q.heads / p->k.heads);
  const side k = {&p->k, at.kv}, v = {&p->v, at.kv}, q = {&p->q, at.h}, d_o = {&p->d_o, at.h};
  _Alignas(64) scratch w;
  make_delta(&at, t0);
  load_statistics(&at, t0, &w);
  load_lanes(&at, q, d_o, t0, lanes, &w);
  int64_t begin, end;
  tile_range(seen, t0, lanes, p->keys, &begin, &end);
  while (next_turn(&at)) {
    clear_blocks(&at, w.da);
    for (int64_t y0 = begin; y0 < end; y0 += BLOCK) {
      const tile t = {.seen = seen, .x0 = t0, .y0 = y0, .lanes = lanes, .rows = block_count(p->keys, y0)};
      span spans[BLOCK / GROUP];
      for (int g = 0; g * GROUP < lanes; ++g) spans[g] = group_span(&t, g * GROUP);
      score_tile(&at, &t, spans, k, q, w.a, p->keys, &w.a_rows, w.p);
      score_tile(&at, &t, spans, v, d_o, w.b, p->keys, &w.b_rows, w.ds);
      differentiate(false, &t, spans, score_map_of(p->scale, p->softcap), &w);
      gather_tile(&at, &t, spans, k, w.ds, &w.a_rows, w.da);
    }
    store_blocks(&at, &p->dq, at.h, t0, lanes, w.da);
  }
}

static void key_task(const void *argument, int64_t index) {
  const tigon_attention_bwd_problem *whole = argument;
  const int64_t places = tigon_attention_places(&whole->cuts, true, BLOCK), head = index / places;
  int64_t j0;
  tigon_attention_part part;
  if (!find_rows(&whole->cuts, true, index % places, &part, &j0)) return;
  const tigon_attention_bwd_problem own = part_of(whole, &part), *p = &own;
  place at = {.p = p,
              .b = head / p->k.heads,
              .kv = head % p->k.heads,
              .warm = j0 > 0 ? p->tokens : 0,
              .past = past_caches(whole)};
  _Alignas(64) scratch w;
  while (next_turn(&at)) key_block(&at, j0, NULL, &w);
}

/* ---- sinks ---- */

static void sink_task(const void *argument, int64_t h) {
  const tigon_attention_bwd_problem *p = argument;
  const float sink = s_load(p->sinks.data, h, p->sinks.dtype);
  double sum = 0;
  for (int64_t b = 0; b < p->batch; ++b) {
    const int64_t first = query_at(&(place){.p = p, .b = b, .h = h}, 0);
    for (int64_t at = first; at < first + p->tokens; ++at) {
      const float lse = p->lse[at], weight = sink == INFINITY ? 1 : lse == -INFINITY ? 0 : expf(sink - lse);
      sum -= (double)(weight * p->delta[at]);
    }
  }
  s_store(p->dsinks.data, h, p->dsinks.dtype, (float)sum);
}

static void find_gradients(tigon_queue *queue, const tigon_attention_bwd_problem *p) {
  const int64_t heads = p->batch * p->k.heads, threads = queue->threads;
  one_pass o = {.p = p, .dq = p->dq};
  if (p->own)
    o.dq =
        (tigon_heads){p->own, p->q.heads, p->q.heads * p->tokens * p->head_dim, p->head_dim, p->tokens * p->head_dim};
  /* Five products a score in one pass against seven in two. */
  if (5 * ((heads + threads - 1) / threads) * threads <= 7 * heads) {
    tigon_cpu_parallel(queue, heads, one_pass_task, &o);
    return;
  }
  const tigon_attention_cuts *c = &p->cuts;
  tigon_cpu_parallel(queue, p->batch * p->q.heads * tigon_attention_places(c, false, BLOCK), query_task, p);
  tigon_cpu_parallel(queue, heads * tigon_attention_places(c, true, BLOCK), key_task, p);
}

/* delta and, where the dtype is narrow, dq in f32: [batch, q.heads, tokens, head_dim]. */
int64_t TIGON_CPU(attention_bwd_bytes)(tigon_queue *queue, const tigon_attention_bwd_problem *p) {
  (void)queue;
  const int64_t queries = p->batch * p->q.heads * p->tokens;
  return tigon_pad(4 * queries) + (p->dtype == TIGON_F32 ? 0 : tigon_pad(4 * queries * p->head_dim));
}

tigon_status TIGON_CPU(attention_bwd)(tigon_queue *queue, const tigon_attention_bwd_problem *p) {
  find_gradients(queue, p); /* and delta */
  if (p->dsinks.data) tigon_cpu_parallel(queue, p->q.heads, sink_task, p);
  return TIGON_OK;
}
