/* The logit z of an x: x * times, or with a cap cap * tanh(x * argument); of tiles on the vector pipe, and of one x in two floats on the
 * scalar pipe. Each function leaves the vector pipe in order. */
#ifndef TIGON_ASCEND_KERNEL_LOGIT_H
#define TIGON_ASCEND_KERNEL_LOGIT_H

#include "ascend/kernel/ordered.h"
#include "ascend/kernel/scalar.h"

/* A part of a kernel's arguments. */
typedef struct logit_map {
  float cap, times; /* cap 0: none */
  twofold argument;
} logit_map;

/* A logit is its x. */
AICORE bool is_plain(const logit_map *m) { return m->cap == 0 && m->times == 1; }

/* z = tanh z without a select: z = near + far with |near| <= 1/2, of which the tanh is an odd polynomial (Cephes), and that of far,
 * which is exactly 0 in between, 1 - 2 / (e^(2 far) + 1); then the addition theorem. */
AICORE void tanh_of(ub_f32 z, ub_f32 near, ub_f32 far, ub_f32 c, int64_t n) {
  at_least(near, z, -0.5f, n);
  at_most(near, near, 0.5f, n);
  sub(far, z, near, n);
  mul_scalar(far, far, 2, n);
  exponential(far, far, n);
  v_duplicate_f32(z, 2, n);
  v_mul_f32(c, near, near, n);
  add_scalar(far, far, 1, n);
  divide(far, z, far, n);
  mul_scalar(z, c, -5.70498872745e-3f, n);
  add_scalar(z, z, 2.06390887954e-2f, n);
  mul(z, z, c, n);
  add_scalar(z, z, -5.37397155531e-2f, n);
  mul(z, z, c, n);
  add_scalar(z, z, 1.33314442036e-1f, n);
  mul(z, z, c, n);
  add_scalar(z, z, -3.33332819422e-1f, n);
  mul(z, z, c, n);
  mul(z, z, near, n);
  v_add_f32(near, near, z, n);
  mul_scalar(far, far, -1, n);
  add_scalar(far, far, 1, n);
  v_mul_f32(c, near, far, n);
  add(z, near, far, n);
  add_scalar(c, c, 1, n);
  divide(z, z, c, n);
}

/* z = the logits of x; z may be x. `near`, `far`, `c` are used up. */
AICORE void logits_of(const logit_map *m, ub_f32 z, ub_f32 x, ub_f32 near, ub_f32 far, ub_f32 c, int64_t n) {
  if (m->cap == 0) {
    mul_scalar(z, x, m->times, n);
    return;
  }
  mul_scalar(z, x, m->argument.hi, n);
  tanh_of(z, near, far, c, n);
  mul_scalar(z, z, m->cap, n);
}

/* d = 1 - tanh^2(x * argument) = 4 e / (1 + e)^2 with e = e^(-2 |x argument|); d may be x. */
AICORE void slopes_of(const logit_map *m, ub_f32 d, ub_f32 x, ub_f32 c, int64_t n) {
  mul_scalar(d, x, m->argument.hi, n);
  absolute(d, d, n);
  mul_scalar(d, d, -2, n);
  exponential(d, d, n);
  add_scalar(c, d, 1, n);
  v_mul_f32(c, c, c, n);
  mul_scalar(d, d, 4, n);
  divide(d, d, c, n);
}

typedef struct one_logit {
  twofold z, slope; /* slope: of the cap */
} one_logit;

AICORE one_logit logit_of(const logit_map *m, float x) {
  if (m->cap == 0) return (one_logit){two_product(x, m->times), {1, 0}};
  const twofold u = twofold_times(m->argument, x);
  const float twice = u.hi < 0 ? 2 : -2, sign = u.hi < 0 ? -m->cap : m->cap;
  const twofold e = twofold_exp((twofold){twice * u.hi, twice * u.lo});
  const twofold inverse = twofold_inverse(twofold_add(e, 1));
  const twofold tanh = twofold_mul(twofold_add((twofold){-e.hi, -e.lo}, 1), inverse);
  const twofold slope = twofold_mul(twofold_mul((twofold){4 * e.hi, 4 * e.lo}, inverse), inverse);
  return (one_logit){twofold_times(tanh, sign), slope};
}

#endif
