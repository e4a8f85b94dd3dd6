/* rms_norm and fused_add_rms_norm. Options walk casting, weight, offset, in place, dw's dtype and accumulation; those of rms_norm
 * alone come last, and walk what a gate has. */
#include <math.h>
#include <string.h>

#include "check/cases.h"
#include "check/norm.h"
#include "core/half.h"

static const struct option {
  tigon_casting casting;
  bool w, w_f32;
  double w_offset;
  bool in_place, dw_f32, accumulate;
  enum {
    NO_GATE,
    GATE,
    GATE_FILLED,
    GATE_OVER,
    GATE_ONLY
  } gate; /* z has the case's fill; outputs lie over z; without dz */
} options[] = {
    {TIGON_CASTING_LLAMA, true, false, 0, false, true, false, NO_GATE},
    {TIGON_CASTING_GEMMA, true, true, 1, false, false, false, NO_GATE},
    {TIGON_CASTING_NONE, true, false, 0, false, true, true, NO_GATE},
    {TIGON_CASTING_LLAMA, false, false, 0, true, true, false, NO_GATE},
    {TIGON_CASTING_GEMMA, true, false, 1, true, false, true, NO_GATE},
    {TIGON_CASTING_GEMMA, false, false, 0, true, true, false, NO_GATE},
    {TIGON_CASTING_LLAMA, true, true, 0, true, false, true, NO_GATE},
    {TIGON_CASTING_LLAMA, false, false, 0, false, true, false, NO_GATE},
    {TIGON_CASTING_GEMMA, false, false, 0, false, true, false, NO_GATE},
    {TIGON_CASTING_NONE, true, true, 1, true, true, false, NO_GATE},
    {TIGON_CASTING_NONE, false, false, 0, true, true, false, NO_GATE},
    {TIGON_CASTING_NONE, false, false, 0, false, true, false, NO_GATE},
    {TIGON_CASTING_LLAMA, true, false, 0, false, true, false, GATE},
    {TIGON_CASTING_GEMMA, true, true, 1, true, false, true, GATE},
    {TIGON_CASTING_NONE, true, false, 0, false, true, true, GATE_FILLED},
    {TIGON_CASTING_LLAMA, false, false, 0, true, true, false, GATE_OVER},
    {TIGON_CASTING_GEMMA, true, false, 0, false, true, false, GATE_ONLY},
    {TIGON_CASTING_LLAMA, true, true, 0, false, false, false, GATE_FILLED},
};
enum { OPTIONS = sizeof options / sizeof *options };

/* The case's option, in the form of a timed one. */
static struct option option_of(const check *k) {
  struct option o = options[k->option];
  if (check_has_form(k, BENCH_GATE)) o.gate = GATE;
  return o;
}

/* |y| before rounding differs by the sum's error: eps * (a few) * |y|; llama and none also round xhat (and the
 * statistics) to the dtype, where a flip costs one ulp of it. */
static double fwd_ulps(tigon_casting casting, tigon_dtype dtype) {
  if (dtype == TIGON_F32) return 4;
  return casting == TIGON_CASTING_GEMMA ? 1 : casting == TIGON_CASTING_LLAMA ? 2.5 : 5;
}

/* In units of 2^-24: an ulp and a half of y where xhat's rounding hangs on the last bits of rstd, else 0. */
static void allow_ties(const check *k, const tigon_tensor *x, const tigon_tensor *w, double *loose) {
  const int64_t rows = k->dims[0], cols = k->dims[1];
  const double ulp = k->dtype == TIGON_F16 ? 0x1p-10 : 0x1p-7;
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += check_value(x, r * cols + c) * check_value(x, r * cols + c);
    const double rstd = 1 / sqrt(sum / (double)cols + (double)1e-6f);
    for (int64_t c = 0; c < cols; ++c) {
      const double xhat = check_value(x, r * cols + c) * rstd;
      if (tigon_round_f64(xhat * (1 - 0x1p-20), k->dtype) != tigon_round_f64(xhat * (1 + 0x1p-20), k->dtype))
        loose[r * cols + c] = 1.5 * ulp * 0x1p24 * fabs(xhat * check_value(w, c));
    }
  }
}

/* ---- the gate: its kernels' f32 is within 3 ulp of silu and 4 * 2^-24 of the slope's terms, 16-bit dtypes within 110 * 2^-24 ---- */

static tigon_tensor gate_of(check *k, bool overwritten) {
  const struct option o = option_of(k);
  if (!o.gate) return (tigon_tensor){0};
  return check_rows(k, "z", o.gate == GATE_FILLED ? k->fill : CHECK_UNIFORM, overwritten);
}
/* What silu adds to a relative bound, in units of 2^-24: its error, and that of the product with it. */
static double gate_error(const check *k) {
  if (!option_of(k).gate) return 0;
  return (k->dtype == TIGON_F32 ? 8 : 112) + check_calls(k, 2, 1);
}
/* silu(z), 1 without a gate. */
static double gate_at(const tigon_tensor *z, int64_t i) {
  return z->ndim ? check_value(z, i) / (1 + exp(-check_value(z, i))) : 1;
}
/* silu's slope, with its terms in absolute value. */
static double slope_size(double z) { return (1 + fabs(z) / (1 + exp(z))) / (1 + exp(-z)); }

/* Where silu(z) is no normal f32, an absolute error of it goes into y. */
static void allow_small_gates(const check *k, const tigon_tensor *x, const tigon_tensor *w, double *loose) {
  const struct option o = option_of(k);
  const int64_t rows = k->dims[0], cols = k->dims[1];
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += check_value(x, r * cols + c) * check_value(x, r * cols + c);
    const double rstd = 1 / sqrt(sum / (double)cols + (double)1e-6f);
    for (int64_t c = 0; c < cols; ++c)
      loose[r * cols + c] = fabs(check_value(x, r * cols + c) * rstd * (o.w ? check_value(w, c) + o.w_offset : 1)) *
                            (0x1p-125 + check_flushed(k));
  }
}

void check_norm_fwd(check *k, bool fused) {
  const struct option o = option_of(k);
  const int64_t rows = k->dims[0], cols = k->dims[1];
  const check_fill vectors = k->fill == CHECK_SPECIAL ? CHECK_SPECIAL : CHECK_UNIFORM;
  const tigon_tensor w = check_may_vector(k, "w", check_dtype(k, o.w_f32), cols, vectors, o.w);
  const tigon_tensor rstd = check_out_vector(k, "rstd", TIGON_F32, rows);
  const check_fill of_x = o.gate == GATE_FILLED ? CHECK_UNIFORM : k->fill;
  const tigon_tensor x = check_rows(k, "x", of_x, o.in_place && o.gate != GATE_OVER);
  const tigon_tensor z = gate_of(k, o.gate == GATE_OVER);
  tigon_tensor y = o.gate == GATE_OVER ? z : x, s = {0};
  /* llama's xhat times a weight of the dtype is exact in f32: y is the oracle's, unless xhat lies next to a tie. */
  const bool exact = !fused && k->option == 0 && k->dtype != TIGON_F32;
  double *loose = check_doubles(k, rows * cols);
  if (exact && k->oracle) allow_ties(k, &x, &w, loose);
  if (o.gate && k->oracle) allow_small_gates(k, &x, &w, loose);
  if (fused) {
    const tigon_tensor residual = check_rows(k, "residual", CHECK_UNIFORM, o.in_place);
    s = o.in_place ? residual : check_out(k, "s", k->dtype, 2, k->dims);
    if (!o.in_place) y = check_out(k, "y", k->dtype, 2, k->dims);
    const tigon_fused_add_rms_norm_fwd_args args = {.x = x,
                                                    .residual = residual,
                                                    .w = w,
                                                    .s = s,
                                                    .y = y,
                                                    .rstd = rstd,
                                                    .eps = 1e-6,
                                                    .w_offset = o.w_offset,
                                                    .casting = o.casting};
    check_call(k, &args);
    check_bound(k, &s, 0, 0, NULL);
  } else {
    if (!o.in_place) y = check_out(k, "y", k->dtype, 2, k->dims);
    const tigon_rms_norm_fwd_args args = {
        .x = x, .w = w, .z = z, .y = y, .rstd = rstd, .eps = 1e-6, .w_offset = o.w_offset, .casting = o.casting};
    check_call(k, &args);
  }
  const double of_rstd = check_calls(k, 1, 1.5); /* 1 / sqrt(sum / cols + eps): the sum's division under the root */
  check_bound_relative(k, &y, exact ? 0 : fwd_ulps(o.casting, k->dtype), 1, loose, of_rstd + gate_error(k));
  const double flip =
      o.casting == TIGON_CASTING_NONE && k->dtype != TIGON_F32 ? k->dtype == TIGON_F16 ? 0x1p13 : 0x1p16 : 0;
  check_bound_relative(k, &rstd, 4 + 1.5 * flip, 0, NULL, of_rstd);
}

void check_norm_bwd(check *k, bool fused) {
  const struct option o = option_of(k);
  const int64_t rows = k->dims[0], cols = k->dims[1];
  const tigon_dtype dw_dtype = check_dtype(k, o.dw_f32);
  const tigon_tensor w = check_may_vector(k, "w", check_dtype(k, o.w_f32), cols, CHECK_UNIFORM, o.w);
  const tigon_tensor dw = !o.w           ? (tigon_tensor){0}
                          : o.accumulate ? check_inout_dense(k, "dw", dw_dtype, 1, &cols, CHECK_UNIFORM)
                                         : check_out_vector(k, "dw", dw_dtype, cols);
  const check_fill of_x = o.gate == GATE_FILLED ? CHECK_UNIFORM : k->fill;
  const tigon_tensor x = check_in(k, fused ? "s" : "x", k->dtype, 2, k->dims, of_x);
  const tigon_tensor dy = check_rows(k, "dy", CHECK_UNIFORM, o.in_place);
  const tigon_tensor ds =
      fused && k->option % 2 == 0 ? check_in(k, "ds", k->dtype, 2, k->dims, CHECK_UNIFORM) : (tigon_tensor){0};
  const tigon_tensor rstd =
      check_in_vector(k, "rstd", TIGON_F32, rows, k->fill == CHECK_SPECIAL ? CHECK_SPECIAL : CHECK_UNIFORM);
  const tigon_tensor z = gate_of(k, o.in_place);
  const tigon_tensor dx = o.gate == GATE_OVER ? z : o.in_place ? dy : check_out(k, "dx", k->dtype, 2, k->dims);
  const tigon_tensor dz = !o.gate || o.gate == GATE_ONLY ? (tigon_tensor){0}
                          : o.gate == GATE_OVER          ? dy
                          : o.in_place                   ? z
                                                         : check_out(k, "dz", k->dtype, 2, k->dims);

  /* xhat rounded to the dtype may flip by one ulp of it, in few rows of dw: there twice the largest is allowed. */
  const double flip = o.casting == TIGON_CASTING_GEMMA || k->dtype == TIGON_F32 ? 0
                      : k->dtype == TIGON_F16                                   ? 0x1p14
                                                                                : 0x1p17;
  /* In units of 2^-24: what a product below f32's normal numbers loses, half of the least one or, on a device that flushes, all. */
  const double lost = 0x1p-126 + check_flushed(k), dx_units = 8 + 2 * gate_error(k);
  /* Magnitudes: what is added up, each in absolute value. */
  double *dx_scale = check_doubles(k, rows * cols), *dw_scale = check_doubles(k, cols),
         *dw_most = check_doubles(k, cols), *dz_scale = check_doubles(k, rows * cols);
  for (int64_t r = 0; k->oracle && r < rows; ++r) {
    const double scale = check_value(&rstd, r);
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) {
      const double weight = o.w ? check_value(&w, c) + o.w_offset : 1;
      const double dn = check_value(&dy, r * cols + c) * gate_at(&z, r * cols + c), g = dn * weight;
      const double xhat = check_value(&x, r * cols + c) * scale;
      /* The errors of silu, of its product with dy, and of the product with the weight. */
      const double dn_lost = o.gate ? lost * (1 + fabs(check_value(&dy, r * cols + c))) : 0,
                   g_lost = o.gate ? (dn_lost * fabs(weight) + lost) / dx_units : 0;
      dx_scale[r * cols + c] = fabs(g) + g_lost;
      const double term = fabs(dn * xhat);
      dw_scale[c] += (8 + gate_error(k)) * term + dn_lost * fabs(xhat);
      if (o.gate) {
        const double up = fabs(check_value(&dy, r * cols + c)) * slope_size(check_value(&z, r * cols + c));
        dz_scale[r * cols + c] = (8 + gate_error(k) + flip) * up * fabs(xhat * weight) +
                                 lost * (up + 1) * (fabs(weight) + 1) * (fabs(xhat) + 1);
      }
      dw_most[c] = fmax(dw_most[c], term);
      sum += (fabs(g) + g_lost) * fabs(xhat);
    }
    for (int64_t c = 0; c < cols; ++c) {
      double *at = &dx_scale[r * cols + c];
      *at = fabs(scale) * (*at + fabs(check_value(&x, r * cols + c) * scale) * sum / (double)cols);
      if (o.gate) *at += lost / dx_units;
      if (ds.ndim) *at += fabs(check_value(&ds, r * cols + c));
    }
  }
  for (int64_t c = 0; k->oracle && dw.ndim && c < cols; ++c)
    dw_scale[c] += 2 * flip * dw_most[c] + (o.accumulate ? 8 * fabs(check_value(&dw, c)) : 0);

  if (fused) {
    tigon_fused_add_rms_norm_bwd_args args = {.dy = dy,
                                              .ds = ds,
                                              .s = x,
                                              .w = w,
                                              .rstd = rstd,
                                              .dx = dx,
                                              .dw = dw,
                                              .w_offset = o.w_offset,
                                              .casting = o.casting,
                                              .accumulate_dw = o.accumulate};
    check_call_in_workspace(k, tigon_fused_add_rms_norm_bwd_workspace, &args);
  } else {
    tigon_rms_norm_bwd_args args = {.dy = dy,
                                    .x = x,
                                    .w = w,
                                    .z = z,
                                    .rstd = rstd,
                                    .dx = dx,
                                    .dz = dz,
                                    .dw = dw,
                                    .w_offset = o.w_offset,
                                    .casting = o.casting,
                                    .accumulate_dw = o.accumulate};
    check_call_in_workspace(k, tigon_rms_norm_bwd_workspace, &args);
  }
  check_bound(k, &dx, k->dtype == TIGON_F32 ? 0 : 1, dx_units, dx_scale);
  if (dz.ndim) check_bound(k, &dz, k->dtype == TIGON_F32 ? 0 : 1, 1, dz_scale);
  if (dw.ndim) check_bound(k, &dw, dw_dtype == TIGON_F32 ? 0 : 1, 1, dw_scale);
}

static double quantised_value(double v, tigon_dtype dtype) {
  double room; /* for an element of any dtype */
  tigon_store_f64(&room, 0, dtype, v);
  return tigon_load_f64(&room, 0, dtype);
}

/* In units of 2^-24. q may be a step off where y / scale lies next to the middle of two numbers, `near` * 2^-24 of it. If an
 * intermediate is rounded, it may be a step off everywhere, because that may move y / scale by a step. */
static void allow_steps(const check *k, const tigon_rms_norm_quantised_args *a, double near, bool everywhere,
                        double *loose) {
  const int64_t rows = k->dims[0], cols = k->dims[1];
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0, largest = 0;
    for (int64_t c = 0; c < cols; ++c) sum += check_value(&a->x, r * cols + c) * check_value(&a->x, r * cols + c);
    const double rstd = 1 / sqrt(sum / (double)cols + (double)1e-6f);
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t c = 0; c < cols; ++c) {
        const int64_t i = r * cols + c;
        const double weight = a->w.ndim ? check_value(&a->w, c) + a->w_offset : 1;
        const double y = check_value(&a->x, i) * rstd * weight * gate_at(&a->z, i);
        if (pass == 0) largest = fmax(largest, fabs(y));
        const double v = y / largest * (a->q.dtype == TIGON_I8 ? 127 : 448), t = near * 0x1p-24;
        const double low = quantised_value(v * (1 - t), a->q.dtype), high = quantised_value(v * (1 + t), a->q.dtype);
        const double step = a->q.dtype == TIGON_I8 ? 1 : fmax(fabs(v), 0x1p-6) / 8;
        loose[i] = everywhere || !isfinite(v) ? step * 0x1p24 : fabs(high - low) * 0x1p24;
      }
  }
}

static void quantised(check *k) {
  const struct option o = option_of(k);
  const int64_t rows = k->dims[0], cols = k->dims[1];
  const check_fill vectors = k->fill == CHECK_SPECIAL ? CHECK_SPECIAL : CHECK_UNIFORM;
  const check_fill of_x = o.gate == GATE_FILLED ? CHECK_UNIFORM : k->fill;
  const tigon_dtype dtype = k->option % 2 || check_has_form(k, BENCH_INT8) ? TIGON_I8 : TIGON_F8E4M3;
  const tigon_tensor w = check_may_vector(k, "w", check_dtype(k, o.w_f32), cols, vectors, o.w);
  const tigon_tensor x = check_rows(k, "x", of_x, false), z = gate_of(k, false);
  const tigon_tensor q = check_out(k, "q", dtype, 2, k->dims), scale = check_out_vector(k, "scale", TIGON_F32, rows);
  const tigon_rms_norm_quantised_args args = {
      .x = x, .w = w, .z = z, .q = q, .scale = scale, .eps = 1e-6, .w_offset = o.w_offset, .casting = o.casting};
  check_call(k, &args);
  const double ulp = k->dtype == TIGON_F32 ? 2 : k->dtype == TIGON_F16 ? 0x1p14 : 0x1p17; /* in units of 2^-24 */
  const bool rounds = k->dtype != TIGON_F32 && o.casting != TIGON_CASTING_GEMMA;
  const double of_y = (rounds ? fwd_ulps(o.casting, k->dtype) * ulp : 8) + gate_error(k) + check_calls(k, 1, 1.5);
  double *loose = check_doubles(k, rows * cols);
  if (k->oracle) allow_steps(k, &args, 2 * of_y + 4 + check_calls(k, 0, 2), rounds, loose);
  check_bound_relative(k, &scale, 1, 0, NULL, of_y + check_calls(k, 0, 1));
  check_bound_relative(k, &q, 0, 1, loose, rounds ? 2 * of_y : 0);
}

static void fwd(check *k) { check_norm_fwd(k, false); }
static void bwd(check *k) { check_norm_bwd(k, false); }

/* Rows of 32768 columns come once for each option: casting modes, in place, with and without a weight or a gate. */
static bool shapes(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  if (index < CHECK_ROW_SHAPES) return check_row_shapes(index, tile, dims);
  dims[0] = 1, dims[1] = 32768;
  return index < CHECK_ROW_SHAPES + OPTIONS;
}

MUTANT(drop_tail, rms_norm_fwd, m.cols -= m.cols > 1)
MUTANT(skip_eps, rms_norm_fwd, m.eps = 0)
MUTANT(wrong_casting, rms_norm_fwd, m.casting = TIGON_CASTING_GEMMA)
MUTANT(lose_part, rms_norm_fwd, m.cols = check_without_last_part(queue, p->cols))
MUTANT(bwd_lose_part, rms_norm_bwd, m.cols = check_without_last_part(queue, p->cols))
MUTANT(lose_row, rms_norm_bwd, check_drop_last_row(&m.space))
MUTANT(overwrite_dw, rms_norm_bwd, m.accumulate_dw = false)
MUTANT(bwd_offset, rms_norm_bwd, m.w_offset = 0)
MUTANT(no_gate, rms_norm_fwd, m.z.data = NULL)
MUTANT(x_for_gate, rms_norm_fwd, m.z = p->z.data ? p->x : p->z)
MUTANT(bwd_no_gate, rms_norm_bwd, m.z.data = NULL)
MUTANT(first_gate, rms_norm_bwd, memset(m.z.pitch, 0, sizeof m.z.pitch))
MUTANT(no_dz, rms_norm_bwd, m.dz.data = NULL)
MUTANT(other_dtype, rms_norm_quantised, m.q_dtype = p->q_dtype == TIGON_I8 ? TIGON_F8E4M3 : TIGON_I8)
MUTANT(drop_column, rms_norm_quantised, m.cols -= m.cols > 1)
MUTANT(drop_row, rms_norm_quantised, check_drop_last_row(&m.space))
MUTANT(quantised_no_gate, rms_norm_quantised, m.z.data = NULL)
MUTANT(quantised_offset, rms_norm_quantised, m.w_offset = 0)
static const check_mutant wrong_fwd[] = {
    {"drops the last column", drop_tail},
    {"skips eps", skip_eps},
    {"takes gemma's casting for llama's", wrong_casting},
    {"loses a part of a split row", lose_part},
    {"forgets the gate", no_gate},
    {"takes x for the gate", x_for_gate},
    {0},
};
static const check_mutant wrong_bwd[] = {
    {"loses a part of a split row", bwd_lose_part},
    {"drops the last row", lose_row},
    {"overwrites dw instead of adding", overwrite_dw},
    {"forgets w_offset", bwd_offset},
    {"forgets the gate", bwd_no_gate},
    {"takes the first row's gate for all", first_gate},
    {"forgets dz", no_dz},
    {0},
};

static const check_mutant wrong_quantised[] = {
    {"takes one dtype for the other", other_dtype},
    {"drops the last column", drop_column},
    {"drops the last row", drop_row},
    {"forgets the gate", quantised_no_gate},
    {"forgets w_offset", quantised_offset},
    {0},
};

static const bench_case timed = {.op = "rms_norm",
                                 .rows_f32 = 4096,
                                 .rows_16bit = 8192,
                                 .cols = 4096,
                                 .forms = BENCH_BIT(BENCH_GATE) | BENCH_BIT(BENCH_INT8)};

const check_op tigon_check_rms_norm_fwd = {fwd, shapes, OPTIONS, true, wrong_fwd, &timed, NULL};
const check_op tigon_check_rms_norm_quantised = {quantised, shapes, OPTIONS, true, wrong_quantised, &timed, NULL};
const check_op tigon_check_rms_norm_bwd = {bwd, shapes, OPTIONS, true, wrong_bwd, &timed, NULL};

_Static_assert((int)CHECK_NORM_OPTIONS < (int)OPTIONS, "the first ones are both operators'");
