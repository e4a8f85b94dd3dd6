/* mhc_coeffs forward, second launch: h_pre, h_post and h_res of the logits that lie there. */
#include "ascend/kernel/mhc_lanes.h"

typedef struct state {
  const mhc_coeffs_arguments *a;
  ub_f32 words, l, made, by, work; /* words: of all lanes, as memory has them */
} state;

AICORE void one_part(state *s, int i, int64_t t0, int64_t count) {
  const mhc_coeffs_arguments *a = s->a;
  const int64_t n = a->streams, words = i < 2 ? n : n * n, all = words * MHC_LANES;
  const gm_ptr memory = a->h[i] + t0 * words * 4;
  loads_after_scalar();
  load_f32(s->words, memory, 1, count * words);
  scalar_after_loads();
  mhc_to_lanes(s->l, s->words, words, words, count);
  vectors_after_scalar();
  if (i == 2) {
    mhc_softmax(s->made, s->l, s->work, n);
    mhc_rounds(s->made, s->by, n, a->tmax, a->sinkhorn_eps, false);
  } else {
    mhc_sigmoid(s->made, s->l, s->work, all);
    if (i == 0)
      add_scalar(s->made, s->made, a->pre_eps, all);
    else
      mul_scalar(s->made, s->made, a->post_mult, all);
  }
  scalar_after_vectors();
  mhc_from_lanes(s->words, s->made, words, words, count);
  stores_after_scalar();
  store_f32(memory, s->words, 1, count * words);
  scalar_after_stores();
}

AICORE_KERNEL(mhc_sinkhorn, mhc_coeffs_arguments) {
  const int64_t n = a->streams, most = n * n * MHC_LANES, groups = (a->tokens + MHC_LANES - 1) / MHC_LANES;
  state s = {.a = a};
  s.words = ub_alloc_f32(ub, most);
  s.l = ub_alloc_f32(ub, most);
  s.made = ub_alloc_f32(ub, most);
  s.by = ub_alloc_f32(ub, n * MHC_LANES);
  s.work = ub_alloc_f32(ub, most);
  for (int64_t g = block_index(); g < groups; g += block_count())
    for (int i = 0; i < 3; ++i) one_part(&s, i, g * MHC_LANES, least(MHC_LANES, a->tokens - g * MHC_LANES));
}
