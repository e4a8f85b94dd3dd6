/* mlp. dims are rows, H, I. Options walk the workspace, the dtype of weights' gradients, the activation, packed weights, biases, the
 * cache and absent outputs. The bounds follow what an intermediate number may be off by (`off`) through the next formula. Tiles are
 * compared with the formulas in double by tests/grad/mlp.c; here variants meet the oracle.
 */
#include <string.h>

#include "check/head.h"

static bool shapes(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t t = tile;
  const int64_t list[][3] = {{1, 1, 1},  {3, 5, t + 1}, {7, t, 33},   {4, 2 * t + 1, 2 * t}, {1, 19, 7},
                             {9, 16, 1}, {130, 7, 40},  {1100, 3, 5}, {5, 64, 1009},         {64, 57, 129}};
  if (index >= (int)(sizeof list / sizeof *list)) return false;
  for (int d = 0; d < 3; ++d) dims[d] = list[index][d];
  return true;
}

static const struct option {
  bool least, short_sums, accumulate, bias, packed;
  int cached; /* 1: half of the rows, 2: all */
  tigon_mlp_act act;
  double gate_mult, down_mult, clamp, offset;
  bool no_dx, no_dw;
} options[] = {
    {.bias = true},
    {.least = true, .short_sums = true, .bias = true, .packed = true, .cached = 1},
    {.least = true, .accumulate = true, .act = TIGON_MLP_GELU_TANH},
    {.short_sums = true,
     .accumulate = true,
     .bias = true,
     .packed = true,
     .gate_mult = 1.702,
     .down_mult = 1 / 1.702,
     .clamp = 7,
     .offset = 1},
    {.least = true, .short_sums = true, .act = TIGON_MLP_GELU_ERF, .bias = true, .cached = 2},
    {.packed = true, .no_dx = true, .least = true, .short_sums = true, .bias = true, .clamp = 1},
    {.short_sums = true}, /* which the benchmark times, as the next */
    {0},
    {.no_dw = true, .least = true, .cached = 1},
};
enum { OPTIONS = sizeof options / sizeof *options };

/* The case's option, in the form of a timed one. */
static struct option option_of(const check *k) {
  struct option o = options[k->option];
  if (check_has_form(k, BENCH_AS_WEIGHT)) o.short_sums = true;
  if (check_has_form(k, BENCH_BIASES)) o.bias = true;
  if (check_has_form(k, BENCH_PACKED)) o.packed = true;
  if (check_has_form(k, BENCH_CACHE)) o.cached = 2;
  if (check_has_form(k, BENCH_GPT_OSS)) o.gate_mult = 1.702, o.down_mult = 1 / 1.702, o.clamp = 7, o.offset = 1;
  return o;
}

/* A number, and what it may be off by. */
typedef struct value {
  double v, off;
} value;

typedef struct run_state {
  struct option o;
  check *k;
  int64_t rows, width, inner, cached;
  double ulp, least; /* units of the dtype: half a unit falls to either side, and a unit of the smallest numbers */
  tigon_mlp_fwd_args a;
} run_state;

static const double sum = 16 * 0x1p-24; /* error of a f32 sum, as in linear's check */

/* Inf and NaN are those of both. */
static value made(double v, double off) { return (value){v, isfinite(v) && isfinite(off) ? off : 0}; }
static value rounded(const run_state *s, double v, double off) {
  return made(v, off + s->ulp * (fabs(v) + off) + s->least);
}

/* ---- inputs ---- */

/* So small that sums of products of three stay within f16. */
static tigon_tensor weight(check *k, const char *name, int64_t n, int64_t depth) {
  return check_in_scaled(k, name, 2, (int64_t[]){n, depth}, 0.25);
}
static tigon_tensor bias(check *k, const char *name, int64_t n, bool present) {
  return check_may_vector(k, name, check_dtype(k, k->option % 2 && !k->timed), n, CHECK_UNIFORM, present);
}

static run_state begin(check *k, check_fill fill) {
  run_state s = {.o = option_of(k), .k = k, .rows = k->dims[0], .width = k->dims[1], .inner = k->dims[2]};
  const int64_t many = s.o.packed ? 2 * s.inner : s.inner;
  s.cached = s.o.cached == 2 ? s.rows : s.o.cached == 1 ? (s.rows + 1) / 2 : 0;
  s.ulp = head_ulp(k->dtype);
  s.least = k->dtype == TIGON_F16 ? 0x1p-24 : 0x1p-126;
  s.a = (tigon_mlp_fwd_args){.x = check_in(k, "x", k->dtype, 2, (int64_t[]){s.rows, s.width}, fill),
                             .gate = weight(k, "gate", many, s.width),
                             .down = weight(k, "down", s.width, s.inner),
                             .gate_bias = bias(k, "gate_bias", many, s.o.bias),
                             .act = s.o.act,
                             .gate_mult = s.o.gate_mult,
                             .down_mult = s.o.down_mult,
                             .clamp = s.o.clamp,
                             .up_offset = s.o.offset};
  if (!s.o.packed) {
    s.a.up = weight(k, "up", s.inner, s.width);
    s.a.up_bias = bias(k, "up_bias", s.inner, s.o.bias);
  }
  return s;
}

/* ---- formulas ---- */

/* Element i of a, or of u, in row r. */
static value pre_of(const run_state *s, const tigon_tensor *cache, int64_t r, int64_t i, bool up) {
  const tigon_mlp_fwd_args *a = &s->a;
  const bool own = up && !s->o.packed;
  const tigon_tensor *w = own ? &a->up : &a->gate, *b = own ? &a->up_bias : &a->gate_bias;
  const int64_t row = up && s->o.packed ? s->inner + i : i;
  if (cache && r < s->cached) return (value){check_value(cache, (2 * r + up) * s->inner + i), 0};
  double absolute = 0, v = head_dot(&a->x, r, w, row, s->width, &absolute);
  if (b->ndim) v += check_value(b, row), absolute += fabs(check_value(b, row));
  return rounded(s, v, sum * absolute);
}

/* The activation of u, its slope and how much that changes at most. */
static void act_of(tigon_mlp_act act, double u, double *v, double *slope, double *bend) {
  const double root = sqrt(2 / acos(-1)), s = 1 / (1 + exp(-u));
  const double y = 2 * root * (u + 0.044715 * u * u * u), p = 1 / (1 + exp(-y)), phi = erfc(-u / sqrt(2)) / 2;
  if (act == TIGON_MLP_SILU) {
    *v = u / (1 + exp(-u)), *slope = s + *v / (1 + exp(u)), *bend = 0.5;
  } else if (act == TIGON_MLP_GELU_TANH) {
    const double steep = p / (1 + exp(y)) * 2 * root * (1 + 3 * 0.044715 * u * u);
    *v = u * p, *slope = p + u * steep, *bend = 0.9;
  } else {
    *v = u * phi, *slope = phi + u * root / 2 * exp(-u * u / 2), *bend = 0.8;
  }
}

/* What a row's gate makes of a, u and dc. */
typedef struct gate {
  value c, da, du;
} gate;

static gate gate_of(const run_state *s, value a, value u, value dc) {
  const struct option *o = &s->o;
  const double g = o->gate_mult == 0 ? 1 : (double)(float)o->gate_mult;
  const double d = o->down_mult == 0 ? 1 : (double)(float)o->down_mult, limit = o->clamp;
  const bool cut_a = limit > 0 && a.v > limit, cut_u = limit > 0 && fabs(u.v) > limit;
  const bool edge_a = limit > 0 && fabs(a.v - limit) <= a.off, edge_u = limit > 0 && fabs(fabs(u.v) - limit) <= u.off;
  if (cut_a) a = made(limit, edge_a ? a.off : 0);
  if (cut_u) u = made(copysign(limit, u.v), edge_u ? u.off : 0);
  double v, slope, bend;
  act_of(o->act, g * a.v, &v, &slope, &bend);
  const double up = u.v + o->offset, off = fabs(g) * a.off, own = 0x1p-19 + 0x1p-24 * check_calls(s->k, 2, 2);
  const double most = 1.13 * off, steep = fabs(slope) + bend * off, wide = fabs(up) + u.off;
  const double rest = 0x1p-118 + 0x1p-24 * check_flushed(s->k);
  /* The two terms of a slope, and what a rounding of gate_mult * a changes it by, are below 3. */
  gate w = {.c = rounded(s, d * v * up,
                         fabs(d) * (most * wide + fabs(v) * u.off + own * fabs(v) * (1 + fabs(g * a.v)) * fabs(up) +
                                    rest * fabs(up)))};
  const double da = dc.v * d * up * g * slope, du = dc.v * d * v, by = fabs(d * g);
  const double da_off = by * (dc.off * wide * steep + fabs(dc.v) * (u.off * steep + fabs(up) * bend * off) +
                              3 * own * fabs(dc.v) * fabs(up) + rest * fabs(dc.v) * fabs(up));
  const double du_off =
      fabs(d) * (dc.off * (fabs(v) + most) + fabs(dc.v) * (most + own * fabs(v) + own * fabs(v * g * a.v) + rest));
  w.da = rounded(s, cut_a ? 0 : da, edge_a ? da_off + fabs(da) : cut_a ? 0 : da_off);
  w.du = rounded(s, cut_u ? 0 : du, edge_u ? du_off + fabs(du) : cut_u ? 0 : du_off);
  return w;
}

/* Adds off of a product's factor, and of the sum itself. */
static double term(value v, double by) { return (v.off + sum * fabs(v.v)) * fabs(by); }
static void add(double *to, double off) { *to += isfinite(off) ? off : 0; }

/* ---- forward ---- */

#define MLP_CALL(k, is_least, query, a)                        \
  do {                                                         \
    size_t least, good;                                        \
    query((k)->context, a, &least, &good);                     \
    (a)->workspace_bytes = (is_least) ? least : good;          \
    (a)->workspace = check_workspace(k, (a)->workspace_bytes); \
    check_call(k, a);                                          \
  } while (0)

static void fwd(check *k) {
  run_state s = begin(k, k->fill);
  tigon_mlp_fwd_args *a = &s.a;
  a->down_bias = bias(k, "down_bias", s.width, s.o.bias);
  a->y = check_out(k, "y", k->dtype, 2, (int64_t[]){s.rows, s.width});
  if (s.cached) a->cache = check_out_dense(k, "cache", k->dtype, 3, (int64_t[]){s.cached, 2, s.inner});
  double *y = check_doubles(k, s.rows * s.width), *cache = check_doubles(k, s.cached * 2 * s.inner);
  for (int64_t r = 0; k->oracle && r < s.rows; ++r) {
    for (int64_t h = 0; h < s.width; ++h)
      y[r * s.width + h] = a->down_bias.ndim ? sum * fabs(check_value(&a->down_bias, h)) : 0;
    for (int64_t i = 0; i < s.inner; ++i) {
      const value gate = pre_of(&s, NULL, r, i, false), up = pre_of(&s, NULL, r, i, true);
      const value c = gate_of(&s, gate, up, (value){0, 0}).c;
      if (r < s.cached) cache[2 * r * s.inner + i] = gate.off, cache[(2 * r + 1) * s.inner + i] = up.off;
      for (int64_t h = 0; h < s.width; ++h) add(&y[r * s.width + h], term(c, check_value(&a->down, h * s.inner + i)));
    }
  }
  MLP_CALL(k, s.o.least, tigon_mlp_fwd_workspace, a);
  head_bound(k, &a->y, y);
  head_bound(k, &a->cache, cache);
}

/* ---- backward ---- */

/* The gradient of a weight or a bias: rubbish, or with `accumulate` values, with the error of their sum. */
static tigon_tensor gradient(const run_state *s, const char *name, int64_t n, int64_t depth, bool present,
                             double **off) {
  check *k = s->k;
  const tigon_dtype dtype = check_dtype(k, !s->o.short_sums);
  const bool vector = depth < 0;
  const int64_t count = vector ? n : n * depth, shape[] = {n, depth};
  *off = check_doubles(k, count);
  if (!present || s->o.no_dw) return (tigon_tensor){0};
  if (vector) {
    const tigon_tensor t = check_sum_vector(k, name, dtype, n, true, s->o.accumulate);
    for (int64_t i = 0; k->oracle && s->o.accumulate && i < n; ++i) (*off)[i] = sum * fabs(check_value(&t, i));
    return t;
  }
  if (!s->o.accumulate) return check_out(k, name, dtype, 2, shape);
  const tigon_tensor t = check_inout(k, name, dtype, 2, shape, CHECK_UNIFORM);
  for (int64_t i = 0; k->oracle && i < count; ++i) (*off)[i] = sum * fabs(check_value(&t, i));
  return t;
}

static void bwd(check *k) {
  run_state s = begin(k, CHECK_UNIFORM);
  const struct option *o = &s.o;
  const int64_t rows = s.rows, width = s.width, inner = s.inner, many = o->packed ? 2 * inner : inner;
  tigon_mlp_bwd_args args = {.x = s.a.x,
                             .gate = s.a.gate,
                             .up = s.a.up,
                             .down = s.a.down,
                             .gate_bias = s.a.gate_bias,
                             .up_bias = s.a.up_bias,
                             .accumulate_dw = o->accumulate,
                             .act = o->act,
                             .gate_mult = o->gate_mult,
                             .down_mult = o->down_mult,
                             .clamp = o->clamp,
                             .up_offset = o->offset},
                     *a = &args;
  a->dy = check_in(k, "dy", k->dtype, 2, (int64_t[]){rows, width}, k->fill);
  if (s.cached) a->cache = check_in_dense(k, "cache", k->dtype, 3, (int64_t[]){s.cached, 2, inner}, CHECK_UNIFORM);
  double *dx = check_doubles(k, rows * width), *dgate, *dup, *ddown, *dgate_bias, *dup_bias, *ddown_bias;
  if (!o->no_dx) a->dx = check_out(k, "dx", k->dtype, 2, (int64_t[]){rows, width});
  a->dgate = gradient(&s, "dgate", many, width, true, &dgate);
  a->dup = gradient(&s, "dup", inner, width, !o->packed, &dup);
  a->ddown = gradient(&s, "ddown", width, inner, true, &ddown);
  a->dgate_bias = gradient(&s, "dgate_bias", many, -1, o->bias, &dgate_bias);
  a->dup_bias = gradient(&s, "dup_bias", inner, -1, o->bias && !o->packed, &dup_bias);
  a->ddown_bias = gradient(&s, "ddown_bias", width, -1, o->bias, &ddown_bias);
  if (o->packed && k->oracle) dup = dgate + inner * width, dup_bias = dgate_bias + inner;
  const tigon_tensor *w_up = o->packed ? &a->gate : &a->up;
  const int64_t behind = o->packed ? inner * width : 0;
  for (int64_t r = 0; k->oracle && r < rows; ++r) {
    for (int64_t h = 0; h < width; ++h) add(&ddown_bias[h], sum * fabs(check_value(&a->dy, r * width + h)));
    for (int64_t i = 0; i < inner; ++i) {
      double v = 0, absolute = 0;
      for (int64_t h = 0; h < width; ++h) {
        const double one = check_value(&a->dy, r * width + h) * check_value(&a->down, h * inner + i);
        v += one, absolute += fabs(one);
      }
      const gate w = gate_of(&s, pre_of(&s, &a->cache, r, i, false), pre_of(&s, &a->cache, r, i, true),
                             rounded(&s, v, sum * absolute));
      add(&dgate_bias[i], term(w.da, 1));
      add(&dup_bias[i], term(w.du, 1));
      for (int64_t h = 0; h < width; ++h) {
        const double x = check_value(&a->x, r * width + h);
        add(&dgate[i * width + h], term(w.da, x));
        add(&dup[i * width + h], term(w.du, x));
        add(&ddown[h * inner + i], term(w.c, check_value(&a->dy, r * width + h)));
        add(&dx[r * width + h],
            term(w.da, check_value(&a->gate, i * width + h)) + term(w.du, check_value(w_up, behind + i * width + h)));
      }
    }
  }
  MLP_CALL(k, o->least, tigon_mlp_bwd_workspace, a);
  head_bound(k, &a->dx, dx);
  head_bound(k, &a->dgate, dgate);
  if (!o->packed) head_bound(k, &a->dup, dup);
  head_bound(k, &a->ddown, ddown);
  head_bound(k, &a->dgate_bias, dgate_bias);
  if (!o->packed) head_bound(k, &a->dup_bias, dup_bias);
  head_bound(k, &a->ddown_bias, ddown_bias);
}

MUTANT(no_bias, linear_fwd, m.b = NULL)
MUTANT(drop_column, swiglu_fwd, m.cols -= m.cols > 1)
MUTANT(no_clamp, swiglu_fwd, m.numbers.clamp = 0)
MUTANT(other_gelu, geglu_fwd, m.numbers.approx = TIGON_GELU_TANH + TIGON_GELU_ERF - m.numbers.approx)
MUTANT(overwrite, linear_bwd, m.accumulate = false)
MUTANT(half_dx, linear_bwd, m.accumulate_dx = false)
MUTANT(add_twice, linear_bwd, m.accumulate = m.accumulate || (m.dw && m.rows))
MUTANT(swap, swiglu_bwd, m.in[1] = p->in[2]; m.in[2] = p->in[1])
static const check_mutant wrong_fwd[] = {
    {"forgets biases", no_bias},
    {"drops the last column", drop_column},
    {"forgets the clamp", no_clamp},
    {"takes the other gelu", other_gelu},
    {0},
};
static const check_mutant wrong_bwd[] = {
    {"overwrites gradients between tiles", overwrite},
    {"has only up's part of dx", half_dx},
    {"adds to gradients that hold nothing", add_twice},
    {"swaps gate and up", swap},
    {0},
};

/* rows, H, I; a cache has a share of all rows */
static const check_sizes own_sizes = {
    .of = {{3, 4, 5}, {37, 16, 67}, {300, 5, 9}, {3, 16, 3}, {CHECK_MANY, 4096, 5}},
    .walks = {{CHECK_N, 3, 5}, {3, CHECK_N, 5}, {3, 5, CHECK_N}},
    .coupled = 1 << 1 | 1 << 4 | 1 << 8,
    .large = 0x1p18,
};

static bool of_model(const bench_model *m, bench_point *point) {
  point->rows = 512, point->other = m->intermediate;
  return true;
}
static const bench_case timed = {.op = "mlp",
                                 .shape_note = "rows x H, I = 5504",
                                 .rows_f32 = 512,
                                 .rows_16bit = 512,
                                 .cols = 2048,
                                 .other = 5504,
                                 .dims = bench_words,
                                 .of_model = of_model,
                                 .option = {7, 7, 7},
                                 .forms = BENCH_BIT(BENCH_AS_WEIGHT) | BENCH_BIT(BENCH_BIASES) |
                                          BENCH_BIT(BENCH_PACKED) | BENCH_BIT(BENCH_CACHE) | BENCH_BIT(BENCH_GPT_OSS),
                                 .products = {3, 8, 11},
                                 .again = 2};

const check_op tigon_check_mlp_fwd = {fwd, shapes, OPTIONS, true, wrong_fwd, &timed, &own_sizes};
const check_op tigon_check_mlp_bwd = {bwd, shapes, OPTIONS, true, wrong_bwd, &timed, &own_sizes};
