/* dyt: y = gamma * tanh(alpha * x) + beta. Backward, with t = tanh(alpha * x) and q = dy * gamma * (1 - t^2):
 *   dx = alpha * q        dalpha = sum of q * x        dgamma, dbeta = sums over rows of dy * t, dy */
#include "ascend/kernel/columns.h"

/* t = tanh(u) = c P(c^2) / Q(c^2) with c = u cut off at 8.4, where tanh is 1 - 2^-23.2: within 2^-28.2 before rounding (iterated
 * least squares). c is used up by its square; no step has a small difference of large numbers. */
AICORE void tanh_of(ub_f32 t, ub_f32 c, ub_f32 p, ub_f32 q, int64_t n) {
  static const float over[] = {-1.02250453e-13f, 5.91215823e-11f, -2.14744563e-8f, 1.14509695e-5f,
                               3.13177392e-3f,   1.31087765e-1f,  9.99999997e-1f};
  static const float under[] = {2.58696073e-4f, 2.46055139e-2f, 4.64421067e-1f, 1};
  at_most(c, c, 8.4f, n);
  at_least(c, c, -8.4f, n);
  mul(t, c, c, n);
  polynomial(p, t, over, 7, n);
  mul(p, p, c, n);
  polynomial(q, t, under, 4, n);
  divide(t, p, q, n);
}

/* slope = 1 - tanh(u)^2 = 4 e / (1 + e)^2 with e = exp(-2 |u|), of u in `slope`. */
AICORE void slope_of(ub_f32 slope, ub_f32 sum, int64_t n) {
  absolute(slope, slope, n);
  mul_scalar(slope, slope, -2, n);
  exponential(slope, slope, n);
  add_scalar(sum, slope, 1, n);
  divide(slope, slope, sum, n);
  divide(slope, slope, sum, n);
  mul_scalar(slope, slope, 4, n);
}

AICORE void forward(columns_state *s) {
  const int64_t n = s->t.rows * s->t.pitch;
  const ub_f32 u = s->value[0], t = s->work[0];
  mul_scalar(u, u, s->number, n);
  tanh_of(t, u, s->result, s->work[1], n);
  tile_op(ROW_MUL, s->result, t, s->vector[0].values, s->t, false);
  if (s->a->vector[1]) tile_op(ROW_ADD, s->result, s->result, s->vector[1].values, s->t, false);
}

AICORE void backward(columns_state *s) {
  const int64_t n = s->t.rows * s->t.pitch;
  const ub_f32 dy = s->value[0], x = s->value[1], dx = s->result, *work = s->work;
  if (s->a->slabs) {
    mul_scalar(work[0], x, s->number, n);
    tanh_of(dx, work[0], work[1], work[2], n);
    mul(dx, dx, dy, n);
    add_column_sums(s->sum[0], dx, s->t);
    add_column_sums_kept(s->sum[1], work[0], dy, s->t);
  }
  mul_scalar(work[0], x, s->number, n);
  slope_of(work[0], work[1], n);
  mul(work[1], dy, work[0], n);
  tile_op(ROW_MUL, work[0], work[1], s->vector[0].values, s->t, false); /* q */
  mul_scalar(dx, work[0], s->number, n);
  if (!s->a->slabs) return;
  mul(work[0], work[0], x, n);
  add_to_number(s, work[0]);
}

COLUMNS_KERNEL(dyt_fwd, false, 2, forward)
COLUMNS_KERNEL(dyt_bwd, true, 3, backward)
