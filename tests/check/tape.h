/* First-order error analysis of formulas in which errors cancel. Running bounds (number.h) would double with each step there. It
 * records every operation. From the record follows the derivative of an output by each rounding. Errors are in units of 2^-24. */
#ifndef TIGON_CHECK_TAPE_H
#define TIGON_CHECK_TAPE_H

#include <math.h>
#include <stdlib.h>

#include "check/check.h"

typedef struct tape_node {
  double v, own; /* its value, and what its own rounding is at most */
  int of[2];     /* earlier nodes that it is made of; -1: none */
  double slope[2], adjoint;
} tape_node;

typedef struct tape {
  const check *k;
  tape_node *at;
  int count, room;
} tape;

/* Half of the least denormal may be lost at any step, and as many ulps as a device's own call is off. */
static inline int tape_put(tape *t, double v, double own, int a, double da, int b, double db) {
  if (t->count == t->room) {
    t->room = t->room ? 2 * t->room : 1024;
    t->at = realloc(t->at, (size_t)t->room * sizeof *t->at);
    if (!t->at) abort();
  }
  t->at[t->count] = (tape_node){.v = v, .own = own + 0x1p-126, .of = {a, b}, .slope = {da, db}};
  return t->count++;
}
static inline double tape_value(const tape *t, int a) { return t->at[a].v; }

static inline int tape_given(tape *t, double v, double error) { return tape_put(t, v, error, -1, 0, -1, 0); }
static inline int tape_plus(tape *t, int a, int b, double sign) {
  const double v = tape_value(t, a) + sign * tape_value(t, b);
  return tape_put(t, v, fabs(v), a, 1, b, sign);
}
static inline int tape_times(tape *t, int a, int b) {
  const double v = tape_value(t, a) * tape_value(t, b);
  return tape_put(t, v, fabs(v), a, tape_value(t, b), b, tape_value(t, a));
}
static inline int tape_over(tape *t, int a, int b) {
  const double by = tape_value(t, b), v = tape_value(t, a) / by;
  const double calls = check_calls(t->k, 0, 1);
  return tape_put(t, v, (1 + calls) * fabs(v) + calls * 0x1p-126, a, 1 / by, b, -v / by);
}
/* Within 2 ulp, by a device's own call more. */
static inline int tape_exp(tape *t, int a) {
  const double v = exp(tape_value(t, a)), calls = check_calls(t->k, 1, 0);
  return tape_put(t, v, (4 + calls) * v + calls * 0x1p-126 + check_flushed(t->k), a, v, -1, 0);
}
/* In any order. */
static inline int tape_sum(tape *t, const int *terms, int count) {
  double v = tape_value(t, terms[0]), sizes = fabs(v);
  int sum = terms[0];
  for (int i = 1; i < count; ++i) {
    v += tape_value(t, terms[i]), sizes += fabs(tape_value(t, terms[i]));
    sum = tape_put(t, v, i == count - 1 ? (count - 1) * sizes : 0, sum, 1, terms[i], 1);
  }
  return sum;
}

/* What the output may be off: twice the first order, which is more than what follows it. */
static inline double tape_error(tape *t, int output) {
  double error = 0;
  for (int i = 0; i <= output; ++i) t->at[i].adjoint = i == output;
  for (int i = output; i >= 0; --i) {
    const tape_node *n = &t->at[i];
    if (n->adjoint == 0) continue;
    error += fabs(n->adjoint) * n->own;
    for (int s = 0; s < 2; ++s)
      if (n->of[s] >= 0) t->at[n->of[s]].adjoint += n->adjoint * n->slope[s];
  }
  return isfinite(error) ? 2 * error : 0;
}

#endif
