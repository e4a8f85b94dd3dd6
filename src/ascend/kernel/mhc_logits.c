/* mhc_coeffs forward, first launch: mix and rstd, and the logits, which lie where h_pre, h_post and h_res will. A group of tokens shares a
 * panel of phi; x is one more row of that, so that its square's sum comes with the products. */
#include "ascend/kernel/mhc_panel.h"

typedef struct state {
  const mhc_coeffs_arguments *a;
  mhc_panel panel;
  mhc_row x;
  ub_f32 sums, values, alphas, b, rstd, root; /* sums [lanes, rows] */
  ub_f32 part; /* the logits of h_pre, h_post or h_res of all lanes, as memory has them */
} state;

AICORE void add_products(state *s, int64_t t, int64_t lane, int64_t i, int64_t c, int64_t n) {
  const mhc_coeffs_arguments *a = s->a;
  mhc_panel *p = &s->panel;
  const tile of = {a->coeffs + 1, n, p->pitch};
  const ub_f32 sum = ub_at_f32(s->sums, lane * mhc_rows(a));
  mhc_row_load(&s->x, &a->space, &a->x, t * a->streams + i, c, n);
  mul_scalar(ub_at_f32(p->rows, a->coeffs * p->pitch), s->x.values, 1, n);
  tile_op(ROW_MUL, p->work, p->rows, s->x.values, of, false);
  row_sums(s->values, p->work, of);
  add(sum, sum, s->values, a->coeffs + 1);
}

/* rstd, mix in the place of the sums, and what memory wants of both. */
AICORE void finish_mix(state *s, int64_t t0, int64_t count) {
  const mhc_coeffs_arguments *a = s->a;
  scalar_after_vectors();
  for (int64_t t = 0; t < count; ++t) s_write_f32(s->root, t, s_read_f32(s->sums, t * mhc_rows(a) + a->coeffs));
  vectors_after_scalar();
  divide_sums(s->root, s->rstd, a->streams * a->cols, MHC_LANES);
  inverse_root(s->rstd, s->root, a->rms_eps, MHC_LANES);
  scalar_after_vectors();
  for (int64_t t = 0; t < count; ++t) {
    const ub_f32 mix = ub_at_f32(s->sums, t * mhc_rows(a));
    mul_scalar(mix, mix, s_read_f32(s->rstd, t), a->coeffs);
  }
  scalar_after_vectors();
  stores_after_scalar();
  if (a->rstd) store_f32(a->rstd + t0 * 4, s->rstd, 1, count);
  for (int64_t t = 0; a->mix && t < count; ++t)
    store_f32(a->mix + (t0 + t) * a->coeffs * 4, ub_at_f32(s->sums, t * mhc_rows(a)), 1, a->coeffs);
  scalar_after_stores();
  vectors_after_scalar();
}

AICORE void store_logits(state *s, int64_t t0, int64_t count) {
  const mhc_coeffs_arguments *a = s->a;
  const int64_t rows = mhc_rows(a);
  for (int64_t t = 0; t < count; ++t) {
    const ub_f32 l = ub_at_f32(s->sums, t * rows);
    mul(l, l, s->alphas, a->coeffs);
    add(l, l, s->b, a->coeffs);
  }
  scalar_after_vectors();
  for (int i = 0; i < 3; ++i) {
    const int64_t first = i * a->streams, n = i < 2 ? a->streams : a->streams * a->streams;
    for (int64_t t = 0; t < count; ++t)
      for (int64_t m = 0; m < n; ++m) s_write_f32(s->part, t * n + m, s_read_f32(s->sums, t * rows + first + m));
    stores_after_scalar();
    store_f32(a->h[i] + t0 * n * 4, s->part, 1, count * n);
    scalar_after_stores();
  }
  vectors_after_scalar();
}

AICORE_KERNEL(mhc_logits, mhc_coeffs_arguments) {
  state s = {.a = a, .panel = mhc_panel_of(ub, 0, a), .x = mhc_row_of(ub, 1, a)};
  const int64_t rows = mhc_rows(a), end = least(a->tokens, mhc_group_begin(a, block_index() + 1));
  s.sums = ub_alloc_f32(ub, MHC_LANES * rows);
  s.values = ub_alloc_f32(ub, rows);
  s.alphas = ub_alloc_f32(ub, rows + 8);
  s.b = ub_alloc_f32(ub, rows + 8);
  s.rstd = ub_alloc_f32(ub, MHC_LANES);
  s.root = ub_alloc_f32(ub, MHC_LANES);
  s.part = ub_alloc_f32(ub, MHC_LANES * a->streams * a->streams);
  v_duplicate_f32(s.root, 1, MHC_LANES);
  sync_pipe(PIPE_V);
  mhc_load_alphas(ub, a, s.alphas);
  mhc_load_b(ub, a, s.b);
  for (int64_t t0 = mhc_group_begin(a, block_index()); t0 < end; t0 += MHC_LANES) {
    const int64_t count = least(MHC_LANES, end - t0);
    duplicate(s.sums, 0, MHC_LANES * rows);
    for (int64_t i = 0; i < a->streams; ++i)
      for (int64_t c = 0; c < a->cols; c += a->chunk) {
        const int64_t n = least(a->chunk, a->cols - c);
        mhc_panel_load(&s.panel, i, c, n);
        for (int64_t t = 0; t < count; ++t) add_products(&s, t0 + t, t, i, c, n);
      }
    finish_mix(&s, t0, count);
    store_logits(&s, t0, count);
  }
  in_close(&s.panel.raw);
  in_close(&s.x.raw);
}
