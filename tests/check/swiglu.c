/* swiglu. Options walk the factors, the clamp, packed views and what may be in place. */
#include <math.h>

#include "check/check.h"

static const struct option {
  double gate_mult, down_mult, clamp;
  bool packed;
  int in_place; /* forward: 1 c is a, 2 c is b; backward: 1 da, db are a, b; 2 they are b, dc; 3 they are dc, a */
} options[] = {
    {0, 0, 0, false, 0}, {1.702, 0, 7, false, 1}, {0.5, -2, 0, true, 0}, {0, 0, 0, false, 2}, {-1, 1, 1, false, 3},
};
enum { OPTIONS = sizeof options / sizeof *options };

/* One element in double, and what its rounding errors are measured by. */
typedef struct element {
  double u, b, silu, slope_size, scale; /* slope_size: slope's terms, each in absolute value; scale: down_mult */
} element;

static element element_of(const struct option *o, double a, double b) {
  const double gate = o->gate_mult == 0 ? 1 : (double)(float)o->gate_mult;
  const double u = gate * (o->clamp > 0 ? fmin(a, o->clamp) : a), sigma = 1 / (1 + exp(-u)), rest = 1 / (1 + exp(u));
  element e = {.u = u, .b = o->clamp > 0 ? fmax(-o->clamp, fmin(b, o->clamp)) : b, .silu = u / (1 + exp(-u))};
  e.scale = o->down_mult == 0 ? 1 : o->down_mult;
  e.slope_size = fabs(gate) * sigma * (1 + fabs(u) * rest);
  /* gate_mult * a is rounded to f32: 2^-24 |u| times the second derivative. */
  if (o->gate_mult != 0) e.slope_size += fabs(gate * u) * sigma * rest * (2 + fabs(u));
  return e;
}

/* silu's own error where u was rounded, and where it is denormal. */
static double silu_size(const struct option *o, const element *e) {
  return (o->gate_mult != 0 ? fabs(e->u * e->silu) : 0) + 0x1p-125;
}

/* Two [rows, cols] inputs, or the halves of one [rows, 2 * cols]. */
static void gate_and_up(check *k, bool packed, bool in_place, tigon_tensor *a, tigon_tensor *b) {
  const int64_t cols = k->dims[1], wide[] = {k->dims[0], 2 * cols};
  if (packed) {
    *a = in_place ? check_inout(k, "ab", k->dtype, 2, wide, k->fill) : check_in(k, "ab", k->dtype, 2, wide, k->fill);
    *b = *a;
    a->shape[1] = b->shape[1] = cols;
    b->data = (char *)a->data + (size_t)cols * tigon_dtype_size(k->dtype);
  } else {
    *a =
        in_place ? check_inout(k, "a", k->dtype, 2, k->dims, k->fill) : check_in(k, "a", k->dtype, 2, k->dims, k->fill);
    *b = in_place ? check_inout(k, "b", k->dtype, 2, k->dims, CHECK_UNIFORM)
                  : check_in(k, "b", k->dtype, 2, k->dims, CHECK_UNIFORM);
  }
}

static void fwd(check *k) {
  const struct option *o = &options[k->option];
  const int64_t n = k->dims[0] * k->dims[1];
  tigon_tensor a, b;
  gate_and_up(k, o->packed, o->in_place == 1 || o->in_place == 2, &a, &b);
  const tigon_tensor c = o->in_place == 1 ? a : o->in_place == 2 ? b : check_out(k, "c", k->dtype, 2, k->dims);
  double *size = check_doubles(k, n);
  for (int64_t i = 0; i < n; ++i) {
    const element e = element_of(o, check_value(&a, i), check_value(&b, i));
    size[i] = fabs(e.scale * e.b) * silu_size(o, &e);
  }
  const tigon_swiglu_fwd_args args = {
      .a = a, .b = b, .c = c, .gate_mult = o->gate_mult, .down_mult = o->down_mult, .clamp = o->clamp};
  check_call(k, tigon_swiglu_fwd(k->context, &args));
  check_bound(k, &c, k->dtype == TIGON_F32 ? 4 : 1, 1, size);
}

static void bwd(check *k) {
  const struct option *o = &options[k->option];
  const int64_t rows = k->dims[0], cols = k->dims[1], n = rows * cols;
  tigon_tensor a, b, da, db;
  gate_and_up(k, o->packed, o->in_place > 0, &a, &b);
  const tigon_tensor dc = o->in_place ? check_inout(k, "dc", k->dtype, 2, k->dims, CHECK_UNIFORM)
                                      : check_in(k, "dc", k->dtype, 2, k->dims, CHECK_UNIFORM);
  if (o->packed) {
    const int64_t wide[] = {rows, 2 * cols};
    da = check_out(k, "dab", k->dtype, 2, wide);
    db = da;
    db.data = (char *)da.data + (size_t)cols * tigon_dtype_size(k->dtype);
    da.shape[1] = db.shape[1] = cols;
  } else {
    da = o->in_place == 1 ? a : o->in_place == 2 ? b : o->in_place == 3 ? dc : check_out(k, "da", k->dtype, 2, k->dims);
    db = o->in_place == 1 ? b : o->in_place == 2 ? dc : o->in_place == 3 ? a : check_out(k, "db", k->dtype, 2, k->dims);
  }
  /* Packed: one output, da's and db's columns side by side. */
  double *size = check_doubles(k, 2 * n), *size_b = o->packed ? size + cols : size + n;
  const int64_t pitch = o->packed ? 2 * cols : cols;
  for (int64_t i = 0; i < n; ++i) {
    const element e = element_of(o, check_value(&a, i), check_value(&b, i));
    const double d = fabs(check_value(&dc, i) * e.scale);
    const int64_t at = i / cols * pitch + i % cols;
    size[at] = d * (fabs(e.b) * e.slope_size + 0x1p-125);
    size_b[at] = d * (fabs(e.silu) + silu_size(o, &e));
  }
  const tigon_swiglu_bwd_args args = {.dc = dc,
                                      .a = a,
                                      .b = b,
                                      .da = da,
                                      .db = db,
                                      .gate_mult = o->gate_mult,
                                      .down_mult = o->down_mult,
                                      .clamp = o->clamp};
  check_call(k, tigon_swiglu_bwd(k->context, &args));
  if (o->packed) da.shape[1] = 2 * cols;
  check_bound(k, &da, k->dtype == TIGON_F32 ? 0 : 1, 8, size);
  if (!o->packed) check_bound(k, &db, k->dtype == TIGON_F32 ? 0 : 1, 8, size_b);
}

const check_op tigon_check_swiglu_fwd = {fwd, check_row_shapes, OPTIONS, true};
const check_op tigon_check_swiglu_bwd = {bwd, check_row_shapes, OPTIONS, true};
