/* mlp against its formulas in double, which are differenced; in workspaces of every size, with caches of every size. Neither changes
 * a bit of y and dx, and gradients of weights only by the order of their sums. */
#include <stdbool.h>

#include <tigon/tigon.h>

#include "core/half.h"
#include "grad.h"

/* With MOST rows there are several tiles beside all sums, too. */
enum { ROWS = 23, MOST = 1100, H = 7, I = 11, ROOMS = 9, WORKSPACE = 1 << 19, ZONE = 4096, MORE = 3, BIAS = 2 * I + H };

static const double gate_mult = 1.5, down_mult = -0.75, clamp = 1.25, up_offset = 0.5;

/* ---- the formulas ---- */

typedef struct state {
  tigon_mlp_act act;
  int rows;
  double x[MOST * H], gate[2 * I * H], down[H * I], bias[BIAS], dy[MOST * H],
      y[MOST * H]; /* biases of gate, up and down */
  double dx[MOST * H], dgate[2 * I * H], ddown[H * I], dbias[BIAS];
} state;

static double gelu(tigon_mlp_act act, double a, double *slope) {
  const double root = sqrt(2 / acos(-1)), y = 2 * root * (a + 0.044715 * a * a * a), p = 1 / (1 + exp(-y));
  const double phi = erfc(-a / sqrt(2)) / 2;
  if (act == TIGON_MLP_GELU_ERF) return *slope = phi + a * root / 2 * exp(-a * a / 2), a * phi;
  *slope = p + a * p * (1 - p) * 2 * root * (1 + 3 * 0.044715 * a * a);
  return a * p;
}

static double activation(tigon_mlp_act act, double a, double *slope) {
  if (act != TIGON_MLP_SILU) return gelu(act, a, slope);
  const double cut = fmin(a, clamp), u = gate_mult * cut, s = 1 / (1 + exp(-u));
  *slope = a > clamp ? 0 : down_mult * gate_mult * s * (1 + u * (1 - s));
  return down_mult * u * s;
}

/* One row's inner column: c, and the slopes by which dc becomes da and du. */
static double gated(tigon_mlp_act act, double a, double u, double *by_a, double *by_u) {
  const bool silu = act == TIGON_MLP_SILU;
  const double up = silu ? fmin(fmax(u, -clamp), clamp) + up_offset : u;
  const double value = activation(act, a, by_a);
  *by_a *= up;
  *by_u = silu && fabs(u) > clamp ? 0 : value;
  return value * up;
}

static double dot(const double *a, const double *b, int count, int step) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += a[i] * b[i * step];
  return sum;
}

static double loss(void *argument) {
  state *t = argument;
  double a_slope, u_slope;
  for (int r = 0; r < t->rows; ++r) {
    double c[I];
    for (int i = 0; i < I; ++i)
      c[i] = gated(t->act, dot(&t->x[r * H], &t->gate[i * H], H, 1) + t->bias[i],
                   dot(&t->x[r * H], &t->gate[(I + i) * H], H, 1) + t->bias[I + i], &a_slope, &u_slope);
    for (int h = 0; h < H; ++h) t->y[r * H + h] = dot(c, &t->down[h * I], I, 1) + t->bias[2 * I + h];
  }
  return grad_dot(t->y, t->dy, t->rows * H);
}

static void gradients(state *t) {
  memset(t->dx, 0, sizeof t->dx + sizeof t->dgate + sizeof t->ddown + sizeof t->dbias);
  for (int r = 0; r < t->rows; ++r) {
    const double *x = &t->x[r * H], *dy = &t->dy[r * H];
    for (int h = 0; h < H; ++h) t->dbias[2 * I + h] += dy[h];
    for (int i = 0; i < I; ++i) {
      double d[2];
      const double c = gated(t->act, dot(x, &t->gate[i * H], H, 1) + t->bias[i],
                             dot(x, &t->gate[(I + i) * H], H, 1) + t->bias[I + i], &d[0], &d[1]);
      const double dc = dot(dy, &t->down[i], H, I);
      for (int h = 0; h < H; ++h) t->ddown[h * I + i] += dy[h] * c;
      for (int j = 0; j < 2; ++j) {
        t->dbias[j * I + i] += dc * d[j];
        for (int h = 0; h < H; ++h) t->dgate[(j * I + i) * H + h] += dc * d[j] * x[h];
        for (int h = 0; h < H; ++h) t->dx[r * H + h] += dc * d[j] * t->gate[(j * I + i) * H + h];
      }
    }
  }
}

/* The difference quotient must not straddle the clamp. */
static bool is_near_clamp(const state *t) {
  for (int r = 0; r < t->rows; ++r)
    for (int i = 0; i < 2 * I; ++i)
      if (fabs(fabs(dot(&t->x[r * H], &t->gate[i * H], H, 1) + t->bias[i]) - clamp) < 0.008) return true;
  return false;
}

static double as(tigon_dtype dtype, double v) {
  char memory[8];
  tigon_store_f64(memory, 0, dtype, v);
  return tigon_load_f64(memory, 0, dtype);
}

/* Numbers of `dtype`; with `apart` none that is near the clamp. */
static state *made(tigon_mlp_act act, tigon_dtype dtype, bool apart, int rows) {
  static state t;
  t.act = act, t.rows = rows;
  for (unsigned seed = 1; seed < 10000; ++seed) {
    double *each[] = {t.x, t.gate, t.down, t.bias, t.dy};
    const int counts[] = {rows * H, 2 * I * H, H * I, BIAS, rows * H};
    for (int k = 0; k < 5; ++k) {
      grad_fill(each[k], counts[k], seed * 5 + (unsigned)k);
      for (int i = 0; i < counts[k]; ++i) each[k][i] = as(dtype, each[k][i] * (k == 1 ? 0.75 : 1));
    }
    if (!apart || act != TIGON_MLP_SILU || !is_near_clamp(&t)) break;
  }
  loss(&t);
  gradients(&t);
  return &t;
}

static void test_formulas(void **s) {
  (void)s;
  for (tigon_mlp_act act = TIGON_MLP_SILU; act <= TIGON_MLP_GELU_ERF; ++act) {
    state *t = made(act, TIGON_F32, true, ROWS);
    if (act == TIGON_MLP_SILU) assert_false(is_near_clamp(t));
    grad_expect("dx", loss, t, t->x, t->dx, ROWS * H, 1e-6);
    grad_expect("dgate and dup", loss, t, t->gate, t->dgate, 2 * I * H, 1e-6);
    grad_expect("ddown", loss, t, t->down, t->ddown, H * I, 1e-6);
    grad_expect("biases", loss, t, t->bias, t->dbias, BIAS, 1e-6);
  }
}

/* ---- the operator ---- */

/* 4 bytes an element; 16-bit numbers use half of them. */
typedef struct numbers {
  float x[MOST * H], gate[2 * I * H], down[H * I], bias[BIAS], dy[MOST * H], cache[(MOST + MORE) * 2 * I];
} numbers;
typedef struct results {
  float y[MOST * H], dx[MOST * H], dgate[2 * I * H], ddown[H * I], dbias[BIAS];
} results;

/* How the operator is called. */
typedef struct way {
  tigon_dtype dtype, sum_dtype;
  bool packed, accumulate;
  int rows, cached, room;
  unsigned absent; /* 1: dx, 2: of gate and up, 4: of down, 8: of biases */
} way;

static _Alignas(64) char workspace[WORKSPACE + ZONE];

static void store(float *to, tigon_dtype dtype, const double *from, int count) {
  for (int i = 0; i < count; ++i) tigon_store_f64(to, i, dtype, from[i]);
}
static tigon_tensor matrix(const float *data, tigon_dtype dtype, int first, int rows, int cols) {
  char *at = (char *)(uintptr_t)data + (size_t)(first * cols) * tigon_dtype_size(dtype);
  return tigon_tensor_2d(at, dtype, rows, cols);
}
static tigon_tensor vector(const float *data, tigon_dtype dtype, int first, int count) {
  return tigon_tensor_1d((char *)(uintptr_t)data + (size_t)first * tigon_dtype_size(dtype), dtype, count);
}
static tigon_tensor cache_of(const numbers *n, const way *w) {
  tigon_tensor t = {.data = (void *)(uintptr_t)n->cache, .dtype = w->dtype, .ndim = 3, .shape = {w->cached, 2, I}};
  t.strides[0] = 2 * I, t.strides[1] = I, t.strides[2] = 1;
  return w->cached ? t : (tigon_tensor){0};
}

#define GIVEN(n, w, act_of)                                                                                  \
  .x = matrix((n)->x, (w)->dtype, 0, (w)->rows, H),                                                          \
  .gate = matrix((n)->gate, (w)->dtype, 0, (w)->packed ? 2 * I : I, H),                                      \
  .up = (w)->packed ? (tigon_tensor){0} : matrix((n)->gate, (w)->dtype, I, I, H),                            \
  .down = matrix((n)->down, (w)->dtype, 0, H, I),                                                            \
  .gate_bias = vector((n)->bias, (w)->dtype, 0, (w)->packed ? 2 * I : I),                                    \
  .up_bias = (w)->packed ? (tigon_tensor){0} : vector((n)->bias, (w)->dtype, I, I), .cache = cache_of(n, w), \
  .act = act_of, .gate_mult = (act_of) ? 0 : gate_mult, .down_mult = (act_of) ? 0 : down_mult,               \
  .clamp = (act_of) ? 0 : clamp, .up_offset = (act_of) ? 0 : up_offset, .workspace = workspace

#define IN_ROOM(c, op, a, w)                                                                       \
  do {                                                                                             \
    size_t least, good;                                                                            \
    assert_int_equal(tigon_##op##_workspace(c, a, &least, &good), TIGON_OK);                       \
    assert_in_range(good, least, WORKSPACE);                                                       \
    memset(workspace, 0x7f, good + ZONE);                                                          \
    (a)->workspace_bytes = least + (good - least) * (size_t)(w)->room / (ROOMS - 1);               \
    if (tigon_##op(c, a) != TIGON_OK) fail_msg("%s", tigon_last_error(c));                         \
    for (size_t i = 0; i < ZONE; ++i) assert_int_equal(workspace[(a)->workspace_bytes + i], 0x7f); \
    if ((w)->room == 0) {                                                                          \
      (a)->workspace_bytes = least - 1;                                                            \
      assert_int_equal(tigon_##op(c, a), TIGON_ERROR_WORKSPACE);                                   \
    }                                                                                              \
  } while (0)

static void run(tigon_context *c, tigon_mlp_act act, const numbers *n, const way *w, results *out) {
  tigon_mlp_fwd_args f = {GIVEN(n, w, act)};
  f.down_bias = vector(n->bias, w->dtype, 2 * I, H);
  f.y = matrix(out->y, w->dtype, 0, w->rows, H);
  IN_ROOM(c, mlp_fwd, &f, w);
  tigon_mlp_bwd_args b = {GIVEN(n, w, act)};
  b.dy = matrix(n->dy, w->dtype, 0, w->rows, H);
  b.accumulate_dw = w->accumulate;
  if (!(w->absent & 1)) b.dx = matrix(out->dx, w->dtype, 0, w->rows, H);
  if (!(w->absent & 2)) b.dgate = matrix(out->dgate, w->sum_dtype, 0, w->packed ? 2 * I : I, H);
  if (!(w->absent & 2) && !w->packed) b.dup = matrix(out->dgate, w->sum_dtype, I, I, H);
  if (!(w->absent & 4)) b.ddown = matrix(out->ddown, w->sum_dtype, 0, H, I);
  if (!(w->absent & 8)) b.dgate_bias = vector(out->dbias, w->sum_dtype, 0, w->packed ? 2 * I : I);
  if (!(w->absent & 8) && !w->packed) b.dup_bias = vector(out->dbias, w->sum_dtype, I, I);
  if (!(w->absent & 8)) b.ddown_bias = vector(out->dbias, w->sum_dtype, 2 * I, H);
  IN_ROOM(c, mlp_bwd, &b, w);
}

/* `share` of the largest, and `ulps` of the element. */
static void expect(const char *what, const float *got, tigon_dtype dtype, const double *must, int count, double share) {
  const double ulp = dtype == TIGON_F32 ? 0x1p-23 : dtype == TIGON_BF16 ? 0x1p-7 : 0x1p-10;
  double largest = 0;
  for (int i = 0; i < count; ++i) largest = fmax(largest, fabs(must[i]));
  for (int i = 0; i < count; ++i) {
    const double is = tigon_load_f64(got, i, dtype);
    if (!(fabs(is - must[i]) <= share * largest + ulp * fabs(must[i])))
      fail_msg("%s[%d] is %.9g, must be %.9g", what, i, is, must[i]);
  }
}

static void load(double *to, const float *from, tigon_dtype dtype, int count) {
  for (int i = 0; i < count; ++i) to[i] = tigon_load_f64(from, i, dtype);
}

/* Gradients of weights against those of another run; those that are absent are 0 in `got`. */
static void expect_sums(const way *w, const results *got, const results *must, double factor, double offset) {
  const float *is[] = {got->dgate, got->ddown, got->dbias}, *other[] = {must->dgate, must->ddown, must->dbias};
  const int counts[] = {2 * I * H, H * I, BIAS};
  const unsigned bits[] = {2, 4, 8};
  const double share = w->accumulate && w->sum_dtype != TIGON_F32 ? 0.01 : 4e-6; /* 16 bits have another rounding */
  for (int k = 0; k < 3; ++k) {
    double sums[2 * I * H];
    load(sums, other[k], w->sum_dtype, counts[k]);
    for (int i = 0; i < counts[k]; ++i) sums[i] = w->absent & bits[k] ? 0 : factor * sums[i] + offset;
    expect("a gradient in tiles", is[k], w->sum_dtype, sums, counts[k], w->absent & bits[k] ? 0 : share);
  }
}

static void fill_sums(const way *w, results *out, double value) {
  float *each[] = {out->dgate, out->ddown, out->dbias};
  const int counts[] = {2 * I * H, H * I, BIAS};
  for (int k = 0; k < 3; ++k)
    for (int i = 0; i < counts[k]; ++i) tigon_store_f64(each[k], i, w->sum_dtype, value);
}

static void compare(tigon_context *c, const state *t, way w) {
  static numbers n, before;
  static results best, got;
  memset(&n, 0x5a, sizeof n);
  store(n.x, w.dtype, t->x, t->rows * H), store(n.gate, w.dtype, t->gate, 2 * I * H);
  store(n.down, w.dtype, t->down, H * I), store(n.bias, w.dtype, t->bias, BIAS),
      store(n.dy, w.dtype, t->dy, t->rows * H);
  before = n;
  memset(&best, 0, sizeof best);
  w.rows = t->rows;
  w.room = ROOMS - 1;
  run(c, t->act, &n, &w, &best);
  const double share = w.dtype == TIGON_F32    ? 3e-6
                       : w.dtype == TIGON_BF16 ? 0.02
                                               : 0.003; /* 16 bits have as many as 5 roundings */
  expect("y", best.y, w.dtype, t->y, t->rows * H, share);
  expect("dx", best.dx, w.dtype, t->dx, t->rows * H, share);
  expect("dgate and dup", best.dgate, w.sum_dtype, t->dgate, 2 * I * H, share);
  expect("ddown", best.ddown, w.sum_dtype, t->ddown, H * I, share);
  expect("biases", best.dbias, w.sum_dtype, t->dbias, BIAS, share);
  const int caches[] = {0, 1, 9, t->rows, t->rows + MORE};
  for (int i = 0; i < 5 * ROOMS; ++i) {
    w.cached = caches[i % 5], w.room = i / 5, w.absent = (unsigned)i % 16, w.accumulate = i % 3 == 0;
    memset(&got, 0, sizeof got);
    if (w.accumulate && w.absent == 0) fill_sums(&w, &got, 2);
    run(c, t->act, &n, &w, &got);
    assert_memory_equal(got.y, best.y, sizeof got.y);
    if (!(w.absent & 1)) assert_memory_equal(got.dx, best.dx, sizeof got.dx);
    expect_sums(&w, &got, &best, 1, w.accumulate && w.absent == 0 ? 2 : 0);
    const size_t held = (size_t)(w.cached < t->rows ? w.cached : t->rows) * 2 * I * tigon_dtype_size(w.dtype);
    assert_memory_equal((char *)n.cache + held, (char *)before.cache + held, sizeof n.cache - held);
    memcpy(n.cache, before.cache, sizeof n.cache);
    assert_memory_equal(&n, &before, sizeof n);
  }
}

static void test_operator(void **s) {
  (void)s;
  const char *devices[] = {"ref", "cpu"};
  const tigon_dtype dtypes[] = {TIGON_F32, TIGON_BF16, TIGON_F16};
  setenv("TIGON_GEMM", "builtin", 1); /* whose products have the same bits in any batch */
  for (int i = 0; i < 2 * 3 * 3 * 4; ++i) {
    const tigon_context_desc desc = {.device = devices[i % 2], .threads = 2};
    const tigon_dtype dtype = dtypes[i / 2 % 3];
    const way w = {.dtype = dtype, .sum_dtype = i / 18 % 2 ? dtype : TIGON_F32, .packed = i / 36};
    tigon_context *c;
    assert_int_equal(tigon_context_create(&desc, &c), TIGON_OK);
    compare(c, made((tigon_mlp_act)(i / 6 % 3), dtype, dtype != TIGON_F32, ROWS), w);
    if (i / 6 % 3 == TIGON_MLP_GELU_TANH) compare(c, made(TIGON_MLP_GELU_TANH, dtype, false, MOST), w);
    tigon_context_destroy(c);
  }
}

GRAD_MAIN(cmocka_unit_test(test_formulas), cmocka_unit_test(test_operator))
