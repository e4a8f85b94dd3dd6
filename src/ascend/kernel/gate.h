/* c = act(a) * b and its gradients, for swiglu and geglu. In f32 c is within 4 ulp; 16-bit dtypes are spared what only that
 * needs. Arithmetic takes the place of selects, and an infinity or a NaN comes through where the formula has it. */
#ifndef TIGON_ASCEND_KERNEL_GATE_H
#define TIGON_ASCEND_KERNEL_GATE_H

#include <tigon/op/geglu.h>

#include "ascend/kernel/ordered.h"
#include "ascend/kernel/pointwise.h"

/* Forward: a, b; c. Backward: dc, a, b; da, db. */
typedef enum activation { SILU, GELU_TANH, GELU_ERF } activation;

/* f32 tiles of n elements. u is the argument and stays; the value comes in x, the slope in `slope`. */
typedef struct gate_tiles {
  ub_f32 u, x, y, f, t, more, slope;
  int64_t n;
} gate_tiles;

/* d = the nearest multiples of unit, for |a| < 2^22 unit: `shifter` is 1.5 * 2^23 unit, whose neighbours are unit apart. */
AICORE void round_with(ub_f32 d, ub_f32 a, float shifter, int64_t n) {
  add_scalar(d, a, shifter, n);
  add_scalar(d, d, -shifter, n);
}

/* A small e^y is two factors: e^max(y, -80), and far = e^(min(y, -80) + 80), which is 1 for most y. So only the last product
 * rounds to a denormal. far may be y. */
enum { FAR = 80 };
AICORE void far_factor(ub_f32 far, ub_f32 y, int64_t n) {
  at_most(far, y, -FAR, n);
  add_scalar(far, far, FAR, n);
  exponential(far, far, n);
}

/* ---- silu(u) = u sigma(y) with y = u, gelu by tanh with y = 2 sqrt(2 / pi) (u + 0.044715 u^3) ---- */

#define GELU_1 1.5957691216057308
#define GELU_3 (0.044715 * GELU_1) /* y = GELU_1 u + GELU_3 u^3 */
#define GELU_MOST 15               /* beyond it sigma is 0 or 1 */

AICORE void clip(ub_f32 d, ub_f32 u, float most, int64_t n) {
  at_most(d, u, most, n);
  at_least(d, d, -most, n);
}

/* f = y, whose error is that of its rounding: good enough for 16 bits. */
AICORE void gelu_argument(const gate_tiles *k) {
  const int64_t n = k->n;
  clip(k->f, k->u, GELU_MOST, n);
  mul(k->t, k->f, k->f, n);
  mul_scalar(k->t, k->t, (float)GELU_3, n);
  add_scalar(k->t, k->t, (float)GELU_1, n);
  mul(k->f, k->f, k->t, n);
}
/* f + t = y within 2^-25, because e^-y multiplies its error by y. u = h + l with h on multiples of 1/16; h^2 = q + p with q whole;
 * h (A + B q), with A and B the constants' first bits, has 23 bits at most and is exact. The rest is small. */
AICORE void gelu_argument_split(const gate_tiles *k) {
  const float a = 102.0f / 64, b = 73.0f / 1024;
  const ub_f32 h = k->t, rest = k->y, q = k->x;
  const int64_t n = k->n;
  clip(k->f, k->u, GELU_MOST, n);
  round_with(h, k->f, 0x1.8p19f, n);
  mul(rest, h, k->f, n); /* l (GELU_1 + GELU_3 (3 h u + l^2)) */
  mul_scalar(rest, rest, 3, n);
  sub(k->f, k->f, h, n);
  mul(q, k->f, k->f, n);
  add(rest, rest, q, n);
  mul_scalar(rest, rest, (float)GELU_3, n);
  add_scalar(rest, rest, (float)GELU_1, n);
  mul(rest, rest, k->f, n);
  mul(k->f, h, h, n); /* h ((GELU_1 - A) + (GELU_3 - B) q + GELU_3 p) */
  round_with(q, k->f, 0x1.8p23f, n);
  sub(k->f, k->f, q, n);
  mul_scalar(k->f, k->f, (float)GELU_3, n);
  mul_scalar(k->more, q, (float)(GELU_3 - (double)b), n);
  add(k->f, k->f, k->more, n);
  add_scalar(k->f, k->f, (float)(GELU_1 - (double)a), n);
  mul(k->f, k->f, h, n);
  add(rest, rest, k->f, n);
  mul_scalar(q, q, b, n);
  add_scalar(q, q, a, n);
  mul(q, q, h, n);
  add(k->f, q, rest, n);
  sub(k->t, q, k->f, n);
  add(k->t, k->t, rest, n);
}

/* x = u sigma(argument), and with `backward` the slope in y: sigma (1 + u argument' (1 - sigma)). silu forward may have y where
 * x is. */
AICORE void logistic(gate_tiles *k, activation act, bool exact, bool backward) {
  const ub_f32 e = k->y, sum = k->x;
  const int64_t n = k->n;
  if (act == GELU_TANH && exact) gelu_argument_split(k);
  if (act == GELU_TANH && !exact) gelu_argument(k);
  const ub_f32 argument = act == SILU ? k->u : k->f;
  at_least(e, argument, -FAR, n);
  mul_scalar(e, e, -1, n);
  exponential(e, e, n);
  if (act == GELU_TANH && exact) {
    mul(k->x, e, k->t, n);
    sub(e, e, k->x, n);
  }
  far_factor(k->f, argument, n);
  add_scalar(sum, e, 1, n);
  if (backward) {
    divide(e, e, sum, n); /* 1 - sigma */
    mul(k->t, k->u, k->f, n);
    mul(e, e, k->t, n);
    if (act == GELU_TANH) {
      clip(k->t, k->u, GELU_MOST, n);
      mul(k->t, k->t, k->t, n);
      mul_scalar(k->t, k->t, (float)(3 * GELU_3), n);
      add_scalar(k->t, k->t, (float)GELU_1, n);
      mul(e, e, k->t, n);
    }
    add(e, e, k->f, n);
    divide(e, e, sum, n);
    k->slope = e;
  }
  divide(sum, k->u, sum, n);
  mul(k->x, sum, k->f, n);
}

/* ---- gelu by erf: u Phi(u), from the tail Phi(-z) = e^(-z^2 / 2) / D(z), z = |u| ---- */

/* more = D = 2 + z (sqrt(2 pi) + a / b) for z in t, and y = what D lost in its rounding, in units of D. a and b come from the fit
 * of cpu/simd_math.h, with its leading terms taken out, which keeps their rounding from D. */
AICORE void tail_divisor(const gate_tiles *k) {
  const float a[] = {-0.00372974668f, -0.0400084779f, -0.19991985f, -0.536436915f, -0.68314445f};
  const float b[] = {0.00186487334f, 0.0223417431f, 0.127949506f, 0.424159646f, 0.813921094f, 0.75f};
  const int64_t n = k->n;
  polynomial(k->more, k->t, b, 6, n);
  polynomial(k->y, k->t, a, 5, n);
  divide(k->y, k->y, k->more, n);
  add_scalar(k->y, k->y, 2.50662827f, n);
  mul(k->y, k->y, k->t, n);
  add_scalar(k->more, k->y, 2, n);
  sub(k->y, k->y, k->more, n);
  add_scalar(k->y, k->y, 2, n);
  divide(k->y, k->y, k->more, n);
}

/* x + t = -z^2 / 2 for z in t, where z^2 = h^2 + (z - h) (z + h) with h on multiples of 1/128, so that h^2 is exact. */
AICORE void half_square(const gate_tiles *k) {
  const int64_t n = k->n;
  round_with(k->x, k->t, 0x1.8p16f, n);
  sub(k->f, k->t, k->x, n);
  add(k->t, k->t, k->x, n);
  mul(k->f, k->f, k->t, n);
  mul_scalar(k->f, k->f, -0.5f, n);
  mul(k->x, k->x, k->x, n);
  mul_scalar(k->x, k->x, -0.5f, n);
  add(k->t, k->x, k->f, n);
  sub(k->x, k->x, k->t, n);
  add(k->x, k->x, k->f, n);
}

AICORE void gelu_erf(gate_tiles *k, bool backward) {
  const int64_t n = k->n;
  absolute(k->t, k->u, n);
  at_most(k->t, k->t, 20, n);
  tail_divisor(k);
  half_square(k);
  sub(k->y, k->x, k->y, n); /* x = e^t (1 + y) / D, without the far factor f */
  at_least(k->x, k->t, -FAR, n);
  exponential(k->x, k->x, n);
  divide(k->x, k->x, k->more, n);
  mul(k->f, k->x, k->y, n);
  add(k->x, k->x, k->f, n);
  far_factor(k->f, k->t, n);
  if (backward) { /* more = the slope's tail, Phi(-z) - z e^(-z^2 / 2) / sqrt(2 pi) */
    absolute(k->t, k->u, n);
    at_most(k->t, k->t, 20, n);
    mul_scalar(k->t, k->t, 0.398942292f, n);
    mul(k->more, k->more, k->t, n);
    mul(k->more, k->more, k->x, n);
    sub(k->more, k->x, k->more, n);
    mul(k->more, k->more, k->f, n);
  }
  mul_scalar(k->y, k->u, 0x1p127f, n); /* y = 1 where u > 0, else 0; t = -1 or 1; so Phi(u) = y + t Phi(-z) */
  mul_scalar(k->y, k->y, 0x1p30f, n);
  at_most(k->y, k->y, 1, n);
  at_least(k->y, k->y, 0, n);
  mul_scalar(k->t, k->y, -2, n);
  add_scalar(k->t, k->t, 1, n);
  mul(k->x, k->x, k->t, n);
  add(k->x, k->x, k->y, n);
  mul(k->x, k->x, k->u, n);
  if (backward) {
    mul(k->more, k->more, k->t, n);
    add(k->more, k->more, k->y, n);
    mul_scalar(k->t, k->u, 0, n); /* NaN for an infinity */
    add(k->more, k->more, k->t, n);
    k->slope = k->more;
  }
  v_max_f32(k->f, k->f, k->y, n);
  sync_pipe(PIPE_V);
  mul(k->x, k->x, k->f, n);
}

/* ---- the walk ---- */

/* x = 0 where a > limit, even where it was a NaN. a is used up: it becomes -1, 0 or NaN, and then bits. No step makes
 * a denormal number of an ordinary one: what is beyond the limit is scaled up, by 2^149 in all, before it is cut off. */
AICORE void clear_beyond(ub_f32 x, ub_f32 a, float limit, int64_t n) {
  add_scalar(a, a, -limit, n);
  at_least(a, a, 0, n);
  mul_scalar(a, a, -0x1p127f, n);
  mul_scalar(a, a, 0x1p22f, n);
  at_least(a, a, -1, n);
  v_i32_from_f32(a, a, n);
  sync_pipe(PIPE_V);
  v_not_f32(a, a, n);
  sync_pipe(PIPE_V);
  v_and_f32(x, x, a, n);
  sync_pipe(PIPE_V);
}

AICORE void activate(gate_tiles *k, activation act, bool exact, bool backward) {
  if (act == GELU_ERF)
    gelu_erf(k, backward);
  else
    logistic(k, act, exact, backward);
}

AICORE void gate_forward(pointwise *p, gate_tiles *k, const pointwise_arguments *a, activation act, bool plain) {
  const ub_f32 up = p->value[1];
  const int64_t n = k->n;
  k->u = p->value[0];
  if (a->clamp > 0) at_most(k->u, k->u, a->clamp, n);
  if (a->clamp > 0) clip(up, up, a->clamp, n);
  if (!plain) add_scalar(up, up, a->up_offset, n);
  if (!plain) mul_scalar(k->u, k->u, a->gate, n);
  activate(k, act, a->dtype == TIGON_F32, false);
  if (!plain) mul_scalar(k->x, k->x, a->down, n);
  mul(k->x, k->x, up, n);
}

AICORE void gate_backward(pointwise *p, gate_tiles *k, const pointwise_arguments *a, activation act, bool plain) {
  const ub_f32 dc = p->value[0], up = p->value[2];
  const int64_t n = k->n;
  k->u = p->value[1];
  if (a->clamp > 0) {
    at_most(k->more, k->u, a->clamp, n);
    k->u = k->more;
  }
  if (!plain) mul_scalar(k->u, k->u, a->gate, n);
  activate(k, act, a->dtype == TIGON_F32, true);
  if (a->clamp > 0) absolute(k->t, up, n);
  if (a->clamp > 0) clip(up, up, a->clamp, n);
  if (!plain) add_scalar(up, up, a->up_offset, n);
  if (!plain) mul_scalar(dc, dc, a->down, n);
  mul(up, up, dc, n);
  mul(k->y, k->slope, up, n);
  if (!plain) mul_scalar(k->y, k->y, a->gate, n);
  mul(k->x, k->x, dc, n);
  if (a->clamp > 0) clear_beyond(k->y, p->value[1], a->clamp, n);
  if (a->clamp > 0) clear_beyond(k->x, k->t, a->clamp, n);
}

/* Tiles: the value is worked out where it goes out, backward's slope goes to y. With 16-bit dtypes both have tiles of their
 * own. silu forward needs no y beside x. */
AICORE void gate_walk(ub_arena *ub, const pointwise_arguments *a, activation act, bool backward) {
  const bool f32 = a->dtype == TIGON_F32, scaled = a->gate != 1 || a->down != 1 || a->clamp != 0 || a->up_offset != 0;
  const bool plain = act != SILU || !scaled;
  const bool lean = act == SILU && !backward;
  const int own = f32 ? (backward || lean ? 0 : 1) : (lean ? 1 : 2), shared = lean ? 1 : 3;
  pointwise p = pointwise_open(ub, a, backward ? 3 : 2, backward ? 2 : 1, own + shared);
  const ub_f32 *const work = p.work + own;
  gate_tiles k = {.f = work[0], .t = work[lean ? 0 : 1], .more = work[lean ? 0 : 2]};
  while (pointwise_next(&p)) {
    k.n = p.n;
    k.x = f32 ? p.result[backward] : p.work[0];
    k.y = lean ? k.x : f32 && backward ? p.result[0] : p.work[own - 1];
    p.result[backward] = k.x;
    if (backward) p.result[0] = k.y;
    if (backward)
      gate_backward(&p, &k, a, act, plain);
    else
      gate_forward(&p, &k, a, act, plain);
    pointwise_end(&p);
  }
  pointwise_close(&p);
}

#endif
