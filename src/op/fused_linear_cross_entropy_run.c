/* How the composite works off its chunks. It calls slots, so it exists once for all backends. */
#include <string.h>

#include "op/fused_linear_cross_entropy.h"

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- chunks of tokens ---- */

/* `count` rows of [begin, end) count, the others are skipped; `first` rows before them do. */
typedef struct chunk {
  int64_t begin, end, count, first;
} chunk;

/* The chunk's logits of `cols` classes from `from` on. */
typedef struct logits {
  char *cache; /* of the first `cached` rows, in the caller's memory */
  char *own;   /* of all others, and later dlogits of all rows: [count, cols] */
  int64_t cached, pitch, from, cols;
} logits;

/* The chunk after c; {0} before the first. */
static bool next_chunk(const fused *f, int64_t limit, chunk *c) {
  int64_t r = c->end, first = c->first + c->count;
  while (r < f->rows && !counts(f, r)) ++r;
  *c = (chunk){r, r, 0, first};
  for (; r < f->rows && c->count < limit; ++r)
    if (counts(f, r)) ++c->count, c->end = r + 1;
  return c->count > 0;
}

static logits logits_of(const fused *f, const chunk *c, int64_t from, int64_t cols) {
  const int64_t at = c->first * f->more.cache_pitch + from, left = f->more.cached - c->first;
  logits l = {.own = f->space->logits, .pitch = f->more.cache_pitch, .from = from, .cols = cols};
  if (left <= 0) return l;
  l.cache = f->more.cache + at * (int64_t)tigon_dtype_size(f->loss.dtype);
  l.cached = smaller(left, c->count);
  return l;
}

/* The chunk's rows from row i on. */
static tigon_rows rows_from(const fused *f, const logits *l, int64_t i) {
  const int64_t pitch = i < l->cached ? l->pitch : l->cols;
  char *first = i < l->cached ? l->cache : l->own;
  return (tigon_rows){first + i * pitch * (int64_t)tigon_dtype_size(f->loss.dtype), {0, 0, pitch}};
}

static bool together(const chunk *c) { return c->end - c->begin == c->count; }

static char *row_of(const fused *f, const void *data, int64_t pitch, int64_t r) {
  return (char *)data + r * pitch * (int64_t)tigon_dtype_size(f->dtype);
}

/* The chunk's rows of a tensor that count, from it into `gathered` or back. Host memory only: labels were read. */
static void move_rows(const fused *f, const chunk *c, const void *data, int64_t pitch, bool back) {
  const size_t bytes = (size_t)f->width * tigon_dtype_size(f->dtype);
  char *gathered = f->space->gathered;
  for (int64_t r = c->begin; bytes && r < c->end; ++r) {
    if (!counts(f, r)) continue;
    char *row = row_of(f, data, pitch, r);
    memcpy(back ? row : gathered, back ? gathered : row, bytes);
    gathered += bytes;
  }
}

/* What skipped rows leave behind. */
static void clear_skipped(const fused *f) {
  const tigon_cross_entropy_problem *p = &f->loss;
  for (int64_t r = 0; f->skips && r < f->rows; ++r) {
    if (counts(f, r)) continue;
    p->token_loss[r] = 0;
    if (p->lse && !f->more.knows) p->lse[r] = 0;
    if (p->z_loss) p->z_loss[r] = 0;
    if (p->entropy && !f->more.knows) p->entropy[r] = 0;
    if (p->argmax) p->argmax[r] = -1;
    if (f->dhidden)
      memset(row_of(f, f->dhidden, f->dhidden_pitch, r), 0, (size_t)f->width * tigon_dtype_size(f->dtype));
  }
}

/* ---- slots ---- */

/* Makes the logits of the chunk's rows [begin, end), which lie together. */
static tigon_status make_part(const fused *f, const logits *l, int64_t begin, int64_t end) {
  const tigon_rows y = rows_from(f, l, begin);
  tigon_linear_fwd_problem p = f->product;
  if (begin == end) return TIGON_OK;
  p.x = row_of(f, f->x, f->x_pitch, begin);
  p.x_pitch = f->x_pitch;
  p.rows = end - begin;
  p.n = l->cols;
  p.w = row_of(f, p.w, p.w_pitch, l->from);
  p.b = p.b ? (const char *)p.b + l->from * (int64_t)tigon_dtype_size(p.b_dtype) : NULL;
  p.y = y.data;
  p.y_pitch = y.pitch[2];
  return TIGON_CALL_SLOT(f->context, linear_fwd, f->dtype, &p);
}

/* The chunk's logits, but for those that are known. Its hidden is in f->x afterwards. */
static tigon_status make_logits(fused *f, const chunk *c, const logits *l) {
  const tigon_linear_fwd_problem *p = &f->product;
  if (!together(c)) move_rows(f, c, p->x, p->x_pitch, false);
  f->x = together(c) ? row_of(f, p->x, p->x_pitch, c->begin) : f->space->gathered;
  f->x_pitch = together(c) ? p->x_pitch : f->width;
  if (!f->more.knows) TIGON_TRY(make_part(f, l, 0, l->cached));
  return make_part(f, l, l->cached, c->count);
}

/* Rows [r, r + n), the chunk's from row i on. Backward reads lse and entropy, forward writes them. */
static tigon_status run_loss(fused *f, const logits *l, int64_t r, int64_t i, int64_t n, bool backward,
                             bool gradients) {
  tigon_cross_entropy_problem p = f->loss;
  p.parts = TIGON_CROSS_ENTROPY_ROWS;
  p.space = (tigon_row_space){n, 1, n};
  p.cols = l->cols;
  p.panel_begin = l->from;
  p.vocab = l->cols < f->vocab ? f->vocab : 0;
  p.logits = rows_from(f, l, i);
  if (gradients) p.dlogits = rows_from(f, &(logits){.own = l->own, .cols = l->cols}, i);
  p.labels = (const char *)p.labels + r * (int64_t)tigon_dtype_size(p.label_dtype);
  if (p.token_scale) p.token_scale += r;
  if (p.dloss && p.reduction == TIGON_REDUCTION_NONE) p.dloss += r;
  if (p.dentropy) p.dentropy += r;
  p.token_loss += r;
  if (p.lse) p.lse += r;
  if (p.z_loss) p.z_loss += r;
  if (p.entropy) p.entropy += r;
  if (p.argmax) p.argmax += r;
  return backward ? TIGON_CALL_SLOT(f->context, cross_entropy_bwd, f->loss.dtype, &p)
                  : TIGON_CALL_SLOT(f->context, cross_entropy_fwd, f->loss.dtype, &p);
}

/* dlogits of the chunk, as products take them. */
static char *dlogits_of(const fused *f) { return f->rounds ? f->space->rounded : f->space->logits; }

static tigon_status round_dlogits(fused *f, const chunk *c, int64_t cols) {
  const tigon_linear_bwd_problem p = {.n = c->count,
                                      .k = cols,
                                      .dtype = f->dtype,
                                      .dy_dtype = f->dtype,
                                      .dw_dtype = f->dtype,
                                      .dw = f->space->rounded,
                                      .dw_pitch = cols,
                                      .dw_sums = (const float *)(const void *)f->space->logits};
  return TIGON_CALL_SLOT(f->context, linear_bwd, f->dtype, &p);
}

/* The chunk's rows, run by run of rows that lie together. */
static tigon_status run_losses(fused *f, const chunk *c, const logits *l, bool backward, bool gradients) {
  int64_t i = 0;
  for (int64_t r = c->begin, n; r < c->end; r += n, i += n) {
    while (r < c->end && !counts(f, r)) ++r;
    const int64_t most = i < l->cached ? l->cached - i : c->count - i;
    for (n = 0; n < most && r + n < c->end && counts(f, r + n); ++n) continue;
    if (n > 0) TIGON_TRY(run_loss(f, l, r, i, n, backward, gradients));
  }
  return gradients && f->rounds ? round_dlogits(f, c, l->cols) : TIGON_OK;
}

static tigon_status run_gradient(fused *f, const tigon_linear_bwd_problem *p) {
  return TIGON_CALL_SLOT(f->context, linear_bwd, f->dtype, p);
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

static char *gradient_of(const gradient *g, int64_t from) {
  return (char *)g->out + from * g->pitch * (int64_t)tigon_dtype_size(g->dtype);
}

/* `out` takes the gradient in a product of `dtype`. */
static void set_output(const fused *f, const gradient *g, tigon_linear_bwd_problem *p, void *out, tigon_dtype dtype,
                       int64_t pitch) {
  if (g == &f->dweight) {
    p->dw = out;
    p->dw_dtype = dtype;
    p->dw_pitch = pitch;
  } else {
    p->db = out;
    p->db_dtype = dtype;
  }
}

/* Adds a chunk's part of the gradient, for `cols` classes from `from` on. */
static tigon_status add_gradient(fused *f, gradient *g, const chunk *c, const void *dlogits, int64_t from,
                                 int64_t cols) {
  if (!g->out) return TIGON_OK;
  tigon_linear_bwd_problem p = backward_of(f, c->count, dlogits, cols);
  p.accumulate = g->begun || (!g->sums && g->accumulate);
  if (g->sums)
    set_output(f, g, &p, g->sums, TIGON_F32, f->width);
  else
    set_output(f, g, &p, gradient_of(g, from), g->dtype, g->pitch);
  g->begun = true;
  return run_gradient(f, &p);
}

/* Rounds the sums of classes [from, from + cols) into the caller's tensor; without a chunk they are 0. */
static tigon_status end_gradient(fused *f, gradient *g, int64_t from, int64_t cols) {
  if (!g->out || (!g->sums && g->begun) || (!g->begun && g->accumulate)) return TIGON_OK;
  tigon_linear_bwd_problem p = backward_of(f, 0, NULL, cols);
  set_output(f, g, &p, gradient_of(g, from), g->dtype, g->pitch);
  *(g == &f->dweight ? &p.dw_sums : &p.db_sums) = g->begun ? g->sums : NULL;
  p.accumulate = g->accumulate;
  return run_gradient(f, &p);
}

/* After dweight: the rows may be those of hidden. */
static tigon_status make_dhidden(fused *f, const chunk *c, const void *dlogits) {
  tigon_linear_bwd_problem p = backward_of(f, c->count, dlogits, f->vocab);
  p.w = f->product.w;
  p.w_pitch = f->product.w_pitch;
  p.dx = together(c) ? row_of(f, f->dhidden, f->dhidden_pitch, c->begin) : f->space->gathered;
  p.dx_pitch = together(c) ? f->dhidden_pitch : f->width;
  TIGON_TRY(run_gradient(f, &p));
  if (!together(c)) move_rows(f, c, f->dhidden, f->dhidden_pitch, true);
  return TIGON_OK;
}

/* ---- parked dlogits ---- */

/* The panel of classes from `from` on, [rows, its classes]. */
static char *parked_at(const fused *f, int64_t from) {
  return from == 0 ? f->park : gradient_of(&f->dweight, from - f->park_cols);
}

static tigon_status park(fused *f, const chunk *c, const char *dlogits) {
  tigon_queue *queue = &f->context->queue;
  const size_t size = tigon_dtype_size(f->dtype);
  tigon_status status = TIGON_OK;
  for (int64_t from = 0; status == TIGON_OK && from < f->vocab; from += f->park_cols) {
    const size_t bytes = (size_t)smaller(f->vocab - from, f->park_cols) * size;
    status = queue->backend->copy_rows(queue, parked_at(f, from) + (size_t)c->begin * bytes, bytes,
                                       dlogits + (size_t)from * size, (size_t)f->vocab * size, bytes, c->count);
  }
  return tigon_front_done(f->context, f->context->kernels, queue, "copy_rows", status);
}

/* From the last panel on: each takes the place of dlogits that were used. */
static tigon_status make_dweight(fused *f) {
  const chunk all = {0, f->rows, f->rows, 0};
  f->x = f->product.x;
  f->x_pitch = f->product.x_pitch;
  for (int64_t from = (f->vocab - 1) / f->park_cols * f->park_cols; from >= 0; from -= f->park_cols) {
    f->dweight.begun = false;
    TIGON_TRY(add_gradient(f, &f->dweight, &all, parked_at(f, from), from, smaller(f->vocab - from, f->park_cols)));
  }
  return TIGON_OK;
}

/* ---- passes over the tokens ---- */

typedef struct pass {
  bool dweight, dbias, dhidden;
} pass;

static tigon_status run_pass(fused *f, pass what) {
  const bool gradients = what.dweight || what.dbias || what.dhidden;
  f->space = &f->whole;
  const char *dlogits = dlogits_of(f);
  if (f->more.knows && !gradients) return TIGON_OK;
  for (chunk c = {0}; next_chunk(f, f->whole.rows, &c);) {
    const logits l = logits_of(f, &c, 0, f->vocab);
    TIGON_TRY(make_logits(f, &c, &l));
    TIGON_TRY(run_losses(f, &c, &l, f->more.knows, gradients));
    if (what.dweight)
      TIGON_TRY(f->park_cols ? park(f, &c, dlogits) : add_gradient(f, &f->dweight, &c, dlogits, 0, f->vocab));
    if (what.dbias) TIGON_TRY(add_gradient(f, &f->dbias, &c, dlogits, 0, f->vocab));
    if (what.dhidden) TIGON_TRY(make_dhidden(f, &c, dlogits));
  }
  return what.dweight && f->park_cols ? make_dweight(f) : TIGON_OK;
}

static tigon_status run_panels(fused *f) {
  f->space = &f->part;
  for (int64_t from = 0; from < f->vocab; from += f->panel) {
    const int64_t cols = smaller(f->vocab - from, f->panel);
    f->dweight.begun = false;
    for (chunk c = {0}; next_chunk(f, f->part.rows, &c);) {
      const logits l = logits_of(f, &c, from, cols);
      TIGON_TRY(make_logits(f, &c, &l));
      TIGON_TRY(run_losses(f, &c, &l, true, true));
      TIGON_TRY(add_gradient(f, &f->dweight, &c, dlogits_of(f), from, cols));
    }
    TIGON_TRY(end_gradient(f, &f->dweight, from, cols));
  }
  return TIGON_OK;
}

/* A part of cross_entropy that looks at all rows, and at no logits. */
static tigon_status run_part(fused *f, int part) {
  tigon_cross_entropy_problem p = f->loss;
  p.parts = part;
  return TIGON_CALL_SLOT(f->context, cross_entropy_fwd, f->loss.dtype, &p);
}

tigon_status tigon_head_run(fused *f) {
  const bool dhidden = f->dhidden != NULL, panels = f->panel > 0, late = dhidden && panels && f->in_place;
  TIGON_TRY(run_part(f, TIGON_CROSS_ENTROPY_COUNT));
  clear_skipped(f);
  TIGON_TRY(run_pass(f, (pass){f->dweight.out && !panels, f->dbias.out != NULL, dhidden && !late}));
  TIGON_TRY(panels ? run_panels(f) : end_gradient(f, &f->dweight, 0, f->vocab));
  if (late) TIGON_TRY(run_pass(f, (pass){.dhidden = true})); /* the row outputs come out as before */
  TIGON_TRY(end_gradient(f, &f->dbias, 0, f->vocab));
  return f->loss.loss || f->loss.correct ? run_part(f, TIGON_CROSS_ENTROPY_REDUCE) : TIGON_OK;
}
