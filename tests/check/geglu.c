/* geglu. Options walk the two forms of gelu, packed views and what may be in place. */
#include <math.h>

#include "check/gate.h"

static const struct option {
  tigon_gelu approx;
  gate_case gate;
} options[] = {
    {TIGON_GELU_TANH, {false, 0}}, {TIGON_GELU_ERF, {false, 1}},  {TIGON_GELU_TANH, {true, 0}},
    {TIGON_GELU_ERF, {false, 2}},  {TIGON_GELU_TANH, {false, 3}}, {TIGON_GELU_ERF, {true, 0}},
};
enum { OPTIONS = sizeof options / sizeof *options };

/* gelu(a), and the two terms of its slope in absolute value: they cancel near a = -0.75. */
static double gelu(tigon_gelu approx, double a, double *slope_size) {
  const double root = sqrt(2 / acos(-1)), y = 2 * root * (a + 0.044715 * a * a * a);
  const double phi = approx == TIGON_GELU_ERF ? erfc(-a / sqrt(2)) / 2 : 1 / (1 + exp(-y));
  const double density = approx == TIGON_GELU_ERF ? root / 2 * exp(-a * a / 2)
                                                  : phi / (1 + exp(y)) * 2 * root * (1 + 3 * 0.044715 * a * a);
  *slope_size = phi + fabs(a * density);
  return a * phi;
}

/* erf's tail Phi(-z) = e^(-z^2 / 2) / D(z) with D = 2 + z (sqrt(2 pi) + q), where q is a division of its own: what it is off
 * counts |q| z / D times as much in the tail. */
static double tail_size(const check *k, tigon_gelu approx, double a) {
  const double z = fmin(fabs(a), 20), tail = erfc(z / sqrt(2)) / 2, divisor = exp(-z * z / 2) / tail;
  if (approx != TIGON_GELU_ERF || !isfinite(a)) return 0;
  return check_calls(k, 0, 1) * tail * fabs(divisor - 2 - sqrt(2 * acos(-1)) * z) / divisor;
}

static void fwd(check *k) {
  const struct option *o = &options[k->option];
  const gate_fwd t = gate_fwd_make(k, o->gate);
  for (int64_t i = 0; k->oracle && i < k->dims[0] * k->dims[1]; ++i) {
    const double a = check_value(&t.a, i);
    t.size[i] = fabs(check_value(&t.b, i)) * (0x1p-125 + check_flushed(k) + fabs(a) * tail_size(k, o->approx, a));
  }
  const tigon_geglu_fwd_args args = {.a = t.a, .b = t.b, .c = t.c, .approx = o->approx};
  check_call(k, &args);
  gate_fwd_bound(k, &t);
}

static void bwd(check *k) {
  const struct option *o = &options[k->option];
  gate_bwd t = gate_bwd_make(k, o->gate);
  for (int64_t i = 0; k->oracle && i < k->dims[0] * k->dims[1]; ++i) {
    double slope_size;
    const double a = check_value(&t.a, i), value = gelu(o->approx, a, &slope_size), d = fabs(check_value(&t.dc, i));
    const double tail =
        tail_size(k, o->approx, a) / (8 + check_calls(k, 2, 2)); /* gate_bwd_bound() multiplies by that */
    const int64_t at = gate_at(k, o->gate.packed, i);
    t.size[at] = d * (fabs(check_value(&t.b, i)) * (slope_size + tail + check_flushed(k)) + 0x1p-125);
    t.size_b[at] = d * (fabs(value) + fabs(a) * tail + check_flushed(k) + 0x1p-125);
  }
  const tigon_geglu_bwd_args args = {.dc = t.dc, .a = t.a, .b = t.b, .da = t.da, .db = t.db, .approx = o->approx};
  check_call(k, &args);
  gate_bwd_bound(k, &t, o->gate.packed);
}

MUTANT(drop_tail, geglu_fwd, m.cols -= m.cols > 1)
MUTANT(approx, geglu_fwd, m.numbers.approx = TIGON_GELU_TANH)
MUTANT(bwd_approx, geglu_bwd, m.numbers.approx = TIGON_GELU_ERF)
MUTANT(bwd_swap, geglu_bwd, m.in[1] = p->in[2]; m.in[2] = p->in[1])
static const check_mutant wrong_fwd[] = {
    {"drops the last column", drop_tail},
    {"takes tanh for erf", approx},
    {0},
};
static const check_mutant wrong_bwd[] = {
    {"takes erf for tanh", bwd_approx},
    {"swaps gate and up", bwd_swap},
    {0},
};

static const bench_case timed = {.op = "geglu",
                                 .shape_note = "tanh",
                                 .rows_f32 = 1536,
                                 .rows_16bit = 3072,
                                 .cols = 11008,
                                 .forms = BENCH_BIT(BENCH_PACKED)};

const check_op tigon_check_geglu_fwd = {fwd, check_row_shapes, OPTIONS, true, wrong_fwd, &timed, NULL};
const check_op tigon_check_geglu_bwd = {bwd, check_row_shapes, OPTIONS, true, wrong_bwd, &timed, NULL};
