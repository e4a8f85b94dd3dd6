/* mhc_coeffs backward, first launch: dl and h_pre of each token, into its record. */
#include "ascend/kernel/mhc_lanes.h"
#include "ascend/kernel/mhc_panel.h"

typedef struct state {
  const mhc_coeffs_arguments *a;
  ub_f32 words;             /* words of all lanes, as memory has them: first what comes, then the records */
  ub_f32 l, g, p, by, work; /* l: logits, then h_res; in the place of the first ones h_pre */
  ub_f32 alphas, b;
} state;

AICORE void load_lanes(state *s, ub_f32 lanes, gm_ptr from, int64_t t0, int64_t count, int64_t n) {
  if (!from) {
    duplicate(lanes, 0, n * MHC_LANES);
    return;
  }
  scalar_after_vectors();
  loads_after_scalar();
  load_f32(s->words, from + t0 * n * 4, 1, count * n);
  scalar_after_loads();
  mhc_to_lanes(lanes, s->words, n, n, count);
  vectors_after_scalar();
}

AICORE void find_logits(state *s, int64_t t0, int64_t count) {
  const mhc_coeffs_arguments *a = s->a;
  load_lanes(s, s->l, a->mix, t0, count, a->coeffs);
  for (int64_t m = 0; m < a->coeffs; ++m) {
    const ub_f32 l = mhc_lane(s->l, m);
    mul_scalar(l, l, s_read_f32(s->alphas, m), MHC_LANES);
    add_scalar(l, l, s_read_f32(s->b, m), MHC_LANES);
  }
}

AICORE void find_dh(state *s, int64_t t0, int64_t count) {
  const mhc_coeffs_arguments *a = s->a;
  const int64_t n = a->streams;
  for (int i = 0; i < 3; ++i) load_lanes(s, mhc_lane(s->g, i * n), a->h[i], t0, count, i < 2 ? n : n * n);
  if (!a->dots) return;
  load_lanes(s, s->p, a->dots, t0, count, n);
  add(s->g, s->g, s->p, n * MHC_LANES);
}

/* dl of h_pre and h_post, and h_pre. */
AICORE void back_sigmoids(state *s) {
  const mhc_coeffs_arguments *a = s->a;
  const int64_t pre = a->streams * MHC_LANES, all = 2 * pre;
  const ub_f32 h = s->words, rest = ub_at_f32(h, all), work = ub_at_f32(rest, all);
  mhc_sigmoid(h, s->l, work, all);
  mul_scalar(s->l, s->l, -1, all);
  mhc_sigmoid(rest, s->l, work, all);
  mul(rest, rest, h, all);
  mul(s->g, s->g, rest, all);
  mul_scalar(ub_at_f32(s->g, pre), ub_at_f32(s->g, pre), a->post_mult, pre);
  add_scalar(s->l, h, a->pre_eps, pre);
}

AICORE void store_records(state *s, int64_t t0, int64_t count) {
  const mhc_coeffs_arguments *a = s->a;
  duplicate(s->words, 0, MHC_LANES * a->pitch);
  scalar_after_vectors();
  mhc_from_lanes(s->words, s->g, a->coeffs, a->pitch, count);
  for (int64_t t = 0; t < count; ++t)
    for (int64_t i = 0; i < a->streams; ++i)
      s_write_f32(s->words, t * a->pitch + mhc_record_h(a) + i, s_read_f32(s->l, i * MHC_LANES + t));
  stores_after_scalar();
  store_f32(a->record + t0 * a->pitch * 4, s->words, 1, count * a->pitch);
  scalar_after_stores();
  vectors_after_scalar();
}

AICORE_KERNEL(mhc_sinkhorn_bwd, mhc_coeffs_arguments) {
  const int64_t n = a->streams, all = a->coeffs * MHC_LANES, groups = (a->tokens + MHC_LANES - 1) / MHC_LANES;
  state s = {.a = a};
  s.words = ub_alloc_f32(ub, MHC_LANES * a->pitch);
  s.l = ub_alloc_f32(ub, all);
  s.g = ub_alloc_f32(ub, all);
  s.p = ub_alloc_f32(ub, n * n * MHC_LANES);
  s.by = ub_alloc_f32(ub, (2 * a->tmax - 1) * n * MHC_LANES);
  s.work = ub_alloc_f32(ub, (n + 1) * MHC_LANES);
  s.alphas = ub_alloc_f32(ub, a->coeffs);
  s.b = ub_alloc_f32(ub, round_up(a->coeffs, 16));
  mhc_load_alphas(ub, a, s.alphas);
  mhc_load_b(ub, a, s.b);
  for (int64_t group = block_index(); group < groups; group += block_count()) {
    const int64_t t0 = group * MHC_LANES, count = least(MHC_LANES, a->tokens - t0);
    const ub_f32 m = mhc_lane(s.l, 2 * n), g = mhc_lane(s.g, 2 * n);
    find_dh(&s, t0, count);
    find_logits(&s, t0, count);
    back_sigmoids(&s);
    mhc_softmax(s.p, m, s.work, n);
    mul_scalar(m, s.p, 1, n * n * MHC_LANES);
    mhc_rounds(m, s.by, n, a->tmax, a->sinkhorn_eps, true);
    mhc_rounds_back(g, m, s.p, s.by, s.work, n, a->tmax);
    store_records(&s, t0, count);
  }
}
