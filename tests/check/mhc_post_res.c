/* mhc_post_res. Options walk f with h_post, and which gradients are wanted. Dimensions: tokens, streams in, streams out, channels. */
#include <math.h>

#include "check/cases.h"

static const struct option {
  bool f, dx, df, dh_res, dh_post;
} options[] = {
    {true, true, true, true, true},   {false, true, false, true, false}, {true, false, true, false, true},
    {true, true, false, true, false}, {true, false, false, true, true},
};
enum { OPTIONS = sizeof options / sizeof *options };

/* The case's option, in the form of a timed one. */
static struct option option_of(const check *k) {
  struct option o = options[k->option];
  if (check_has_form(k, BENCH_BARE)) o.f = o.df = o.dh_post = false;
  return o;
}

static bool shapes(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t t = tile;
  const int64_t of[][4] = {
      {1, 1, 1, 1},         {3, 4, 4, t},    {5, 4, 1, t + 1}, {2, 2, 3, 2 * t - 1 > 0 ? 2 * t - 1 : 1},
      {9, 4, 4, 4 * t + 1}, {17, 3, 5, 123}, {130, 4, 4, 7},   {257, 4, 4, 33},
      {2, 16, 16, 65},      {3, 8, 8, 1000}, {2, 4, 4, 4097},  {1, 1, 4, 16411},
      {33, 5, 2, 523},      {2, 16, 1, 257}, {3, 4, 4, 2048},  {67, 2, 2, 1},
  };
  for (int d = 0; d < 4 && index < (int)(sizeof of / sizeof *of); ++d) dims[d] = of[index][d];
  return index < (int)(sizeof of / sizeof *of);
}

typedef struct tensors {
  tigon_tensor x, o, f, h_res, h_post; /* o: forward's output, or its gradient */
  int64_t tokens, in, out, cols;
} tensors;

static tensors make(check *k, bool forward) {
  const struct option o = option_of(k);
  const int64_t *d = k->dims, of_x[] = {d[0], d[1], d[3]}, of_o[] = {d[0], d[2], d[3]}, of_f[] = {d[0], d[3]};
  const int64_t of_res[] = {d[0], d[2], d[1]}, of_post[] = {d[0], d[2]};
  tensors t = {.tokens = d[0], .in = d[1], .out = d[2], .cols = d[3]};
  t.x = check_in(k, "x", k->dtype, 3, of_x, k->fill);
  if (o.f) t.f = check_in(k, "f", k->dtype, 2, of_f, CHECK_UNIFORM);
  t.h_res = check_in_dense(k, "h_res", TIGON_F32, 3, of_res, CHECK_UNIFORM);
  if (o.f) t.h_post = check_in_dense(k, "h_post", TIGON_F32, 2, of_post, CHECK_UNIFORM);
  t.o = forward ? check_out(k, "o", k->dtype, 3, of_o) : check_in(k, "g", k->dtype, 3, of_o, CHECK_UNIFORM);
  return t;
}

static double x_at(const tensors *t, int64_t n, int64_t i, int64_t c) {
  return fabs(i < t->in ? check_value(&t->x, (n * t->in + i) * t->cols + c) : check_value(&t->f, n * t->cols + c));
}
static double g_at(const tensors *t, int64_t n, int64_t j, int64_t c) {
  return fabs(check_value(&t->o, (n * t->out + j) * t->cols + c));
}
static double w_at(const tensors *t, int64_t n, int64_t j, int64_t i) {
  return fabs(i < t->in ? check_value(&t->h_res, (n * t->out + j) * t->in + i)
                        : check_value(&t->h_post, n * t->out + j));
}

/* A product and its sum are rounded once each, as often as there are terms. */
static void fwd(check *k) {
  const tensors t = make(k, true);
  const int64_t terms = t.in + (t.f.ndim > 0);
  double *size = check_doubles(k, t.tokens * t.out * t.cols);
  for (int64_t at = 0; k->oracle && at < t.tokens * t.out * t.cols; ++at)
    for (int64_t n = at / t.cols / t.out, i = 0; i < terms; ++i)
      size[at] += w_at(&t, n, at / t.cols % t.out, i) * x_at(&t, n, i, at % t.cols);
  const tigon_mhc_post_res_fwd_args args = {.x = t.x, .f = t.f, .h_post = t.h_post, .h_res = t.h_res, .o = t.o};
  check_call(k, &args);
  check_bound(k, &t.o, 1, (double)terms + 1, size);
}

/* Sums over channels lose 8 * 2^-24 of their terms. */
static void bwd(check *k) {
  const struct option o = option_of(k);
  const tensors t = make(k, false);
  const int64_t terms = t.in + (t.f.ndim > 0);
  const int64_t of_x[] = {t.tokens, t.in, t.cols}, of_f[] = {t.tokens, t.cols}, of_res[] = {t.tokens, t.out, t.in};
  const int64_t of_post[] = {t.tokens, t.out};
  tigon_mhc_post_res_bwd_args a = {.g = t.o, .x = t.x, .f = t.f, .h_post = t.h_post, .h_res = t.h_res};
  if (o.dx) a.dx = check_out(k, "dx", k->dtype, 3, of_x);
  if (o.df) a.df = check_out(k, "df", k->dtype, 2, of_f);
  if (o.dh_res) a.dh_res = check_out_dense(k, "dh_res", TIGON_F32, 3, of_res);
  if (o.dh_post) a.dh_post = check_out_dense(k, "dh_post", TIGON_F32, 2, of_post);
  double *dx = check_doubles(k, t.tokens * t.in * t.cols), *df = check_doubles(k, t.tokens * t.cols);
  double *dh_res = check_doubles(k, t.tokens * t.out * t.in), *dh_post = check_doubles(k, t.tokens * t.out);
  for (int64_t n = 0; k->oracle && n < t.tokens; ++n)
    for (int64_t i = 0; i < terms; ++i)
      for (int64_t j = 0; j < t.out; ++j)
        for (int64_t c = 0; c < t.cols; ++c) {
          const double g = g_at(&t, n, j, c);
          *(i < t.in ? &dx[(n * t.in + i) * t.cols + c] : &df[n * t.cols + c]) += w_at(&t, n, j, i) * g;
          *(i < t.in ? &dh_res[(n * t.out + j) * t.in + i] : &dh_post[n * t.out + j]) += g * x_at(&t, n, i, c);
        }
  check_call(k, &a);
  if (o.dx) check_bound(k, &a.dx, 1, (double)t.out + 1, dx);
  if (o.df) check_bound(k, &a.df, 1, (double)t.out + 1, df);
  if (o.dh_res) check_bound(k, &a.dh_res, 1, 8, dh_res);
  if (o.dh_post) check_bound(k, &a.dh_post, 1, 8, dh_post);
}

MUTANT(no_f, mhc_post_res_fwd, m.f.data = NULL; m.h_post.data = NULL)
MUTANT(drop_tail, mhc_post_res_fwd, m.cols -= m.cols > 1)
MUTANT(lose_token, mhc_post_res_bwd, m.in_space.rows -= m.in_space.rows > m.in ? m.in : 0)
MUTANT(drop_dot, mhc_post_res_bwd, m.cols -= m.cols > 1)
MUTANT(no_df, mhc_post_res_bwd, m.df.data = NULL)
static const check_mutant wrong_fwd[] = {{"forgets f", no_f}, {"drops the last column", drop_tail}, {0}};
static const check_mutant wrong_bwd[] = {
    {"loses the last token", lose_token}, {"drops the last column", drop_dot}, {"forgets df", no_df}, {0}};

static const check_sizes own_sizes = {
    .of =
        {{2, 2, 3, 5}, {67, 4, 4, 33}, {300, 4, 3, 7}, {3, 2, 2, 16}, {CHECK_MANY, 4, 4, 1024}, {3, 1, 1, CHECK_THIRD}},
    .walks = {{3, 2, 3, CHECK_N}, {CHECK_N, 4, 4, 5}, {1, 4, 1, CHECK_N}},
};

/* Four streams whose channels are the columns. */
static void four(const bench_point *at, int64_t dims[CHECK_DIMS]) {
  dims[0] = at->rows, dims[1] = dims[2] = 4, dims[3] = at->cols;
}
static const bench_case timed = {.op = "mhc_post_res",
                                 .shape_note = "tokens x channels of 4 streams",
                                 .rows_f32 = 2048,
                                 .rows_16bit = 4096,
                                 .cols = 4096,
                                 .dims = four,
                                 .forms = BENCH_BIT(BENCH_BARE)};

const check_op tigon_check_mhc_post_res_fwd = {fwd, shapes, OPTIONS, true, wrong_fwd, &timed, &own_sizes};
const check_op tigon_check_mhc_post_res_bwd = {bwd, shapes, OPTIONS, true, wrong_bwd, &timed, &own_sizes};
