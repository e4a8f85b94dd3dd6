/* fused_moe, as its header writes it, a slot at a time. */
#include <stdlib.h>

#include "ref/ref.h"

typedef tigon_fused_moe_problem problem;

/* Element (e, i, j). */
static int64_t offset(const tigon_expert_weights *m, int64_t e, int64_t i, int64_t j) {
  return e * m->expert + (m->turned ? j * m->pitch + i : i * m->pitch + j);
}
static double weight(const tigon_expert_weights *m, int64_t e, int64_t i, int64_t j) {
  return tigon_load_f64(m->data, offset(m, e, i, j), m->dtype);
}

/* ---- the activation ---- */

/* act(u), and *slope. */
static double activation(tigon_moe_act act, double u, double *slope) {
  const double root_2_over_pi = 0.79788456080286535588;
  const double cubic = act == TIGON_MOE_GELU_TANH ? 0.044715 : 0, scale = cubic > 0 ? 2 * root_2_over_pi : 1;
  const double v = scale * (u + cubic * u * u * u); /* either is u * sigma(v) */
  const double sigma = 1 / (1 + tigon_ref_exp(-v)), rest = 1 / (1 + tigon_ref_exp(v));
  *slope = sigma + u * sigma * rest * scale * (1 + 3 * cubic * u * u);
  return u * sigma;
}

/* Column j's c, its slopes, and which of a and b a clamp has replaced. */
typedef struct gated {
  double c, by_a, by_b;
  bool clamped_a, clamped_b;
} gated;

/* A NaN is not beyond a clamp. */
static gated gate(const problem *p, const double *pre, int64_t j) {
  const tigon_map_numbers *k = &p->numbers;
  const double clamp = (double)k->clamp, down = (double)k->down_mult, mult = (double)k->gate_mult;
  const double a = pre[tigon_moe_gate(p, j)], b = pre[tigon_moe_up(p, j)];
  const bool high_a = clamp > 0 && a > clamp, high_b = clamp > 0 && b > clamp, low_b = clamp > 0 && b < -clamp;
  const double up = (high_b ? clamp : low_b ? -clamp : b) + (double)k->up_offset;
  double slope;
  const double value = activation(p->act, mult * (high_a ? clamp : a), &slope);
  return (gated){down * value * up, down * up * mult * slope, down * value, high_a, high_b || low_b};
}

/* ---- slots ---- */

/* [slots] The position of each; NULL: no memory. */
static int64_t *positions_of(const problem *p) {
  const int64_t slots = tigon_moe_slots(p);
  int64_t *position = malloc((size_t)(slots + 1) * sizeof *position), next = 0;
  for (int64_t e = 0; position && e <= p->experts; ++e)
    for (int64_t s = 0; s < slots; ++s)
      if (tigon_moe_expert(p, s) == (e < p->experts ? e : -1)) position[s] = next++;
  return position;
}

static double x_at(const problem *p, int64_t t, int64_t c) { return tigon_ref_at(&p->space, &p->x, p->dtype, t, c); }
static double dy_at(const problem *p, int64_t t, int64_t c) { return tigon_ref_at(&p->space, &p->y, p->dtype, t, c); }

/* [2I] of slot s, whose expert is e. */
static void make_pre(const problem *p, int64_t s, int64_t e, double *pre) {
  for (int64_t i = 0; i < 2 * p->inner; ++i) {
    double sum = tigon_ref_vector_at(p->gate_up_bias, e * 2 * p->inner + i);
    for (int64_t c = 0; c < p->cols; ++c) sum += x_at(p, s / p->top_k, c) * weight(&p->gate_up, e, i, c);
    pre[i] = tigon_round_f64(sum, p->dtype);
  }
}

/* ---- forward ---- */

/* Adds slot s's z to y [cols]; pre [2I] and c [I] have room. */
static void forward_slot(const problem *p, int64_t s, int64_t position, double *pre, double *c, double *y) {
  const int64_t e = tigon_moe_expert(p, s), wide = 2 * p->inner;
  for (int64_t i = 0; i < wide; ++i) pre[i] = 0;
  if (e >= 0) make_pre(p, s, e, pre);
  for (int64_t i = 0; p->pre.data && i < wide; ++i)
    tigon_store_f64(p->pre.data, position * wide + i, p->pre.dtype, pre[i]);
  if (e < 0) return;
  const double w = tigon_ref_vector_at(p->w, s);
  for (int64_t j = 0; j < p->inner; ++j)
    c[j] = tigon_round_f64((p->weight_before_down ? w : 1) * gate(p, pre, j).c, p->dtype);
  for (int64_t h = 0; h < p->cols; ++h) {
    const double bias = tigon_ref_vector_at(p->down_bias, e * p->cols + h);
    double sum = 0;
    for (int64_t j = 0; j < p->inner; ++j) sum += c[j] * weight(&p->down, e, h, j);
    y[h] += p->weight_before_down ? sum + bias : w * (sum + bias);
  }
}

tigon_status tigon_ref_fused_moe_fwd(tigon_queue *queue, const problem *p) {
  (void)queue;
  int64_t *position = positions_of(p);
  double *y = malloc((size_t)(p->cols + 3 * p->inner + 1) * sizeof *y);
  for (int64_t t = 0; position && y && t < p->space.rows; ++t) {
    for (int64_t h = 0; h < p->cols; ++h) y[h] = 0;
    for (int64_t s = t * p->top_k; s < (t + 1) * p->top_k; ++s)
      forward_slot(p, s, position[s], y + p->cols, y + p->cols + 2 * p->inner, y);
    for (int64_t h = 0; h < p->cols; ++h) tigon_ref_put(&p->space, &p->y, p->dtype, t, h, y[h]);
  }
  const tigon_status status = position && y ? TIGON_OK : TIGON_ERROR_OUT_OF_MEMORY;
  free(position);
  free(y);
  return status;
}

/* ---- backward ---- */

/* Sums in double: dx of all tokens; the gradients of the expert at work, and rows of the slot at work. */
typedef struct sums {
  double *dx;                                        /* [rows, cols] */
  double *gate_up, *gate_up_bias, *down, *down_bias; /* [2I, H], [2I], [H, I], [H] */
  double *pre, *d, *c;                               /* [2I], [I], [I] */
  double *all;
  int64_t of_expert, count;
} sums;

static bool make_sums(const problem *p, sums *s) {
  const int64_t h = p->cols, i = p->inner;
  s->of_expert = 3 * i * h + 2 * i + h;
  s->count = p->space.rows * h + s->of_expert + 4 * i;
  s->all = calloc((size_t)s->count + 1, sizeof *s->all);
  if (!s->all) return false;
  s->dx = s->all;
  s->gate_up = s->dx + p->space.rows * h;
  s->gate_up_bias = s->gate_up + 2 * i * h;
  s->down = s->gate_up_bias + 2 * i;
  s->down_bias = s->down + i * h;
  s->pre = s->down_bias + h;
  s->d = s->pre + 2 * i;
  s->c = s->d + i;
  return true;
}

/* w * c, dw and then dpre, which takes pre's place, of slot s of expert e. */
static void slot_gradients(const problem *p, int64_t s, int64_t e, int64_t position, sums *of) {
  const int64_t t = s / p->top_k, wide = 2 * p->inner;
  const double w = tigon_ref_vector_at(p->w, s);
  double dw = 0;
  if (!p->pre.dtype) make_pre(p, s, e, of->pre);
  for (int64_t i = 0; p->pre.dtype && i < wide; ++i)
    of->pre[i] = tigon_load_f64(p->pre.data, position * wide + i, p->pre.dtype);
  for (int64_t j = 0; j < p->inner; ++j) {
    double d = 0;
    for (int64_t h = 0; h < p->cols; ++h) d += dy_at(p, t, h) * weight(&p->down, e, h, j);
    const gated g = gate(p, of->pre, j);
    dw += d * g.c;
    of->c[j] = tigon_round_f64(w * g.c, p->dtype);
    of->pre[tigon_moe_gate(p, j)] = g.clamped_a ? 0 : tigon_round_f64(w * d * g.by_a, p->dtype);
    of->pre[tigon_moe_up(p, j)] = g.clamped_b ? 0 : tigon_round_f64(w * d * g.by_b, p->dtype);
  }
  for (int64_t h = 0; p->down_bias.data && !p->weight_before_down && h < p->cols; ++h)
    dw += dy_at(p, t, h) * tigon_ref_vector_at(p->down_bias, e * p->cols + h);
  tigon_ref_vector_put(p->dw, s, dw, false);
}

static void backward_slot(const problem *p, int64_t s, int64_t e, int64_t position, sums *of) {
  const int64_t t = s / p->top_k, wide = 2 * p->inner;
  const double w = tigon_ref_vector_at(p->w, s);
  slot_gradients(p, s, e, position, of);
  for (int64_t i = 0; i < wide; ++i) of->gate_up_bias[i] += of->pre[i];
  for (int64_t h = 0; h < p->cols; ++h) {
    for (int64_t i = 0; i < wide; ++i) {
      of->gate_up[i * p->cols + h] += of->pre[i] * x_at(p, t, h);
      of->dx[t * p->cols + h] += of->pre[i] * weight(&p->gate_up, e, i, h);
    }
    for (int64_t j = 0; j < p->inner; ++j) of->down[h * p->inner + j] += dy_at(p, t, h) * of->c[j];
    of->down_bias[h] += p->weight_before_down ? dy_at(p, t, h) : w * dy_at(p, t, h);
  }
}

/* [n, k] sums to expert e's matrix. */
static void put_matrix(const problem *p, const tigon_expert_weights *to, int64_t e, int64_t n, int64_t k,
                       const double *of) {
  if (!to->data) return;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < k; ++j)
      tigon_store_f64(to->data, offset(to, e, i, j), to->dtype,
                      of[i * k + j] + (p->accumulate ? weight(to, e, i, j) : 0));
}
static void put_vector(const problem *p, tigon_vector to, int64_t e, int64_t n, const double *of) {
  for (int64_t i = 0; i < n; ++i) tigon_ref_vector_put(to, e * n + i, of[i], p->accumulate);
}

tigon_status tigon_ref_fused_moe_bwd(tigon_queue *queue, const problem *p) {
  (void)queue;
  const int64_t slots = tigon_moe_slots(p), wide = 2 * p->inner;
  int64_t *position = positions_of(p);
  sums of;
  if (!position || !make_sums(p, &of)) {
    free(position);
    return TIGON_ERROR_OUT_OF_MEMORY;
  }
  for (int64_t e = 0; e < p->experts; ++e) {
    for (int64_t i = 0; i < of.of_expert; ++i) of.gate_up[i] = 0;
    for (int64_t s = 0; s < slots; ++s)
      if (tigon_moe_expert(p, s) == e) backward_slot(p, s, e, position[s], &of);
    put_matrix(p, &p->dgate_up, e, wide, p->cols, of.gate_up);
    put_vector(p, p->dgate_up_bias, e, wide, of.gate_up_bias);
    put_matrix(p, &p->ddown, e, p->cols, p->inner, of.down);
    put_vector(p, p->ddown_bias, e, p->cols, of.down_bias);
  }
  for (int64_t s = 0; s < slots; ++s)
    if (tigon_moe_expert(p, s) < 0) tigon_ref_vector_put(p->dw, s, 0, false);
  for (int64_t t = 0; p->dx.data && t < p->space.rows; ++t)
    for (int64_t h = 0; h < p->cols; ++h) tigon_ref_put(&p->space, &p->dx, p->dtype, t, h, of.dx[t * p->cols + h]);
  free(position);
  free(of.all);
  return TIGON_OK;
}
