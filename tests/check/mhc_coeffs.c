/* mhc_coeffs. Options walk the dtypes of phi and of the vectors, outputs, gradients that come and go, accumulation, tmax and the
 * numbers. Dimensions: tokens, streams, channels.
 *
 * A sum over channels loses 16 * 2^-24 of its terms: it has 256 roundings at most in f32, whose signs differ. */
#include <math.h>
#include <string.h>

#include "check/cases.h"
#include "check/internal.h"
#include "check/number.h"
#include "check/tape.h"

enum { PRE = 1, POST = 2, RES = 4, Y = 8, ALL = 15 };

static const struct option {
  tigon_dtype phi; /* 0: x's */
  bool f32;        /* b, the alphas and their gradients */
  int with;        /* gradients that come; forward: Y; 0 for y */
  bool saves;      /* forward: mix, rstd; backward: dx */
  bool sums, dphi_f32, accumulate;
  int64_t tmax;
  double rms_eps, pre_eps, sinkhorn_eps, post_mult;
} options[] = {
    {0, true, ALL, true, true, true, false, 20, 1e-6, 0, 1e-6, 2},
    {0, false, PRE | POST | RES, true, true, false, true, 5, 1e-6, 1e-3, 1e-6, 2},
    {TIGON_F16, true, Y, true, true, true, true, 1, 1e-3, 1e-2, 1e-3, 1.5},
    {TIGON_BF16, true, RES | Y, true, false, false, false, 3, 0.1, 0.25, 0.1, 0.5},
    {TIGON_F32, true, ALL, false, true, true, false, 2, 1e-6, 0, 1e-6, 2},
};
enum { OPTIONS = sizeof options / sizeof *options, MOST = TIGON_MHC_COEFFS, STREAMS = TIGON_MHC_STREAMS };

/* The case's option, in the form of a timed one. */
static struct option option_of(const check *k) {
  struct option o = options[k->option];
  if (check_has_form(k, BENCH_BARE)) o.with &= ~Y;
  return o;
}

static bool shapes(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t t = tile;
  const int64_t of[][3] = {
      {1, 1, 1},    {3, 4, t},    {5, 2, t + 1}, {2, 4, 2 * t - 1 > 0 ? 2 * t - 1 : 1},
      {9, 4, 37},   {17, 3, 65},  {33, 4, 4},    {130, 2, 7},
      {300, 4, 5},  {2, 16, 37},  {3, 8, 130},   {2, 15, 9},
      {2, 4, 1031}, {1, 4, 4097}, {70, 1, 33},   {7, 5, 257},
      {70, 4, 96},  {5, 2, 544},  {130, 4, 288},
  };
  for (int d = 0; d < 3 && index < (int)(sizeof of / sizeof *of); ++d) dims[d] = of[index][d];
  return index < (int)(sizeof of / sizeof *of);
}

/* ---- what forward and backward have alike ---- */

typedef struct inputs {
  tigon_tensor x, phi, b, alpha[3];
  int64_t tokens, n, cols, m, k; /* n streams, m coefficients, k channels of a token */
} inputs;

static inputs make(check *k) {
  const struct option o = option_of(k);
  static const char *const names[] = {"alpha_pre", "alpha_post", "alpha_res"};
  inputs in = {.tokens = k->dims[0], .n = k->dims[1], .cols = k->dims[2]};
  in.m = in.n * (in.n + 2), in.k = in.n * in.cols;
  const int64_t of_phi[] = {in.k, in.m};
  in.x = check_in(k, "x", k->dtype, 3, k->dims, k->fill);
  const tigon_dtype phi = o.phi ? o.phi : k->dtype;
  /* Logits of a model's size: beyond 90 all gradients are denormal, which some CPUs are slow at. */
  in.phi = k->timed ? check_timed_tensor(k, "phi", phi, 2, of_phi, CHECK_ROLE_IN, 1 / sqrt((double)in.k))
                    : check_in_dense(k, "phi", phi, 2, of_phi, CHECK_UNIFORM);
  in.b = check_in_vector(k, "b", check_dtype(k, o.f32), in.m, CHECK_UNIFORM);
  for (int i = 0; i < 3; ++i) in.alpha[i] = check_in_vector(k, names[i], check_dtype(k, o.f32), 1, CHECK_UNIFORM);
  return in;
}

static double x_at(const inputs *in, int64_t t, int64_t k) { return check_value(&in->x, t * in->k + k); }
static double phi_at(const inputs *in, int64_t k, int64_t m) { return check_value(&in->phi, k * in->m + m); }
static double alpha_at(const inputs *in, int64_t m) { return check_value(&in->alpha[tigon_mhc_part(in->n, m)], 0); }

/* A logit of a mix that may be off. */
static num logit(const inputs *in, int64_t m, num mix) {
  return plus(times(exactly(alpha_at(in, m)), mix), exactly(check_value(&in->b, m)));
}

/* The logistic function by a second call of exp. An ulp of a device's own call may be that of a denormal. */
static num sigmoid(const check *k, num x) {
  const num s = logistic(k, x);
  return made(s.v, s.e + (2 + check_calls(k, 1, 0)) * s.v + check_calls(k, 2, 1) * 0x1p-126);
}

/* ---- Sinkhorn, step by step ---- */

typedef struct sinkhorn {
  tape t;
  int l[STREAMS * STREAMS], p[STREAMS * STREAMS], m[STREAMS * STREAMS];
  int by[2 * TIGON_MHC_TMAX][STREAMS];
} sinkhorn;

static int64_t place(int64_t n, int step, int64_t v, int64_t w) { return step % 2 ? v * n + w : w * n + v; }

static void record(sinkhorn *s, const inputs *in, const struct option *o, const num *l) {
  const int64_t n = in->n;
  s->t.count = 0;
  const int e = tape_given(&s->t, (double)(float)o->sinkhorn_eps, 0);
  for (int64_t i = 0; i < n * n; ++i) s->l[i] = tape_given(&s->t, l[i].v, l[i].e);
  for (int64_t j = 0; j < n; ++j) {
    int most = s->l[j * n], terms[STREAMS];
    for (int64_t i = 1; i < n; ++i)
      if (tape_value(&s->t, s->l[j * n + i]) > tape_value(&s->t, most)) most = s->l[j * n + i];
    for (int64_t i = 0; i < n; ++i) terms[i] = tape_exp(&s->t, tape_plus(&s->t, s->l[j * n + i], most, -1));
    const int sum = tape_sum(&s->t, terms, (int)n);
    for (int64_t i = 0; i < n; ++i) {
      s->p[j * n + i] = tape_over(&s->t, terms[i], sum);
      s->m[j * n + i] = tape_plus(&s->t, s->p[j * n + i], e, 1);
    }
  }
  for (int step = 0; step < 2 * o->tmax - 1; ++step)
    for (int64_t v = 0; v < n; ++v) {
      int terms[STREAMS];
      for (int64_t w = 0; w < n; ++w) terms[w] = s->m[place(n, step, v, w)];
      s->by[step][v] = tape_plus(&s->t, tape_sum(&s->t, terms, (int)n), e, 1);
      for (int64_t w = 0; w < n; ++w) s->m[place(n, step, v, w)] = tape_over(&s->t, terms[w], s->by[step][v]);
    }
}

/* A row's or column's g minus its product with m, which is a node of all. */
static void project(sinkhorn *s, int64_t n, int step, int64_t v, int *g, const int *m) {
  int terms[STREAMS];
  for (int64_t w = 0; w < n; ++w) terms[w] = tape_times(&s->t, g[place(n, step, v, w)], m[place(n, step, v, w)]);
  const int dot = tape_sum(&s->t, terms, (int)n);
  for (int64_t w = 0; w < n; ++w) g[place(n, step, v, w)] = tape_plus(&s->t, g[place(n, step, v, w)], dot, -1);
}

/* After record(): g, the gradients of h_res, become those of the logits. */
static void record_back(sinkhorn *s, int64_t n, int64_t tmax, int *g) {
  for (int step = (int)(2 * tmax - 2); step >= 0; --step)
    for (int64_t v = 0; v < n; ++v) {
      project(s, n, step, v, g, s->m);
      for (int64_t w = 0; w < n; ++w) {
        const int64_t at = place(n, step, v, w);
        g[at] = tape_over(&s->t, g[at], s->by[step][v]);
        s->m[at] = tape_times(&s->t, s->m[at], s->by[step][v]);
      }
    }
  for (int64_t j = 0; j < n; ++j) {
    project(s, n, 1, j, g, s->p);
    for (int64_t i = 0; i < n; ++i) g[j * n + i] = tape_times(&s->t, g[j * n + i], s->p[j * n + i]);
  }
}

/* ---- forward ---- */

typedef struct fwd_bounds {
  double *mix, *h_pre, *h_post, *h_res, *y;
} fwd_bounds;

/* mix: the sum, rstd, of whose sum the root has half, and their product. */
static num mix_of(const inputs *in, int64_t t, int64_t m, double rstd) {
  double sum = 0, sizes = 0;
  for (int64_t k = 0; k < in->k; ++k) {
    const double term = x_at(in, t, k) * phi_at(in, k, m);
    sum += term, sizes += fabs(term);
  }
  return made(sum * rstd, (16 + 8 + 6) * sizes * rstd);
}

static void bound_token(check *k, const inputs *in, int64_t t, sinkhorn *s, const fwd_bounds *to) {
  const struct option o = option_of(k);
  const int64_t n = in->n;
  double squares = 0;
  num l[MOST], pre[STREAMS];
  for (int64_t i = 0; i < in->k; ++i) squares += x_at(in, t, i) * x_at(in, t, i);
  const double rstd = 1 / sqrt(squares / (double)in->k + (double)(float)o.rms_eps);
  for (int64_t m = 0; m < in->m; ++m) {
    const num mix = mix_of(in, t, m, rstd);
    to->mix[t * in->m + m] = mix.e + check_calls(k, 1, 1) * fabs(mix.v);
    l[m] = logit(in, m, made(mix.v, to->mix[t * in->m + m]));
  }
  for (int64_t i = 0; i < n; ++i) {
    pre[i] = plus(sigmoid(k, l[i]), exactly((double)(float)o.pre_eps));
    to->h_pre[t * n + i] = pre[i].e;
    to->h_post[t * n + i] = times(sigmoid(k, l[n + i]), exactly((double)(float)o.post_mult)).e;
  }
  record(s, in, &o, l + 2 * n);
  for (int64_t i = 0; i < n * n; ++i) to->h_res[t * n * n + i] = tape_error(&s->t, s->m[i]);
  for (int64_t at = 0; at < in->k; ++at) {
    const num h = pre[at / in->cols];
    to->y[t * in->cols + at % in->cols] += fabs(x_at(in, t, at)) * (h.e + (double)(n + 1) * fabs(h.v));
  }
}

static void fwd(check *k) {
  const struct option o = option_of(k);
  const inputs in = make(k);
  const int64_t T = in.tokens, n = in.n;
  const int64_t of_h[] = {T, n, n}, of_mix[] = {T, in.m}, of_y[] = {T, in.cols};
  tigon_mhc_coeffs_fwd_args a = {.x = in.x,
                                 .phi = in.phi,
                                 .b = in.b,
                                 .alpha_pre = in.alpha[0],
                                 .alpha_post = in.alpha[1],
                                 .alpha_res = in.alpha[2],
                                 .tmax = o.tmax,
                                 .rms_eps = o.rms_eps,
                                 .pre_eps = o.pre_eps,
                                 .sinkhorn_eps = o.sinkhorn_eps,
                                 .post_mult = o.post_mult};
  a.h_pre = check_out_dense(k, "h_pre", TIGON_F32, 2, of_h);
  a.h_post = check_out_dense(k, "h_post", TIGON_F32, 2, of_h);
  a.h_res = check_out_dense(k, "h_res", TIGON_F32, 3, of_h);
  if (o.with & Y) a.y = check_out(k, "y", k->dtype, 2, of_y);
  if (o.saves) a.mix = check_out_dense(k, "mix", TIGON_F32, 2, of_mix);
  if (o.saves) a.rstd = check_out_vector(k, "rstd", TIGON_F32, T);
  const fwd_bounds to = {check_doubles(k, T * in.m), check_doubles(k, T * n), check_doubles(k, T * n),
                         check_doubles(k, T * n * n), check_doubles(k, T * in.cols)};
  sinkhorn s = {.t = {.k = k}};
  for (int64_t t = 0; k->oracle && t < T; ++t) bound_token(k, &in, t, &s, &to);
  free(s.t.at);
  check_call(k, &a);
  check_bound(k, &a.h_pre, 0, 1, to.h_pre);
  check_bound(k, &a.h_post, 0, 1, to.h_post);
  check_bound(k, &a.h_res, 0, 1, to.h_res);
  if (o.with & Y) check_bound(k, &a.y, 1, 1, to.y);
  if (o.saves) check_bound(k, &a.mix, 0, 1, to.mix);
  if (o.saves) check_bound_relative(k, &a.rstd, 0, 0, NULL, 8 + 4 + check_calls(k, 1, 1));
}

/* ---- backward ---- */

typedef struct bwd_bounds {
  double *dx, *dphi, *db, *dalpha[3];
} bwd_bounds;

/* dl of a token, the errors' and the values' sizes, and h_pre. */
static void find_dl(check *k, const tigon_mhc_coeffs_bwd_args *a, const inputs *in, int64_t t, sinkhorn *s, num *dl,
                    num *pre) {
  const struct option o = option_of(k);
  const int64_t n = in->n;
  num l[MOST];
  int g[STREAMS * STREAMS];
  for (int64_t m = 0; m < in->m; ++m) l[m] = logit(in, m, exactly(check_value(&a->mix, t * in->m + m)));
  for (int64_t i = 0; i < 2 * n; ++i) {
    const tigon_tensor *of = i < n ? &a->dh_pre : &a->dh_post;
    num dh = exactly(of->ndim ? check_value(of, t * n + i % n) : 0);
    for (int64_t c = 0; i < n && a->dy.ndim && c < in->cols; ++c) {
      const double term = check_value(&a->dy, t * in->cols + c) * x_at(in, t, i * in->cols + c);
      dh.v += term, dh.e += 16 * fabs(term);
    }
    dh.e += fabs(dh.v);
    const num h = sigmoid(k, l[i]), rest = sigmoid(k, minus(l[i]));
    if (i < n) pre[i] = plus(h, exactly((double)(float)o.pre_eps));
    if (i >= n) dh = times(dh, exactly((double)(float)o.post_mult));
    dl[i] = times(dh, times(h, rest));
  }
  record(s, in, &o, l + 2 * n);
  for (int64_t i = 0; i < n * n; ++i)
    g[i] = tape_given(&s->t, a->dh_res.ndim ? check_value(&a->dh_res, t * n * n + i) : 0, 0);
  record_back(s, n, o.tmax, g);
  for (int64_t i = 0; i < n * n; ++i) dl[2 * n + i] = made(tape_value(&s->t, g[i]), tape_error(&s->t, g[i]));
}

/* A factor has 4 roundings, and a sum over coefficients at most 16 * 2^-24 of its terms, as one over channels or tokens. */
static void bound_back(check *k, const tigon_mhc_coeffs_bwd_args *a, const inputs *in, int64_t t, sinkhorn *s,
                       const bwd_bounds *to) {
  num dl[MOST], pre[STREAMS];
  const double rstd = fabs(check_value(&a->rstd, t));
  double size[MOST], dot = 0; /* sizes of dmix with its error */
  find_dl(k, a, in, t, s, dl, pre);
  for (int64_t m = 0; m < in->m; ++m) {
    const double mix = fabs(check_value(&a->mix, t * in->m + m)), error = dl[m].e + (16 + 4) * fabs(dl[m].v);
    size[m] = fabs(alpha_at(in, m)) * error;
    dot += size[m] * mix;
    to->db[m] += error;
    to->dalpha[tigon_mhc_part(in->n, m)][0] += error * mix;
  }
  for (int64_t at = 0; at < in->k; ++at) {
    const double x = fabs(x_at(in, t, at));
    const num h = pre[at / in->cols];
    double *dx = &to->dx[t * in->k + at];
    for (int64_t m = 0; m < in->m; ++m) {
      *dx += rstd * fabs(phi_at(in, at, m)) * size[m];
      to->dphi[at * in->m + m] += x * rstd * size[m];
    }
    *dx += x * rstd * rstd * dot / (double)in->k;
    if (a->dy.ndim) *dx += fabs(check_value(&a->dy, t * in->cols + at % in->cols)) * (h.e + 4 * fabs(h.v));
  }
}

static void add_size(const tigon_tensor *t, double *size, int64_t count) {
  for (int64_t i = 0; i < count; ++i) size[i] += 2 * fabs(check_value(t, i));
}

static void make_back(check *k, const inputs *in, tigon_mhc_coeffs_bwd_args *a) {
  const struct option o = option_of(k);
  const int64_t n = in->n, of_h[] = {in->tokens, n, n}, of_mix[] = {in->tokens, in->m}, of_y[] = {in->tokens, in->cols};
  *a = (tigon_mhc_coeffs_bwd_args){.x = in->x,
                                   .phi = in->phi,
                                   .b = in->b,
                                   .alpha_pre = in->alpha[0],
                                   .alpha_post = in->alpha[1],
                                   .alpha_res = in->alpha[2],
                                   .tmax = o.tmax,
                                   .pre_eps = o.pre_eps,
                                   .sinkhorn_eps = o.sinkhorn_eps,
                                   .post_mult = o.post_mult,
                                   .accumulate_dphi = o.accumulate};
  if (o.with & PRE) a->dh_pre = check_in_dense(k, "dh_pre", TIGON_F32, 2, of_h, CHECK_UNIFORM);
  if (o.with & POST) a->dh_post = check_in_dense(k, "dh_post", TIGON_F32, 2, of_h, CHECK_UNIFORM);
  if (o.with & RES) a->dh_res = check_in_dense(k, "dh_res", TIGON_F32, 3, of_h, CHECK_UNIFORM);
  if (o.with & Y) a->dy = check_in(k, "dy", k->dtype, 2, of_y, CHECK_UNIFORM);
  a->mix = check_in_dense(k, "mix", TIGON_F32, 2, of_mix, CHECK_UNIFORM);
  a->rstd = check_in_vector(k, "rstd", TIGON_F32, in->tokens, CHECK_UNIFORM);
  if (o.saves) a->dx = check_out(k, "dx", k->dtype, 3, k->dims);
}

static void bwd(check *k) {
  const struct option o = option_of(k);
  const inputs in = make(k);
  tigon_mhc_coeffs_bwd_args a;
  make_back(k, &in, &a);
  const int64_t of_phi[] = {in.k, in.m};
  const tigon_dtype f = check_dtype(k, o.f32), of_dphi = o.dphi_f32 || !o.phi ? check_dtype(k, o.dphi_f32) : o.phi;
  if (o.sums)
    a.dphi = o.accumulate ? check_inout_dense(k, "dphi", of_dphi, 2, of_phi, CHECK_UNIFORM)
                          : check_out_dense(k, "dphi", of_dphi, 2, of_phi);
  a.db = check_sum_vector(k, "db", f, in.m, o.sums, o.accumulate);
  a.dalpha_pre = check_sum_vector(k, "dalpha_pre", f, 1, o.sums, o.accumulate);
  a.dalpha_post = check_sum_vector(k, "dalpha_post", f, 1, o.sums, o.accumulate);
  a.dalpha_res = check_sum_vector(k, "dalpha_res", f, 1, o.sums, o.accumulate);
  const bwd_bounds to = {check_doubles(k, in.tokens * in.k),
                         check_doubles(k, in.k * in.m),
                         check_doubles(k, in.m),
                         {check_doubles(k, 1), check_doubles(k, 1), check_doubles(k, 1)}};
  const tigon_tensor *dalpha[] = {&a.dalpha_pre, &a.dalpha_post, &a.dalpha_res};
  sinkhorn s = {.t = {.k = k}};
  for (int64_t t = 0; k->oracle && t < in.tokens; ++t) bound_back(k, &a, &in, t, &s, &to);
  free(s.t.at);
  if (k->oracle && o.sums && o.accumulate) {
    add_size(&a.dphi, to.dphi, in.k * in.m);
    add_size(&a.db, to.db, in.m);
    for (int i = 0; i < 3; ++i) add_size(dalpha[i], to.dalpha[i], 1);
  }
  check_call_in_workspace(k, tigon_mhc_coeffs_bwd_workspace, &a);
  if (o.saves) check_bound(k, &a.dx, 1, 1, to.dx);
  if (!o.sums) return;
  check_bound(k, &a.dphi, 1, 1, to.dphi);
  check_bound(k, &a.db, 1, 1, to.db);
  for (int i = 0; i < 3; ++i) check_bound(k, dalpha[i], 1, 1, to.dalpha[i]);
}

MUTANT(drop_round, mhc_coeffs_fwd, m.tmax -= m.tmax > 1)
MUTANT(no_rms_eps, mhc_coeffs_fwd, m.rms_eps = 0)
MUTANT(no_pre_eps, mhc_coeffs_fwd, m.pre_eps = 0)
MUTANT(no_sinkhorn_eps, mhc_coeffs_fwd, m.sinkhorn_eps = 0)
MUTANT(no_b, mhc_coeffs_fwd, m.b.data = NULL)
MUTANT(swap_alphas, mhc_coeffs_fwd, m.alpha[1] = p->alpha[0]; m.alpha[0] = p->alpha[1])
MUTANT(no_y, mhc_coeffs_fwd, m.y.data = NULL)
static const check_mutant wrong_fwd[] = {{"does one round less", drop_round},
                                         {"skips rms_eps", no_rms_eps},
                                         {"skips pre_eps", no_pre_eps},
                                         {"skips sinkhorn_eps", no_sinkhorn_eps},
                                         {"forgets b", no_b},
                                         {"swaps two alphas", swap_alphas},
                                         {"forgets y", no_y},
                                         {0}};

MUTANT(bwd_round, mhc_coeffs_bwd, m.tmax -= m.tmax > 1)
MUTANT(bwd_eps, mhc_coeffs_bwd, m.sinkhorn_eps = 0)
MUTANT(bwd_pre_eps, mhc_coeffs_bwd, m.pre_eps = 0)
MUTANT(bwd_mult, mhc_coeffs_bwd, m.post_mult = 1)
MUTANT(no_dy, mhc_coeffs_bwd, m.y.data = NULL)
MUTANT(overwrite, mhc_coeffs_bwd, m.accumulate = false)
MUTANT(lose_token, mhc_coeffs_bwd, check_drop_last_row(&m.tokens))
static const check_mutant wrong_bwd[] = {{"does one round less", bwd_round},
                                         {"skips sinkhorn_eps", bwd_eps},
                                         {"skips pre_eps", bwd_pre_eps},
                                         {"forgets post_mult", bwd_mult},
                                         {"forgets dy", no_dy},
                                         {"overwrites sums", overwrite},
                                         {"loses the last token", lose_token},
                                         {0}};

static const check_sizes own_sizes = {
    .of = {{2, 3, 5}, {67, 4, 33}, {300, 4, 5}, {3, 2, 16}, {CHECK_MANY, 4, 1024}},
    .walks = {{3, 2, CHECK_N}, {CHECK_N, 4, 5}, {1, 3, CHECK_N}},
};

/* Four streams whose channels are the columns. */
static void four(const bench_point *at, int64_t dims[CHECK_DIMS]) {
  dims[0] = at->rows, dims[1] = 4, dims[2] = at->cols;
}
static const bench_case timed = {.op = "mhc_coeffs",
                                 .shape_note = "tokens x channels of 4 streams",
                                 .rows_f32 = 2048,
                                 .rows_16bit = 4096,
                                 .cols = 4096,
                                 .dims = four,
                                 .forms = BENCH_BIT(BENCH_BARE)};

const check_op tigon_check_mhc_coeffs_fwd = {fwd, shapes, OPTIONS, true, wrong_fwd, &timed, &own_sizes};
const check_op tigon_check_mhc_coeffs_bwd = {bwd, shapes, OPTIONS, true, wrong_bwd, &timed, &own_sizes};
