/* cross_entropy, as its header writes it. With TIGON_F64 the row outputs, the loss and `inverse` are f64 too, so that
 * finite differences see no rounding. */
#include "core/labels.h"
#include "ref/ref.h"

typedef tigon_cross_entropy_problem problem;

/* The dtype of every output that is f32 in a public call. */
static tigon_dtype scalar_dtype(const problem *p) { return (int)p->dtype == TIGON_F64 ? p->dtype : TIGON_F32; }

static void put(const problem *p, void *out, int64_t i, double value) {
  if (out) tigon_store_f64(out, i, scalar_dtype(p), value);
}

static double logit(const problem *p, double x) {
  const double u = x * (double)p->inverse_temperature, cap = (double)p->softcap;
  return cap > 0 ? cap * tanh(u / cap) : u;
}

/* d logit / d x. 1 / cosh^2 keeps its digits where 1 - tanh^2 has none. */
static double logit_slope(const problem *p, double x) {
  const double cap = (double)p->softcap;
  const double c = cap > 0 ? cosh(x * (double)p->inverse_temperature / cap) : 1;
  return (double)p->inverse_temperature / (c * c);
}

static double logit_at(const problem *p, int64_t r, int64_t v) {
  return logit(p, tigon_ref_at(&p->space, &p->logits, p->dtype, r, v));
}

static double class_weight(const problem *p, int64_t v) { return p->weight ? (double)p->weight[v] : 1; }

/* A NaN counts as larger than any number. -1 for a row of no columns. */
static int64_t first_largest(const problem *p, int64_t r) {
  int64_t best = -1;
  double largest = 0;
  for (int64_t v = 0; v < p->cols; ++v) {
    const double x = tigon_ref_at(&p->space, &p->logits, p->dtype, r, v);
    if (x != x) return v;
    if (best < 0 || x > largest) best = v, largest = x;
  }
  return best;
}

static double log_sum_exp(const problem *p, int64_t r) {
  const int64_t at = first_largest(p, r);
  const double largest = at < 0 ? -INFINITY : logit_at(p, r, at);
  if (!isfinite(largest)) return largest;
  double sum = 0;
  for (int64_t v = 0; v < p->cols; ++v) sum += exp(logit_at(p, r, v) - largest);
  return largest + log(sum);
}

/* Row r of stats. */
static void shard_row(const problem *p, int64_t r, int64_t label) {
  const int64_t at = first_largest(p, r), own = label - p->panel_begin, first = r * TIGON_VOCAB_STATS;
  put(p, p->stats, first, at < 0 ? -INFINITY : logit_at(p, r, at));
  const double m = tigon_load_f64(p->stats, first, scalar_dtype(p)); /* the others are about what is stored */
  double s = isnan(m) ? m : 0, w = s, u = 0, y = 0;
  for (int64_t v = 0; v < p->cols && isfinite(m); ++v) {
    const double z = logit_at(p, r, v), e = exp(z - m);
    s += e;
    w += e == 0 ? 0 : e * (z - m);
  }
  for (int64_t v = 0; v < p->cols; ++v) u += logit_at(p, r, v);
  if (label >= 0 && own >= 0 && own < p->cols) y = logit_at(p, r, own);
  put(p, p->stats, first + 1, s);
  put(p, p->stats, first + 2, label >= 0 && p->entropy_scale != 0 ? w : 0);
  put(p, p->stats, first + 3, label >= 0 && p->label_smoothing != 0 ? u : 0);
  put(p, p->stats, first + 4, y);
}

/* The outputs of one row; its entropy is returned. */
static double forward_row(const problem *p, int64_t r, int64_t label, double lse) {
  put(p, p->lse, r, lse);
  if (p->argmax) p->argmax[r] = label < 0 ? -1 : first_largest(p, r);
  double loss = 0, z_loss = 0, entropy = 0;
  if (label >= 0) {
    const double w = class_weight(p, label), smoothing = (double)p->label_smoothing;
    const double scale = p->token_scale ? (double)p->token_scale[r] : 1;
    double smooth = 0, mean = 0;
    for (int64_t v = 0; v < p->cols; ++v) {
      const double z = logit_at(p, r, v), probability = exp(z - lse);
      smooth += class_weight(p, v) * (lse - z);
      mean += probability == 0 ? 0 : probability * z;
    }
    entropy = lse - mean;
    loss = (1 - smoothing) * w * (lse - logit_at(p, r, label));
    if (smoothing != 0) loss += smoothing / (double)p->cols * smooth;
    if (p->lse_square_scale != 0) z_loss = w * (double)p->lse_square_scale * lse * lse;
    loss = scale * (loss + z_loss);
    z_loss *= scale;
  }
  put(p, p->token_loss, r, p->negated ? 0 - loss : loss);
  put(p, p->z_loss, r, z_loss);
  put(p, p->entropy, r, entropy);
  return entropy;
}

/* weight_sum: of all classes. */
static void gradient_row(const problem *p, int64_t r, int64_t label, double lse, double entropy, double weight_sum) {
  const double smoothing = (double)p->label_smoothing;
  double scale = (double)p->grad_scale * tigon_load_f64(p->inverse, 0, scalar_dtype(p));
  if (p->dloss) scale *= (double)p->dloss[p->reduction == TIGON_REDUCTION_NONE ? r : 0];
  if (p->token_scale) scale *= (double)p->token_scale[r];
  const double entropy_scale = (double)p->entropy_scale * (p->dentropy ? (double)p->dentropy[r] : 1);
  for (int64_t v = 0; v < p->cols; ++v) {
    double gradient = 0;
    if (label >= 0) {
      const double x = tigon_ref_at(&p->space, &p->logits, p->dtype, r, v), w = class_weight(p, label);
      const int64_t class = p->panel_begin + v;
      const double z = logit(p, x), probability = exp(z - lse);
      gradient = (1 - smoothing) * w * (class == label ? probability - 1 : probability);
      if (smoothing != 0)
        gradient +=
            smoothing / (double)tigon_cross_entropy_smoothed(p) * (weight_sum * probability - class_weight(p, class));
      if (p->lse_square_scale != 0) gradient += 2 * (double)p->lse_square_scale * w * lse * probability;
      gradient *= scale;
      if (entropy_scale != 0) gradient -= entropy_scale * probability * ((probability == 0 ? 0 : z - lse) + entropy);
      gradient *= logit_slope(p, x);
    }
    tigon_ref_put(&p->space, &p->dlogits, p->dtype, r, v, gradient);
  }
}

static void count(const problem *p) {
  double denominator = 0;
  for (int64_t r = 0; r < p->space.rows; ++r) {
    bool out_of_range;
    const int64_t label = tigon_cross_entropy_label(p, r, &out_of_range);
    if (out_of_range && p->error_flag) *p->error_flag = 1;
    if (label >= 0) denominator += class_weight(p, label);
  }
  if (p->denominator) denominator = (double)*p->denominator;
  const double inverse = denominator == 0 ? 0 : 1 / denominator;
  put(p, p->inverse, 0, p->reduction == TIGON_REDUCTION_MEAN ? inverse : 1);
}

static void reduce(const problem *p) {
  double sum = 0;
  int64_t correct = 0;
  for (int64_t r = 0; r < p->space.rows; ++r) {
    bool out_of_range;
    const int64_t label = tigon_cross_entropy_label(p, r, &out_of_range);
    sum += tigon_load_f64(p->token_loss, r, scalar_dtype(p));
    correct += p->correct && label >= 0 && p->argmax[r] == label;
  }
  put(p, p->loss, 0, sum * tigon_load_f64(p->inverse, 0, scalar_dtype(p)));
  if (p->correct) *p->correct = correct;
}

static void run(const problem *p, bool backward) {
  double weight_sum = p->weight ? 0 : (double)tigon_cross_entropy_smoothed(p);
  for (int64_t v = 0; p->weight && v < tigon_cross_entropy_vocab(p); ++v) weight_sum += (double)p->weight[v];
  if (p->parts & TIGON_CROSS_ENTROPY_COUNT) count(p);
  for (int64_t r = 0; (p->parts & TIGON_CROSS_ENTROPY_ROWS) && r < p->space.rows; ++r) {
    bool out_of_range;
    const int64_t label = tigon_cross_entropy_label(p, r, &out_of_range);
    if (p->stats && !backward) {
      shard_row(p, r, label);
      continue;
    }
    const double lse = backward ? tigon_load_f64(p->lse, r, scalar_dtype(p)) : log_sum_exp(p, r);
    double entropy = backward && p->entropy_scale != 0 ? tigon_load_f64(p->entropy, r, scalar_dtype(p)) : 0;
    if (!backward) entropy = forward_row(p, r, label, lse);
    if (p->dlogits.data) gradient_row(p, r, label, lse, entropy, weight_sum);
  }
  if (!backward && (p->parts & TIGON_CROSS_ENTROPY_REDUCE)) reduce(p);
}

tigon_status tigon_ref_cross_entropy_fwd(tigon_queue *queue, const problem *p) {
  (void)queue;
  run(p, false);
  return TIGON_OK;
}

tigon_status tigon_ref_cross_entropy_bwd(tigon_queue *queue, const problem *p) {
  (void)queue;
  run(p, true);
  return TIGON_OK;
}
