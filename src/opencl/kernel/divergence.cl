/* divergence: forward reads a row of both sides for the log-sum-exps of logits, or for the largest elements, for the divergence's terms and
 * with a gradient once more. Backward reads it once. */
#include "divergence_terms.cl"

/* Both distributions, and where row r of them begins. */
typedef struct sides {
  memory input, target, dinput;
  long q, p, to;
} sides;

static inline bool is_cosine(const divergence_numbers *k) { return k->kind == TIGON_DIVERGENCE_COSINE; }

/* Elements under the caps; what a target says of a class that it does not know. */
static inline vf q_at(const divergence_pair *k, const sides *s, long i, long n) {
  return capped(&k->of.q, load_n(s->input, s->q + i, T, n));
}
static inline vf p_at(const divergence_pair *k, const sides *s, long i, long n) {
  const bool sums = !is_cosine(&k->of) && k->of.target_is != TIGON_DISTRIBUTION_PROBABILITIES;
  const long known = k->target_cols - i < n ? k->target_cols - i : n;
  if (known <= 0) return (vf)(sums ? -INFINITY : 0.0f);
  return first_or(capped(&k->p, load_n(s->target, s->p + i, T, known)), known, sums ? -INFINITY : 0);
}
static inline chance q_chance(const divergence_pair *k, const sides *s, const row_stats *of, long i, long n) {
  return chance_of(k->of.input_is, &k->of.q, of->input, q_at(k, s, i, n));
}
static inline chance p_chance(const divergence_pair *k, const sides *s, const row_stats *of, long i, long n) {
  return chance_of(k->of.target_is, &k->p, of->target, p_at(k, s, i, n));
}

static inlined pair lse_of(const logit_map *map, memory from, long at, long cols, room space) {
  exponentials e = no_exponentials(map);
  FOR_ROW(i, n, cols) add_exponentials(map, &e, load_n(from, at + i, T, n), 0, n >= LANES, first_lanes(n), false);
  const pair lse = join_exponentials(map, space, &e, one_float(0)).lse;
  return cols > 0 ? lse : one_float(0);
}

/* D, and the sum in the gradient of logits; `counts` columns are looked at. */
static inlined pair sum_terms(const divergence_pair *k, const sides *s, row_stats *of, long counts, room space) {
  vpair loss = lanes_none(), mean = loss;
  const bool q_sums = k->of.input_is == TIGON_DISTRIBUTION_LOGITS, p_sums = k->of.target_is == TIGON_DISTRIBUTION_LOGITS;
  of->input = lse_of(&k->of.q, s->input, s->q, q_sums ? counts : 0, space);
  of->target = lse_of(&k->p, s->target, s->p, p_sums ? min(counts, (long)k->target_cols) : 0, space);
  FOR_ROW(i, n, counts) {
    const terms t = terms_of(&k->of, q_chance(k, s, of, i, n), p_chance(k, s, of, i, n));
    loss = lanes_add(loss, first_or(t.loss, n, 0));
    mean = lanes_add(mean, first_or(t.mean, n, 0));
  }
  const triple all = row_triple(((triple){{lanes_sum(loss), lanes_sum(mean), {0, 0}}}));
  of->mean = all.of[1];
  return all.of[0];
}

/* ---- cosine: elements are scaled by a power of two before they are squared ---- */

/* 2^-k for a number around 2^k. */
static inline float scale_down(float size) {
  if (!(size > 0) || size == INFINITY) return 1;
  return ldexp(1.0f, -clamp(ilogb(size), -126, 126));
}

static inlined pair sum_products(const divergence_pair *k, const sides *s, row_stats *of, long counts, room space) {
  vf most_q = (vf)(0.0f), most_p = most_q;
  vpair qq = lanes_none(), pp = qq, qp = qq;
  FOR_ROW(i, n, counts) {
    most_q = fmax(fabs(first_or(q_at(k, s, i, n), n, 0)), most_q);
    most_p = fmax(fabs(first_or(p_at(k, s, i, n), n, 0)), most_p);
  }
  const tops most = row_tops(((tops){{largest_of(most_q), largest_of(most_p)}}));
  const float q_scale = scale_down(most.of[0]), p_scale = scale_down(most.of[1]);
  FOR_ROW(i, n, counts) {
    const vf q = first_or(q_at(k, s, i, n), n, 0) * q_scale, p = first_or(p_at(k, s, i, n), n, 0) * p_scale;
    qq = lanes_add(qq, q * q);
    pp = lanes_add(pp, p * p);
    qp = lanes_add(qp, q * p);
  }
  const triple all = row_triple(((triple){{lanes_sum(qq), lanes_sum(pp), lanes_sum(qp)}}));
  const float q = sqrt(all.of[0].high), p = sqrt(all.of[1].high);
  const float mean = q == 0 || p == 0 ? 0 : all.of[2].high / q / p;
  of->input = one_float(q / q_scale), of->target = one_float(p / p_scale), of->mean = one_float(mean);
  return counts > 0 ? two_sum(1, -mean) : one_float(0);
}

/* The gradient is (q * q_scale * of_q - p * p_scale * of_p) * factor * q_scale. */
typedef struct along {
  float q_scale, of_q, p_scale, of_p, factor;
} along;
static inline along along_of(const row_stats *s, float by) {
  const float q_scale = scale_down(s->input.high), p_scale = scale_down(s->target.high), size = s->input.high * q_scale;
  return (along){q_scale, s->mean.high / size, p_scale, 1 / (s->target.high * p_scale), by / size};
}

/* ---- the gradient ---- */

static inline void store_gradient(const divergence_pair *k, const sides *s, const outputs *o, long r, bool counts,
                                  const row_stats *of, float inverse) {
  const divergence_numbers *n_of = &k->of;
  const bool cosine = is_cosine(n_of), logits = n_of->input_is == TIGON_DISTRIBUTION_LOGITS;
  const bool nothing = cosine && (of->input.high == 0 || of->target.high == 0);
  const float by = row_factor(n_of, o, r, n_of->grad, inverse).high;
  const float hard_by = row_factor(n_of, o, r, n_of->hard_grad, inverse).high;
  const float off = logits ? of->mean.high : n_of->kind == TIGON_DIVERGENCE_REVERSE_KL ? -1 : 0;
  const along a = along_of(of, by);
  const long column = counts ? class_column(n_of, o, r) : -1;
  FOR_ROW(i, n, n_of->cols) {
    vf y = (vf)(0.0f);
    if (counts) {
      const vf x = load_n(s->input, s->q + i, T, n);
      vf cap_slope;
      const vf z = capped_slope(&n_of->q, x, &cap_slope);
      if (cosine && !nothing)
        y = (z * a.q_scale * a.of_q - p_at(k, s, i, n) * a.p_scale * a.of_p) * a.factor * a.q_scale;
      else if (!cosine)
        y = slope_of(n_of, off, chance_of(n_of->input_is, &n_of->q, of->input, z), p_chance(k, s, of, i, n)) * by;
      if (n_of->hard != 0) {
        const vf one = with_lane((vf)(0.0f), column < 0 ? -1 : column - i, 1);
        y = fma((vf)(hard_by), chance_of(TIGON_DISTRIBUTION_LOGITS, &n_of->hard_map, of->hard, z).of - one, y);
      }
      y *= cap_slope;
    }
    store_n(s->dinput, s->to + i, T, n, y);
  }
}

static inline sides sides_at(const divergence_pair *k, memory input, memory target, memory dinput, long r) {
  return (sides){input, target, dinput, row_offset(&k->of.space, &k->of.input, r),
                 row_offset(&k->of.space, &k->of.target, r), dinput ? row_offset(&k->of.space, &k->of.dinput, r) : 0};
}

/* One kernel of cosine and one of the others. */
#define FORWARD(name, find)                                                                                           \
  __kernel void name(TENSOR(input), TENSOR(target), TENSOR(labels), TENSOR(token_scale), TENSOR(dloss),               \
                     TENSOR(inverse), TENSOR(token_loss), TENSOR(soft_losses), TENSOR(hard_losses), TENSOR(hard_lse), \
                     TENSOR(stats), TENSOR(dinput), const divergence_pair k) {                                        \
    ROOM                                                                                                              \
    const outputs o = {or_null(labels), or_null(token_scale), or_null(dloss), or_null(token_loss),                    \
                       or_null(soft_losses), or_null(hard_losses), or_null(hard_lse), or_null(stats)};                \
    for (long r = row_first(); r < k.of.space.rows; r += row_step()) {                                                \
      const sides s = sides_at(&k, memory_of(input), memory_of(target), or_null(dinput), r);                          \
      const bool counts = row_counts(&k.of, &o, r), hard = counts && k.of.hard != 0;                                  \
      const long column = hard ? class_column(&k.of, &o, r) : -1, cols = counts ? k.of.cols : 0;                      \
      const one_logit of_class = logit_of(&k.of.hard_map, column >= 0 ? load_one(s.input, s.q + column, T) : 0);      \
      row_stats of = no_stats();                                                                                      \
      of.hard = lse_of(&k.of.hard_map, s.input, s.q, hard ? cols : 0, space);                                         \
      const pair loss = find(&k, &s, &of, cols, space);                                                               \
      const pair entropy = hard ? wide_difference(of.hard, of_class.z) : one_float(0);                                \
      room_wait(); /* dinput may lie over what has been read */                                                       \
      if (row_leads()) store_row(&k.of, &o, r, loss, entropy, of);                                                    \
      if (s.dinput) store_gradient(&k, &s, &o, r, counts, &of, float_at(memory_of(inverse), 0));                      \
    }                                                                                                                 \
  }
FORWARD(divergence_fwd, sum_terms)
FORWARD(divergence_cosine_fwd, sum_products)

__kernel void divergence_bwd(TENSOR(input), TENSOR(target), TENSOR(labels), TENSOR(token_scale), TENSOR(dloss),
                             TENSOR(inverse), TENSOR(hard_lse), TENSOR(stats), TENSOR(dinput),
                             const divergence_pair k) {
  const outputs o = {or_null(labels), or_null(token_scale), or_null(dloss), (memory)0,
                     (memory)0, (memory)0, or_null(hard_lse), memory_of(stats)};
  for (long r = row_first(); r < k.of.space.rows; r += row_step()) {
    const sides s = sides_at(&k, memory_of(input), memory_of(target), memory_of(dinput), r);
    const row_stats of = stats_at(&o, r);
    store_gradient(&k, &s, &o, r, row_counts(&k.of, &o, r), &of, float_at(memory_of(inverse), 0));
  }
}
