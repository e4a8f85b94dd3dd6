#include <math.h>
#include <string.h>

#include "cpu/attention.h"
#include "cpu/simd_math.h"

/* One task: 64 queries of a head, against all the keys that they see. */
typedef struct scratch {
  block q[WIDE];                /* transposed: [head_dim][queries] */
  block o[WIDE];                /* transposed: [head_dim][queries], times exp(lse - max) */
  packed rows;                  /* rows of k, then of v: [keys][head_dim] */
  block p;                      /* [keys][queries]: q . k, then exp(z - max) */
  float max[BLOCK], sum[BLOCK]; /* per query, over the keys so far */
  float factor[BLOCK];
} scratch;

/* The online softmax of a group's scores: p = exp(z - max), z of p by the map, and what to multiply earlier sums by. */
TIGON_INLINE void soften_rows(bool masked, bool capped, const tile *t, span s, int lane0, score_map map, scratch *w) {
  const edges e = group_edges(t, lane0);
  const vf times = vf_set(map.scale), lowest = vf_set(-INFINITY);
  float *p = w->p + lane0;
  vf max[VECTORS], minus[VECTORS], sum[VECTORS];
  for (int v = 0; v < VECTORS; ++v) max[v] = vf_load(w->max + lane0 + v * LANES);
  for (int y = s.begin; y < s.end; ++y)
    for (int v = 0; v < VECTORS; ++v) {
      float *at = p + y * BLOCK + v * LANES;
      vf z = vf_mul(vf_load(at), times), slope;
      if (capped) vf_store(at, z = cap_scores(map, z, &slope));
      if (masked) z = seen_or(&e, v, y, z, lowest);
      max[v] = vf_max(z, max[v]); /* passes over NaN, which exp(z - max) brings back */
    }
  for (int v = 0; v < VECTORS; ++v) {
    const int at = lane0 + v * LANES;
    minus[v] = vf_sub(vf_zero(), vf_select(vf_eq(max[v], lowest), vf_zero(), max[v]));
    sum[v] = vf_zero();
    vf_store(w->factor + at, vf_exp(vf_add(vf_load(w->max + at), minus[v])));
    vf_store(w->max + at, max[v]);
  }
  for (int y = s.begin; y < s.end; ++y)
    for (int v = 0; v < VECTORS; ++v) {
      float *at = p + y * BLOCK + v * LANES;
      /* Rounded as max was: of the largest score, nothing is left, however large it is. */
      const vf z = capped ? vf_load(at) : vf_mul(vf_load(at), times);
      vf weight = vf_exp(vf_add(z, minus[v]));
      if (masked) weight = seen_or(&e, v, y, weight, vf_zero());
      vf_store(at, weight);
      sum[v] = vf_add(sum[v], weight);
    }
  for (int v = 0; v < VECTORS; ++v) {
    const int at = lane0 + v * LANES;
    vf_store(w->sum + at, vf_fma(vf_load(w->sum + at), vf_load(w->factor + at), sum[v]));
  }
}

static void soften(const tile *t, span s, int lane0, score_map map, scratch *w) {
  if (map.cap > 0)
    soften_rows(true, true, t, s, lane0, map, w);
  else if (s.masked)
    soften_rows(true, false, t, s, lane0, map, w);
  else
    soften_rows(false, false, t, s, lane0, map, w);
}

/* A head's sink joins the sums of a query. Returns what o is multiplied by. */
static float join_sink(float sink, float *max, float *sum) {
  const float top = fmaxf(*max, sink), base = top == -INFINITY ? 0 : top; /* a NaN comes back from own */
  const float own = sink == INFINITY ? 1 : expf(sink - base), rest = expf(*max - base);
  *sum = *sum * rest + own;
  *max = top;
  return *sum == 0 ? 0 : rest / *sum;
}

/* One task's place in the problem. */
typedef struct place {
  const tigon_attention_fwd_problem *p;
  int64_t b, h, t0;
  int lanes;
} place;

static source query_block(const place *at, int64_t d0) {
  return head_block(&at->p->q, at->p->dtype, at->b, at->t0, at->h, at->lanes, at->p->head_dim, d0);
}

static source output_block(const place *at, int64_t d0) {
  return head_block(&at->p->o, at->p->dtype, at->b, at->t0, at->h, at->lanes, at->p->head_dim, d0);
}

static source key_block(const place *at, const tigon_heads *heads, const tile *t, int64_t d0) {
  const int64_t kv = at->h / (at->p->q.heads / at->p->k.heads);
  return head_block(heads, at->p->dtype, at->b, t->y0, kv, t->rows, at->p->head_dim, d0);
}

/* Keys of the tile after this one, when nobody has read them lately: in the first task of a head. */
static int cold_keys(const place *at, const tile *t) {
  return at->t0 + at->lanes == at->p->tokens && t->rows == BLOCK ? block_count(at->p->keys, t->y0 + BLOCK) : 0;
}

/* p = q . k for all groups of a tile. A head of more than WIDE blocks has its queries transposed anew. */
static void score_tile(const place *at, const tile *t, const span *spans, scratch *w) {
  const int64_t head_dim = at->p->head_dim;
  for (int64_t d0 = 0; d0 < head_dim; d0 += BLOCK) {
    const source k = key_block(at, &at->p->k, t, d0), q = query_block(at, d0);
    const bool again = head_dim > WIDE * BLOCK;
    float *lanes = w->q[again ? 0 : d0 / BLOCK];
    if (again) TIGON_CPU(attention_pack_transposed)(&q, lanes);
    TIGON_CPU(attention_pack)(&k, cold_keys(at, t), &w->rows);
    for (int g = 0; g * GROUP < t->lanes; ++g) TIGON_CPU(attention_multiply)
    (w->rows.rows + spans[g].begin * BLOCK, lanes + g * GROUP, k.cols, w->p + spans[g].begin * BLOCK + g * GROUP, BLOCK,
     spans[g].end - spans[g].begin, d0 > 0);
  }
}

/* o = o * factor + p . v for the columns [d0, d1) of the head. */
static void weigh_tile(const place *at, const tile *t, const span *spans, int64_t d0, int64_t d1, scratch *w) {
  for (int64_t d = d0; d < d1; d += BLOCK) {
    const source v = key_block(at, &at->p->v, t, d);
    TIGON_CPU(attention_pack)(&v, cold_keys(at, t), &w->rows);
    float *o = w->o[(d - d0) / BLOCK];
    for (int g = 0; g * GROUP < t->lanes; ++g) {
      const int lane0 = g * GROUP, cols = round_up(v.cols, UNIT);
      const span s = spans[g];
      if (s.begin == s.end) continue;
      if (w->rows.finite || !s.masked) TIGON_CPU(attention_multiply_transposed)
      (w->rows.rows + s.begin * BLOCK, w->p + s.begin * BLOCK + lane0, s.end - s.begin, o + lane0, cols,
       w->factor + lane0);
      else TIGON_CPU(attention_multiply_masked)(t, s, lane0, w->rows.rows, w->p + lane0, o + lane0, cols,
                                                w->factor + lane0);
    }
  }
}

/* Columns [d0, d1) of o for 64 queries, and lse with the first of them. */
static void query_task(const place *at, int64_t d0, int64_t d1, scratch *w) {
  const tigon_attention_fwd_problem *p = at->p;
  const band seen = band_of(p->tokens, p->keys, p->causal, p->window);
  const score_map map = score_map_of(p->scale, p->softcap);
  const bool past = tigon_cpu_streams(2 * p->batch * p->head_dim * v_size(p->dtype) *
                                      (p->cuts.tokens * p->q.heads + p->cuts.keys * p->k.heads)); /* q, o; k, v */
  for (int64_t d = 0; d < p->head_dim && p->head_dim <= WIDE * BLOCK; d += BLOCK) {
    const source q = query_block(at, d);
    TIGON_CPU(attention_pack_transposed)(&q, w->q[d / BLOCK]);
  }
  for (int64_t d = d0; d < d1 && !past; d += BLOCK) {
    const source o = output_block(at, d);
    prefetch_rows(&o, 0, at->lanes);
  }
  for (int i = 0; i < BLOCK; ++i) w->max[i] = -INFINITY, w->sum[i] = 0;
  memset(w->o, 0, (size_t)((d1 - d0 + BLOCK - 1) / BLOCK) * sizeof w->o[0]);

  int64_t begin, end;
  tile_range(seen, at->t0, at->lanes, p->keys, &begin, &end);
  for (int64_t y0 = begin; y0 < end; y0 += BLOCK) {
    const tile t = {.seen = seen, .x0 = at->t0, .y0 = y0, .lanes = at->lanes, .rows = block_count(p->keys, y0)};
    span spans[BLOCK / GROUP];
    for (int g = 0; g * GROUP < t.lanes; ++g) spans[g] = group_span(&t, g * GROUP);
    score_tile(at, &t, spans, w);
    for (int g = 0; g * GROUP < t.lanes; ++g)
      if (spans[g].begin < spans[g].end) soften(&t, spans[g], g * GROUP, map, w);
    weigh_tile(at, &t, spans, d0, d1, w);
  }

  if (p->sinks.data) {
    const float sink = s_load(p->sinks.data, at->h, p->sinks.dtype);
    for (int i = 0; i < BLOCK; ++i) w->factor[i] = join_sink(sink, &w->max[i], &w->sum[i]);
  } else {
    for (int i = 0; i < BLOCK; ++i) w->factor[i] = w->sum[i] == 0 ? 0 : 1 / w->sum[i];
  }
  for (int64_t d = d0; d < d1; d += BLOCK) {
    const source o = output_block(at, d);
    TIGON_CPU(attention_unpack_transposed)(w->o[(d - d0) / BLOCK], &o, w->factor, past);
  }
  if (!p->lse || d0 > 0) return;
  const int64_t step = p->cuts.dilation;
  float *lse = p->lse + (at->b * p->q.heads + at->h) * p->cuts.tokens + at->t0 * step;
  for (int i = 0; i < at->lanes; ++i) lse[i * step] = w->sum[i] == 0 ? -INFINITY : w->max[i] + logf(w->sum[i]);
}

static tigon_attention_fwd_problem part_of(const tigon_attention_fwd_problem *p, const tigon_attention_part *part) {
  tigon_attention_fwd_problem n = *p;
  n.tokens = part->tokens, n.keys = part->keys;
  n.q = narrowed(p->q, p->dtype, part->q0, part->step), n.o = narrowed(p->o, p->dtype, part->q0, part->step);
  n.k = narrowed(p->k, p->dtype, part->k0, part->step), n.v = narrowed(p->v, p->dtype, part->k0, part->step);
  if (p->lse) n.lse += part->q0;
  return n;
}

/* The tiles of a head one after the other, so that they find its keys in the cache; late queries first, which under a causal
 * mask see more keys. */
static void task(const void *argument, int64_t index) {
  const tigon_attention_fwd_problem *p = argument;
  const int64_t places = tigon_attention_places(&p->cuts, false, BLOCK), head = index / places;
  int64_t t0;
  tigon_attention_part part;
  if (!find_rows(&p->cuts, false, places - 1 - index % places, &part, &t0)) return;
  const tigon_attention_fwd_problem own = part_of(p, &part);
  const place at = {
      .p = &own, .b = head / p->q.heads, .h = head % p->q.heads, .t0 = t0, .lanes = block_count(part.tokens, t0)};
  _Alignas(64) scratch w;
  for (int64_t d0 = 0; d0 < p->head_dim; d0 += WIDE * BLOCK) {
    const int64_t d1 = p->head_dim - d0 < WIDE * BLOCK ? p->head_dim : d0 + WIDE * BLOCK;
    query_task(&at, d0, d1, &w);
  }
}

tigon_status TIGON_CPU(attention_fwd)(tigon_queue *queue, const tigon_attention_fwd_problem *p) {
  tigon_cpu_parallel(queue, p->batch * p->q.heads * tigon_attention_places(&p->cuts, false, BLOCK), task, p);
  return TIGON_OK;
}
