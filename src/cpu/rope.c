/* rope: a task is a run of tokens, all heads of q and k; a token's cos and sin stay in the cache for its heads. */
#include <math.h>
#include <string.h>

#include "cpu/kernels.h"

/* (u, v) -> (u c - v s, v c + u s) for the pairs of one head; sign -1 turns back. */
TIGON_INLINE void turn_half(tigon_dtype dtype, tigon_dtype table_dtype, const void *x, void *y, const void *cosine,
                            const void *sine, int64_t table, int64_t pairs, float sign) {
  for (int64_t i = 0; i < pairs; i += LANES) {
    const int n = pairs - i >= LANES ? LANES : (int)(pairs - i);
    const vf c = v_load_n(cosine, table + i, table_dtype, n);
    const vf s = vf_mul(v_load_n(sine, table + i, table_dtype, n), vf_set(sign));
    const vf u = v_load_n(x, i, dtype, n), v = v_load_n(x, i + pairs, dtype, n);
    v_store_n(y, i, dtype, vf_fnma(v, s, vf_mul(u, c)), n);
    v_store_n(y, i + pairs, dtype, vf_fma(u, s, vf_mul(v, c)), n);
  }
}

TIGON_INLINE void turn_interleaved(tigon_dtype dtype, tigon_dtype table_dtype, const void *x, void *y, const void *cosine,
                                   const void *sine, int64_t table, int64_t pairs, float sign) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float c = s_load(cosine, table + i, table_dtype), s = sign * s_load(sine, table + i, table_dtype);
    const float u = s_load(x, 2 * i, dtype), v = s_load(x, 2 * i + 1, dtype);
    s_store(y, 2 * i, dtype, u * c - v * s);
    s_store(y, 2 * i + 1, dtype, v * c + u * s);
  }
}

TIGON_INLINE void turn_heads(tigon_dtype dtype, const tigon_rope_problem *p, const tigon_heads *in, const tigon_heads *out,
                             int64_t b, int64_t t, int64_t at, float sign) {
  const size_t size = tigon_dtype_size(dtype);
  const int64_t table = b * p->table_batch_pitch + at * p->table_pitch, pairs = p->rotary_dim / 2;
  const size_t rest = size * (size_t)(p->head_dim - p->rotary_dim), turned = size * (size_t)p->rotary_dim;
  for (int64_t h = 0; h < in->heads; ++h) {
    const char *x = tigon_head(in, size, b, t, h);
    char *y = tigon_head(out, size, b, t, h);
    if (p->layout == TIGON_ROPE_INTERLEAVED)
      turn_interleaved(dtype, p->table_dtype, x, y, p->cos, p->sin, table, pairs, sign);
    else if (p->table_dtype == TIGON_F32)
      turn_half(dtype, TIGON_F32, x, y, p->cos, p->sin, table, pairs, sign);
    else
      turn_half(dtype, dtype, x, y, p->cos, p->sin, table, pairs, sign);
    if (rest && x != y) memcpy(y + turned, x + turned, rest);
  }
}

/* A token whose position is out of range is written as NaN. */
static void spoil_heads(const tigon_rope_problem *p, const tigon_heads *out, int64_t b, int64_t t) {
  for (int64_t h = 0; h < out->heads; ++h)
    for (int64_t i = 0; i < p->head_dim; ++i)
      s_store(tigon_head(out, tigon_dtype_size(p->dtype), b, t, h), i, p->dtype, NAN);
}

typedef struct job {
  const tigon_rope_problem *p;
  int64_t tasks;
  float sign;
} job;

static void task(const void *argument, int64_t index) {
  const job *j = argument;
  const tigon_rope_problem *p = j->p;
  int64_t begin, end;
  tigon_plan_range(p->batch * p->tokens, j->tasks, index, &begin, &end);
  for (int64_t r = begin; r < end; ++r) {
    const int64_t b = r / p->tokens, t = r % p->tokens;
    const int64_t at = p->positions ? tigon_load_index(p->positions, b * p->position_pitch + t, p->position_dtype) : t;
    if (at < 0 || at >= p->table_rows) {
      if (p->error_flag) __atomic_store_n(p->error_flag, 1, __ATOMIC_RELAXED);
      spoil_heads(p, &p->q_out, b, t);
      spoil_heads(p, &p->k_out, b, t);
      continue;
    }
    TIGON_FOR_DTYPE(p->dtype, turn_heads, p, &p->q, &p->q_out, b, t, at, j->sign);
    TIGON_FOR_DTYPE(p->dtype, turn_heads, p, &p->k, &p->k_out, b, t, at, j->sign);
  }
}

static tigon_status run(const tigon_queue *queue, const tigon_rope_problem *p, float sign) {
  const int64_t token_bytes = (p->q.heads + p->k.heads) * p->head_dim * (int64_t)tigon_dtype_size(p->dtype);
  const job j = {p, tigon_cpu_row_tasks(p->batch * p->tokens, token_bytes), sign};
  tigon_cpu_parallel(queue, j.tasks, task, &j);
  return TIGON_OK;
}

tigon_status TIGON_CPU(rope_fwd)(tigon_queue *queue, const tigon_rope_problem *p, const tigon_plan *plan) {
  (void)plan;
  return run(queue, p, 1);
}

tigon_status TIGON_CPU(rope_bwd)(tigon_queue *queue, const tigon_rope_problem *p, const tigon_plan *plan) {
  (void)plan;
  return run(queue, p, -1);
}
