/* multi_token_attention. A shape is batches, channels, tokens. Options walk the place, norm(), groups, windows, dtypes, statistics, sums
 * and accumulation.
 *
 * Bounds are in units of 2^-24. A convolution's element has as many roundings as a channel's window has taps, and one a channel, of
 * the sum of its terms' sizes. Sums along a row or over rows lose 16 of theirs: they have 256 roundings in f32 at most, whose signs
 * differ. exp is off by 4, and f32's denormals by themselves. */
#include <math.h>

#include "check/cases.h"
#include "core/half.h"
#include "problem/multi_token_attention.h"

static const struct option {
  bool pre, sparse, depthwise;
  int64_t outputs; /* outputs of a group */
  tigon_window h, w;
  bool f32, bias, stat, sums, accumulate; /* f32: bias, dweight, dbias */
} options[] = {
    {false, false, false, 2, {3, 1, 1, 1}, {3, 1, 1, 1}, true, true, true, true, false},
    {false, false, true, 1, {6, 1, 5, 1}, {11, 1, 5, 1}, false, false, false, true, true},
    {false, true, false, 3, {2, 2, 1, 1}, {3, 1, 2, 2}, true, true, true, true, false},
    {true, false, true, 1, {6, 1, 5, 1}, {11, 1, 5, 1}, true, false, true, true, false},
    {true, true, true, 2, {3, 1, 2, 2}, {3, 2, 1, 1}, true, false, true, true, false},
    {false, false, true, 2, {3, 1, 6, 3}, {2, 3, 4, 5}, false, true, true, true, true},
    {true, false, false, 2, {2, 1, 1, 1}, {3, 1, 2, 1}, false, false, false, false, false},
};
enum { OPTIONS = sizeof options / sizeof *options };

/* The case's option, in the form of a timed one, whose backward has what forward kept. */
static struct option option_of(const check *k) {
  struct option o = options[k->option];
  if (!k->point) return o;
  o.stat = true, o.accumulate = false;
  o.pre = check_has_form(k, BENCH_PRE), o.sparse = check_has_form(k, BENCH_SPARSE);
  o.bias = check_has_form(k, BENCH_BIASES);
  return o;
}

static bool shapes(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t of[][3] = {{1, 1, 1},  {2, 1, 2},   {1, 2, tile}, {2, 2, tile + 1}, {1, 2, 2 * tile + 3}, {3, 1, 7},
                           {2, 3, 33}, {1, 1, 130}, {2, 2, 65},   {1, 4, 19},       {1, 1, 270},          {9, 1, 5}};
  for (int d = 0; d < 3 && index < (int)(sizeof of / sizeof *of); ++d) dims[d] = of[index][d];
  return index < (int)(sizeof of / sizeof *of);
}

/* ---- a case ---- */

typedef struct inputs {
  tigon_tensor scores, weight;
  int64_t batch, in, out, groups, inputs, tokens, rows, cols;
  struct option o;
} inputs;

static inputs make(check *k) {
  const struct option o = option_of(k);
  inputs in = {.batch = k->dims[0], .in = k->dims[1], .tokens = k->dims[2], .o = o};
  in.groups = o.depthwise ? in.in : 1;
  in.inputs = in.in / in.groups, in.out = in.groups * o.outputs;
  in.rows = tigon_window_places(&o.h, in.tokens), in.cols = tigon_window_places(&o.w, in.tokens);
  const int64_t of_scores[] = {in.batch, in.in, in.tokens, in.tokens};
  const int64_t of_weight[] = {in.out, in.inputs, o.h.taps, o.w.taps};
  in.scores = check_in(k, "scores", k->dtype, 4, of_scores, k->fill);
  in.weight = check_in_dense(k, "weight", k->dtype, 4, of_weight, CHECK_UNIFORM);
  return in;
}

static int64_t allowed(int64_t row, int64_t cols) { return row < cols ? row + 1 : cols; }
static double roundings(const inputs *in, int64_t channels) {
  return (double)(in->o.h.taps * in->o.w.taps + channels + 2);
}

/* Planes of one batch, [channels, rows, cols]: of the scores' side u, of o's side o, each with what it may be off by. */
typedef struct plane {
  double *v, *e;
} plane;
static plane make_plane(check *k, int64_t count) { return (plane){check_doubles(k, count), check_doubles(k, count)}; }

/* Every term of the convolution: f(places in a plane of o, in one of u, in weight). */
static void each_term(const inputs *in, void (*f)(void *argument, int64_t o, int64_t u, int64_t weight),
                      void *argument) {
  const struct option *of = &in->o;
  const int64_t taps = of->h.taps * of->w.taps;
  for (int64_t co = 0; co < in->out; ++co)
    for (int64_t i = 0; i < in->rows; ++i)
      for (int64_t j = 0; j < allowed(i, in->cols); ++j)
        for (int64_t c = 0; c < in->inputs; ++c)
          for (int64_t t = 0; t < taps; ++t) {
            const int64_t y = i * of->h.stride - of->h.padding + t / of->w.taps * of->h.dilation;
            const int64_t x = j * of->w.stride - of->w.padding + t % of->w.taps * of->w.dilation;
            const int64_t ci = co / of->outputs * in->inputs + c;
            if (y >= 0 && y < in->tokens && x >= 0 && x <= y)
              f(argument, (co * in->rows + i) * in->cols + j, (ci * in->tokens + y) * in->tokens + x,
                (co * in->inputs + c) * taps + t);
          }
}

/* What terms add to. */
typedef struct terms {
  plane to, from;
  const double *weight;
  double units;
  bool transposed;
} terms;
static void add_product(void *argument, int64_t o, int64_t u, int64_t weight) {
  const terms *t = argument;
  const int64_t to = t->transposed ? u : o, from = t->transposed ? o : u;
  const double w = t->weight[weight], size = fabs(w * t->from.v[from]);
  t->to.v[to] += w * t->from.v[from];
  t->to.e[to] += fabs(w) * t->from.e[from] + t->units * size;
}
/* The same of values' sizes. */
typedef struct weight_terms {
  plane o, u;
  double *to;
} weight_terms;
static void add_weight(void *argument, int64_t o, int64_t u, int64_t weight) {
  const weight_terms *t = argument;
  const double a = fabs(t->o.v[o]), b = fabs(t->u.v[u]);
  t->to[weight] += a * t->u.e[u] + b * t->o.e[o] + 16 * a * b;
}

/* ---- norm() of a row, and what it is off by ---- */

static double stat_of(bool sparse, const double *x, int64_t n) {
  double most = -INFINITY, sum = 0;
  for (int64_t j = 0; j < n; ++j) most = x[j] > most || isnan(x[j]) ? x[j] : most;
  const double base = most == -INFINITY ? 0 : most;
  for (int64_t j = 0; j < n && !sparse; ++j) sum += exp(x[j] - base);
  if (!sparse) return base + log(sum);
  for (double tau = -1;;) {
    double members = 0;
    sum = 0;
    for (int64_t j = 0; j < n; ++j)
      if (!(x[j] - base <= tau)) sum += x[j] - base, ++members;
    const double next = members > 0 ? (sum - 1) / members : tau;
    if (!(next > tau)) return base + (isnan(next) ? next : tau);
    tau = next;
  }
}

/* How far stat is off that a kernel finds of x: log of a sum of exp by what its terms are, weighted by them; tau by what the members may
 * be, as sparsemax's. Both are rounded at the end. */
static double stat_error(const check *k, bool sparse, const double *x, const double *e, int64_t n, double stat) {
  double off = 0, most = -INFINITY;
  for (int64_t j = 0; j < n; ++j) most = fmax(most, x[j]);
  for (int64_t j = 0; j < n && !sparse; ++j)
    if (exp(x[j] - stat) > 0) off += exp(x[j] - stat) * (e[j] + most - x[j]);
  if (!sparse) return off * (1 + 0x1p-10) + fabs(stat) + 4 + 16 + 2 + check_calls(k, 2, 0) + check_flushed(k);
  for (int again = 0; again < 2; ++again)
    for (int64_t j = 0; j < n; ++j)
      if (x[j] + 0x1p-24 * (2 * e[j] + 2 * off + 64) >= stat) off = fmax(off, e[j]);
  return off + 16 + 2 * fabs(stat) + check_calls(k, 0, 1);
}

/* x becomes norm(x) with `stat`, and e what that is off by; stat is off by `off`. */
static void norm_row(const check *k, bool sparse, double *x, double *e, int64_t n, double stat, double off) {
  for (int64_t j = 0; j < n; ++j) {
    const double z = x[j] - stat, units = e[j] + off + fabs(z);
    if (sparse) {
      x[j] = z > 0 ? z : 0;
      e[j] = z > -units * 0x1p-24 ? units : 0;
    } else {
      x[j] = stat == -INFINITY ? 0 : exp(z);
      const double more = fmin(expm1(units * 0x1p-24), 0x1p100); /* a finite number, which 0 takes away */
      const double grown = x[j] > 0                ? x[j] * (0x1p24 * more + 4 + check_calls(k, 1, 0))
                           : z > -(double)INFINITY ? 0x1p24 * fmin(exp(z + units * 0x1p-24), 0x1p100)
                                                   : 0;
      e[j] = grown + 2 * 0x1p24 * 0x1p-149 + check_flushed(k);
    }
  }
}

/* q becomes norm'(q). Where an element of x may be of the support or not, nothing is known of the row but its size. */
static void back_row(bool sparse, const double *p, const double *p_error, const double *sizes, double *q, double *e,
                     int64_t n) {
  double sum = 0, size = 0, off = 0, members = 0, most = 0;
  bool known = true;
  for (int64_t j = 0; j < n; ++j) {
    const bool member = p[j] > 0;
    most = fmax(most, fabs(q[j]));
    if (sparse) known = known && (p_error[j] == 0 || p[j] > p_error[j] * 0x1p-24);
    if (sparse && !member) continue;
    const double weight = sparse ? 1 : p[j], error = sparse ? 0 : p_error[j];
    sum += weight * q[j], ++members;
    size += weight * sizes[j];
    off += weight * e[j] + error * sizes[j] + 16 * weight * sizes[j];
  }
  if (sparse && members > 0) sum /= members, size /= members, off = off / members + size;
  for (int64_t j = 0; j < n; ++j) {
    if (sparse) {
      e[j] = !known ? 0x1p24 * 4 * most : p[j] > 0 ? e[j] + off + sizes[j] + size : 0;
      q[j] = p[j] > 0 ? q[j] - sum : 0;
    } else {
      e[j] = p_error[j] * (sizes[j] + size) + p[j] * (e[j] + off + 2 * (sizes[j] + size)) + 4 * 0x1p24 * 0x1p-149;
      q[j] = p[j] * (q[j] - sum);
    }
  }
}

/* ---- forward ---- */

typedef struct work {
  plane u, o;
  double *weight;
} work;

static work make_work(check *k, const inputs *in) {
  const int64_t weights = in->out * in->inputs * in->o.h.taps * in->o.w.taps;
  work w = {make_plane(k, in->in * in->tokens * in->tokens), make_plane(k, in->out * in->rows * in->cols),
            check_doubles(k, weights)};
  for (int64_t i = 0; !k->timed && i < weights; ++i) w.weight[i] = check_value(&in->weight, i);
  return w;
}

static void load_u(const inputs *in, int64_t b, const work *w) {
  const int64_t plane = in->in * in->tokens * in->tokens;
  for (int64_t at = 0; at < plane; ++at) {
    const bool masked = at % in->tokens > at / in->tokens % in->tokens;
    w->u.v[at] = masked ? 0 : check_value(&in->scores, b * plane + at), w->u.e[at] = 0;
  }
}
static void clear(plane of, int64_t count) {
  for (int64_t i = 0; i < count; ++i) of.v[i] = of.e[i] = 0;
}
/* Rows of o before norm() and bias. */
static void convolve(const inputs *in, const work *w) {
  terms t = {w->o, w->u, w->weight, roundings(in, in->inputs), false};
  clear(w->o, in->out * in->rows * in->cols);
  each_term(in, add_product, &t);
}

static void bound_fwd(check *k, const inputs *in, const tigon_tensor *bias, int64_t b, const work *w, double *o,
                      double *stat) {
  const struct option *of = &in->o;
  load_u(in, b, w);
  const int64_t rows = of->pre ? in->out * in->rows : in->in * in->tokens;
  const int64_t cols = of->pre ? in->cols : in->tokens, queries = of->pre ? in->rows : in->tokens;
  const plane at = of->pre ? w->o : w->u;
  if (of->pre) convolve(in, w);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t n = allowed(r % queries, cols);
    double *x = at.v + r * cols, *e = at.e + r * cols;
    const double s = stat_of(of->sparse, x, n), off = stat_error(k, of->sparse, x, e, n, s);
    stat[b * rows + r] = off;
    norm_row(k, of->sparse, x, e, n, s, off);
  }
  if (!of->pre) convolve(in, w);
  const int64_t plane = in->out * in->rows * in->cols;
  for (int64_t i = 0; i < plane; ++i) {
    if (i % in->cols > i / in->cols % in->rows) continue;
    const double more = bias->ndim ? fabs(check_value(bias, i / in->cols / in->rows)) : 0;
    o[b * plane + i] = w->o.e[i] + fabs(w->o.v[i]) + more;
  }
}

static void fwd(check *k) {
  const inputs in = make(k);
  const struct option o = in.o;
  const int64_t of_o[] = {in.batch, in.out, in.rows, in.cols};
  const int64_t of_stat[] = {in.batch, o.pre ? in.out : in.in, o.pre ? in.rows : in.tokens};
  tigon_multi_token_attention_fwd_args a = {.scores = in.scores,
                                            .weight = in.weight,
                                            .place = o.pre ? TIGON_MTA_PRE : TIGON_MTA_POST,
                                            .sparse = o.sparse,
                                            .groups = in.groups,
                                            .stride_h = o.h.stride,
                                            .stride_w = o.w.stride,
                                            .padding_h = o.h.padding,
                                            .padding_w = o.w.padding,
                                            .dilation_h = o.h.dilation,
                                            .dilation_w = o.w.dilation};
  a.bias = check_may_vector(k, "bias", check_dtype(k, o.f32), in.out, CHECK_UNIFORM, o.bias);
  a.o = check_out(k, "o", k->dtype, 4, of_o);
  if (o.stat) a.stat = check_out_dense(k, "stat", TIGON_F32, 3, of_stat);
  const work w = make_work(k, &in);
  double *bound = check_doubles(k, of_o[0] * of_o[1] * of_o[2] * of_o[3]);
  double *stat = check_doubles(k, of_stat[0] * of_stat[1] * of_stat[2]);
  for (int64_t b = 0; k->oracle && b < in.batch; ++b) bound_fwd(k, &in, &a.bias, b, &w, bound, stat);
  check_call_in_workspace(k, tigon_multi_token_attention_fwd_workspace, &a);
  check_bound(k, &a.o, 1, 1, bound);
  if (o.stat) check_bound(k, &a.stat, 1, 1, stat);
}

/* ---- backward ---- */

/* stat as forward could have stored it. */
static void write_stat(const check *k, const inputs *in, const work *w, const tigon_tensor *stat) {
  const struct option *of = &in->o;
  const int64_t rows = of->pre ? in->out * in->rows : in->in * in->tokens;
  const int64_t cols = of->pre ? in->cols : in->tokens, queries = of->pre ? in->rows : in->tokens;
  const bool derived = check_recall(k, stat, 0);
  for (int64_t b = 0; !derived && b < in->batch; ++b) {
    load_u(in, b, w);
    if (of->pre) convolve(in, w);
    const double *x = of->pre ? w->o.v : w->u.v;
    for (int64_t r = 0; r < rows; ++r)
      ((float *)stat->data)[b * rows + r] = (float)stat_of(of->sparse, x + r * cols, allowed(r % queries, cols));
  }
  if (!derived) check_remember(k, stat, 0);
}

typedef struct bwd_bounds {
  double *ds, *dweight, *dbias;
} bwd_bounds;

static void bound_bwd(check *k, const inputs *in, const tigon_multi_token_attention_bwd_args *a, int64_t b,
                      const work *w, plane q, plane d, plane sizes, const bwd_bounds *to) {
  const struct option *of = &in->o;
  const int64_t o_plane = in->out * in->rows * in->cols, u_plane = in->in * in->tokens * in->tokens;
  const int64_t rows = of->pre ? in->out * in->rows : in->in * in->tokens;
  const int64_t cols = of->pre ? in->cols : in->tokens, queries = of->pre ? in->rows : in->tokens;
  const plane x = of->pre ? w->o : w->u;
  terms t = {d, q, w->weight, roundings(in, of->outputs), true};
  load_u(in, b, w);
  if (of->pre) convolve(in, w);
  clear(q, o_plane), clear(d, u_plane), clear(sizes, u_plane > o_plane ? u_plane : o_plane);
  for (int64_t i = 0; i < o_plane; ++i) {
    if (i % in->cols > i / in->cols % in->rows) continue;
    q.v[i] = check_value(&a->d_o, b * o_plane + i);
    to->dbias[i / in->cols / in->rows] += 16 * fabs(q.v[i]);
  }
  if (!of->pre) { /* sizes of the transpose's terms */
    const plane kept = t.to;
    each_term(in, add_product, &t);
    for (int64_t i = 0; i < u_plane; ++i) sizes.v[i] = kept.e[i] / t.units;
  } else {
    for (int64_t i = 0; i < o_plane; ++i) sizes.v[i] = fabs(q.v[i]);
  }
  const plane g = of->pre ? q : d;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t n = allowed(r % queries, cols);
    const double stat = check_value(&a->stat, b * rows + r);
    norm_row(k, of->sparse, x.v + r * cols, x.e + r * cols, n, stat, 0);
    back_row(of->sparse, x.v + r * cols, x.e + r * cols, sizes.v + r * cols, g.v + r * cols, g.e + r * cols, n);
  }
  if (of->pre) each_term(in, add_product, &t);
  for (int64_t i = 0; i < u_plane; ++i)
    if (i % in->tokens <= i / in->tokens % in->tokens) to->ds[b * u_plane + i] = d.e[i] + fabs(d.v[i]);
  weight_terms of_weight = {q, w->u, to->dweight};
  each_term(in, add_weight, &of_weight);
}

static void bwd(check *k) {
  const inputs in = make(k);
  const struct option o = in.o;
  const tigon_dtype sum = check_dtype(k, o.f32);
  const int64_t of_o[] = {in.batch, in.out, in.rows, in.cols}, weights = in.out * in.inputs * o.h.taps * o.w.taps;
  const int64_t of_stat[] = {in.batch, o.pre ? in.out : in.in, o.pre ? in.rows : in.tokens};
  const int64_t of_weight[] = {in.out, in.inputs, o.h.taps, o.w.taps};
  tigon_multi_token_attention_bwd_args a = {.scores = in.scores,
                                            .weight = in.weight,
                                            .place = o.pre ? TIGON_MTA_PRE : TIGON_MTA_POST,
                                            .sparse = o.sparse,
                                            .groups = in.groups,
                                            .stride_h = o.h.stride,
                                            .stride_w = o.w.stride,
                                            .padding_h = o.h.padding,
                                            .padding_w = o.w.padding,
                                            .dilation_h = o.h.dilation,
                                            .dilation_w = o.w.dilation,
                                            .accumulate_dweight = o.accumulate};
  const work w = make_work(k, &in);
  const int64_t u_plane = in.in * in.tokens * in.tokens, o_plane = in.out * in.rows * in.cols;
  a.d_o = check_in(k, "d_o", k->dtype, 4, of_o, CHECK_UNIFORM);
  a.stat = k->timed ? check_in_dense(k, "stat", TIGON_F32, 3, of_stat, CHECK_UNIFORM)
                    : check_inout_dense(k, "stat", TIGON_F32, 3, of_stat, CHECK_UNIFORM);
  write_stat(k, &in, &w, &a.stat);
  a.dscores = check_out(k, "dscores", k->dtype, 4, in.scores.shape);
  if (o.sums)
    a.dweight = o.accumulate ? check_inout_dense(k, "dweight", sum, 4, of_weight, CHECK_UNIFORM)
                             : check_out_dense(k, "dweight", sum, 4, of_weight);
  a.dbias = check_sum_vector(k, "dbias", sum, in.out, o.sums && !o.pre && (o.bias || !k->point), o.accumulate);
  const bwd_bounds to = {check_doubles(k, in.batch * u_plane), check_doubles(k, weights), check_doubles(k, in.out)};
  const plane q = make_plane(k, o_plane), d = make_plane(k, u_plane),
              sizes = make_plane(k, u_plane > o_plane ? u_plane : o_plane);
  for (int64_t b = 0; k->oracle && b < in.batch; ++b) bound_bwd(k, &in, &a, b, &w, q, d, sizes, &to);
  for (int64_t i = 0; k->oracle && o.sums && o.accumulate && i < weights; ++i)
    to.dweight[i] += 2 * fabs(check_value(&a.dweight, i));
  for (int64_t i = 0; k->oracle && a.dbias.ndim && o.accumulate && i < in.out; ++i)
    to.dbias[i] += 2 * fabs(check_value(&a.dbias, i));
  check_call_in_workspace(k, tigon_multi_token_attention_bwd_workspace, &a);
  check_bound(k, &a.dscores, 1, 1, to.ds);
  if (o.sums) check_bound(k, &a.dweight, 1, 1, to.dweight);
  if (a.dbias.ndim) check_bound(k, &a.dbias, 1, 1, to.dbias);
}

MUTANT(shift_h, multi_token_attention_fwd, m.h.padding -= m.h.padding > 0)
MUTANT(shift_w, multi_token_attention_fwd, m.w.padding -= m.w.padding > 0)
MUTANT(no_dilation, multi_token_attention_fwd, m.h.dilation = m.w.dilation = 1)
MUTANT(other_norm, multi_token_attention_fwd, m.sparse = !p->sparse)
MUTANT(no_bias, multi_token_attention_fwd, m.bias.data = NULL)
MUTANT(lose_batch, multi_token_attention_fwd, m.batch -= m.batch > 1)
static const check_mutant wrong_fwd[] = {{"shifts windows by a query", shift_h},
                                         {"shifts windows by a key", shift_w},
                                         {"forgets the dilation", no_dilation},
                                         {"takes the other norm()", other_norm},
                                         {"forgets the bias", no_bias},
                                         {"loses a batch", lose_batch},
                                         {0}};
MUTANT(bwd_shift, multi_token_attention_bwd, m.w.padding -= m.w.padding > 0)
MUTANT(bwd_dilation, multi_token_attention_bwd, m.h.dilation = m.w.dilation = 1)
MUTANT(bwd_norm, multi_token_attention_bwd, m.sparse = !p->sparse)
MUTANT(overwrite, multi_token_attention_bwd, m.accumulate = false)
MUTANT(lose_dbias, multi_token_attention_bwd, m.dbias.data = NULL)
MUTANT(bwd_batch, multi_token_attention_bwd, m.batch -= m.batch > 1)
static const check_mutant wrong_bwd[] = {{"shifts windows by a key", bwd_shift},
                                         {"forgets the dilation", bwd_dilation},
                                         {"takes the other norm()", bwd_norm},
                                         {"overwrites sums", overwrite},
                                         {"forgets dbias", lose_dbias},
                                         {"loses a batch", bwd_batch},
                                         {0}};

static const check_sizes own_sizes = {
    .of = {{2, 2, 9}, {3, 4, 67}, {300, 1, 5}, {3, 2, 16}, {CHECK_MANY, 1, 64}},
    .walks = {{CHECK_N, 1, 3}, {2, CHECK_N, 4}},
};

/* Tokens, and channels that are convolved each on its own. */
static void plane_dims(const bench_point *at, int64_t dims[CHECK_DIMS]) {
  dims[0] = 1, dims[1] = at->cols, dims[2] = at->rows;
}
static bool of_model(const bench_model *m, bench_point *point) {
  point->cols = m->heads;
  return true;
}
static const bench_case timed = {.op = "multi_token_attention",
                                 .shape_note = "tokens x channels, each convolved by 6 x 11",
                                 .rows_f32 = 1024,
                                 .rows_16bit = 2048,
                                 .cols = 16,
                                 .dims = plane_dims,
                                 .of_model = of_model,
                                 .option = {[BENCH_FWD] = 1, [BENCH_BWD] = 1, [BENCH_FULL] = 1},
                                 .forms = BENCH_BIT(BENCH_PRE) | BENCH_BIT(BENCH_SPARSE) | BENCH_BIT(BENCH_BIASES)};

const check_op tigon_check_multi_token_attention_fwd = {fwd, shapes, OPTIONS, true, wrong_fwd, &timed, &own_sizes};
const check_op tigon_check_multi_token_attention_bwd = {bwd, shapes, OPTIONS, true, wrong_bwd, &timed, &own_sizes};
