/* policy_loss: how many tokens count, by one group; the sequences, each read for its log ratios and for its losses; and the numbers of the
 * whole call. */
#include "sequences.cl"
#include "policy_loss.h"
#include "core/policy_terms.h"

__kernel void policy_count(TENSOR(mask), TENSOR(counted), const policy_numbers k) {
  __local pair tree[TOTAL_ITEMS];
  pair sum = one_float(0);
  for (long t = (long)get_local_id(0); is_there(mask) && t < k.of.tokens; t += TOTAL_ITEMS)
    sum = wide_add(sum, token_counts(&k.of, memory_of(mask), t) ? 1 : 0);
  sum = is_there(mask) ? total_of(tree, sum) : pair_of_count(k.of.tokens);
  if (get_local_id(0) == 0) *(__global pair *)memory_of(counted) = sum.high > 0 ? sum : one_float(1);
}

/* A call's memory; NULL: absent. */
typedef struct tensors {
  memory mask, logprob, advantage, old, ref, entropy, ratio, token_loss, dlogprob, dentropy;
} tensors;

/* A sequence, and what its tokens add up to. */
typedef struct sequence {
  long s;
  span of;
  pair counted, log_ratio, shared;
  float ratio, weight, slope; /* ratio: of VESPO w */
} sequence;

/* As policy_add() of src/cuda/policy_loss.cu. */
static inline void add_tokens(const policy_numbers *k, const tensors *m, sequence *q) {
  const bool vespo = k->kind == TIGON_POLICY_VESPO;
  FOR_TOKENS(t, q->of) {
    if (!token_counts(&k->of, m->mask, t)) continue;
    float x = m->old ? float_at(m->logprob, t) - float_at(m->old, t) : 0;
    q->counted = wide_add(q->counted, 1);
    if (vespo) x = tigon_policy_within(x, -20, 20);
    if (vespo && m->ratio && k->token_ratio)
      q->log_ratio = wide_add(q->log_ratio, tigon_policy_log_ratio(float_at(m->ratio, t)));
    q->log_ratio = wide_add(q->log_ratio, x);
  }
}

/* As tigon_policy_weigh(). */
static inline void weigh(const policy_numbers *k, const tensors *m, pair counted, memory denominator, float dloss,
                         sequence *q) {
  const int kind = k->kind;
  const pair own = q->counted.high > 0 ? q->counted : one_float(1);
  pair d = tigon_policy_of_tokens(kind) ? counted : pair_of_count(k->of.count);
  if (denominator) d = one_float(float_at(denominator, 0) < 1 ? 1 : float_at(denominator, 0));
  if (kind == TIGON_POLICY_GRPO || kind == TIGON_POLICY_SAPO) d = wide_mul(d, own);
  if (kind == TIGON_POLICY_DR_GRPO) d = wide_mul(d, k->max_length);
  if (kind == TIGON_POLICY_LUSPO && !k->sequence_level) d = wide_mul(d, wide_mul(k->max_length, wide_inverse(own)));
  q->weight = wide_inverse(d).high;
  q->slope = q->weight * dloss;
  if (kind == TIGON_POLICY_VESPO) {
    if (m->ratio && !k->token_ratio)
      q->log_ratio = wide_add(q->log_ratio, tigon_policy_log_ratio(float_at(m->ratio, q->s)));
    q->ratio = tigon_policy_within(q->log_ratio.high, -18.420681f, 20);
  } else {
    q->ratio = exp_one(wide_mul(q->log_ratio, wide_inverse(own)).high);
  }
}

/* As policy_visit() of src/cuda/policy_loss.cu. */
static inline void visit_tokens(const policy_numbers *k, const tensors *m, float entropy_slope, sequence *q,
                                policy_sums *sums) {
  tigon_policy_values x = {.has_old = m->old, .has_ref = m->ref, .has_ratio = m->ratio};
  tigon_policy_loss_fwd_problem p = {.kind = k->kind, .sequence_level = k->sequence_level,
                                     .kl_bias_corrected = k->kl_bias_corrected, .eps_low = k->eps_low,
                                     .eps_high = k->eps_high, .delta = k->delta, .kl_weight = k->kl_weight};
  for (int i = 0; i < 2; ++i) p.tau[i] = k->tau[i], p.k[i] = k->k[i], p.lambda[i] = k->lambda[i];
  FOR_TOKENS(t, q->of) {
    const bool counts = token_counts(&k->of, m->mask, t);
    tigon_policy_token made = {0, 0, 0, 0, 0, false, false};
    if (counts) {
      x.logprob = float_at(m->logprob, t), x.advantage = float_at(m->advantage, k->token_advantage ? t : q->s);
      x.old = float_or(m->old, t, 0), x.ref = float_or(m->ref, t, 0);
      x.ratio = float_or(m->ratio, k->token_ratio ? t : q->s, 1);
      made = tigon_policy_token_of(&p, &x, q->ratio);
      sums->entropy = wide_add(sums->entropy, float_or(m->entropy, t, 0));
    }
    put_float(m->token_loss, t, made.loss);
    put_float(m->dlogprob, t, counts ? q->slope * made.own : 0);
    put_float(m->dentropy, t, counts ? entropy_slope : 0);
    q->shared = wide_add(q->shared, made.shared);
    if (counts) sums->loss = wide_sum(sums->loss, two_product(q->weight, made.loss));
    sums->kl = wide_add(sums->kl, made.kl), sums->ratio = wide_add(sums->ratio, made.ratio);
    sums->low = wide_add(sums->low, made.low ? 1 : 0), sums->high = wide_add(sums->high, made.high ? 1 : 0);
  }
}

__kernel void policy_rows(TENSOR(mask), TENSOR(segments), TENSOR(logprob), TENSOR(advantage), TENSOR(old), TENSOR(ref),
                          TENSOR(entropy), TENSOR(ratio), TENSOR(denominator), TENSOR(dloss), TENSOR(token_loss),
                          TENSOR(dlogprob), TENSOR(dentropy), TENSOR(counted), TENSOR(left), TENSOR(error),
                          const policy_numbers k) {
  ROOM
  const tensors m = {or_null(mask), memory_of(logprob), memory_of(advantage), or_null(old), or_null(ref),
                     or_null(entropy), or_null(ratio), or_null(token_loss), or_null(dlogprob), or_null(dentropy)};
  const pair all = *(__global const pair *)memory_of(counted), none = one_float(0);
  const float upstream = float_or(or_null(dloss), 0, 1);
  const float entropy_slope = -wide_times(wide_inverse(all), k.entropy_weight).high * upstream;
  const bool shares = m.dlogprob && k.sequence_level && k.kind != TIGON_POLICY_VESPO;
  policy_sums sums = {none, none, none, none, none, none};
  for (long s = row_first(); s < k.of.count; s += row_step()) {
    sequence q = {s, span_of(&k.of, or_null(segments), s, or_null(error)), none, none, none, 1, 0, 0};
    add_tokens(&k, &m, &q);
    const triple of = row_triple(((triple){{q.counted, q.log_ratio, none}}));
    q.counted = of.of[0], q.log_ratio = of.of[1];
    weigh(&k, &m, all, or_null(denominator), upstream, &q);
    visit_tokens(&k, &m, entropy_slope, &q, &sums);
    q.shared = row_triple(((triple){{q.shared, none, none}})).of[0];
    const float part = q.slope * wide_mul(q.shared, wide_inverse(q.counted)).high;
    FOR_TOKENS(t, q.of)
      if (shares && token_counts(&k.of, m.mask, t)) put_float(m.dlogprob, t, float_at(m.dlogprob, t) + part);
  }
  const triple first = row_triple(((triple){{sums.loss, sums.kl, sums.entropy}}));
  const triple rest = row_triple(((triple){{sums.ratio, sums.low, sums.high}}));
  if (row_leads())
    ((__global policy_sums *)memory_of(left))[row_first()] =
        (policy_sums){first.of[0], first.of[1], first.of[2], rest.of[0], rest.of[1], rest.of[2]};
}

__kernel void policy_join(TENSOR(counted), TENSOR(left), TENSOR(loss), TENSOR(kl), TENSOR(clip_low), TENSOR(clip_high),
                          TENSOR(mean_entropy), TENSOR(mean_ratio), const policy_numbers k) {
  __local pair tree[TOTAL_ITEMS];
  __global const policy_sums *from = (__global const policy_sums *)memory_of(left);
  const pair share = wide_inverse(*(__global const pair *)memory_of(counted)), none = one_float(0);
  policy_sums s = {none, none, none, none, none, none};
  for (long i = (long)get_local_id(0); i < k.programs; i += TOTAL_ITEMS) {
    s.loss = wide_sum(s.loss, from[i].loss), s.kl = wide_sum(s.kl, from[i].kl);
    s.entropy = wide_sum(s.entropy, from[i].entropy), s.ratio = wide_sum(s.ratio, from[i].ratio);
    s.low = wide_sum(s.low, from[i].low), s.high = wide_sum(s.high, from[i].high);
  }
  s.loss = total_of(tree, s.loss), s.kl = total_of(tree, s.kl), s.entropy = total_of(tree, s.entropy);
  s.ratio = total_of(tree, s.ratio), s.low = total_of(tree, s.low), s.high = total_of(tree, s.high);
  if (get_local_id(0) > 0) return;
  const pair entropy = wide_mul(s.entropy, share);
  if (k.entropy_weight != 0) s.loss = wide_sum(s.loss, wide_times(entropy, -k.entropy_weight));
  put_float(memory_of(loss), 0, s.loss.high);
  put_float(or_null(kl), 0, wide_mul(s.kl, share).high);
  put_float(or_null(clip_low), 0, wide_mul(s.low, share).high);
  put_float(or_null(clip_high), 0, wide_mul(s.high, share).high);
  put_float(or_null(mean_entropy), 0, entropy.high);
  put_float(or_null(mean_ratio), 0, wide_mul(s.ratio, share).high);
}
