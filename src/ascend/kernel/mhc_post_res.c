/* mhc_post_res: a token's rows by chunks of columns, f as one more stream that comes in. The scalar pipe has the weights. */
#include "ascend/kernel/mhc.h"
#include "ascend/kernel/ordered.h"
#include "ascend/kernel/scalar.h"

typedef struct state {
  const mhc_post_res_arguments *a;
  int64_t in, pitch;                        /* streams with f; elements of a row on chip */
  ring raw, result;                         /* all rows of a chunk in their dtype; one row */
  ub_f32 wide, own, work;                   /* f32 rows and row with 16-bit dtypes alone; a product */
  ub_f32 h_res, h_post, sums, part, packed; /* sums: a block of 8 each [out, in] */
} state;

AICORE state open_state(ub_arena *ub, const mhc_post_res_arguments *a) {
  const bool f32 = a->dtype == TIGON_F32;
  state s = {.a = a, .in = a->in + (a->f.data != 0), .pitch = round_up(a->chunk, 16)};
  const int64_t rows = s.in + (a->backward ? a->out : 0);
  s.raw = ring_of(ub, 0, 2, rows * s.pitch * dtype_bytes(a->dtype));
  s.result = ring_of(ub, 0, 2, s.pitch * dtype_bytes(a->dtype));
  s.wide = ub_alloc_f32(ub, f32 ? 0 : rows * s.pitch);
  s.own = ub_alloc_f32(ub, f32 ? 0 : s.pitch);
  s.work = ub_alloc_f32(ub, s.pitch > 64 ? s.pitch : 64);
  s.h_res = ub_alloc_f32(ub, a->out * a->in);
  s.h_post = ub_alloc_f32(ub, a->out);
  s.sums = ub_alloc_f32(ub, a->backward ? a->out * s.in * 8 : 0);
  s.part = ub_alloc_f32(ub, 8);
  s.packed = ub_alloc_f32(ub, a->backward ? a->out * a->in : 0);
  in_open(&s.raw);
  out_open(&s.result);
  return s;
}

AICORE float weight_at(const state *s, int64_t j, int64_t i) {
  return i < s->a->in ? s_read_f32(s->h_res, j * s->a->in + i) : s_read_f32(s->h_post, j);
}

AICORE void load_weights(const state *s, int64_t t) {
  const mhc_post_res_arguments *a = s->a;
  loads_after_scalar();
  load_f32(s->h_res, a->h_res + t * a->out * a->in * 4, 1, a->out * a->in);
  if (a->h_post) load_f32(s->h_post, a->h_post + t * a->out * 4, 1, a->out);
  scalar_after_loads();
}

/* Columns [c, c + n) of the token's rows: those that come in, f, and backward those of o. */
AICORE ub_f32 load_rows(state *s, int64_t t, int64_t c, int64_t n) {
  const mhc_post_res_arguments *a = s->a;
  const int64_t size = dtype_bytes(a->dtype), rows = s->in + (a->backward ? a->out : 0);
  in_begin(&s->raw);
  for (int64_t r = 0; r < rows; ++r) {
    const gm_ptr from = r < a->in   ? row_at(&a->in_space, &a->x, size, t * a->in + r, c)
                        : r < s->in ? row_at(&a->token_space, &a->f, size, t, c)
                                    : row_at(&a->out_space, &a->o, size, t * a->out + r - s->in, c);
    load(a->dtype, ub_at_f32(ring_now(&s->raw), r * s->pitch * size / 4), from, 1, n);
  }
  in_ready(&s->raw);
  if (a->dtype == TIGON_F32) return ring_now(&s->raw);
  for (int64_t r = 0; r < rows; ++r)
    widen(a->dtype, ub_at_f32(s->wide, r * s->pitch), ub_at_f32(ring_now(&s->raw), r * s->pitch / 2), round_up(n, 16));
  return s->wide;
}

/* A row of `count` rows from `from` on, weighed by row or column `at` of the weights. */
AICORE void weigh(state *s, ub_f32 from, int64_t count, int64_t at, bool back, gm_ptr to, int64_t n) {
  const bool f32 = s->a->dtype == TIGON_F32;
  out_begin(&s->result);
  const ub_f32 sum = f32 ? ring_now(&s->result) : s->own;
  for (int64_t r = 0; r < count; ++r) {
    const float w = back ? weight_at(s, r, at) : weight_at(s, at, r);
    mul_scalar(r ? s->work : sum, ub_at_f32(from, r * s->pitch), w, n);
    if (r) add(sum, sum, s->work, n);
  }
  if (!f32) narrow(s->a->dtype, ring_now(&s->result), sum, n);
  out_ready(&s->result);
  store(s->a->dtype, to, ring_now(&s->result), 1, n);
  out_done(&s->result);
}

/* Adds the products of columns [0, n) to the sums, which are the first ones where c is 0. */
AICORE void add_dots(const state *s, ub_f32 rows, int64_t c, int64_t n) {
  const mhc_post_res_arguments *a = s->a;
  for (int64_t j = 0; j < a->out; ++j)
    for (int64_t i = 0; i < s->in; ++i) {
      const ub_f32 sum = ub_at_f32(s->sums, (j * s->in + i) * 8);
      mul(s->work, ub_at_f32(rows, (s->in + j) * s->pitch), ub_at_f32(rows, i * s->pitch), n);
      row_sums(c == 0 ? sum : s->part, s->work, (tile){1, n, s->pitch});
      if (c > 0) add(sum, sum, s->part, 1);
    }
}

/* Streams [first, first + count) of the sums, to [tokens, out, count]. */
AICORE void store_dots(const state *s, gm_ptr to, int64_t t, int64_t first, int64_t count) {
  const mhc_post_res_arguments *a = s->a;
  if (!to) return;
  for (int64_t j = 0; j < a->out; ++j)
    for (int64_t i = 0; i < count; ++i)
      s_write_f32(s->packed, j * count + i, s_read_f32(s->sums, (j * s->in + first + i) * 8));
  stores_after_scalar();
  store_f32(to + t * a->out * count * 4, s->packed, 1, a->out * count);
  scalar_after_stores();
}

AICORE void one_token(state *s, int64_t t) {
  const mhc_post_res_arguments *a = s->a;
  const int64_t size = dtype_bytes(a->dtype);
  const bool dots = a->dh_res || a->dh_post;
  load_weights(s, t);
  for (int64_t c = 0; c < a->cols; c += a->chunk) {
    const int64_t n = least(a->chunk, a->cols - c);
    const ub_f32 rows = load_rows(s, t, c, n);
    for (int64_t j = 0; !a->backward && j < a->out; ++j)
      weigh(s, rows, s->in, j, false, row_at(&a->out_space, &a->o, size, t * a->out + j, c), n);
    for (int64_t i = 0; a->backward && a->dx.data && i < a->in; ++i)
      weigh(s, ub_at_f32(rows, s->in * s->pitch), a->out, i, true, row_at(&a->in_space, &a->dx, size, t * a->in + i, c),
            n);
    if (a->backward && a->df.data)
      weigh(s, ub_at_f32(rows, s->in * s->pitch), a->out, a->in, true, row_at(&a->token_space, &a->df, size, t, c), n);
    if (dots) add_dots(s, rows, c, n);
    in_done(&s->raw);
  }
  if (!dots) return;
  scalar_after_vectors();
  store_dots(s, a->dh_res, t, 0, a->in);
  store_dots(s, a->dh_post, t, a->in, 1);
  vectors_after_scalar();
}

AICORE_KERNEL(mhc_post_res, mhc_post_res_arguments) {
  state s = open_state(ub, a);
  const int64_t end = range_begin(a->tokens, block_count(), block_index() + 1);
  for (int64_t t = range_begin(a->tokens, block_count(), block_index()); t < end; ++t) one_token(&s, t);
  in_close(&s.raw);
  out_close(&s.result);
}
