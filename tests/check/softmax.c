/* softmax. Options walk scale, the mask's shape and dtype, causal and in place. dims are [B, T, C]. */
#include <math.h>
#include <string.h>

#include "check/cases.h"

typedef enum mask_kind { NO_MASK, COLUMNS, SQUARE, FULL } mask_kind;

static const struct option {
  double scale;
  mask_kind mask;
  bool mask_f32, minus_inf; /* minus_inf: a part of the mask is -inf, for one row all of it */
  int causal;
  bool in_place;
} options[] = {
    {.scale = 0},
    {.scale = 0.125, .mask = SQUARE, .mask_f32 = true, .minus_inf = true},
    {.scale = 2, .causal = 1, .in_place = true},
    {.scale = -0.5, .mask = COLUMNS},
    {.scale = 0.25, .mask = FULL, .mask_f32 = true, .causal = 1, .in_place = true},
    {.scale = 1, .mask = SQUARE, .minus_inf = true},
    {.scale = 0},
};
enum { OPTIONS = sizeof options / sizeof *options, PLAIN = 6 /* nothing in place in backward either */ };

/* Around the variant's tile, square for causal, more rows than columns, and wider than what a kernel keeps on the stack. */
static bool shape(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t t = tile, u = 4 * tile;
  const int64_t shapes[][3] = {
      {1, 1, 1},    {2, 3, t},     {1, 5, t + 1},     {3, 2, 2 * t - 1}, {2, 8, 19},    {1, 17, u - 1},
      {2, 9, 9},    {1, u, u},     {1, u + 1, u + 1}, {5, 3, 131},       {1, 37, 23},   {2, 3, 4096},
      {1, 2, 4097}, {1, 3, 8191},  {1, 2, 16384},     {1, 2, 16385},     {1, 1, 40009}, {13, 5, 64},
      {1, 67, 1},   {1, 2, 16411}, {1, 3, 32768},     {2, 2, 16392},     {1, 2, 24584}, {1, 2, 8200},
  };
  enum { SHAPES = sizeof shapes / sizeof *shapes };
  if (index >= 2 * SHAPES) return false;
  for (int i = 0; i < 3; ++i) dims[i] = shapes[index % SHAPES][i] > 0 ? shapes[index % SHAPES][i] : 1;
  return true;
}

static tigon_tensor make_mask(check *k, const struct option *o) {
  const tigon_dtype dtype = check_dtype(k, o->mask_f32);
  const int ndim = o->mask == COLUMNS ? 1 : o->mask == SQUARE ? 2 : 3;
  if (o->mask == NO_MASK) return (tigon_tensor){0};
  const tigon_tensor m = check_inout(k, "mask", dtype, ndim, k->dims + 3 - ndim, CHECK_UNIFORM);
  const uint16_t half = dtype == TIGON_BF16 ? 0xff80 : 0xfc00;
  for (int64_t r = 0; o->minus_inf && !k->timed && r < k->dims[1]; ++r)
    for (int64_t c = 0; c < k->dims[2]; ++c) {
      const int64_t at = r * m.strides[0] + c;
      if (r != k->dims[1] - 1 && (r + c) % 3 != 0) continue;
      if (dtype == TIGON_F32)
        ((float *)m.data)[at] = -INFINITY;
      else
        ((uint16_t *)m.data)[at] = half;
    }
  return m;
}

/* y is off by its score's rounding, that of z - max, of exp and of the sum, whose terms weigh as much as their y. */
static void bound_row(const check *k, const struct option *o, const double *x, const tigon_tensor *mask, int64_t r,
                      double *bound) {
  const int64_t tokens = k->dims[1], cols = k->dims[2], t = r % tokens, seen = o->causal ? t + 1 + cols - tokens : cols;
  const double scale = o->scale != 0 ? (double)(float)o->scale : 1;
  /* exp of the score, in the sum those of scores and of what the largest so far grew by, and the division */
  const double calls = check_calls(k, 3, 1);
  double max = -INFINITY, sum = 0, mean = 0;
  for (int pass = 0; pass < 4; ++pass)
    for (int64_t c = 0; c < seen; ++c) {
      const double m = o->mask == NO_MASK ? 0
                                          : check_value(mask, (o->mask == COLUMNS  ? 0
                                                               : o->mask == SQUARE ? t
                                                                                   : r) *
                                                                      cols +
                                                                  c);
      const double z = scale * x[r * cols + c] + m;
      if (pass == 0) max = fmax(max, z);
      if (pass == 1) sum += exp(z - max);
      const double y = exp(z - max) / sum, error = fabs(z) + fabs(max) + fabs(z - max) + 3;
      if (pass == 2 && y > 0) mean += y * error;
      if (pass == 3) bound[c] = (y > 0 ? y * (error + mean + 10 + calls) : 0) + 0x1p-102;
    }
}

static void fwd(check *k) {
  const struct option o = options[k->option];
  const int64_t rows = k->dims[0] * k->dims[1], cols = k->dims[2];
  const tigon_tensor mask = make_mask(k, &o);
  const tigon_tensor x =
      o.in_place ? check_inout(k, "x", k->dtype, 3, k->dims, k->fill) : check_in(k, "x", k->dtype, 3, k->dims, k->fill);
  const tigon_tensor y = o.in_place ? x : check_out(k, "y", k->dtype, 3, k->dims);
  double *before = check_doubles(k, rows * cols), *bound = check_doubles(k, rows * cols);
  for (int64_t i = 0; k->oracle && i < rows * cols; ++i) before[i] = check_value(&x, i);
  for (int64_t r = 0; k->oracle && r < rows; ++r) bound_row(k, &o, before, &mask, r, bound + r * cols);
  const tigon_softmax_fwd_args args = {.x = x, .mask = mask, .y = y, .scale = o.scale, .causal = o.causal};
  check_call(k, &args);
  check_bound(k, &y, 1, 1, bound);
}

static void bwd(check *k) {
  const struct option o = options[k->option];
  const int64_t rows = k->dims[0] * k->dims[1], cols = k->dims[2];
  const bool in_dy = k->option % 3 == 0 && k->option != PLAIN, in_y = k->option % 3 == 1;
  const tigon_tensor dy =
      in_dy ? check_inout(k, "dy", k->dtype, 3, k->dims, k->fill) : check_in(k, "dy", k->dtype, 3, k->dims, k->fill);
  const tigon_tensor y = in_y ? check_inout(k, "y", k->dtype, 3, k->dims, CHECK_UNIFORM)
                              : check_in(k, "y", k->dtype, 3, k->dims, CHECK_UNIFORM);
  const tigon_tensor dx = in_dy ? dy : in_y ? y : check_out(k, "dx", k->dtype, 3, k->dims);
  const double scale = o.scale != 0 ? fabs((double)(float)o.scale) : 1;
  double *bound = check_doubles(k, rows * cols);
  for (int64_t r = 0; k->oracle && r < rows; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += fabs(check_value(&dy, r * cols + c) * check_value(&y, r * cols + c));
    for (int64_t c = 0; c < cols; ++c) /* a product may lose half a denormal before it is multiplied again */
      bound[r * cols + c] =
          8 * scale * fabs(check_value(&y, r * cols + c)) * (fabs(check_value(&dy, r * cols + c)) + sum) +
          0x1p-125 * (1 + scale * fabs(check_value(&y, r * cols + c)));
  }
  const tigon_softmax_bwd_args args = {.dy = dy, .y = y, .dx = dx, .scale = o.scale};
  check_call(k, &args);
  check_bound(k, &dx, 1, 1, bound);
}

MUTANT(lose_part, softmax_fwd, m.cols = check_without_last_part(queue, p->cols))
MUTANT(no_scale, softmax_fwd, m.scale = 1)
MUTANT(not_causal, softmax_fwd, m.causal = false)
MUTANT(no_mask, softmax_fwd, m.mask.data = NULL)
MUTANT(bwd_scale, softmax_bwd, m.scale = 1)
MUTANT(dy_pitch, softmax_bwd, memcpy(m.y.pitch, p->dy.pitch, sizeof m.y.pitch))
static const check_mutant wrong_fwd[] = {
    {"loses a part of a split row", lose_part},
    {"forgets scale", no_scale},
    {"forgets causal", not_causal},
    {"forgets the mask", no_mask},
    {0},
};
static const check_mutant wrong_bwd[] = {
    {"forgets scale", bwd_scale},
    {"takes dy's pitch for y's", dy_pitch},
    {0},
};

/* batch, positions, columns */
static const check_sizes own_sizes = {
    .of = {{2, 2, 35}, {7, 5, 67}, {300, 2, 19}, {3, 2, 64}, {CHECK_MANY / 2, 2, 4096}, {3, 1, CHECK_THIRD}},
    .walks = {{2, 3, CHECK_N}, {1, CHECK_N, 7}, {CHECK_N, 2, 5}},
};

static void one_batch(const bench_point *at, int64_t dims[CHECK_DIMS]) {
  dims[0] = 1, dims[1] = at->rows, dims[2] = at->cols;
}
static const bench_case timed = {
    .op = "softmax", .rows_f32 = 4096, .rows_16bit = 8192, .cols = 4096, .dims = one_batch, .option = {6, 6}};

const check_op tigon_check_softmax_fwd = {fwd, shape, OPTIONS, true, wrong_fwd, &timed, &own_sizes};
const check_op tigon_check_softmax_bwd = {bwd, shape, OPTIONS, true, wrong_bwd, &timed, &own_sizes};
