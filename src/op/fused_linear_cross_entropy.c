/* The composite: chunks of tokens go through linear, cross_entropy and linear's gradients, one after the other. It
 * calls slots, so it exists once for all backends.
 *
 * dweight is summed in f32. Where it is 16-bit and its tokens do not fit one chunk, the sums lie in the workspace: all
 * of them when there is room, else those of one panel of the vocabulary at a time. A panel's logits are made again for
 * all tokens, from the log-sum-exp that a first pass over the tokens has left. */
#include <tigon/op/fused_linear_cross_entropy.h>

#include <string.h>

#include "op/front.h"

typedef tigon_fused_linear_cross_entropy_args arguments;

/* dweight or dbias. */
typedef struct gradient {
  void *out; /* NULL: not wanted */
  tigon_dtype dtype;
  int64_t pitch;
  bool accumulate; /* the caller's */
  float *sums;     /* f32 sums of a 16-bit gradient, NULL: straight into `out` */
  bool begun;      /* a chunk is in it */
} gradient;

typedef struct fused {
  tigon_context *context;
  bool in_place; /* dhidden is hidden */
  int64_t rows, width, vocab;
  tigon_dtype dtype, bias_dtype; /* dtype: hidden, weight, logits */
  const void *hidden, *weight, *bias;
  void *dhidden; /* NULL: not wanted */
  int64_t hidden_pitch, weight_pitch, dhidden_pitch;
  gradient dweight, dbias;
  tigon_cross_entropy_problem loss; /* of all rows */
  /* Where the host reads labels, rows that do not count are skipped. */
  bool skips;
  int64_t kept; /* rows that are not skipped */
  /* The schedule: rows of a chunk; with panels, columns of a panel and rows of its chunks. */
  int64_t chunk, panel, panel_chunk;
  char *logits;   /* [chunk, vocab] or [panel_chunk, panel] */
  char *gathered; /* [chunk, width]: hidden, later dhidden, of rows that do not lie together */
  const void *x;  /* hidden of the chunk */
  int64_t x_pitch;
} fused;

/* ---- workspace ---- */

enum { LINE = 64, LEAST_CHUNK = 128, GOOD_CHUNK = 1024 }; /* rows */

static size_t lines(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

/* The next `bytes` of the workspace, NULL in a query. */
static void *cut(char *workspace, size_t *used, size_t bytes) {
  void *at = workspace ? workspace + *used : NULL;
  *used += lines(bytes);
  return at;
}

static bool is_short(const gradient *g) { return g->dtype == TIGON_F16 || g->dtype == TIGON_BF16; }

/* What does not depend on the chunks; returns its bytes. */
static size_t cut_fixed(fused *f, const arguments *a, char *workspace) {
  const size_t rows = (size_t)f->rows;
  size_t used = 0;
  f->loss.inverse = cut(workspace, &used, sizeof(float));
  if (!tigon_present(&a->out.token_loss)) f->loss.token_loss = cut(workspace, &used, rows * sizeof(float));
  if (tigon_present(&a->out.correct) && !tigon_present(&a->out.argmax))
    f->loss.argmax = cut(workspace, &used, rows * sizeof(int64_t));
  if (tigon_present(&a->dweight) && is_short(&f->dweight) && !tigon_present(&a->out.lse))
    f->loss.lse = cut(workspace, &used, rows * sizeof(float));
  if (tigon_present(&a->dbias) && is_short(&f->dbias))
    f->dbias.sums = cut(workspace, &used, (size_t)f->vocab * sizeof(float));
  return used;
}

/* Bytes of one row of a chunk with `cols` columns of logits. */
static size_t row_bytes(const fused *f, int64_t cols, bool gathers) {
  const size_t bytes = (size_t)(cols + (gathers ? f->width : 0)) * tigon_dtype_size(f->dtype);
  return bytes ? bytes : 1;
}

/* Rows of a chunk that fit into `bytes`. One row alone needs no gathering. */
static int64_t rows_that_fit(const fused *f, int64_t cols, size_t bytes) {
  const bool gathers = f->kept < f->rows;
  if (bytes < 2 * LINE) return 0;
  const size_t rows = (bytes - 2 * LINE) / row_bytes(f, cols, gathers);
  if (rows == 0) return lines(row_bytes(f, cols, false)) <= bytes;
  return (int64_t)(rows < (size_t)f->kept ? rows : (size_t)f->kept);
}

/* The smallest chunk that takes all rows in as many steps as `most` does. */
static int64_t even(int64_t rows, int64_t most) {
  if (rows == 0 || most == 0) return most;
  const int64_t steps = (rows - 1) / most + 1;
  return (rows - 1) / steps + 1;
}

/* The same of a panel's columns, whose rows begin on lines where there is room: a GEMM is slow on others. */
static int64_t whole_lines(int64_t cols, int64_t most) {
  const int64_t panel = even(cols, most), lined = (panel + LINE - 1) / LINE * LINE;
  return lined <= most ? lined : panel;
}

static size_t sums_bytes(const fused *f, int64_t panel) {
  return lines((size_t)panel * (size_t)f->width * sizeof(float));
}

/* Bytes beyond the fixed ones with which any call works, and with which it works well. */
static size_t least_bytes(const fused *f, bool short_dweight) {
  const size_t row = lines(row_bytes(f, f->vocab, false)) + 2 * LINE;
  const size_t panel = short_dweight ? sums_bytes(f, 1) + 3 * LINE : 0;
  return row > panel ? row : panel;
}
static size_t good_bytes(const fused *f, bool short_dweight) {
  const size_t row = row_bytes(f, f->vocab, f->skips), all = (size_t)f->rows * row;
  if (f->rows <= GOOD_CHUNK) return all + 3 * LINE;
  const size_t chunked = GOOD_CHUNK * row + (short_dweight ? sums_bytes(f, f->vocab) : 0);
  return (all < chunked ? all : chunked) + 3 * LINE; /* all rows in one chunk need no sums */
}

/* Lays out the chunks, and decides about the sums of dweight. */
static void schedule(fused *f, char *workspace, size_t bytes) {
  const int64_t fit = rows_that_fit(f, f->vocab, bytes);
  f->chunk = even(f->kept, fit);
  f->logits = workspace;
  f->gathered = workspace + lines((size_t)f->chunk * row_bytes(f, f->vocab, false));
  if (!f->dweight.out || !is_short(&f->dweight) || fit >= f->kept) return;
  f->dweight.sums = (float *)(void *)workspace;
  const size_t all = sums_bytes(f, f->vocab);
  const int64_t left = bytes > all ? rows_that_fit(f, f->vocab, bytes - all) : 0;
  if (left >= f->kept || left >= LEAST_CHUNK) {
    f->chunk = even(f->kept, left);
    f->logits = workspace + all;
    f->gathered = f->logits + lines((size_t)f->chunk * row_bytes(f, f->vocab, false));
    return;
  }
  /* Half of the memory for the sums; least_bytes() has seen to it that one column's sums and one logit fit. */
  const size_t most = (bytes - 4 * LINE) / 2 / ((size_t)f->width * sizeof(float));
  f->panel = whole_lines(f->vocab, most < 1 ? 1 : most < (size_t)f->vocab ? (int64_t)most : f->vocab);
  f->panel_chunk = even(f->kept, rows_that_fit(f, f->panel, bytes - sums_bytes(f, f->panel)));
}

/* ---- chunks of tokens ---- */

/* `count` rows of [begin, end) count, the others are skipped. */
typedef struct chunk {
  int64_t begin, end, count;
} chunk;

static bool counts(const fused *f, int64_t r) {
  bool out_of_range;
  return !f->skips || tigon_cross_entropy_label(&f->loss, r, &out_of_range) >= 0;
}

/* The chunk after c; {0} before the first. */
static bool next_chunk(const fused *f, int64_t limit, chunk *c) {
  int64_t r = c->end;
  while (r < f->rows && !counts(f, r)) ++r;
  *c = (chunk){r, r, 0};
  for (; r < f->rows && c->count < limit; ++r)
    if (counts(f, r)) ++c->count, c->end = r + 1;
  return c->count > 0;
}

static bool together(const chunk *c) { return c->end - c->begin == c->count; }

static char *row_of(const fused *f, const void *data, int64_t pitch, int64_t r) {
  return (char *)data + r * pitch * (int64_t)tigon_dtype_size(f->dtype);
}

/* Host memory only: labels were read. */
static void gather(fused *f, const chunk *c) {
  const size_t bytes = (size_t)f->width * tigon_dtype_size(f->dtype);
  char *to = f->gathered;
  for (int64_t r = c->begin; r < c->end; ++r)
    if (counts(f, r)) memcpy(to, row_of(f, f->hidden, f->hidden_pitch, r), bytes), to += bytes;
}
static void scatter(const fused *f, const chunk *c) {
  const size_t bytes = (size_t)f->width * tigon_dtype_size(f->dtype);
  const char *from = f->gathered;
  for (int64_t r = c->begin; r < c->end; ++r)
    if (counts(f, r)) memcpy(row_of(f, f->dhidden, f->dhidden_pitch, r), from, bytes), from += bytes;
}

/* What skipped rows leave behind. */
static void clear_skipped(const fused *f) {
  const tigon_cross_entropy_problem *p = &f->loss;
  for (int64_t r = 0; f->skips && r < f->rows; ++r) {
    if (counts(f, r)) continue;
    p->token_loss[r] = 0;
    if (p->lse) p->lse[r] = 0;
    if (p->z_loss) p->z_loss[r] = 0;
    if (p->entropy) p->entropy[r] = 0;
    if (p->argmax) p->argmax[r] = -1;
    if (f->dhidden)
      memset(row_of(f, f->dhidden, f->dhidden_pitch, r), 0, (size_t)f->width * tigon_dtype_size(f->dtype));
  }
}

/* ---- slots ---- */

/* Logits of the chunk for `cols` classes from `from` on. The chunk's hidden is in f->x afterwards. */
static tigon_status make_logits(fused *f, const chunk *c, char *logits, int64_t from, int64_t cols) {
  f->x = together(c) ? row_of(f, f->hidden, f->hidden_pitch, c->begin) : f->gathered;
  f->x_pitch = together(c) ? f->hidden_pitch : f->width;
  if (!together(c)) gather(f, c);
  const tigon_linear_fwd_problem p = {
      .rows = c->count,
      .n = cols,
      .k = f->width,
      .dtype = f->dtype,
      .b_dtype = f->bias_dtype,
      .y_dtype = f->dtype,
      .x = f->x,
      .w = row_of(f, f->weight, f->weight_pitch, from),
      .b = f->bias ? (const char *)f->bias + from * (int64_t)tigon_dtype_size(f->bias_dtype) : NULL,
      .y = logits,
      .x_pitch = f->x_pitch,
      .w_pitch = f->weight_pitch,
      .y_pitch = cols,
  };
  return TIGON_CALL_SLOT(f->context, linear_fwd, f->dtype, &p, NULL);
}

static const char *entry_of(bool backward, bool gradients) {
  return backward ? "bwd" : gradients ? "fwd_dlogits" : "fwd";
}

/* Rows [r, r + n), whose logits begin at `logits`; dlogits take their place. Backward reads lse, forward writes it. */
static tigon_status run_loss(fused *f, int64_t r, int64_t n, char *logits, int64_t from, int64_t cols, bool backward,
                             bool gradients) {
  tigon_cross_entropy_problem p = f->loss;
  p.parts = TIGON_CROSS_ENTROPY_ROWS;
  p.space = (tigon_row_space){n, 1, n};
  p.cols = cols;
  p.panel_begin = from;
  p.vocab = cols < f->vocab ? f->vocab : 0;
  p.logits = (tigon_rows){logits, {0, 0, cols}};
  if (gradients) p.dlogits = p.logits;
  p.labels = (const char *)p.labels + r * (int64_t)tigon_dtype_size(p.label_dtype);
  if (p.token_scale) p.token_scale += r;
  if (p.dloss && p.reduction == TIGON_REDUCTION_NONE) p.dloss += r;
  p.token_loss += r;
  if (p.lse) p.lse += r;
  if (p.z_loss) p.z_loss += r;
  if (p.entropy) p.entropy += r;
  if (p.argmax) p.argmax += r;
  tigon_plan plan;
  TIGON_TRY(tigon_plan_loss(f->context, &f->loss, entry_of(backward, gradients), f->dtype, n, cols, &plan));
  return backward ? TIGON_CALL_SLOT(f->context, cross_entropy_bwd, f->dtype, &p, &plan)
                  : TIGON_CALL_SLOT(f->context, cross_entropy_fwd, f->dtype, &p, &plan);
}

/* The chunk's rows, run by run of rows that lie together. */
static tigon_status run_losses(fused *f, const chunk *c, char *logits, int64_t from, int64_t cols, bool backward,
                               bool gradients) {
  for (int64_t r = c->begin, n; r < c->end; r += n) {
    for (n = 0; r + n < c->end && counts(f, r + n); ++n) continue;
    if (n > 0) TIGON_TRY(run_loss(f, r, n, logits, from, cols, backward, gradients));
    logits += (size_t)n * (size_t)cols * tigon_dtype_size(f->dtype);
    while (r + n < c->end && !counts(f, r + n)) ++n;
  }
  return TIGON_OK;
}

static tigon_status run_gradient(fused *f, const tigon_linear_bwd_problem *p) {
  return TIGON_CALL_SLOT(f->context, linear_bwd, f->dtype, p, NULL);
}

static tigon_linear_bwd_problem backward_of(const fused *f, int64_t rows, const void *dlogits, int64_t cols) {
  return (tigon_linear_bwd_problem){.rows = rows,
                                    .n = cols,
                                    .k = f->width,
                                    .dtype = f->dtype,
                                    .dy_dtype = f->dtype,
                                    .dy = dlogits,
                                    .dy_pitch = cols,
                                    .x = f->x,
                                    .x_pitch = f->x_pitch};
}

/* Where a chunk's part goes, and whether it is added. */
static void *target(gradient *g, int64_t from, int64_t pitch, bool *accumulate) {
  *accumulate = g->begun || (!g->sums && g->accumulate);
  g->begun = true;
  return g->sums ? (char *)g->sums : (char *)g->out + from * pitch * (int64_t)tigon_dtype_size(g->dtype);
}

static tigon_status add_dweight(fused *f, const chunk *c, const void *dlogits, int64_t from, int64_t cols) {
  gradient *g = &f->dweight;
  if (!g->out) return TIGON_OK;
  tigon_linear_bwd_problem p = backward_of(f, c->count, dlogits, cols);
  p.dw = target(g, from, g->pitch, &p.accumulate);
  p.dw_dtype = g->sums ? TIGON_F32 : g->dtype;
  p.dw_pitch = g->sums ? f->width : g->pitch;
  return run_gradient(f, &p);
}

static tigon_status add_dbias(fused *f, const chunk *c, const void *dlogits) {
  gradient *g = &f->dbias;
  if (!g->out) return TIGON_OK;
  tigon_linear_bwd_problem p = backward_of(f, c->count, dlogits, f->vocab);
  p.db = target(g, 0, 1, &p.accumulate);
  p.db_dtype = g->sums ? TIGON_F32 : g->dtype;
  return run_gradient(f, &p);
}

/* Rounds the sums of classes [from, from + cols) into the caller's tensor; without a chunk they are 0. */
static tigon_status end_dweight(fused *f, int64_t from, int64_t cols) {
  gradient *g = &f->dweight;
  if (!g->out || (!g->sums && g->begun) || (!g->begun && g->accumulate)) return TIGON_OK;
  tigon_linear_bwd_problem p = backward_of(f, 0, NULL, cols);
  p.dw = (char *)g->out + from * g->pitch * (int64_t)tigon_dtype_size(g->dtype);
  p.dw_dtype = g->dtype;
  p.dw_pitch = g->pitch;
  p.dw_sums = g->begun ? g->sums : NULL;
  p.accumulate = g->accumulate;
  return run_gradient(f, &p);
}

static tigon_status end_dbias(fused *f) {
  gradient *g = &f->dbias;
  if (!g->out || (!g->sums && g->begun) || (!g->begun && g->accumulate)) return TIGON_OK;
  tigon_linear_bwd_problem p = backward_of(f, 0, NULL, f->vocab);
  p.db = g->out;
  p.db_dtype = g->dtype;
  p.db_sums = g->begun ? g->sums : NULL;
  p.accumulate = g->accumulate;
  return run_gradient(f, &p);
}

/* After dweight: the rows may be those of hidden. */
static tigon_status make_dhidden(fused *f, const chunk *c, const void *dlogits) {
  tigon_linear_bwd_problem p = backward_of(f, c->count, dlogits, f->vocab);
  p.w = f->weight;
  p.w_pitch = f->weight_pitch;
  p.dx = together(c) ? row_of(f, f->dhidden, f->dhidden_pitch, c->begin) : f->gathered;
  p.dx_pitch = together(c) ? f->dhidden_pitch : f->width;
  TIGON_TRY(run_gradient(f, &p));
  if (!together(c)) scatter(f, c);
  return TIGON_OK;
}

/* ---- passes over the tokens ---- */

typedef struct pass {
  bool dweight, dbias, dhidden;
} pass;

static tigon_status run_pass(fused *f, pass what) {
  const bool gradients = what.dweight || what.dbias || what.dhidden;
  for (chunk c = {0}; next_chunk(f, f->chunk, &c);) {
    TIGON_TRY(make_logits(f, &c, f->logits, 0, f->vocab));
    TIGON_TRY(run_losses(f, &c, f->logits, 0, f->vocab, false, gradients));
    if (what.dweight) TIGON_TRY(add_dweight(f, &c, f->logits, 0, f->vocab));
    if (what.dbias) TIGON_TRY(add_dbias(f, &c, f->logits));
    if (what.dhidden) TIGON_TRY(make_dhidden(f, &c, f->logits));
  }
  return TIGON_OK;
}

static tigon_status run_panels(fused *f) {
  char *logits = (char *)f->dweight.sums + sums_bytes(f, f->panel);
  f->gathered = logits + lines((size_t)f->panel_chunk * row_bytes(f, f->panel, false));
  for (int64_t from = 0; from < f->vocab; from += f->panel) {
    const int64_t cols = f->vocab - from < f->panel ? f->vocab - from : f->panel;
    f->dweight.begun = false;
    for (chunk c = {0}; next_chunk(f, f->panel_chunk, &c);) {
      TIGON_TRY(make_logits(f, &c, logits, from, cols));
      TIGON_TRY(run_losses(f, &c, logits, from, cols, true, true));
      TIGON_TRY(add_dweight(f, &c, logits, from, cols));
    }
    TIGON_TRY(end_dweight(f, from, cols));
  }
  return TIGON_OK;
}

/* A part of cross_entropy that looks at all rows, and at no logits. */
static tigon_status run_part(fused *f, int part) {
  tigon_cross_entropy_problem p = f->loss;
  p.parts = part;
  tigon_plan plan;
  TIGON_TRY(tigon_plan_loss(f->context, &f->loss, "fwd", f->dtype, f->rows, f->vocab, &plan));
  return TIGON_CALL_SLOT(f->context, cross_entropy_fwd, f->dtype, &p, &plan);
}

static tigon_status run(fused *f) {
  const bool dhidden = f->dhidden != NULL, panels = f->panel > 0, late = dhidden && panels && f->in_place;
  TIGON_TRY(run_part(f, TIGON_CROSS_ENTROPY_COUNT));
  clear_skipped(f);
  TIGON_TRY(run_pass(f, (pass){f->dweight.out && !panels, f->dbias.out != NULL, dhidden && !late}));
  if (panels) {
    char *gathered = f->gathered;
    TIGON_TRY(run_panels(f));
    f->gathered = gathered;
  } else {
    TIGON_TRY(end_dweight(f, 0, f->vocab));
  }
  if (late) TIGON_TRY(run_pass(f, (pass){.dhidden = true})); /* the row outputs come out as before */
  TIGON_TRY(end_dbias(f));
  return f->loss.loss || f->loss.correct ? run_part(f, TIGON_CROSS_ENTROPY_REDUCE) : TIGON_OK;
}

/* ---- the front ---- */

static tigon_status check_shapes(tigon_context *context, const char *call, const arguments *a) {
  TIGON_TRY(tigon_check_ndim(context, call, "weight", &a->weight, 2));
  TIGON_TRY(tigon_check_same_extent(context, call, "weight", &a->weight, 1, tigon_last_dim("hidden", &a->hidden)));
  TIGON_TRY(tigon_check_same_dtype(context, call, "weight", &a->weight, "hidden", &a->hidden, TIGON_DTYPE_NONE));
  TIGON_TRY(tigon_check_vector(context, call, "bias", &a->bias, a->weight.shape[0], "weight.shape[0]"));
  TIGON_TRY(tigon_check_same_dtype(context, call, "bias", &a->bias, "hidden", &a->hidden, TIGON_F32));
  TIGON_TRY(tigon_check_same_shape(context, call, "dhidden", &a->dhidden, "hidden", &a->hidden));
  TIGON_TRY(tigon_check_same_dtype(context, call, "dhidden", &a->dhidden, "hidden", &a->hidden, TIGON_DTYPE_NONE));
  TIGON_TRY(tigon_check_same_shape(context, call, "dweight", &a->dweight, "weight", &a->weight));
  TIGON_TRY(tigon_check_same_dtype(context, call, "dweight", &a->dweight, "weight", &a->weight, TIGON_F32));
  TIGON_TRY(tigon_check_vector(context, call, "dbias", &a->dbias, a->weight.shape[0], "weight.shape[0]"));
  TIGON_TRY(tigon_check_same_dtype(context, call, "dbias", &a->dbias, "weight", &a->weight, TIGON_F32));
  return tigon_check_flag(context, call, "accumulate_dweight", a->accumulate_dweight);
}

/* Backward has no outputs of the loss. */
static tigon_status check_absent(tigon_context *context, const char *call, const tigon_cross_entropy_outputs *out) {
  const char *names[] = {"loss", "token_loss", "lse", "z_loss", "entropy", "argmax", "correct"};
  const tigon_tensor *each[] = {&out->loss,    &out->token_loss, &out->lse,    &out->z_loss,
                                &out->entropy, &out->argmax,     &out->correct};
  for (int i = 0; i < TIGON_COUNT(each); ++i)
    if (tigon_present(each[i]))
      return tigon_fail(context, TIGON_ERROR_INVALID, "%s: out.%s is there, must be absent", call, names[i]);
  return TIGON_OK;
}

/* All slots must be there before the first of them writes anything. */
static tigon_status check_slots(const fused *f) {
  const bool gradients = f->dweight.out || f->dbias.out || f->dhidden;
  if (!TIGON_CAN_CALL(f->context, linear_fwd, f->dtype))
    return tigon_front_unsupported(f->context, "linear_fwd", f->dtype);
  if (!TIGON_CAN_CALL(f->context, cross_entropy_fwd, f->dtype))
    return tigon_front_unsupported(f->context, "cross_entropy_fwd", f->dtype);
  if (gradients && !TIGON_CAN_CALL(f->context, linear_bwd, f->dtype))
    return tigon_front_unsupported(f->context, "linear_bwd", f->dtype);
  if (f->panel && !TIGON_CAN_CALL(f->context, cross_entropy_bwd, f->dtype))
    return tigon_front_unsupported(f->context, "cross_entropy_bwd", f->dtype);
  return TIGON_OK;
}

static tigon_status prepare(tigon_context *context, const char *call, arguments *a, bool forward, bool shape_only,
                            fused *f) {
  const int in = TIGON_IN | TIGON_OPTIONAL | TIGON_CONTIGUOUS, out = TIGON_OUT | TIGON_OPTIONAL;
  tigon_arg list[TIGON_MAX_ARGS] = {
      {"hidden", &a->hidden, TIGON_FLOATS, TIGON_IN, NULL},
      {"weight", &a->weight, TIGON_FLOATS, TIGON_IN, NULL},
      {"bias", &a->bias, TIGON_FLOATS, in, NULL},
      {"labels", &a->labels, TIGON_INTS, TIGON_IN | TIGON_CONTIGUOUS, NULL},
      {"dloss", &a->dloss, TIGON_BIT(TIGON_F32), in, NULL},
      {"dhidden", &a->dhidden, TIGON_FLOATS, out, "hidden"},
      {"dweight", &a->dweight, TIGON_FLOATS, out, NULL},
      {"dbias", &a->dbias, TIGON_FLOATS, out | TIGON_CONTIGUOUS, NULL},
  };
  const int count = 8 + tigon_loss_list(&a->options, &a->out, list + 8);
  TIGON_TRY(tigon_check_args(context, call, list, count, shape_only));
  TIGON_TRY(check_shapes(context, call, a));
  if (!forward) TIGON_TRY(check_absent(context, call, &a->out));
  *f = (fused){
      .context = context,
      .in_place = a->dhidden.data && a->dhidden.data == a->hidden.data,
      .width = tigon_last_extent(&a->hidden),
      .vocab = a->weight.shape[0],
      .dtype = a->hidden.dtype,
      .bias_dtype = a->bias.dtype,
      .hidden = a->hidden.data,
      .weight = a->weight.data,
      .bias = a->bias.data,
      .dhidden = a->dhidden.data,
      .weight_pitch = a->weight.strides[0],
      .dweight = {.out = a->dweight.data,
                  .dtype = a->dweight.dtype,
                  .pitch = a->dweight.strides[0],
                  .accumulate = a->accumulate_dweight != 0},
      .dbias = {.out = a->dbias.data, .dtype = a->dbias.dtype, .accumulate = a->accumulate_dweight != 0},
  };
  tigon_rows hidden, dhidden;
  const tigon_tensor *const tensors[] = {&a->hidden, &a->dhidden};
  tigon_rows *const rows[] = {&hidden, &dhidden};
  TIGON_TRY(tigon_collapse_pitch(context, call, TIGON_COUNT(tensors), tensors, rows, &f->rows));
  f->hidden_pitch = hidden.pitch[2];
  f->dhidden_pitch = dhidden.pitch[2];
  const tigon_loss_args loss = {.call = call,
                                .forward = forward,
                                .rows = f->rows,
                                .rows_because = "rows of hidden",
                                .vocab = {"weight", &a->weight, 0},
                                .labels = &a->labels,
                                .dloss = &a->dloss,
                                .options = &a->options,
                                .out = &a->out,
                                .grad_scale = a->grad_scale};
  TIGON_TRY(tigon_check_loss(context, &loss, &f->loss));
  f->loss.dtype = f->dtype;
  f->loss.space = (tigon_row_space){f->rows, 1, f->rows};
  f->skips = context->queue.backend->host_memory;
  f->kept = f->rows;
  return TIGON_OK;
}

static tigon_status fused_call(tigon_context *context, const char *call, const arguments *args, bool forward) {
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  arguments a = *args;
  fused f;
  TIGON_TRY(prepare(context, call, &a, forward, false, &f));
  const bool short_dweight = tigon_present(&a.dweight) && is_short(&f.dweight);
  const size_t fixed = cut_fixed(&f, &a, a.workspace);
  TIGON_TRY(
      tigon_check_workspace(context, call, a.workspace, a.workspace_bytes, fixed + least_bytes(&f, short_dweight)));
  TIGON_TRY(tigon_check_indices(context, call, "labels", &a.labels, (tigon_dim){"weight", &a.weight, 0},
                                f.loss.has_ignore_index, f.loss.ignore_index, &a.out.error, &f.loss.error_flag));
  if (f.rows == 0 || f.width == 0) f.dhidden = NULL;
  if (f.vocab == 0 || f.width == 0) f.dweight.out = NULL;
  if (f.vocab == 0) f.dbias.out = NULL;
  for (int64_t r = 0; f.skips && r < f.rows; ++r) f.kept -= !counts(&f, r);
  schedule(&f, (char *)a.workspace + fixed, a.workspace_bytes - fixed);
  TIGON_TRY(check_slots(&f));
  return run(&f);
}

tigon_status tigon_fused_linear_cross_entropy_fwd(tigon_context *context, const arguments *args) {
  TIGON_KEEP_CALLER_STATE;
  return fused_call(context, "fused_linear_cross_entropy_fwd", args, true);
}

tigon_status tigon_fused_linear_cross_entropy_bwd(tigon_context *context, const arguments *args) {
  TIGON_KEEP_CALLER_STATE;
  return fused_call(context, "fused_linear_cross_entropy_bwd", args, false);
}

/* One query for both directions: `out` is looked at as forward does where it is there. */
tigon_status tigon_fused_linear_cross_entropy_workspace(tigon_context *context, const arguments *args, size_t *minimum,
                                                        size_t *recommended) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "fused_linear_cross_entropy_workspace";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  arguments a = *args;
  fused f;
  const bool forward = tigon_present(&a.out.loss) || tigon_present(&a.out.token_loss);
  TIGON_TRY(prepare(context, call, &a, forward, true, &f));
  const bool short_dweight = tigon_present(&a.dweight) && is_short(&f.dweight);
  const size_t fixed = cut_fixed(&f, &a, NULL);
  const size_t least = fixed + least_bytes(&f, short_dweight), good = fixed + good_bytes(&f, short_dweight);
  if (minimum) *minimum = least;
  if (recommended) *recommended = good > least ? good : least;
  return TIGON_OK;
}
