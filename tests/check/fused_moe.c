/* fused_moe. A shape is tokens, hidden, inner, experts, choices. Options walk biases and dtypes, how weights lie, the activation's
 * numbers, where the weight comes, slots without an expert, which outputs there are, and the least and the best workspace. */
#include "check/fused_moe.h"

#include <math.h>

#include "check/cases.h"

static const struct option {
  bool bias, bias_f32, w_f32, i64, turned, interleaved, before, none; /* none: some slots have no expert */
  bool pre, least;                                                    /* pre is stored or read; the least workspace */
  bool dx, dw, weights, biases, f32, accumulate;                      /* backward's outputs; f32: of weights */
  tigon_moe_act act;
  double gate_mult, down_mult, clamp, up_offset;
} options[] = {
    {.pre = true, .dx = true, .dw = true, .weights = true},
    {.bias = true,
     .w_f32 = true,
     .i64 = true,
     .turned = true,
     .interleaved = true,
     .none = true,
     .pre = true,
     .least = true,
     .dx = true,
     .dw = true,
     .weights = true,
     .biases = true,
     .accumulate = true,
     .gate_mult = 1.702,
     .down_mult = 1 / 1.702,
     .clamp = 7,
     .up_offset = 1},
    {.bias = true,
     .bias_f32 = true,
     .before = true,
     .least = true,
     .dx = true,
     .dw = true,
     .weights = true,
     .biases = true,
     .f32 = true,
     .act = TIGON_MOE_GELU_TANH},
    {.w_f32 = true,
     .turned = true,
     .none = true,
     .dw = true,
     .gate_mult = 0.5,
     .down_mult = -2,
     .clamp = 0.75,
     .up_offset = -0.75},
    {.bias = true,
     .interleaved = true,
     .before = true,
     .none = true,
     .weights = true,
     .biases = true,
     .f32 = true,
     .accumulate = true,
     .least = true},
};
enum {
  OPTIONS = sizeof options / sizeof *options,
  COUPLED = 1 << 0 | 1 << 1 /* pre's rows are in an order of all tokens */
};

/* The case's option, in the form of a timed one. */
static struct option option_of(const check *k) {
  struct option o = options[k->option];
  const bool oss = check_has_form(k, BENCH_GPT_OSS);
  if (oss || check_has_form(k, BENCH_BIASES)) o.bias = o.biases = true;
  if (oss || check_has_form(k, BENCH_INTERLEAVED)) o.interleaved = true;
  if (oss) o.turned = true, o.gate_mult = 1.702, o.down_mult = 1 / 1.702, o.clamp = 7, o.up_offset = 1;
  if (check_has_form(k, BENCH_RECOMPUTE)) o.pre = false;
  return o;
}

/* ---- tensors ---- */

/* [E, n, m]; turned: of one that is stored as [E, m, n]. */
static tigon_tensor turn(tigon_tensor t, bool turned) {
  if (!turned) return t;
  const int64_t extent = t.shape[1], stride = t.strides[1];
  t.shape[1] = t.shape[2], t.strides[1] = t.strides[2];
  t.shape[2] = extent, t.strides[2] = stride;
  return t;
}
static void stored_shape(int64_t shape[3], int64_t e, int64_t n, int64_t m, bool turned) {
  shape[0] = e, shape[1] = turned ? m : n, shape[2] = turned ? n : m;
}

static moe_case make_case(check *k, bool backward) {
  const struct option own = option_of(k), *o = &own;
  moe_case m = {
      .tokens = k->dims[0], .hidden = k->dims[1], .inner = k->dims[2], .experts = k->dims[3], .top_k = k->dims[4]};
  m.interleaved = o->interleaved, m.before = o->before, m.act = o->act;
  m.gate_mult = (double)(float)o->gate_mult, m.down_mult = (double)(float)o->down_mult;
  m.clamp = (double)(float)o->clamp, m.up_offset = (double)(float)o->up_offset;
  const int64_t rows[] = {m.tokens, m.hidden}, slots[] = {m.tokens, m.top_k}, wide[] = {m.tokens, m.top_k, 2 * m.inner};
  const int64_t of_gate_up[] = {m.experts, 2 * m.inner}, of_down[] = {m.experts, m.hidden};
  const tigon_dtype bias = check_dtype(k, o->bias_f32);
  int64_t shape[3];
  m.x = check_in(k, "x", k->dtype, 2, rows, backward ? CHECK_UNIFORM : k->fill);
  m.idx = check_indices(k, "idx", o->i64 ? TIGON_I64 : TIGON_I32, 2, slots, o->none ? -1 : 0, m.experts + o->none);
  m.w = check_in_dense(k, "w", check_dtype(k, o->w_f32), 2, slots, CHECK_UNIFORM);
  stored_shape(shape, m.experts, 2 * m.inner, m.hidden, o->turned);
  m.gate_up = turn(check_in_scaled(k, "gate_up", 3, shape, 0.25), o->turned);
  stored_shape(shape, m.experts, m.hidden, m.inner, o->turned);
  m.down = turn(check_in_scaled(k, "down", 3, shape, 0.25), o->turned);
  if (o->bias) m.gate_up_bias = check_in_dense(k, "gate_up_bias", bias, 2, of_gate_up, CHECK_UNIFORM);
  if (o->bias) m.down_bias = check_in_dense(k, "down_bias", bias, 2, of_down, CHECK_UNIFORM);
  if (backward && o->pre) m.pre = check_in_dense(k, "pre", k->dtype, 3, wide, CHECK_UNIFORM);
  if (!backward && o->pre) m.pre = check_out_dense(k, "pre", k->dtype, 3, wide);
  if (backward) m.dy = check_in(k, "dy", k->dtype, 2, rows, k->fill);
  if (!k->timed) moe_order(k, &m);
  return m;
}

#define INPUTS                                                                                              \
  .x = m.x, .idx = m.idx, .w = m.w, .gate_up = m.gate_up, .gate_up_bias = m.gate_up_bias, .down = m.down,   \
  .down_bias = m.down_bias, .pre = m.pre, .act = o->act, .interleaved = o->interleaved,                     \
  .weight_before_down = o->before, .gate_mult = o->gate_mult, .down_mult = o->down_mult, .clamp = o->clamp, \
  .up_offset = o->up_offset

/* With the workspace of the option. */
#define CALL(k, query, args)                                                            \
  do {                                                                                  \
    size_t least = 0, good = 0;                                                         \
    query((k)->context, args, &least, &good);                                           \
    (args)->workspace_bytes = options[(k)->option].least && !(k)->timed ? least : good; \
    (args)->workspace = check_workspace(k, (args)->workspace_bytes);                    \
    check_call(k, args);                                                                \
  } while (0)

/* Half an ulp of the oracle's store, and of the kernel's, whose result may be beyond a power of two, where ulps are twice as large. */
static double output_ulps(tigon_dtype dtype) { return dtype == TIGON_F32 ? 0 : 1.5; }

/* ---- forward ---- */

/* Adds the error of slot s to y's row, sums' too; `pre` gets the sizes of its row. */
static void fwd_slot(const check *k, const moe_case *m, int64_t s, num *row, num *c, double *pre, moe_sum *y) {
  const int64_t e = moe_expert(m, s);
  const double w = moe_w(m, s);
  if (e < 0) return;
  for (int64_t i = 0; i < 2 * m->inner; ++i) {
    const num exact = moe_pre(m, s, e, i);
    if (pre) pre[i] = exact.e + fabs(exact.v);
    row[i] = moe_rounded(k, exact);
  }
  for (int64_t j = 0; j < m->inner; ++j) {
    const num value = moe_gate(k, m, row[moe_gate_at(m, j)], row[moe_up_at(m, j)]).c;
    c[j] = moe_rounded(k, m->before ? times(exactly(w), value) : value);
  }
  for (int64_t h = 0; h < m->hidden; ++h) {
    moe_sum sum = {0};
    for (int64_t j = 0; j < m->inner; ++j) moe_add(&sum, moe_scaled(c[j], moe_down(m, e, h, j)));
    if (m->down_bias.ndim) moe_add(&sum, exactly(check_value(&m->down_bias, e * m->hidden + h)));
    const num z = m->before ? moe_total(&sum) : times(exactly(w), moe_total(&sum));
    moe_add(&y[h], (num){z.v, z.e + moe_share_units(k) * fabs(z.v) * (m->before ? 1 : 2)});
  }
}

static void fwd_sizes(check *k, const moe_case *m, double *y, double *pre) {
  num *row = check_list(k, "row", (size_t)(3 * m->inner) * sizeof *row);
  moe_sum *sums = check_list(k, "sums", (size_t)m->hidden * sizeof *sums);
  for (int64_t t = 0; t < m->tokens; ++t) {
    for (int64_t h = 0; h < m->hidden; ++h) sums[h] = (moe_sum){0};
    for (int64_t s = t * m->top_k; s < (t + 1) * m->top_k; ++s)
      fwd_slot(k, m, s, row, row + 2 * m->inner, pre ? pre + m->position[s] * 2 * m->inner : NULL, sums);
    for (int64_t h = 0; h < m->hidden; ++h) y[t * m->hidden + h] = moe_total(&sums[h]).e;
  }
}

static void fwd(check *k) {
  const struct option own = option_of(k), *o = &own;
  const moe_case m = make_case(k, false);
  double *size = check_doubles(k, m.tokens * m.hidden), *pre = check_doubles(k, m.tokens * m.top_k * 2 * m.inner);
  tigon_fused_moe_fwd_args args = {INPUTS};
  args.y = check_out(k, "y", k->dtype, 2, (int64_t[]){m.tokens, m.hidden});
  if (k->oracle) fwd_sizes(k, &m, size, o->pre ? pre : NULL);
  CALL(k, tigon_fused_moe_fwd_workspace, &args);
  check_bound(k, &args.y, output_ulps(k->dtype), 1, size);
  if (o->pre) check_bound(k, &args.pre, output_ulps(k->dtype), 1, pre);
}

/* ---- backward ---- */

/* An output, as it is stored, and the sizes of its elements. */
typedef struct sum_out {
  tigon_tensor stored;
  double *size;
  bool turned;
} sum_out;

static sum_out make_sum(check *k, const char *name, bool present, tigon_dtype dtype, int ndim, const int64_t *shape,
                        bool turned) {
  const bool adds = options[k->option].accumulate;
  sum_out out = {.turned = turned};
  int64_t count = 1;
  if (!present) return out;
  for (int d = 0; d < ndim; ++d) count *= shape[d];
  if (ndim < 3)
    out.stored = adds ? check_inout_dense(k, name, dtype, ndim, shape, CHECK_UNIFORM)
                      : check_out_dense(k, name, dtype, ndim, shape);
  else
    out.stored =
        adds ? check_inout(k, name, dtype, ndim, shape, CHECK_UNIFORM) : check_out(k, name, dtype, ndim, shape);
  out.size = check_doubles(k, count);
  /* The last rounding is of the sum with what is there, and so is the oracle's. */
  for (int64_t i = 0; k->oracle && adds && i < count; ++i) out.size[i] = 2 * fabs(check_value(&out.stored, i));
  return out;
}

/* The size of (e, i, j) of [E, n, m]. */
static double *size_at(const sum_out *out, int64_t e, int64_t n, int64_t m, int64_t i, int64_t j) {
  return &out->size[e * n * m + (out->turned ? j * n + i : i * m + j)];
}

typedef struct outputs {
  tigon_tensor dx, dw;
  double *dx_size, *dw_size;
  sum_out gate_up, gate_up_bias, down, down_bias;
  int64_t *slots; /* [E] */
} outputs;

/* A term of a gradient: what the term is off by, and its own share of the sum's roundings. */
static double term_size(const outputs *out, int64_t e, num term) {
  return term.e + (moe_sum_units(out->slots[e]) + 1) * fabs(term.v);
}

/* dpre [2I] and w * c [I] of slot s; the error of its dw. */
static void slot_sizes(const check *k, const moe_case *m, int64_t s, int64_t e, num *dpre, num *c, double *dw) {
  const int64_t t = s / m->top_k, wide = 2 * m->inner;
  const double w = moe_w(m, s);
  moe_sum sum = {0};
  for (int64_t i = 0; i < wide; ++i)
    dpre[i] =
        m->pre.ndim ? exactly(check_value(&m->pre, m->position[s] * wide + i)) : moe_rounded(k, moe_pre(m, s, e, i));
  for (int64_t j = 0; j < m->inner; ++j) {
    const int64_t a = moe_gate_at(m, j), b = moe_up_at(m, j);
    const moe_gated g = moe_gate(k, m, dpre[a], dpre[b]);
    moe_sum of_d = {0};
    for (int64_t h = 0; h < m->hidden; ++h)
      moe_add(&of_d, exactly(check_value(&m->dy, t * m->hidden + h) * moe_down(m, e, h, j)));
    const num d = moe_total(&of_d), dc = times(exactly(w), d);
    moe_add(&sum, times(d, g.c));
    c[j] = moe_rounded(k, times(exactly(w), g.c));
    dpre[a] = moe_rounded(k, times(dc, g.by_a));
    dpre[b] = moe_rounded(k, times(dc, g.by_b));
  }
  for (int64_t h = 0; m->down_bias.ndim && !m->before && h < m->hidden; ++h)
    moe_add(&sum, exactly(check_value(&m->dy, t * m->hidden + h) * check_value(&m->down_bias, e * m->hidden + h)));
  *dw = moe_total(&sum).e;
}

static void bwd_slot(const check *k, const moe_case *m, const outputs *out, int64_t s, num *dpre, num *c, moe_sum *dx) {
  const int64_t e = moe_expert(m, s), t = s / m->top_k, wide = 2 * m->inner;
  double dw;
  if (e < 0) return;
  slot_sizes(k, m, s, e, dpre, c, &dw);
  if (out->dw_size) out->dw_size[s] = dw;
  for (int64_t h = 0; h < m->hidden; ++h) {
    const double x = check_value(&m->x, t * m->hidden + h), dy = check_value(&m->dy, t * m->hidden + h);
    moe_sum share = {0};
    for (int64_t i = 0; i < wide; ++i) {
      moe_add(&share, moe_scaled(dpre[i], moe_gate_up(m, e, i, h)));
      if (out->gate_up.size)
        *size_at(&out->gate_up, e, wide, m->hidden, i, h) += term_size(out, e, moe_scaled(dpre[i], x));
    }
    for (int64_t j = 0; out->down.size && j < m->inner; ++j)
      *size_at(&out->down, e, m->hidden, m->inner, h, j) += term_size(out, e, moe_scaled(c[j], dy));
    if (out->down_bias.size)
      out->down_bias.size[e * m->hidden + h] += term_size(out, e, exactly(m->before ? dy : moe_w(m, s) * dy));
    const num is = moe_total(&share);
    moe_add(&dx[h], (num){is.v, is.e + moe_share_units(k) * fabs(is.v)});
  }
  for (int64_t i = 0; out->gate_up_bias.size && i < wide; ++i)
    out->gate_up_bias.size[e * wide + i] += term_size(out, e, dpre[i]);
}

static void bwd_sizes(check *k, const moe_case *m, const outputs *out) {
  num *row = check_list(k, "row", (size_t)(3 * m->inner) * sizeof *row);
  moe_sum *dx = check_list(k, "sums", (size_t)m->hidden * sizeof *dx);
  for (int64_t s = 0; s < m->tokens * m->top_k; ++s)
    if (moe_expert(m, s) >= 0) ++out->slots[moe_expert(m, s)];
  for (int64_t t = 0; t < m->tokens; ++t) {
    for (int64_t h = 0; h < m->hidden; ++h) dx[h] = (moe_sum){0};
    for (int64_t s = t * m->top_k; s < (t + 1) * m->top_k; ++s) bwd_slot(k, m, out, s, row, row + 2 * m->inner, dx);
    for (int64_t h = 0; out->dx_size && h < m->hidden; ++h) out->dx_size[t * m->hidden + h] = moe_total(&dx[h]).e;
  }
}

static void bound_sum(check *k, const sum_out *out) {
  if (out->stored.ndim) check_bound(k, &out->stored, output_ulps(out->stored.dtype), 1, out->size);
}

static void bwd(check *k) {
  const struct option own = option_of(k), *o = &own;
  const moe_case m = make_case(k, true);
  const int64_t wide = 2 * m.inner, slots[] = {m.tokens, m.top_k};
  const int64_t of_gate_up[] = {m.experts, wide}, of_down[] = {m.experts, m.hidden};
  const tigon_dtype dtype = check_dtype(k, o->f32);
  outputs out = {.slots = check_list(k, "slots", (size_t)(m.experts + 1) * sizeof *out.slots)};
  int64_t shape[3];
  if (o->dx) out.dx = check_out(k, "dx", k->dtype, 2, (int64_t[]){m.tokens, m.hidden});
  if (o->dw) out.dw = check_out_dense(k, "dw", m.w.dtype, 2, slots);
  if (o->dx) out.dx_size = check_doubles(k, m.tokens * m.hidden);
  if (o->dw) out.dw_size = check_doubles(k, m.tokens * m.top_k);
  stored_shape(shape, m.experts, wide, m.hidden, o->turned);
  out.gate_up = make_sum(k, "dgate_up", o->weights, dtype, 3, shape, o->turned);
  stored_shape(shape, m.experts, m.hidden, m.inner, o->turned);
  out.down = make_sum(k, "ddown", o->weights, dtype, 3, shape, o->turned);
  out.gate_up_bias = make_sum(k, "dgate_up_bias", o->biases, dtype, 2, of_gate_up, false);
  out.down_bias = make_sum(k, "ddown_bias", o->biases, dtype, 2, of_down, false);
  if (k->oracle) bwd_sizes(k, &m, &out);
  tigon_fused_moe_bwd_args args = {INPUTS,
                                   .dy = m.dy,
                                   .dx = out.dx,
                                   .dw = out.dw,
                                   .dgate_up_bias = out.gate_up_bias.stored,
                                   .ddown_bias = out.down_bias.stored,
                                   .accumulate_dgate_up = o->accumulate};
  args.dgate_up = o->weights ? turn(out.gate_up.stored, o->turned) : (tigon_tensor){0};
  args.ddown = o->weights ? turn(out.down.stored, o->turned) : (tigon_tensor){0};
  CALL(k, tigon_fused_moe_bwd_workspace, &args);
  if (o->dx) check_bound(k, &out.dx, output_ulps(k->dtype), 1, out.dx_size);
  if (o->dw) check_bound(k, &out.dw, output_ulps(m.w.dtype), 1, out.dw_size);
  bound_sum(k, &out.gate_up);
  bound_sum(k, &out.down);
  bound_sum(k, &out.gate_up_bias);
  bound_sum(k, &out.down_bias);
}

/* ---- shapes, mutants ---- */

/* Sizes around the tile. One expert that has all slots. More experts than slots. More choices than experts. An expert that has
 * more rows than the least panel, and than a tile of a product. More experts with rows than one group of products has. More experts
 * than a block has threads. */
static bool shape(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t t = tile;
  const int64_t shapes[][5] = {
      {1, 1, 1, 1, 1},         {3, t, 2, 2, 1},           {5, t + 1, 3, 3, 2}, {4, 5, t, 2, 2},    {9, 7, 5, 4, 2},
      {6, 2 * t - 1, 9, 5, 3}, {17, 33, 2 * t + 1, 7, 2}, {40, 8, 8, 1, 1},    {3, 40, 24, 64, 2}, {4, 11, 6, 2, 5},
      {130, 19, 13, 3, 2},     {70, 65, 33, 9, 4},        {2, 257, 40, 3, 2},  {300, 16, 8, 2, 1}, {130, 64, 96, 5, 2},
      {1, 300, 129, 3, 2},     {12, 31, 270, 4, 1},       {9, 16, 16, 130, 8}, {20, 7, 4, 130, 8}, {9, 5, 3, 1100, 4},
  };
  if (index >= (int)(sizeof shapes / sizeof *shapes)) return false;
  for (int d = 0; d < 5; ++d) dims[d] = shapes[index][d] > 0 ? shapes[index][d] : 1;
  return true;
}

/* A turned matrix as if it were none. */
static void read_straight(tigon_expert_weights *m, int64_t cols) {
  if (m->turned) m->pitch = cols;
  m->turned = false;
}
MUTANT(lose_expert, fused_moe_fwd, --m.experts)
MUTANT(drop_tail, fused_moe_fwd, m.cols -= m.cols > 1)
MUTANT(no_bias, fused_moe_fwd, m.gate_up_bias.data = NULL)
MUTANT(no_down_bias, fused_moe_fwd, m.down_bias.data = NULL)
MUTANT(halves, fused_moe_fwd, m.interleaved = false)
MUTANT(weight_after, fused_moe_fwd, m.weight_before_down = false)
MUTANT(no_clamp, fused_moe_fwd, m.numbers.clamp = 0)
MUTANT(no_offset, fused_moe_fwd, m.numbers.up_offset = 0)
MUTANT(silu, fused_moe_fwd, m.act = TIGON_MOE_SILU)
MUTANT(straight, fused_moe_fwd, read_straight(&m.down, m.inner))
static const check_mutant wrong_fwd[] = {
    {"takes the last expert for none", lose_expert},
    {"drops the last column", drop_tail},
    {"forgets the bias of gate and up", no_bias},
    {"forgets the bias of down", no_down_bias},
    {"takes halves for columns in turns", halves},
    {"weighs an expert's bias", weight_after},
    {"skips the clamp", no_clamp},
    {"skips the offset", no_offset},
    {"takes silu for gelu", silu},
    {"reads a turned matrix straight", straight},
    {0},
};
MUTANT(bwd_lose_expert, fused_moe_bwd, --m.experts)
MUTANT(lose_row, fused_moe_bwd, check_drop_last_row(&m.space))
MUTANT(overwrite, fused_moe_bwd, m.accumulate = false)
MUTANT(no_dw, fused_moe_bwd, m.dw.data = NULL)
MUTANT(dw_without_bias, fused_moe_bwd, m.down_bias.data = NULL)
MUTANT(pre_without_bias, fused_moe_bwd, m.gate_up_bias.data = NULL)
MUTANT(bwd_halves, fused_moe_bwd, m.interleaved = false)
MUTANT(bwd_weight_after, fused_moe_bwd, m.weight_before_down = false)
MUTANT(bwd_no_clamp, fused_moe_bwd, m.numbers.clamp = 0)
MUTANT(bwd_no_factor, fused_moe_bwd, m.numbers.gate_mult = 1)
MUTANT(bwd_silu, fused_moe_bwd, m.act = TIGON_MOE_SILU)
MUTANT(bwd_straight, fused_moe_bwd, read_straight(&m.ddown, m.inner))
MUTANT(no_pre_read, fused_moe_bwd, m.pre.data = NULL)
static const check_mutant wrong_bwd[] = {
    {"takes the last expert for none", bwd_lose_expert},
    {"drops the last token", lose_row},
    {"overwrites sums", overwrite},
    {"forgets dw", no_dw},
    {"forgets the bias of down in dw", dw_without_bias},
    {"forgets the bias where pre is made again", pre_without_bias},
    {"takes halves for columns in turns", bwd_halves},
    {"weighs dy for the bias of down", bwd_weight_after},
    {"lets gradients through the clamp", bwd_no_clamp},
    {"forgets the gate's factor", bwd_no_factor},
    {"takes silu for gelu", bwd_silu},
    {"stores a turned gradient straight", bwd_straight},
    {"makes pre again where it is given", no_pre_read},
    {0},
};

static const check_sizes own_sizes = {
    .of = {{3, 9, 5, 3, 2}, {67, 35, 17, 5, 2}, {300, 9, 4, 4, 2}},
    .walks = {{CHECK_N, 5, 3, 3, 2}, {3, CHECK_N, 4, 2, 2}, {4, 5, CHECK_N, 3, 1}},
    .coupled = COUPLED,
    .large = 0x1p12,
};

/* tokens x hidden; inner is half of hidden; 16 experts, of which a token has 4; for few tokens these 4 alone. */
enum { CHOICES = 4 };
static void dims_of(const bench_point *at, int64_t dims[CHECK_DIMS]) {
  dims[0] = at->rows, dims[1] = at->cols, dims[2] = at->other;
  dims[3] = at->experts     ? at->experts
            : at->rows < 16 ? CHOICES
                            : 4 * CHOICES,
  dims[4] = at->choices ? at->choices : CHOICES;
}
/* Products are counted for CHOICES. */
static double depth_of(const bench_point *at) {
  return (double)at->other * (at->choices ? (double)at->choices / CHOICES : 1);
}
static const bench_case timed = {.op = "fused_moe",
                                 .shape_note = "tokens x hidden, 4 of 16 experts, inner",
                                 .rows_f32 = 512,
                                 .rows_16bit = 1024,
                                 .cols = 1024,
                                 .other = 512,
                                 .dims = dims_of,
                                 .forms = BENCH_BIT(BENCH_GPT_OSS) | BENCH_BIT(BENCH_INTERLEAVED) |
                                          BENCH_BIT(BENCH_BIASES) | BENCH_BIT(BENCH_RECOMPUTE),
                                 .products = {12, 24, 36},
                                 .depth = depth_of,
                                 .again = 8};

const check_op tigon_check_fused_moe_fwd = {fwd, shape, OPTIONS, true, wrong_fwd, &timed, &own_sizes};
const check_op tigon_check_fused_moe_bwd = {bwd, shape, OPTIONS, true, wrong_bwd, &timed, &own_sizes};
