/* topk_divergence: forward reads a row for its sums outside of the support, and with a gradient once more, in windows of classes. Backward
 * reads it once; it may have the logits of a panel alone, and all entries. */
#include "topk_windows.cl"

/* ---- sums ---- */

static inlined pair target_lse_of(work *w, room space) {
  few s = no_few();
  const long last = w->k->of.target_is == TIGON_DISTRIBUTION_LOGITS ? w->vocab : 0;
  FOR_WINDOWS(w, 0, last)
  FOR_ENTRIES(w, j, v) few_add(&s, logit_product(target_at(w, j), w->k->inverse_temperature));
  return few_lse(space, s);
}

static inlined pair outside_lse(const logit_map *map, room space, const exponentials *s) {
  const pair lse = join_exponentials(map, space, s, one_float(0)).lse;
  return lse.high == INFINITY ? one_float(NAN) : lse;
}

/* The log-sum-exps; the cross entropy's is returned. */
static inlined pair find_lse(work *w, topk_row *s, room space) {
  const divergence_numbers *k = &w->k->of;
  const bool hard = k->hard != 0;
  exponentials out = no_exponentials(&k->q), hard_out = no_exponentials(&k->hard_map);
  few in = no_few(), hard_in = in;
  FOR_WINDOWS(w, 0, w->cols) {
    FOR_OUTSIDE(w, c, n) {
      const vf x = load_n(w->input, w->x + w->begin + c, T, n);
      const vi here = outside_at(w, c, n);
      add_exponentials(&k->q, &out, x, 0, false, here, false);
      if (hard) add_exponentials(&k->hard_map, &hard_out, x, 0, false, here, false);
    }
    FOR_ENTRIES(w, j, v) {
      few_add(&in, logit_of(&k->q, x_at(w, v)).z);
      if (hard) few_add(&hard_in, logit_of(&k->hard_map, x_at(w, v)).z);
    }
  }
  s->outside = outside_lse(&k->q, space, &out);
  s->lse = log_add(few_lse(space, in), s->outside);
  if (isnan(s->lse.high)) s->outside = s->lse;
  const pair hard_lse = log_add(few_lse(space, hard_in), outside_lse(&k->hard_map, space, &hard_out));
  return hard ? hard_lse : one_float(0);
}

/* p_t; and D, M, forward. */
static inlined pair find_terms(work *w, topk_row *s, const bool forward, room space) {
  pair sum = one_float(0), loss = sum, mean = sum;
  float classes = 0;
  FOR_WINDOWS(w, 0, w->vocab) FOR_ENTRIES(w, j, v) {
    topk_element e;
    set_target(w->k, s, target_at(w, j), &e);
    sum = wide_sum(sum, value_of(e.p));
    classes += 1;
    if (!forward) continue;
    e = element_of(w->k, s, x_at(w, v), target_at(w, j));
    add_class(w->k, &e, &loss, &mean);
  }
  const pair count = row_triple(((triple){{one_float(classes), {0, 0}, {0, 0}}})).of[0];
  const triple all = row_triple(((triple){{sum, loss, mean}}));
  const pair left = wide_difference(one_float(1), all.of[0]);
  s->tail = wide_less(left, w->k->least_tail) ? w->k->least_tail : left;
  if (!w->k->tail || count_of_pair(count) == w->k->vocab) s->tail = one_float(0);
  if (!forward) return loss;
  loss = all.of[1], mean = all.of[2];
  const topk_element tail = tail_of(s);
  add_class(w->k, &tail, &loss, &mean);
  s->mean = mean;
  return loss;
}

/* ---- the gradient ---- */

/* The support's logits are left in place, where they may be, until its entries come. `label`: the class of the cross entropy, or -1. */
static inlined void store_gradient(work *w, const topk_row *s, pair factor, pair hard_factor, pair hard_lse,
                                  long label) {
  const divergence_numbers *k = &w->k->of;
  const topk_element tail = tail_of(s);
  const bool masked = s->outside.high == -INFINITY, hard = k->hard != 0;
  const pair lse = masked ? one_float(0) : s->outside;
  const float by = masked ? 0 : wide_mul(topk_gradient(w->k, s, &tail), factor).high;
  FOR_WINDOWS(w, k->panel_begin, k->panel_begin + w->cols) {
    const long column = w->begin - k->panel_begin;
    FOR_OUTSIDE(w, c, n) {
      const vf x = load_n(w->input, w->x + column + c, T, n);
      vf slope;
      const vf z = capped_slope(&k->q, x, &slope), share = chance_of(TIGON_DISTRIBUTION_LOGITS, &k->q, lse, z).of;
      vf d = unless_0(share, share * by);
      if (hard) {
        const vf one = with_lane((vf)(0.0f), label < 0 ? -1 : label - w->begin - c, 1);
        d = fma((vf)(hard_factor.high), chance_of(TIGON_DISTRIBUTION_LOGITS, &k->hard_map, hard_lse, z).of - one, d);
      }
      store_n(w->dinput, w->to + column + c, T, n, either(outside_at(w, c, n), d * slope, x));
    }
    room_wait();
    FOR_ENTRIES(w, j, v) {
      const float x = x_at(w, v);
      const topk_element e = element_of(w->k, s, x, target_at(w, j));
      pair d = wide_mul(factor, topk_gradient(w->k, s, &e));
      if (hard) {
        const pair p = wide_exp(wide_difference(logit_of(&k->hard_map, x).z, hard_lse));
        d = wide_sum(d, wide_mul(hard_factor, wide_add(p, v == label ? -1 : 0)));
      }
      store_one(w->dinput, w->to + v - k->panel_begin, T, wide_mul(d, logit_of(&k->q, x).slope).high);
    }
  }
}

static inline void raise_error(const work *w, memory error) {
  for (long j = row_lane(); j < w->k->k; j += GROUP)
    if (error && class_at(w, j) < 0) *(__global int *)error = 1;
}

static inline work work_at(const topk_numbers *k, ENTRIES *entry, memory input, memory target, memory ids, memory dinput,
                           bool counts, long r) {
  return (work){k, entry, input, target, ids, dinput, row_offset(&k->of.space, &k->of.input, r),
                row_offset(&k->of.space, &k->of.target, r), row_offset(&k->of.space, &k->ids, r),
                row_offset(&k->of.space, &k->of.dinput, r), counts ? k->of.cols : 0, counts ? k->vocab : 0};
}

static inline void store_nothing(const work *w, const topk_numbers *k) {
  if (w->dinput && w->cols == 0) FOR_ROW(i, n, k->of.cols) store_n(w->dinput, w->to + i, T, n, (vf)(0.0f));
}

__kernel void topk_divergence_fwd(TENSOR(input), TENSOR(target), TENSOR(ids), TENSOR(labels), TENSOR(token_scale),
                                  TENSOR(dloss), TENSOR(inverse), TENSOR(token_loss), TENSOR(soft_losses),
                                  TENSOR(hard_losses), TENSOR(hard_lse), TENSOR(stats), TENSOR(error), TENSOR(dinput),
                                  const topk_numbers k) {
  ROOM
  ENTRY_ROOM
  const outputs o = {or_null(labels), or_null(token_scale), or_null(dloss), or_null(token_loss),
                     or_null(soft_losses), or_null(hard_losses), or_null(hard_lse), or_null(stats)};
  const float share = is_there(dinput) ? float_at(memory_of(inverse), 0) : 1;
  for (long r = row_first(); r < k.of.space.rows; r += row_step()) {
    const bool counts = row_counts(&k.of, &o, r);
    work w = work_at(&k, entry_room, memory_of(input), memory_of(target), memory_of(ids), or_null(dinput), counts, r);
    const long column = counts ? class_column(&k.of, &o, r) : -1;
    const one_logit label = logit_of(&k.of.hard_map, column >= 0 ? load_one(w.input, w.x + column, T) : 0);
    topk_row s = {{0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}};
    raise_error(&w, or_null(error));
    const pair hard_lse = find_lse(&w, &s, space);
    s.target_lse = target_lse_of(&w, space);
    const pair loss = find_terms(&w, &s, true, space), none = one_float(0);
    const row_stats of = counts ? (row_stats){s.lse, s.outside, s.mean, hard_lse} : no_stats();
    room_wait(); /* dinput may lie over what has been read */
    if (row_leads())
      store_row(&k.of, &o, r, counts ? loss : none, column >= 0 ? wide_difference(hard_lse, label.z) : none, of);
    if (!w.dinput) w.cols = 0;
    store_gradient(&w, &s, row_factor(&k.of, &o, r, k.of.grad, share), row_factor(&k.of, &o, r, k.of.hard_grad, share),
                   hard_lse, column < 0 ? -1 : column + k.of.panel_begin);
    if (!counts) store_nothing(&w, &k);
  }
}

__kernel void topk_divergence_bwd(TENSOR(input), TENSOR(target), TENSOR(ids), TENSOR(labels), TENSOR(token_scale),
                                  TENSOR(dloss), TENSOR(inverse), TENSOR(hard_lse), TENSOR(stats), TENSOR(error),
                                  TENSOR(dinput), const topk_numbers k) {
  ROOM
  ENTRY_ROOM
  const outputs o = {or_null(labels), or_null(token_scale), or_null(dloss), (memory)0,
                     (memory)0, (memory)0, or_null(hard_lse), memory_of(stats)};
  const float share = float_at(memory_of(inverse), 0);
  for (long r = row_first(); r < k.of.space.rows; r += row_step()) {
    const bool counts = row_counts(&k.of, &o, r);
    work w = work_at(&k, entry_room, memory_of(input), memory_of(target), memory_of(ids), memory_of(dinput), counts, r);
    const long column = counts ? class_column(&k.of, &o, r) : -1;
    const row_stats of = stats_at(&o, r);
    topk_row s = {of.input, of.target, of.mean, {0, 0}, {0, 0}};
    raise_error(&w, or_null(error));
    s.target_lse = target_lse_of(&w, space);
    find_terms(&w, &s, false, space);
    store_gradient(&w, &s, row_factor(&k.of, &o, r, k.of.grad, share), row_factor(&k.of, &o, r, k.of.hard_grad, share),
                   of.hard, column < 0 ? -1 : column + k.of.panel_begin);
    if (!counts) store_nothing(&w, &k);
  }
}
