/* mhc_coeffs backward, second launch: rstd * dmix in the place of dl in each record, and a block's totals of db and the dalphas. */
#include "ascend/kernel/mhc_panel.h"

typedef struct state {
  const mhc_coeffs_arguments *a;
  ub_f32 record, mix, rstd, alphas, work, dot, db, dalpha; /* dalpha: of each coefficient */
} state;

AICORE void one_token(state *s, int64_t t) {
  const mhc_coeffs_arguments *a = s->a;
  const int64_t m = a->coeffs;
  loads_after_scalar();
  load_f32(s->record, a->record + t * a->pitch * 4, 1, a->pitch);
  load_f32(s->mix, a->mix + t * m * 4, 1, m);
  load_f32(s->rstd, a->rstd + t * 4, 1, 1);
  scalar_after_loads();
  const float rstd = s_read_f32(s->rstd, 0);
  vectors_after_scalar();
  add(s->db, s->db, s->record, m);
  mul(s->work, s->record, s->mix, m);
  add(s->dalpha, s->dalpha, s->work, m);
  mul(s->work, s->work, s->alphas, m);
  row_sums(s->dot, s->work, (tile){1, m, round_up(m, 8)});
  mul(s->record, s->record, s->alphas, m);
  mul_scalar(s->record, s->record, rstd, m);
  scalar_after_vectors();
  s_write_f32(s->record, mhc_record_back(a), s_read_f32(s->dot, 0) * rstd / (float)(a->streams * a->cols));
  s_write_f32(s->record, mhc_record_back(a) + 1, rstd);
  stores_after_scalar();
  store_f32(a->record + t * a->pitch * 4, s->record, 1, a->pitch);
  scalar_after_stores();
}

AICORE void store_totals(state *s) {
  const mhc_coeffs_arguments *a = s->a;
  for (int i = 0; i < 3; ++i) {
    const int64_t first = i * a->streams, end = i < 2 ? first + a->streams : a->coeffs;
    float sum = 0;
    for (int64_t m = first; m < end; ++m) sum += s_read_f32(s->dalpha, m);
    s_write_f32(s->db, a->coeffs + i, sum);
  }
  stores_after_scalar();
  store_f32(a->totals + block_index() * (a->coeffs + 3) * 4, s->db, 1, a->coeffs + 3);
}

AICORE_KERNEL(mhc_dmix, mhc_coeffs_arguments) {
  const int64_t n = round_up(a->coeffs + 3, 16);
  state s = {.a = a};
  ub_f32 *arrays[] = {&s.mix, &s.alphas, &s.work, &s.db, &s.dalpha};
  for (int i = 0; i < 5; ++i) {
    *arrays[i] = ub_alloc_f32(ub, n);
    duplicate(*arrays[i], 0, n);
  }
  s.record = ub_alloc_f32(ub, a->pitch);
  s.rstd = ub_alloc_f32(ub, 8);
  s.dot = ub_alloc_f32(ub, 8);
  scalar_after_vectors();
  mhc_load_alphas(ub, a, s.alphas);
  const int64_t end = range_begin(a->tokens, block_count(), block_index() + 1);
  for (int64_t t = range_begin(a->tokens, block_count(), block_index()); t < end; ++t) one_token(&s, t);
  scalar_after_vectors();
  store_totals(&s);
}
