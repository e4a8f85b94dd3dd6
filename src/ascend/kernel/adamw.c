/* adamw: m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2, p -= lr weight_decay p + rate m / (sqrt(v) root + eps), with
 * g = clip_factor * grad. And the global norm of the gradients: each core adds up the squares of its tiles, and one block joins
 * what the cores found, in their order. */
#include "ascend/kernel/adamw.h"

#include "ascend/kernel/scalar.h"

/* ---- the list ---- */

typedef struct place {
  const adamw_tensor *tensor;
  int64_t begin, count; /* elements of a tile */
} place;

/* Tile `index` of the list. */
AICORE place place_of(const adamw_list *list, int64_t index) {
  const adamw_tensor *t = list->of;
  for (int64_t tiles; tiles = (t->count + list->tile - 1) / list->tile, index >= tiles; ++t) index -= tiles;
  return (place){t, index * list->tile, least(list->tile, t->count - index * list->tile)};
}

/* ---- step ---- */

enum { IN_VALUE, IN_GRAD, IN_M, IN_V, INPUTS }; /* arrays of a tile */
enum { OUT_VALUE, OUT_M, OUT_V, OUT_PARAM, OUTPUTS };

typedef struct step_state {
  const adamw_step_arguments *a;
  ring in, out;
  ub_f32 grad, move;
  float clip;
} step_state;

AICORE ub_f32 array_of(const step_state *s, const ring *r, int which) {
  return ub_at_f32(ring_now(r), which * s->a->list.tile);
}

/* m and v of n elements, and `move` = rate * m / (sqrt(v) * root + eps). */
AICORE void step_moments(const step_state *s, int64_t grad_dtype, int64_t n) {
  const adamw_step_arguments *a = s->a;
  const ub_f32 grad = s->grad, move = s->move, m = array_of(s, &s->out, OUT_M), v = array_of(s, &s->out, OUT_V);
  const ub_f32 raw = array_of(s, &s->in, IN_GRAD);
  if (grad_dtype != TIGON_F32) widen(grad_dtype, grad, raw, n);
  v_mul_scalar_f32(grad, grad_dtype == TIGON_F32 ? raw : grad, s->clip, n);
  v_mul_scalar_f32(m, array_of(s, &s->in, IN_M), a->beta1, n);
  v_mul_scalar_f32(v, array_of(s, &s->in, IN_V), a->beta2, n);
  sync_pipe(PIPE_V);
  v_mul_scalar_f32(move, grad, a->rest1, n);
  sync_pipe(PIPE_V);
  v_mul_f32(grad, grad, grad, n);
  v_add_f32(m, m, move, n);
  sync_pipe(PIPE_V);
  v_mul_scalar_f32(grad, grad, a->rest2, n);
  v_mul_scalar_f32(move, m, a->rate, n);
  sync_pipe(PIPE_V);
  v_add_f32(v, v, grad, n);
  sync_pipe(PIPE_V);
  v_sqrt_f32(grad, v, n);
  sync_pipe(PIPE_V);
  v_mul_scalar_f32(grad, grad, a->root, n);
  sync_pipe(PIPE_V);
  v_add_scalar_f32(grad, grad, a->eps, n);
  sync_pipe(PIPE_V);
  v_div_f32(move, move, grad, n);
  sync_pipe(PIPE_V);
}

AICORE void step_tile(step_state *s, place p) {
  const adamw_tensor *t = p.tensor;
  const int64_t n = p.count, size = dtype_bytes(t->dtype);
  const int64_t value_dtype = t->master ? (int64_t)TIGON_F32 : t->dtype;
  in_begin(&s->in);
  load(value_dtype, array_of(s, &s->in, IN_VALUE),
       (t->master ? t->master : t->param) + p.begin * dtype_bytes(value_dtype), 1, n);
  load(t->grad_dtype, array_of(s, &s->in, IN_GRAD), t->grad + p.begin * dtype_bytes(t->grad_dtype), 1, n);
  load_f32(array_of(s, &s->in, IN_M), t->exp_avg + p.begin * 4, 1, n);
  load_f32(array_of(s, &s->in, IN_V), t->exp_avg_sq + p.begin * 4, 1, n);
  in_ready(&s->in);
  out_begin(&s->out);
  step_moments(s, t->grad_dtype, n);
  const ub_f32 raw = array_of(s, &s->in, IN_VALUE), value = value_dtype == TIGON_F32 ? raw : s->grad;
  const ub_f32 updated = array_of(s, &s->out, OUT_VALUE), rounded = array_of(s, &s->out, OUT_PARAM);
  if (value_dtype != TIGON_F32) widen(value_dtype, value, raw, n);
  v_mul_scalar_f32(updated, value, t->decay, n);
  sync_pipe(PIPE_V);
  v_add_f32(updated, updated, s->move, n);
  sync_pipe(PIPE_V);
  v_sub_f32(updated, value, updated, n);
  sync_pipe(PIPE_V);
  in_done(&s->in);
  if (t->dtype != TIGON_F32) narrow(t->dtype, rounded, updated, n);
  out_ready(&s->out);
  store_f32(t->exp_avg + p.begin * 4, array_of(s, &s->out, OUT_M), 1, n);
  store_f32(t->exp_avg_sq + p.begin * 4, array_of(s, &s->out, OUT_V), 1, n);
  if (t->master) store_f32(t->master + p.begin * 4, updated, 1, n);
  store(t->dtype, t->param + p.begin * size, t->dtype == TIGON_F32 ? updated : rounded, 1, n);
  out_done(&s->out);
}

AICORE_KERNEL(adamw_step, adamw_step_arguments) {
  const int64_t tile = a->list.tile, end = range_begin(a->list.tiles, block_count(), block_index() + 1);
  step_state s = {.a = a, .clip = 1};
  s.in = ring_of(ub, 0, 2, INPUTS * tile * 4);
  s.out = ring_of(ub, 0, 2, OUTPUTS * tile * 4);
  s.grad = ub_alloc_f32(ub, tile);
  s.move = ub_alloc_f32(ub, tile);
  const ub_f32 factor = ub_alloc_f32(ub, 8);
  if (a->clip_factor) {
    load_f32(factor, a->clip_factor, 1, 1);
    scalar_after_loads();
    s.clip = s_read_f32(factor, 0);
  }
  in_open(&s.in);
  out_open(&s.out);
  for (int64_t i = range_begin(a->list.tiles, block_count(), block_index()); i < end; ++i)
    step_tile(&s, place_of(&a->list, i));
  in_close(&s.in);
  out_close(&s.out);
}

/* ---- clip ---- */

typedef struct squares {
  twofold sum;
  int64_t exponent;
} squares;

AICORE squares squares_sum(squares a, squares b) {
  const squares *larger = a.exponent > b.exponent ? &a : &b, *other = a.exponent > b.exponent ? &b : &a;
  if (other->sum.hi == 0) return (squares){larger->sum.hi == 0 ? other->sum : larger->sum, larger->exponent};
  const float by = power_of_two(2 * (other->exponent - larger->exponent));
  const twofold scaled = {other->sum.hi * by, other->sum.lo * by};
  return (squares){twofold_sum(larger->sum, scaled), larger->exponent};
}

AICORE void load_ahead(const ring *in, int at, place p) {
  const int64_t dtype = p.tensor->grad_dtype;
  ahead_begin(in, at);
  load(dtype, ring_buffer(in, at), p.tensor->grad + p.begin * dtype_bytes(dtype), 1, p.count);
  ahead_ready(in, at);
}

/* The sum of squares of a tile that was loaded. They are taken of elements over a power of two near the largest. */
AICORE squares squares_of_tile(ring *in, ub_f32 work, ub_f32 word, place p) {
  const int64_t dtype = p.tensor->grad_dtype;
  const tile t = tile_of(dtype, 1, p.count);
  in_take(in);
  const ub_f32 x = values_of(dtype, ub_at_f32(work, t.pitch), ring_now(in), t);
  v_abs_f32(work, x, t.pitch);
  sync_pipe(PIPE_V);
  row_maxima(word, work, t);
  scalar_after_vectors();
  int64_t exponent = (s_read_i32(word, 0) >> 23) - 127;
  exponent = exponent < -126 ? -126 : least(exponent, 126);
  vectors_after_scalar();
  v_mul_scalar_f32(work, x, power_of_two(-exponent), t.pitch);
  sync_pipe(PIPE_V);
  in_done(in);
  v_mul_f32(work, work, work, t.pitch);
  sync_pipe(PIPE_V);
  row_sums(word, work, t);
  scalar_after_vectors();
  const squares sum = {{s_read_f32(word, 0), 0}, exponent};
  vectors_after_scalar();
  return sum;
}

AICORE squares read_partial(ub_f32 from, int64_t i) {
  return (squares){{s_read_f32(from, i * ADAMW_PARTIAL), s_read_f32(from, i * ADAMW_PARTIAL + 1)},
                   s_read_i32(from, i * ADAMW_PARTIAL + 2)};
}

AICORE_KERNEL(adamw_squares, adamw_squares_arguments) {
  const adamw_list *list = &a->list;
  const gm_ptr at = a->partials + block_index() * ADAMW_PARTIAL * 4;
  ring in = ring_of(ub, 0, 2, list->tile * 4);
  const ub_f32 work = ub_alloc_f32(ub, 2 * round_up(list->tile, 16)), word = ub_alloc_f32(ub, 8);
  const ub_f32 partial = ub_alloc_f32(ub, 8);
  const int64_t begin = range_begin(list->tiles, block_count(), block_index());
  const int64_t end = range_begin(list->tiles, block_count(), block_index() + 1);
  squares sum = {{0, 0}, -126};
  if (a->add) {
    load_f32(partial, at, 1, ADAMW_PARTIAL);
    scalar_after_loads();
    sum = read_partial(partial, 0);
  }
  in_open(&in);
  if (begin < end) load_ahead(&in, 0, place_of(list, begin));
  for (int64_t i = begin; i < end; ++i) {
    if (i + 1 < end) load_ahead(&in, 1 - in.at, place_of(list, i + 1));
    sum = squares_sum(sum, squares_of_tile(&in, work, word, place_of(list, i)));
  }
  in_close(&in);
  s_write_f32(partial, 0, sum.sum.hi);
  s_write_f32(partial, 1, sum.sum.lo);
  s_write_i32(partial, 2, (int32_t)sum.exponent);
  s_write_f32(partial, 3, 0);
  stores_after_scalar();
  store_f32(at, partial, 1, ADAMW_PARTIAL);
}

/* norm = sqrt(sum), factor = max_norm / norm where that is below 1. One block. */
AICORE_KERNEL(adamw_norm, adamw_norm_arguments) {
  const ub_f32 partials = ub_alloc_f32(ub, round_up(a->count * ADAMW_PARTIAL, 8)), root = ub_alloc_f32(ub, 8);
  const ub_f32 norm = ub_alloc_f32(ub, 8), factor = ub_alloc_f32(ub, 8);
  squares sum = {{0, 0}, -126};
  if (a->count > 0) {
    load_f32(partials, a->partials, 1, a->count * ADAMW_PARTIAL);
    scalar_after_loads();
  }
  for (int64_t i = 0; i < a->count; ++i) sum = squares_sum(sum, read_partial(partials, i));
  v_duplicate_f32(root, sum.sum.hi, 8);
  sync_pipe(PIPE_V);
  v_sqrt_f32(root, root, 8);
  scalar_after_vectors();
  const float r = s_read_f32(root, 0), found = r * power_of_two(sum.exponent);
  const float limit = a->max_norm * power_of_two(-sum.exponent); /* in units of r */
  s_write_f32(norm, 0, found);
  s_write_f32(factor, 0, a->max_norm > 0 && r > limit ? limit / r : found != found ? found : 1);
  stores_after_scalar();
  store_f32(a->norm, norm, 1, 1);
  store_f32(a->factor, factor, 1, 1);
}
