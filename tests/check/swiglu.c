/* swiglu. Options walk the factors, the clamp, packed views and what may be in place. */
#include <math.h>

#include "check/gate.h"

static const struct option {
  double gate_mult, down_mult, clamp, offset;
  gate_case gate;
} options[] = {
    {0, 0, 0, 0, {false, 0}},   {1.702, 1 / 1.702, 7, 1, {false, 1}},
    {0.5, -2, 0, 0, {true, 0}}, {0, 0, 0, 0, {false, 2}},
    {-1, 1, 1, 0, {false, 3}},  {0, 0, 0, -0.75, {false, 0}},
};
enum { OPTIONS = sizeof options / sizeof *options };

/* The case's option, in the form of a timed one. */
static struct option option_of(const check *k) {
  struct option o = options[k->option];
  if (check_has_form(k, BENCH_GPT_OSS)) o.gate_mult = 1.702, o.down_mult = 1 / 1.702, o.clamp = 7, o.offset = 1;
  return o;
}

/* One element in double, and what its rounding errors are measured by. */
typedef struct element {
  double u, b, silu, slope_size,
      scale;          /* b: with the offset; slope_size: slope's terms, each in absolute value; scale: down_mult */
  double offset_size; /* size of b's own rounding, by b */
} element;

static element element_of(const struct option *o, double a, double b) {
  const double gate = o->gate_mult == 0 ? 1 : (double)(float)o->gate_mult;
  const double u = gate * (o->clamp > 0 ? fmin(a, o->clamp) : a), sigma = 1 / (1 + exp(-u)), rest = 1 / (1 + exp(u));
  element e = {.u = u, .b = o->clamp > 0 ? fmax(-o->clamp, fmin(b, o->clamp)) : b, .silu = u / (1 + exp(-u))};
  e.b += o->offset; /* which f32 rounds once more */
  e.offset_size = o->offset != 0 ? 1 : 0;
  e.scale = o->down_mult == 0 ? 1 : o->down_mult;
  e.slope_size = fabs(gate) * sigma * (1 + fabs(u) * rest);
  /* gate_mult * a is rounded to f32: 2^-24 |u| times the second derivative. */
  if (o->gate_mult != 0) e.slope_size += fabs(gate * u) * sigma * rest * (2 + fabs(u));
  return e;
}

/* silu's own error where u was rounded, and where it is denormal. */
static double silu_size(const check *k, const struct option *o, const element *e) {
  return (o->gate_mult != 0 ? fabs(e->u * e->silu) : 0) + 0x1p-125 + check_flushed(k);
}

static void fwd(check *k) {
  const struct option own = option_of(k), *o = &own;
  const gate_fwd t = gate_fwd_make(k, o->gate);
  for (int64_t i = 0; k->oracle && i < k->dims[0] * k->dims[1]; ++i) {
    const element e = element_of(o, check_value(&t.a, i), check_value(&t.b, i));
    t.size[i] = fabs(e.scale * e.b) * (silu_size(k, o, &e) + e.offset_size * fabs(e.silu));
  }
  const tigon_swiglu_fwd_args args = {.a = t.a,
                                      .b = t.b,
                                      .c = t.c,
                                      .gate_mult = o->gate_mult,
                                      .down_mult = o->down_mult,
                                      .clamp = o->clamp,
                                      .up_offset = o->offset};
  check_call(k, &args);
  gate_fwd_bound(k, &t);
}

static void bwd(check *k) {
  const struct option own = option_of(k), *o = &own;
  gate_bwd t = gate_bwd_make(k, o->gate);
  for (int64_t i = 0; k->oracle && i < k->dims[0] * k->dims[1]; ++i) {
    const element e = element_of(o, check_value(&t.a, i), check_value(&t.b, i));
    const double d = fabs(check_value(&t.dc, i) * e.scale);
    const int64_t at = gate_at(k, o->gate.packed, i);
    /* A product that is denormal loses 2^-150 = 8 * 2^-24 * lost, before what it is multiplied by. */
    const double lost = 0x1p-129;
    t.size[at] = d * (fabs(e.b) * (e.slope_size + check_flushed(k)) + 0x1p-125) +
                 lost * ((fabs(e.b) + 1) * e.slope_size + fabs(o->gate_mult));
    t.size_b[at] = d * (fabs(e.silu) + silu_size(k, o, &e)) + lost * fabs(e.silu);
  }
  const tigon_swiglu_bwd_args args = {.dc = t.dc,
                                      .a = t.a,
                                      .b = t.b,
                                      .da = t.da,
                                      .db = t.db,
                                      .gate_mult = o->gate_mult,
                                      .down_mult = o->down_mult,
                                      .clamp = o->clamp,
                                      .up_offset = o->offset};
  check_call(k, &args);
  gate_bwd_bound(k, &t, o->gate.packed);
}

MUTANT(drop_tail, swiglu_fwd, m.cols -= m.cols > 1)
MUTANT(no_clamp, swiglu_fwd, m.numbers.clamp = 0)
MUTANT(no_mult, swiglu_fwd, m.numbers.gate_mult = 1)
MUTANT(no_offset, swiglu_fwd, m.numbers.up_offset = 0)
MUTANT(bwd_no_offset, swiglu_bwd, m.numbers.up_offset = 0)
MUTANT(bwd_no_clamp, swiglu_bwd, m.numbers.clamp = 0)
MUTANT(bwd_swap, swiglu_bwd, m.in[1] = p->in[2]; m.in[2] = p->in[1])
static const check_mutant wrong_fwd[] = {
    {"drops the last column", drop_tail},
    {"forgets the clamp", no_clamp},
    {"forgets gate_mult", no_mult},
    {"forgets up_offset", no_offset},
    {0},
};
static const check_mutant wrong_bwd[] = {
    {"forgets the clamp", bwd_no_clamp},
    {"swaps gate and up", bwd_swap},
    {"forgets up_offset", bwd_no_offset},
    {0},
};

static const bench_case timed = {.op = "swiglu",
                                 .rows_f32 = 1536,
                                 .rows_16bit = 3072,
                                 .cols = 11008,
                                 .forms = BENCH_BIT(BENCH_GPT_OSS) | BENCH_BIT(BENCH_PACKED)};

const check_op tigon_check_swiglu_fwd = {fwd, check_row_shapes, OPTIONS, true, wrong_fwd, &timed, NULL};
const check_op tigon_check_swiglu_bwd = {bwd, check_row_shapes, OPTIONS, true, wrong_bwd, &timed, NULL};
