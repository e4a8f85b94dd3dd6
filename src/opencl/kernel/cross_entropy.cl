/* cross_entropy: forward reads a row for its sums and, with a gradient, once more; backward reads it once. */
#include "cross_entropy_row.cl"

/* dlogits = slope * (e^d * (scale + d * times + plus) - share * weight) with d = z - reference, but at the label. */
typedef struct gradient {
  float reference, scale, share, times, plus;
  float label; /* the gradient there */
} gradient;

/* e^d of the lse is `sum`, and `mean` what is added to d for the entropy: z - lse + entropy = d + mean. */
static inline gradient gradient_of(const cross_entropy_numbers *k, const tensors *t, const row *w, pair lse,
                                   float reference, float sum, float mean) {
  const bool finite = isfinite(lse.high);
  pair by = wide_times(k->grad, t->inverse);
  if (t->dloss) by = wide_times(by, float_at(t->dloss, k->dloss_rows ? w->r : 0));
  if (t->token_scale) by = wide_times(by, float_at(t->token_scale, w->r));
  float factor = k->keep.high * w->weight;
  if (k->smoothing != 0) factor += k->share.high * t->weight_sum.high;
  if (k->lse_square != 0) factor += 2 * k->lse_square * w->weight * lse.high;
  const float upstream = -k->entropy_scale.high * float_or(t->dentropy, w->r, 1);
  gradient g = {.reference = finite ? reference : lse.high, .share = by.high * k->share.high};
  if (!finite) sum = 1;
  g.scale = by.high * (factor / sum);
  g.times = upstream / sum;
  g.plus = upstream == 0 ? 0 : g.times * mean;
  if (w->column < 0) return g;
  /* At the label terms cancel: by * slope * (factor * p - minus * weight). */
  const float d = wide_add(w->label_logit.z, -g.reference).high, e = exp_one(d);
  const pair terms = wide_add(wide_minus(wide_times(k->minus, w->weight)), factor * (e / sum));
  g.label = wide_mul(wide_mul(by, w->label_logit.slope), terms).high;
  if (has_entropy_gradient(k)) g.label += e * fma(fmax(d, EXP_LOW), g.times, g.plus) * w->label_logit.slope.high;
  return g;
}

static inline void store_gradient(const cross_entropy_numbers *k, const tensors *t, const row *w, const gradient *g) {
  FOR_ROW(i, n, k->cols) {
    vf slope, y = (vf)(0.0f);
    if (w->label >= 0) {
      const vf z = capped_slope(&k->map, load_n(t->logits, w->from + i, T, n), &slope);
      const vf d = above(&k->map, z, g->reference), e = exp_to_64_of(at_most_of(64.0f, d));
      y = e * g->scale;
      if (k->smoothing != 0) {
        const vf weight = t->weight ? load_n(t->weight, k->panel_begin + i, F32, n) : (vf)(1.0f);
        y = fma(weight, (vf)(-g->share), y);
      }
      if (has_entropy_gradient(k)) y = fma(e, fma(fmax(d, (vf)(EXP_LOW)), (vf)(g->times), (vf)(g->plus)), y);
      y = with_lane(y * slope, w->column < 0 ? -1 : w->column - i, g->label);
    }
    store_n(t->dlogits, w->to + i, T, n, y);
  }
}

__kernel void cross_entropy_fwd(TENSOR(logits), TENSOR(labels), TENSOR(weight), TENSOR(weight_sum), TENSOR(token_scale),
                                TENSOR(dloss), TENSOR(dentropy), TENSOR(inverse), TENSOR(lse), TENSOR(token_loss),
                                TENSOR(z_loss), TENSOR(entropy), TENSOR(argmax), TENSOR(stats), TENSOR(dlogits),
                                const cross_entropy_numbers k) {
  ROOM
  tensors t = {or_null(logits), or_null(labels), or_null(weight), or_null(token_scale), or_null(dloss),
               or_null(dentropy), or_null(lse), or_null(token_loss), or_null(z_loss), or_null(entropy),
               or_null(argmax), or_null(stats), or_null(dlogits), k.classes, 1};
  if (is_there(weight_sum)) t.weight_sum = *(__global const pair *)memory_of(weight_sum);
  if (is_there(dlogits)) t.inverse = float_at(memory_of(inverse), 0);
  for (long r = row_first(); r < k.space.rows; r += row_step()) {
    const row w = row_at(&k, &t, r);
    const long cols = w.label >= 0 || t.lse || t.stats ? k.cols : 0;
    const sums s = sum_row(&k, &t, &w, cols);
    const row_exponentials e = join_exponentials(&k.map, space, &s.of, lanes_sum(s.weighted));
    long first = row_earliest(earliest_of(&t, &w, &s, cols)).at;
    room_wait(); /* dlogits may lie over what has been read */
    if (row_leads()) {
      if (t.stats)
        store_stats(&k, &t, &w, &e);
      else
        store_losses(&k, &t, &w, &e);
      const bool counts = w.label >= 0 && cols > 0;
      if (t.argmax && counts && isnan(e.sum.high)) first = first_nan(t.logits, w.from, cols, first);
      put_long(t.argmax, r, counts ? first : -1);
    }
    if (!t.dlogits) continue;
    const float mean = isfinite(e.lse.high) ? -wide_mul(e.moment, wide_inverse(e.sum)).high : NAN;
    gradient g = {.label = 0};
    if (w.label >= 0) g = gradient_of(&k, &t, &w, e.lse, e.reference, e.sum.high, mean);
    store_gradient(&k, &t, &w, &g);
  }
}

__kernel void cross_entropy_bwd(TENSOR(logits), TENSOR(labels), TENSOR(weight), TENSOR(weight_sum), TENSOR(token_scale),
                                TENSOR(dloss), TENSOR(dentropy), TENSOR(inverse), TENSOR(lse), TENSOR(entropy),
                                TENSOR(dlogits), const cross_entropy_numbers k) {
  tensors t = {.logits = memory_of(logits), .labels = memory_of(labels), .weight = or_null(weight),
               .token_scale = or_null(token_scale), .dloss = or_null(dloss), .dentropy = or_null(dentropy),
               .dlogits = memory_of(dlogits), .weight_sum = k.classes, .inverse = float_at(memory_of(inverse), 0)};
  if (is_there(weight_sum)) t.weight_sum = *(__global const pair *)memory_of(weight_sum);
  for (long r = row_first(); r < k.space.rows; r += row_step()) {
    const row w = row_at(&k, &t, r);
    const float at = float_at(memory_of(lse), r), all = float_or(or_null(entropy), r, 0);
    room_wait(); /* dlogits may lie over the label's logit */
    gradient g = {.label = 0};
    if (w.label >= 0) g = gradient_of(&k, &t, &w, one_float(at), at, 1, all);
    store_gradient(&k, &t, &w, &g);
  }
}
