/* rope: a block is a run of tokens of one sequence, with all heads of q and k. Its cos and sin are widened once, in the
 * order in which the pairs of a head are loaded, and stay in the cache for all its heads. */
#include <math.h>
#include <string.h>

#include "cpu/kernels.h"
#include "cpu/pair.h"

enum { TOKENS = 16, PAIRS = 64 }; /* tokens and pairs of a block */

/* cos and sin of PAIRS pairs of a block's tokens. */
typedef struct tables {
  _Alignas(64) float cosine[TOKENS][PAIRS];
  _Alignas(64) float sine[TOKENS][PAIRS];
  int64_t at[TOKENS][TIGON_ROPE_AXES]; /* the token's row of each axis's table */
  bool legal[TOKENS];                  /* its positions are in range */
} tables;

typedef struct job {
  const tigon_rope_problem *p;
  int64_t blocks, tasks; /* blocks of a sequence, tasks of the call */
  float sign;            /* -1 turns back */
  bool stream;
} job;

/* ---- tables ---- */

TIGON_INLINE vf2 load_pairs(const void *data, int64_t i, tigon_dtype dtype, int n) {
  return (vf2){v_load_n(data, i, dtype, n < LANES ? n : LANES),
               v_load_n(data, i + LANES, dtype, n < LANES ? 0 : n - LANES)};
}

/* Pairs [first, first + count) of what are `count` elements at `from` of cos and of sin. */
TIGON_INLINE void widen(tigon_dtype table_dtype, const tigon_rope_problem *p, const void *cos, const void *sin,
                        int64_t from, int count, float sign, float *cosine, float *sine) {
  const tigon_dtype order = p->layout == TIGON_ROPE_HALF ? p->dtype : TIGON_F32;
  for (int i = 0; i < count; i += STEP) {
    const int n = count - i < STEP ? count - i : STEP;
    const vf2 c = v2_order(load_pairs(cos, from + i, table_dtype, n), order);
    const vf2 s = v2_order(load_pairs(sin, from + i, table_dtype, n), order);
    vf_store(cosine + i, c.a);
    vf_store(cosine + i + LANES, c.b);
    vf_store(sine + i, vf_mul(s.a, vf_set(sign)));
    vf_store(sine + i + LANES, vf_mul(s.b, vf_set(sign)));
  }
}

/* Pairs first, first + step, .. below end of one axis, whose column 0 is element `row` of the tables; pair `from` is
 * element 0 of cosine and sine. */
TIGON_INLINE void pick(tigon_dtype table_dtype, const tigon_rope_problem *p, int64_t row, tigon_rope_pairs of,
                       int64_t from, float *cosine, float *sine) {
  for (int64_t pair = of.first; pair < of.end; pair += of.step) {
    cosine[pair - from] = s_load(p->cos, row + pair * p->table_step, table_dtype);
    sine[pair - from] = s_load(p->sin, row + pair * p->table_step, table_dtype);
  }
}

/* The pairs of `of` in [first, end). */
static tigon_rope_pairs part_of(tigon_rope_pairs of, int64_t first, int64_t end) {
  const int64_t skipped = first > of.first ? (first - of.first + of.step - 1) / of.step : 0;
  return (tigon_rope_pairs){of.first + skipped * of.step, of.end < end ? of.end : end, of.step};
}

/* Pairs [first, first + count) of token i of a block. */
static void fill_tables(const job *j, tables *table, int i, int64_t first, int count) {
  const tigon_rope_problem *p = j->p;
  const int64_t *at = table->at[i];
  float *cosine = table->cosine[i], *sine = table->sine[i];
  if (p->axes == 1 && p->table_step == 1) {
    TIGON_FOR_DTYPE(p->table_dtype, widen, p, p->cos, p->sin, at[0] + first, count, j->sign, cosine, sine);
    return;
  }
  float c[PAIRS], s[PAIRS];
  for (int axis = 0; axis < p->axes; ++axis) {
    const tigon_rope_pairs all = {first, first + count, 1},
                           of = axis == 0 ? all : part_of(p->pairs_of[axis], first, first + count);
    TIGON_FOR_DTYPE(p->table_dtype, pick, p, at[axis], of, first, c, s);
  }
  widen(TIGON_F32, p, c, s, 0, count, j->sign, cosine, sine);
}

/* ---- one head of one token: (u, v) -> (u c - v s, v c + u s) ---- */

TIGON_INLINE vf turn_first(vf u, vf v, const float *c, const float *s) {
  return vf_fnma(v, vf_load(s), vf_mul(u, vf_load(c)));
}
TIGON_INLINE vf turn_second(vf u, vf v, const float *c, const float *s) {
  return vf_fma(u, vf_load(s), vf_mul(v, vf_load(c)));
}

/* Pairs (x[i], x[i + pairs]) for i in [first, first + count). */
TIGON_INLINE void turn_half(tigon_dtype dtype, const void *x, void *y, const float *c, const float *s, int64_t pairs,
                            int64_t first, int count, bool stream) {
  for (int i = 0; i < count; i += STEP) {
    const int n = count - i < STEP ? count - i : STEP;
    const vf2 u = v2_load(x, first + i, dtype, n), v = v2_load(x, pairs + first + i, dtype, n);
    const vf2 a = {turn_first(u.a, v.a, c + i, s + i), turn_first(u.b, v.b, c + i + LANES, s + i + LANES)};
    const vf2 b = {turn_second(u.a, v.a, c + i, s + i), turn_second(u.b, v.b, c + i + LANES, s + i + LANES)};
    v2_put(y, first + i, dtype, a, n, stream, V_ANY);
    v2_put(y, pairs + first + i, dtype, b, n, stream, V_ANY);
  }
}

/* Pairs (x[2 i], x[2 i + 1]) for i in [first, first + count). */
TIGON_INLINE void turn_interleaved(tigon_dtype dtype, const void *x, void *y, const float *c, const float *s,
                                   int64_t first, int count, bool stream) {
  for (int i = 0; i < count; i += LANES) {
    const int n = 2 * (count - i) < STEP ? 2 * (count - i) : STEP;
    const vf2 v = v2_even_odd(v2_load(x, 2 * (first + i), dtype, n), dtype);
    const vf2 out = {turn_first(v.a, v.b, c + i, s + i), turn_second(v.a, v.b, c + i, s + i)};
    v2_put(y, 2 * (first + i), dtype, v2_from_even_odd(out, dtype), n, stream, V_ANY);
  }
}

/* ---- a block ---- */

/* Written as NaN: the position is out of range. */
static void spoil(const tigon_rope_problem *p, void *y) {
  for (int64_t i = 0; i < p->head_dim; ++i) s_store(y, i, p->dtype, NAN);
}

/* Head h of token t0 + i for all heads and the block's tokens, in the order in which they lie in memory. */
TIGON_INLINE void turn_heads(tigon_dtype dtype, const job *j, const tables *table, const tigon_heads *in,
                             const tigon_heads *out, int64_t b, int64_t t0, int tokens, int64_t first, int count) {
  const tigon_rope_problem *p = j->p;
  const size_t size = (size_t)v_size(dtype), turned = size * (size_t)p->rotary_dim;
  const size_t rest = first == 0 ? size * (size_t)p->head_dim - turned : 0;
  const bool heads_inside = in->head_pitch <= in->token_pitch, in_place = in->data == out->data;
  const int64_t pairs = p->rotary_dim / 2, half = p->layout == TIGON_ROPE_HALF ? pairs * (int64_t)size : 0;
  for (int64_t n = 0; n < (heads_inside ? tokens : in->heads); ++n)
    for (int64_t m = 0; m < (heads_inside ? in->heads : tokens); ++m) {
      const int64_t i = heads_inside ? n : m, h = heads_inside ? m : n;
      const char *x = tigon_head(in, size, b, t0 + i, h);
      char *y = tigon_head(out, size, b, t0 + i, h);
      const bool stream = j->stream && !in_place && ((uintptr_t)y | (uintptr_t)half) % V_LINE == 0;
      if (!table->legal[i])
        spoil(p, y);
      else if (p->layout == TIGON_ROPE_HALF)
        turn_half(dtype, x, y, table->cosine[i], table->sine[i], pairs, first, count, stream);
      else
        turn_interleaved(dtype, x, y, table->cosine[i], table->sine[i], first, count, stream);
      if (table->legal[i] && rest && !in_place) memcpy(y + turned, x + turned, rest);
    }
}

/* The rows of token t of sequence b, the block's token i. */
static void find_rows(const tigon_rope_problem *p, int64_t b, int64_t t, tables *table, int i) {
  bool legal = true;
  for (int axis = 0; axis < p->axes; ++axis) {
    const int64_t id = axis * p->position_axis_pitch + b * p->position_pitch + t;
    const int64_t row = p->positions ? tigon_load_index(p->positions, id, p->position_dtype) : t;
    legal = legal && row >= 0 && row < p->table_rows;
    table->at[i][axis] = legal ? axis * p->table_axis_pitch + b * p->table_batch_pitch + row * p->table_pitch : 0;
  }
  table->legal[i] = legal;
  if (!legal && p->error_flag) __atomic_store_n(p->error_flag, 1, __ATOMIC_RELAXED);
}

static void turn_block(const job *j, int64_t b, int64_t t0, int tokens) {
  const tigon_rope_problem *p = j->p;
  const int64_t pairs = p->rotary_dim / 2;
  tables table;
  for (int i = 0; i < tokens; ++i) find_rows(p, b, t0 + i, &table, i);
  for (int64_t first = 0; first == 0 || first < pairs; first += PAIRS) {
    const int count = pairs - first < PAIRS ? (int)(pairs - first) : PAIRS;
    for (int i = 0; i < tokens; ++i)
      if (table.legal[i]) fill_tables(j, &table, i, first, count);
    TIGON_FOR_DTYPE(p->dtype, turn_heads, j, &table, &p->q, &p->q_out, b, t0, tokens, first, count);
    TIGON_FOR_DTYPE(p->dtype, turn_heads, j, &table, &p->k, &p->k_out, b, t0, tokens, first, count);
  }
  if (j->stream) vf_fence();
}

static void task(const void *argument, int64_t index) {
  const job *j = argument;
  const tigon_rope_problem *p = j->p;
  int64_t begin, end;
  tigon_range(p->batch * j->blocks, j->tasks, index, &begin, &end);
  for (int64_t block = begin; block < end; ++block) {
    const int64_t t0 = block % j->blocks * TOKENS;
    turn_block(j, block / j->blocks, t0, p->tokens - t0 < TOKENS ? (int)(p->tokens - t0) : TOKENS);
  }
}

static tigon_status run(const tigon_queue *queue, const tigon_rope_problem *p, float sign) {
  const int64_t token_bytes = 2 * (p->q.heads + p->k.heads) * p->head_dim * (int64_t)tigon_dtype_size(p->dtype);
  job j = {.p = p, .blocks = (p->tokens + TOKENS - 1) / TOKENS, .sign = sign};
  j.tasks = tigon_cpu_row_tasks(p->batch * j.blocks, token_bytes * TOKENS);
  j.stream = tigon_cpu_streams(p->batch * p->tokens * token_bytes);
  tigon_cpu_parallel(queue, j.tasks, task, &j);
  return TIGON_OK;
}

tigon_status TIGON_CPU(rope_fwd)(tigon_queue *queue, const tigon_rope_problem *p) { return run(queue, p, 1); }

tigon_status TIGON_CPU(rope_bwd)(tigon_queue *queue, const tigon_rope_problem *p) { return run(queue, p, -1); }
