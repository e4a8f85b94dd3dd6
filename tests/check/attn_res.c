/* attn_res. A shape is tokens, columns, blocks. Options walk how blocks lie, the vectors' dtypes, statistics, the sums, their dtypes
 * and accumulation. */
#include <math.h>

#include "check/cases.h"
#include "check/internal.h"
#include "core/half.h"

/* A list of blocks; a token's rows side by side, [T, N, D]; blocks end to end, [N, T, D]. */
typedef enum layout { LIST, SIDE_BY_SIDE, STACKED } layout;

static const struct option {
  layout lies;
  bool f32, stats, sums, sums_f32, accumulate;
  bool sharp; /* scores are far apart, and exp of one is no f32 */
} options[] = {
    {LIST, false, true, true, true, false, false},
    {SIDE_BY_SIDE, true, false, true, false, true, false},
    {STACKED, true, true, true, true, false, true},
    {LIST, true, false, false, false, false, false},
};
enum { OPTIONS = sizeof options / sizeof *options, COUPLED = 1 << 2 /* whose first dimension is no token's */ };

/* ---- blocks ---- */

typedef struct blocks {
  tigon_tensor all, *one; /* v or dv of the arguments; each block's own view */
  void **at;              /* the list; NULL: without */
} blocks;

static tigon_tensor make(check *k, const char *name, bool out, int ndim, const int64_t *shape) {
  return out ? check_out(k, name, k->dtype, ndim, shape) : check_in(k, name, k->dtype, ndim, shape, k->fill);
}

static blocks make_blocks(check *k, const char *name, bool out) {
  const int64_t tokens = k->dims[0], cols = k->dims[1], count = k->dims[2];
  const layout lies = options[k->option].lies;
  const bool listed = lies == LIST && !k->timed, addressed = listed || check_has_form(k, BENCH_LIST);
  const bool sided =
      k->timed ? k->twist != NULL : lies == SIDE_BY_SIDE; /* in the huge sweep a few rows lie in the whole's */
  const int64_t side[] = {tokens, count, cols}, stacked[] = {count, tokens, cols};
  blocks b = {.one = check_list(k, "blocks", (size_t)count * sizeof *b.one)};
  if (addressed) b.at = check_list(k, out ? "addresses of dv" : "addresses of v", (size_t)count * sizeof *b.at);
  if (!listed) b.all = make(k, name, out, 3, sided ? side : stacked);
  if (sided) {
    const int64_t of_block = b.all.strides[1], of_token = b.all.strides[0];
    b.all.shape[0] = count, b.all.strides[0] = of_block;
    b.all.shape[1] = tokens, b.all.strides[1] = of_token;
  }
  for (int64_t i = 0; i < count; ++i) {
    const size_t step = (size_t)b.all.strides[0] * tigon_dtype_size(k->dtype);
    k->alike = listed ? (int)i : 0; /* a list's blocks share their strides */
    b.one[i] = listed ? make(k, name, out, 2, k->dims)
                      : (tigon_tensor){(char *)b.all.data + (size_t)i * step,
                                       k->dtype,
                                       2,
                                       {tokens, cols},
                                       {b.all.strides[1], b.all.strides[2]}};
    if (b.at) b.at[i] = b.one[i].data;
  }
  k->alike = 0;
  if (listed) b.all = (tigon_tensor){NULL, k->dtype, 3, {count, tokens, cols}, {0, b.one->strides[0], 1}};
  return b;
}

static double block_value(const blocks *b, int64_t i, int64_t at) { return check_value(&b->one[i], at); }

/* ---- vectors ---- */

/* q and wn, whose products are so small that scores differ by a few units, or by a few hundred. */
typedef struct vectors {
  tigon_tensor q, wn;
  double *c; /* q * wn */
} vectors;

static vectors make_vectors(check *k) {
  const int64_t cols = k->dims[1];
  const tigon_dtype dtype = check_dtype(k, options[k->option].f32);
  vectors v = {.wn = check_in_vector(k, "wn", dtype, cols, CHECK_UNIFORM), .c = check_doubles(k, cols)};
  const double factor = (options[k->option].sharp ? 128 : 1) / sqrt((double)cols);
  v.q = k->timed ? check_timed_tensor(k, "q", dtype, 1, &cols, CHECK_ROLE_IN, 4 / sqrt((double)cols))
                 : check_inout_dense(k, "q", dtype, 1, &cols, CHECK_UNIFORM);
  for (int64_t c = 0; !k->timed && c < cols; ++c) tigon_store_f64(v.q.data, c, dtype, check_value(&v.q, c) * factor);
  for (int64_t c = 0; k->oracle && c < cols; ++c) v.c[c] = check_value(&v.q, c) * check_value(&v.wn, c);
  return v;
}

/* ---- forward ---- */

/* In units of 2^-24. A score's c has a rounding. The sum of its terms loses 8, and rstd 7, as a norm's. The product, the store
 * and the difference from the largest have 1 each. A weight has 3 of exp and 3 of the others', their sum 8, and 2 of the
 * division. */
static double score_units(const check *k) { return 1 + 8 + 7 + 1 + 1 + 1 + check_calls(k, 1, 1.5); }
static double weight_units(const check *k) { return 3 + 3 + 8 + 2 + check_calls(k, 2, 1); }

/* What a weight or a product below f32's normal numbers is off by, at least. */
static double denormal(const check *k) { return 0x1p24 * 3 * 0x1p-149 + check_flushed(k); }

/* The bounds of a token's weights, a [N], and of its row of h, in units of 2^-24. Scores that are off by e at most
 * make a weight exp(2 e) times as large at most. */
static void fwd_sizes(const check *k, const blocks *v, const vectors *w, int64_t r, double *a, double *h) {
  const int64_t cols = k->dims[1], count = k->dims[2];
  double largest = -(double)INFINITY, sum = 0, most = 0;
  for (int64_t i = 0; i < count; ++i) {
    double squares = 0, score = 0, terms = 0;
    for (int64_t c = 0; c < cols; ++c) {
      const double x = block_value(v, i, r * cols + c), term = w->c[c] * x;
      squares += x * x, score += term, terms += fabs(term);
    }
    const double rstd = 1 / sqrt(squares / (double)cols + (double)1e-6f);
    a[i] = rstd * score;
    largest = fmax(largest, a[i]), most = fmax(most, rstd * terms);
  }
  for (int64_t i = 0; i < count; ++i) sum += exp(a[i] - largest);
  for (int64_t i = 0; i < count; ++i) {
    const double weight = exp(a[i] - largest) / sum;
    a[i] = weight * (0x1p24 * expm1(2 * most * score_units(k) * 0x1p-24) + weight_units(k)) + denormal(k);
    for (int64_t c = 0; c < cols; ++c)
      h[c] += (a[i] + (double)(count + 1) * weight) * fabs(block_value(v, i, r * cols + c)) + denormal(k);
  }
}

static void fwd(check *k) {
  const struct option o = options[k->option];
  const int64_t tokens = k->dims[0], cols = k->dims[1], count = k->dims[2], of_stats[] = {tokens, count};
  const blocks v = make_blocks(k, "v", false);
  const vectors w = make_vectors(k);
  const tigon_tensor none = {0};
  tigon_attn_res_fwd_args args = {.v = v.all, .v_blocks = (const void *const *)v.at, .q = w.q, .wn = w.wn, .eps = 1e-6};
  args.h = check_out(k, "h", k->dtype, 2, k->dims);
  args.a = o.stats ? check_out_dense(k, "a", TIGON_F32, 2, of_stats) : none;
  args.rstd = o.stats ? check_out_dense(k, "rstd", TIGON_F32, 2, of_stats) : none;
  double *a = check_doubles(k, tokens * count), *h = check_doubles(k, tokens * cols);
  for (int64_t r = 0; k->oracle && r < tokens; ++r) fwd_sizes(k, &v, &w, r, a + r * count, h + r * cols);
  check_call_in_workspace(k, tigon_attn_res_fwd_workspace, &args);
  check_bound(k, &args.h, 1, 1, h);
  if (!o.stats) return;
  check_bound(k, &args.a, 1, 1, a);
  check_bound_relative(k, &args.rstd, 1, 0, NULL, 7 + check_calls(k, 1, 1.5));
}

/* ---- backward ---- */

/* In units of 2^-24. da loses 8 of its terms and a rounding at its store, as many as there are blocks in the mean, and ds has 3. In dv,
 * that meets rstd, 1, and c - back * v, whose back has 1 of c, 8 of its sum, 5 of two rstd and the division, and the terms 4. */
static double slope_units(const check *k) { return 8 + 1 + (double)k->dims[2] + 3 + 1 + check_calls(k, 0, 1); }
static double dv_units(const check *k) { return slope_units(k) + 1 + 8 + 5 + 4 + check_calls(k, 0, 1); }

typedef struct gradients {
  double **dv, *u; /* the sizes of each block's terms, [T, D]; of those of u, [D] */
} gradients;

static void bwd_sizes(const check *k, const tigon_attn_res_bwd_args *args, const blocks *v, const vectors *w,
                      const gradients *g, int64_t r, double *da) {
  const int64_t cols = k->dims[1], count = k->dims[2];
  double mean = 0;
  for (int64_t i = 0; i < count; ++i) {
    da[i] = 0;
    for (int64_t c = r * cols; c < (r + 1) * cols; ++c) da[i] += fabs(check_value(&args->dh, c) * block_value(v, i, c));
    mean += fabs(check_value(&args->a, r * count + i)) * da[i];
  }
  for (int64_t i = 0; i < count; ++i) {
    const double a = fabs(check_value(&args->a, r * count + i)), rstd = fabs(check_value(&args->rstd, r * count + i));
    const double slope = a * (da[i] + mean) * rstd + (1 + rstd) * denormal(k);
    double dot = 0;
    for (int64_t c = 0; c < cols; ++c) dot += fabs(w->c[c] * block_value(v, i, r * cols + c));
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t at = r * cols + c;
      const double x = fabs(block_value(v, i, at));
      g->u[c] += slope * x;
      g->dv[i][at] =
          a * fabs(check_value(&args->dh, at)) + slope * (fabs(w->c[c]) + rstd * rstd * dot / (double)cols * x);
    }
  }
}

/* The sizes of dq's or dwn's terms, of which u has a rounding of its product and 8 of its sum. */
static void bound_sum(check *k, const tigon_tensor *sum, const tigon_tensor *factor, const double *u, double *size) {
  for (int64_t c = 0; k->oracle && c < k->dims[1]; ++c) size[c] += u[c] * fabs(check_value(factor, c));
  check_bound(k, sum, 1, slope_units(k) + (double)k->dims[2] + 1 + 8 + 2, size);
}

static void bwd(check *k) {
  const struct option o = options[k->option];
  const int64_t tokens = k->dims[0], cols = k->dims[1], count = k->dims[2], of_stats[] = {tokens, count};
  const blocks v = make_blocks(k, "v", false);
  const vectors w = make_vectors(k);
  tigon_attn_res_bwd_args args = {
      .v = v.all, .v_blocks = (const void *const *)v.at, .q = w.q, .wn = w.wn, .accumulate_dq = o.accumulate};
  args.dh = check_in(k, "dh", k->dtype, 2, k->dims, CHECK_UNIFORM);
  args.a = check_in_dense(k, "a", TIGON_F32, 2, of_stats, CHECK_UNIFORM);
  args.rstd = check_in_dense(k, "rstd", TIGON_F32, 2, of_stats, CHECK_UNIFORM);
  const blocks dv = make_blocks(k, "dv", true);
  args.dv = dv.all, args.dv_blocks = dv.at;
  args.dq = check_sum_vector(k, "dq", check_dtype(k, o.sums_f32), cols, o.sums, o.accumulate);
  args.dwn = check_sum_vector(k, "dwn", check_dtype(k, o.sums_f32), cols, o.sums, o.accumulate);
  const gradients g = {check_list(k, "sizes", (size_t)count * sizeof *g.dv), check_doubles(k, cols)};
  double *da = check_doubles(k, count), *dq = check_doubles(k, cols), *dwn = check_doubles(k, cols);
  for (int64_t i = 0; k->oracle && i < count; ++i) g.dv[i] = check_doubles(k, tokens * cols);
  for (int64_t r = 0; k->oracle && r < tokens; ++r) bwd_sizes(k, &args, &v, &w, &g, r, da);
  for (int64_t c = 0; k->oracle && o.accumulate && c < cols; ++c)
    dq[c] = fabs(check_value(&args.dq, c)), dwn[c] = fabs(check_value(&args.dwn, c));
  check_call_in_workspace(k, tigon_attn_res_bwd_workspace, &args);
  for (int64_t i = 0; k->oracle && i < count; ++i) check_bound(k, &dv.one[i], 1, dv_units(k), g.dv[i]);
  if (!o.sums) return;
  bound_sum(k, &args.dq, &args.wn, g.u, dq);
  bound_sum(k, &args.dwn, &args.q, g.u, dwn);
}

/* ---- shapes, mutants ---- */

/* Around the tile; blocks that are few, more than Liger-Kernel's 32, and more than a GPU's parameters hold. */
static bool shape(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t t = tile, u = 4 * tile;
  const int64_t shapes[][3] = {
      {1, 1, 1},     {3, t, 2},      {5, t + 1, 3}, {2, 2 * t - 1, 4}, {9, 33, 3},    {3, 40, 33},
      {2, 8, 300},   {17, u - 1, 8}, {4, u, 5},     {7, 2 * u - 1, 2}, {130, 7, 9},   {257, 33, 4},
      {6, 1000, 40}, {3, 4096, 8},   {2, 4097, 3},  {2, 8191, 6},      {1, 16411, 4}, {5, 40009, 2},
      {67, 1, 5},    {19, 3584, 8},  {600, 24, 3},  {72, 1032, 4},     {3, 5120, 1},
  };
  if (index >= (int)(sizeof shapes / sizeof *shapes)) return false;
  for (int d = 0; d < 3; ++d) dims[d] = shapes[index][d] > 0 ? shapes[index][d] : 1;
  return true;
}

MUTANT(drop_tail, attn_res_fwd, m.cols -= m.cols > 1)
MUTANT(no_eps, attn_res_fwd, m.eps = 0)
MUTANT(no_norm_weight, attn_res_fwd, m.wn = p->q)
MUTANT(lose_block, attn_res_fwd, m.blocks -= m.blocks > 1)
MUTANT(narrow, attn_res_fwd, if (m.blocks > 32) m.blocks = 32)
/* All blocks are the first one. */
static void take_first(tigon_blocks *b) {
  if (b->at) b->rows.data = (void *)(uintptr_t)*b->at;
  b->at = NULL;
  b->step = 0;
}
MUTANT(one_v, attn_res_fwd, take_first(&m.v))
static const check_mutant wrong_fwd[] = {
    {"drops the last column", drop_tail},
    {"skips eps", no_eps},
    {"takes q for the norm's weight", no_norm_weight},
    {"loses the last block", lose_block},
    {"takes 32 blocks at most", narrow},
    {"reads the first block alone", one_v},
    {0},
};
MUTANT(lose_row, attn_res_bwd, check_drop_last_row(&m.space))
MUTANT(overwrite, attn_res_bwd, m.accumulate = false)
MUTANT(one_weight, attn_res_bwd, m.dwn.data = m.dq.data)
MUTANT(swapped, attn_res_bwd, m.dwn = p->dq; m.dq = p->dwn)
MUTANT(bwd_narrow, attn_res_bwd, if (m.blocks > 32) m.blocks = 32)
MUTANT(one_block, attn_res_bwd, take_first(&m.v))
static const check_mutant wrong_bwd[] = {
    {"drops the last token", lose_row},
    {"overwrites sums", overwrite},
    {"stores dwn over dq", one_weight},
    {"takes dq for dwn", swapped},
    {"takes 32 blocks at most", bwd_narrow},
    {"reads the first block alone", one_block},
    {0},
};

static const check_sizes own_sizes = {
    .of = {{2, 35, 3}, {67, 131, 5}, {300, 37, 4}, {3, 64, 3}, {CHECK_MANY, 4096, 1}, {3, CHECK_THIRD, 1}},
    .walks = {{3, CHECK_N, 2}, {CHECK_N, 5, 3}, {2, 5, CHECK_N}},
    .coupled = COUPLED,
};
static const bench_case timed = {.op = "attn_res",
                                 .shape_note = "tokens x hidden, of 8 blocks",
                                 .rows_f32 = 1024,
                                 .rows_16bit = 2048,
                                 .cols = 4096,
                                 .other = 8,
                                 .dims = bench_words,
                                 .option = {[BENCH_FWD] = 2, [BENCH_BWD] = 2},
                                 .forms = BENCH_BIT(BENCH_LIST)};

const check_op tigon_check_attn_res_fwd = {fwd, shape, OPTIONS, true, wrong_fwd, &timed, &own_sizes};
const check_op tigon_check_attn_res_bwd = {bwd, shape, OPTIONS, true, wrong_bwd, &timed, &own_sizes};
