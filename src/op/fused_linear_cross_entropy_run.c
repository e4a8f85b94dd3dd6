/* How the composite works off its chunks. It calls slots, so it exists once for all backends. */
#include <math.h>
#include <string.h>

#include <tigon/op/vocab_parallel_cross_entropy.h>

#include "op/fused_linear_cross_entropy.h"

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- chunks of tokens ---- */

/* The group's first row from r on that counts; where its rows end without one. */
static int64_t next_row(const fused *f, int64_t r) {
  const row_group *g = &f->group;
  for (int i = 0; i < 2; ++i)
    for (r = r < g->begin[i] ? g->begin[i] : r; r < g->end[i]; ++r)
      if (counts(f, r)) return r;
  return g->end[1];
}

/* The group's chunk after c; {0} before the first. */
static bool next_chunk(const fused *f, int64_t limit, chunk *c) {
  int64_t r = next_row(f, c->end);
  *c = (chunk){r, r, 0, c->first + c->count};
  for (; r < f->group.end[1] && c->count < limit; r = next_row(f, r + 1)) ++c->count, c->end = r + 1;
  return c->count > 0;
}

/* Rows [r, r + n) of the caller's tensors, the chunk's from row i on. */
typedef struct run {
  int64_t r, i, n;
} run;

/* The chunk's run of rows that lie together after w, of no row beyond `limit` where it begins before that; {0} before the first. */
static bool next_run(const fused *f, const chunk *c, int64_t limit, run *w) {
  const int64_t i = w->i + w->n, r = next_row(f, w->n ? w->r + w->n : c->begin), most = i < limit ? limit : c->count;
  *w = (run){r, i, 0};
  while (i + w->n < most && next_row(f, r + w->n) == r + w->n) ++w->n;
  return w->n > 0;
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
static bool is_moved(const fused *f, const chunk *c) { return f->skips && !together(c); } /* by move_rows() */
static bool is_gathered(const fused *f, const chunk *c) { return f->joins || is_moved(f, c); }

static char *row_of(const fused *f, const void *data, int64_t pitch, int64_t r) {
  return (char *)data + r * pitch * (int64_t)tigon_dtype_size(f->dtype);
}

/* The chunk's rows of a tensor that count, from it into `gathered` or back. Host memory only. */
static void move_rows(const fused *f, const chunk *c, int64_t width, const void *data, int64_t pitch, bool back) {
  const size_t bytes = f->context->queue.record ? 0 : (size_t)width * tigon_dtype_size(f->dtype);
  char *gathered = f->space->gathered;
  for (int64_t r = c->begin; bytes && r < c->end; r = next_row(f, r + 1)) {
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
    for (int i = 0; p->stats && i < TIGON_VOCAB_STATS; ++i)
      p->stats[r * TIGON_VOCAB_STATS + i] = i == 0 ? -INFINITY : 0;
    if (f->more.distil) tigon_distil_clear(f, r);
    if (p->lse && !f->more.knows) p->lse[r] = 0;
    if (p->z_loss) p->z_loss[r] = 0;
    if (p->entropy && !f->more.knows) p->entropy[r] = 0;
    if (p->argmax) p->argmax[r] = -1;
    if (f->dhidden)
      memset(row_of(f, f->dhidden, f->dhidden_pitch, r), 0, (size_t)f->width * tigon_dtype_size(f->dtype));
  }
}

/* ---- slots ---- */

/* Where the hidden of a chunk that is gathered lie together, and later dhidden. */
static char *gathered_at(const fused *f, const chunk *c) {
  return f->joins ? row_of(f, f->dhidden, f->dhidden_pitch, f->joined + c->first) : f->space->gathered;
}
static int64_t gathered_pitch(const fused *f) { return f->joins ? f->dhidden_pitch : f->width; }

/* The chunk's run after w whose hidden lie together: all of it where they were gathered. Then they are at f->x. */
static bool next_part(fused *f, const chunk *c, run *w) {
  const tigon_linear_fwd_problem *p = &f->product;
  if (is_gathered(f, c)) {
    f->x = gathered_at(f, c);
    f->x_pitch = gathered_pitch(f);
    *w = (run){c->begin, 0, w->n ? 0 : c->count};
    return w->n > 0;
  }
  if (!next_run(f, c, c->count, w)) return false;
  f->x = row_of(f, p->x, p->x_pitch, w->r - w->i);
  f->x_pitch = p->x_pitch;
  return true;
}

/* The share of a product of all tokens that count. */
static double share_of(const fused *f, int64_t rows, int64_t cols) {
  return f->vocab ? (double)rows * (double)cols / ((double)f->kept * (double)f->vocab) : 0;
}

/* Makes the logits of the chunk's rows [begin, end), which lie together. */
static tigon_status make_part(const fused *f, const logits *l, int64_t begin, int64_t end) {
  const tigon_rows y = rows_from(f, l, begin);
  tigon_linear_fwd_problem p = f->product;
  if (begin == end || l->cols == 0) return TIGON_OK;
  p.x = row_of(f, f->x, f->x_pitch, begin);
  p.x_pitch = f->x_pitch;
  p.rows = end - begin;
  p.n = l->cols;
  p.w = row_of(f, p.w, p.w_pitch, l->from);
  p.b = p.b ? (const char *)p.b + l->from * (int64_t)tigon_dtype_size(p.b_dtype) : NULL;
  p.y = y.data;
  p.y_pitch = y.pitch[2];
  f->context->head.products += share_of(f, p.rows, p.n);
  return TIGON_CALL_FOUND_SLOT(f->context, linear_fwd, f->dtype, &p);
}

/* The teacher's logits of the chunk's rows, of those classes of l that it has. They lie in `rounded`. */
static tigon_status make_teacher(const fused *f, const chunk *c, const logits *l) {
  tigon_linear_fwd_problem p = f->more.distil->teacher;
  const bool gathered = is_gathered(f, c);
  if (gathered) move_rows(f, c, p.k, p.x, p.x_pitch, false);
  p.x = gathered ? f->space->gathered : row_of(f, p.x, p.x_pitch, c->begin);
  p.x_pitch = gathered ? p.k : p.x_pitch;
  p.rows = c->count;
  p.n = tigon_distil_classes(f, l);
  if (p.n == 0) return TIGON_OK;
  p.w = row_of(f, p.w, p.w_pitch, l->from);
  p.b = p.b ? (const char *)p.b + l->from * (int64_t)tigon_dtype_size(p.b_dtype) : NULL;
  p.y = f->space->rounded;
  p.y_pitch = l->cols;
  f->context->head.products += share_of(f, p.rows, p.n);
  return TIGON_CALL_FOUND_SLOT(f->context, linear_fwd, f->dtype, &p);
}

/* The chunk's logits, but for those that are known. */
static tigon_status make_logits(fused *f, const chunk *c, const logits *l) {
  if (f->more.distil && !f->more.distil->lists) TIGON_TRY(make_teacher(f, c, l));
  if (is_moved(f, c)) move_rows(f, c, f->width, f->product.x, f->product.x_pitch, false);
  for (run w = {0}; next_part(f, c, &w);) {
    const int64_t cached = l->cached < w.i ? w.i : smaller(l->cached, w.i + w.n);
    if (!f->more.knows) TIGON_TRY(make_part(f, l, w.i, cached));
    TIGON_TRY(make_part(f, l, cached, w.i + w.n));
  }
  return TIGON_OK;
}

/* Rows [r, r + n), the chunk's from row i on. Backward reads lse and entropy, forward writes them. */
static tigon_status run_loss(fused *f, const logits *l, int64_t r, int64_t i, int64_t n, bool backward,
                             bool gradients) {
  if (f->more.distil) return tigon_distil_rows(f, l, r, i, n, backward, gradients);
  tigon_cross_entropy_problem p = f->loss;
  p.parts = TIGON_CROSS_ENTROPY_ROWS;
  p.space = (tigon_row_space){n, 1, n};
  p.cols = l->cols;
  p.panel_begin += l->from;
  if (!p.vocab && l->cols < f->vocab) p.vocab = f->vocab;
  p.logits = rows_from(f, l, i);
  if (gradients) p.dlogits = rows_from(f, &(logits){.own = l->own, .cols = l->cols}, i);
  p.labels = (const char *)p.labels + r * (int64_t)tigon_dtype_size(p.label_dtype);
  if (p.token_scale) p.token_scale += r;
  if (p.dloss && p.reduction == TIGON_REDUCTION_NONE) p.dloss += r;
  if (p.dentropy) p.dentropy += r;
  p.token_loss += r;
  if (p.lse) p.lse += r;
  if (p.stats) p.stats += r * TIGON_VOCAB_STATS;
  if (p.z_loss) p.z_loss += r;
  if (p.entropy) p.entropy += r;
  if (p.argmax) p.argmax += r;
  return backward ? TIGON_CALL_FOUND_SLOT(f->context, cross_entropy_bwd, f->loss.dtype, &p)
                  : TIGON_CALL_FOUND_SLOT(f->context, cross_entropy_fwd, f->loss.dtype, &p);
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
  return TIGON_CALL_FOUND_SLOT(f->context, linear_bwd, f->dtype, &p);
}

/* The chunk's rows, run by run of rows that lie together. */
static tigon_status run_losses(fused *f, const chunk *c, const logits *l, bool backward, bool gradients) {
  for (run w = {0}; next_run(f, c, l->cached, &w);) TIGON_TRY(run_loss(f, l, w.r, w.i, w.n, backward, gradients));
  return gradients && f->rounds && l->cols ? round_dlogits(f, c, l->cols) : TIGON_OK;
}

static tigon_status run_gradient(fused *f, const tigon_linear_bwd_problem *p) {
  if (p->rows > 0) f->context->head.products += ((p->dw != NULL) + (p->dx != NULL)) * share_of(f, p->rows, p->n);
  return TIGON_CALL_FOUND_SLOT(f->context, linear_bwd, f->dtype, p);
}

/* For the rows of w, whose hidden are at f->x. */
static tigon_linear_bwd_problem backward_of(const fused *f, run w, const char *dlogits, int64_t cols) {
  tigon_linear_bwd_problem p = {.rows = w.n, .n = cols, .k = f->width, .dtype = f->dtype, .dy_dtype = f->dtype};
  if (!dlogits) return p;
  p.dy = row_of(f, dlogits, cols, w.i);
  p.dy_pitch = cols;
  p.x = row_of(f, f->x, f->x_pitch, w.i);
  p.x_pitch = f->x_pitch;
  return p;
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

/* Adds the part of the gradient, which is wanted, that w's rows have, for `cols` classes from `from` on. */
static tigon_status add_gradient(fused *f, gradient *g, run w, const char *dlogits, int64_t from, int64_t cols) {
  tigon_linear_bwd_problem p = backward_of(f, w, dlogits, cols);
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
  tigon_linear_bwd_problem p = backward_of(f, (run){0}, NULL, cols);
  set_output(f, g, &p, gradient_of(g, from), g->dtype, g->pitch);
  *(g == &f->dweight ? &p.dw_sums : &p.db_sums) = g->begun ? g->sums : NULL;
  p.accumulate = g->accumulate;
  return run_gradient(f, &p);
}

/* After dweight: the rows may be those of hidden. */
static tigon_status make_dhidden(fused *f, const chunk *c, run w, const char *dlogits) {
  const bool gathered = is_gathered(f, c);
  tigon_linear_bwd_problem p = backward_of(f, w, dlogits, f->vocab);
  p.w = f->product.w;
  p.w_pitch = f->product.w_pitch;
  p.dx_dtype = f->dtype;
  p.dx = gathered ? gathered_at(f, c) : row_of(f, f->dhidden, f->dhidden_pitch, w.r);
  p.dx_pitch = gathered ? gathered_pitch(f) : f->dhidden_pitch;
  TIGON_TRY(run_gradient(f, &p));
  if (is_moved(f, c)) move_rows(f, c, f->width, f->dhidden, f->dhidden_pitch, true);
  return TIGON_OK;
}

/* ---- parked dlogits ---- */

/* The panel of classes from `from` on, [rows, its classes]. Only dweight of panels before it is written to its room. */
static char *parked_at(const fused *f, int64_t from) {
  const int64_t last = last_parked(f);
  if (f->park && from == f->park_begin) return f->park;
  return gradient_of(&f->dweight, last - f->park_folds * (last - from + f->park_cols));
}

static tigon_status park(fused *f, run w, const char *dlogits) {
  tigon_queue *queue = &f->context->queue;
  const size_t size = tigon_dtype_size(f->dtype);
  tigon_status status = TIGON_OK;
  for (int64_t from = f->park_begin; status == TIGON_OK && from < f->vocab; from += f->park_cols) {
    const size_t bytes = (size_t)smaller(f->vocab - from, f->park_cols) * size;
    const char *first = row_of(f, dlogits, f->vocab, w.i) + (size_t)from * size;
    status = queue->backend->copy_rows(queue, parked_at(f, from) + (size_t)w.r * bytes, bytes, first,
                                       (size_t)f->vocab * size, bytes, w.n);
  }
  return tigon_front_done(f->context, f->context->kernels, queue, "copy_rows", status);
}

/* From the last panel on: each takes the place of dlogits that were used. */
static tigon_status make_dweight(fused *f) {
  const run all = {0, 0, f->rows};
  float *sums = f->dweight.sums; /* the other classes' */
  f->dweight.sums = NULL;
  f->x = f->product.x;
  f->x_pitch = f->product.x_pitch;
  for (int64_t from = last_parked(f); from >= f->park_begin; from -= f->park_cols) {
    f->dweight.begun = false;
    TIGON_TRY(add_gradient(f, &f->dweight, all, parked_at(f, from), from, smaller(f->vocab - from, f->park_cols)));
  }
  f->dweight.sums = sums;
  return TIGON_OK;
}

/* ---- passes over the tokens ---- */

typedef struct pass {
  bool dweight, dbias, dhidden;
} pass;

/* What the chunk's dlogits are for. */
static tigon_status run_products(fused *f, const chunk *c, pass what) {
  const char *dlogits = dlogits_of(f);
  const bool parks = what.dweight && f->park_cols;
  ++f->context->head.chunks;
  for (run w = {0}; parks && next_run(f, c, c->count, &w);) TIGON_TRY(park(f, w, dlogits));
  for (run w = {0}; next_part(f, c, &w);) {
    if (what.dweight && !parks) TIGON_TRY(add_gradient(f, &f->dweight, w, dlogits, 0, f->vocab));
    if (what.dbias) TIGON_TRY(add_gradient(f, &f->dbias, w, dlogits, 0, f->vocab));
    if (what.dhidden) TIGON_TRY(make_dhidden(f, c, w, dlogits));
  }
  return TIGON_OK;
}

/* ---- groups ---- */

/* The first row of sequence s, or of a padded one. */
static int64_t first_row(const tigon_sequences *of, int64_t s) {
  return of->segments.data ? tigon_vector_index(of->segments, s) : s * of->length;
}

static int64_t count_rows(const fused *f, int64_t begin, int64_t end) {
  if (!f->skips || f->context->queue.record) return end - begin;
  int64_t count = 0;
  for (int64_t r = begin; r < end; ++r) count += counts(f, r);
  return count;
}

/* Sequences [begin, end), or as many pairs. */
static row_group group_of(const fused *f, int64_t begin, int64_t end) {
  const head_middle *m = f->more.middle;
  const int64_t second = m->of->count / 2;
  row_group g = {{first_row(m->of, begin), f->rows}, {first_row(m->of, end), f->rows}, 0};
  if (m->of_pairs) g.begin[1] = first_row(m->of, second + begin), g.end[1] = first_row(m->of, second + end);
  g.count = count_rows(f, g.begin[0], g.end[0]) + count_rows(f, g.begin[1], g.end[1]);
  return g;
}

/* Can the host tell where sequences end? */
static bool knows_sequences(const fused *f) {
  return !f->more.middle->of->segments.data || (f->skips && !f->context->queue.record);
}

/* f->group after the first `done` tokens, sequences or pairs: as many as one chunk has, but one at least. What is done then; 0: none
 * was left. */
static int64_t next_group(fused *f, int64_t done) {
  const head_middle *m = f->more.middle;
  const row_group all = {{0, f->rows}, {f->rows, f->rows}, f->kept};
  if (!in_groups(f) || !knows_sequences(f)) {
    chunk c = {.end = done};
    f->group = all;
    if (in_groups(f)) return done ? 0 : f->rows;
    if (!next_chunk(f, f->whole.rows, &c)) return 0;
    f->group = (row_group){{c.begin, f->rows}, {c.end, f->rows}, c.count};
    return c.end;
  }
  const int64_t items = m->of_pairs ? m->of->count / 2 : m->of->count;
  if (done >= items) return 0;
  f->group = group_of(f, done, done + 1);
  int64_t end = done + 1;
  for (int64_t count = f->group.count; end < items; ++end) {
    count += group_of(f, end, end + 1).count;
    if (count > f->whole.rows) break;
  }
  f->group = group_of(f, done, end);
  return end;
}

static tigon_status copy_rows(fused *f, void *to, int64_t to_pitch, const void *from, int64_t from_pitch,
                              int64_t rows) {
  tigon_queue *queue = &f->context->queue;
  const size_t size = tigon_dtype_size(f->dtype);
  const tigon_status status = queue->backend->copy_rows(queue, to, (size_t)to_pitch * size, from,
                                                        (size_t)from_pitch * size, (size_t)f->width * size, rows);
  return tigon_front_done(f->context, f->context->kernels, queue, "copy_rows", status);
}

/* Products take both sides of pairs at once where a device knows them, dhidden has room for hidden, and the logits' memory for dhidden. */
static bool joins_pairs(const fused *f, pass what) {
  const size_t dhidden = (size_t)f->rows * (size_t)f->width * tigon_dtype_size(f->dtype);
  const size_t logits = (size_t)f->whole.rows * (size_t)f->vocab * tigon_dtype_size(f->loss.dtype);
  return f->more.middle->of_pairs && knows_sequences(f) && !f->skips && f->context->queue.backend->copy_rows &&
         what.dhidden && !f->in_place && dhidden <= logits;
}

/* The hidden of the group's rows to where they lie together. */
static tigon_status join(fused *f) {
  int64_t at = f->joined;
  for (int side = 0; side < 2; ++side) {
    const int64_t begin = f->group.begin[side], rows = f->group.end[side] - begin;
    TIGON_TRY(copy_rows(f, row_of(f, f->dhidden, f->dhidden_pitch, at), f->dhidden_pitch,
                        row_of(f, f->product.x, f->product.x_pitch, begin), f->product.x_pitch, rows));
    at += rows;
  }
  return TIGON_OK;
}

/* dhidden of all groups to their own rows. */
static tigon_status separate(fused *f) {
  int64_t at = 0;
  TIGON_TRY(copy_rows(f, f->whole.logits, f->width, f->dhidden, f->dhidden_pitch, f->rows));
  for (int64_t done = 0; (done = next_group(f, done)) > 0;)
    for (int side = 0; side < 2; ++side) {
      const int64_t begin = f->group.begin[side], rows = f->group.end[side] - begin;
      TIGON_TRY(copy_rows(f, row_of(f, f->dhidden, f->dhidden_pitch, begin), f->dhidden_pitch,
                          row_of(f, f->whole.logits, f->width, at), f->width, rows));
      at += rows;
    }
  return TIGON_OK;
}

/* [rows] of f32, in the order of the device's work. */
static tigon_status clear_rows(const fused *f, float *vector) {
  const tigon_linear_bwd_problem p = {
      .n = f->rows, .dtype = f->dtype, .dy_dtype = f->dtype, .db_dtype = TIGON_F32, .db = vector};
  return vector && f->rows ? TIGON_CALL_FOUND_SLOT(f->context, linear_bwd, f->dtype, &p) : TIGON_OK;
}

/* Group by group: statistics of its tokens, the loss of all, gradients of the group. Its logits are made once where they are one
 * chunk. */
static tigon_status run_groups(fused *f, pass what) {
  const bool gradients = what.dweight || what.dbias || what.dhidden;
  const head_middle *m = f->more.middle;
  if (gradients) TIGON_TRY(clear_rows(f, f->loss.token_loss));
  if (gradients && m->entropy) TIGON_TRY(clear_rows(f, f->loss.entropy));
  f->joins = joins_pairs(f, what);
  f->joined = 0;
  int64_t done = 0;
  for (int64_t next; (next = next_group(f, done)) > 0; done = next, f->joined += f->group.count) {
    const bool once = f->group.count <= f->whole.rows;
    if (f->joins) TIGON_TRY(join(f));
    if (in_groups(f)) ++f->context->head.groups, f->context->head.twice += gradients && !once;
    for (chunk c = {0}; next_chunk(f, f->whole.rows, &c);) {
      const logits l = logits_of(f, &c, 0, f->vocab);
      TIGON_TRY(make_logits(f, &c, &l));
      TIGON_TRY(run_losses(f, &c, &l, false, false));
    }
    if (!gradients) continue;
    TIGON_TRY(m->run(f, m->problem));
    for (chunk c = {0}; next_chunk(f, f->whole.rows, &c);) {
      const logits l = logits_of(f, &c, 0, f->vocab);
      if (!once) TIGON_TRY(make_logits(f, &c, &l));
      TIGON_TRY(run_losses(f, &c, &l, true, true));
      TIGON_TRY(run_products(f, &c, what));
    }
  }
  if (f->joins) TIGON_TRY(separate(f));
  f->joins = false;
  f->group = (row_group){{0, f->rows}, {f->rows, f->rows}, f->kept};
  return gradients && done ? TIGON_OK : m->run(f, m->problem);
}

static tigon_status run_pass(fused *f, pass what) {
  const bool gradients = what.dweight || what.dbias || what.dhidden;
  f->space = &f->whole;
  if (f->more.middle) return run_groups(f, what);
  if (f->more.knows && !gradients) return TIGON_OK;
  for (chunk c = {0}; next_chunk(f, f->whole.rows, &c);) {
    const logits l = logits_of(f, &c, 0, f->vocab);
    TIGON_TRY(make_logits(f, &c, &l));
    TIGON_TRY(run_losses(f, &c, &l, f->more.knows, gradients));
    TIGON_TRY(run_products(f, &c, what));
  }
  return TIGON_OK;
}

static tigon_status run_panels(fused *f) {
  f->space = &f->part;
  for (int64_t from = 0; from < f->panels_end; from += f->panel) {
    const int64_t cols = smaller(f->panels_end - from, f->panel);
    f->dweight.begun = false;
    for (chunk c = {0}; next_chunk(f, f->part.rows, &c);) {
      const logits l = logits_of(f, &c, from, cols);
      TIGON_TRY(make_logits(f, &c, &l));
      TIGON_TRY(run_losses(f, &c, &l, true, true));
      for (run w = {0}; next_part(f, &c, &w);) TIGON_TRY(add_gradient(f, &f->dweight, w, dlogits_of(f), from, cols));
    }
    TIGON_TRY(end_gradient(f, &f->dweight, from, cols));
  }
  return TIGON_OK;
}

/* A part of cross_entropy that looks at all rows, and at no logits. */
static tigon_status run_part(fused *f, int part) {
  tigon_cross_entropy_problem p = f->loss;
  p.parts = part;
  return TIGON_CALL_FOUND_SLOT(f->context, cross_entropy_fwd, f->loss.dtype, &p);
}

tigon_status tigon_head_run(fused *f) {
  const int64_t logit = (int64_t)tigon_dtype_size(f->loss.dtype) + f->beside;
  const int64_t summed = f->dweight.sums ? (f->panel ? f->panel : f->vocab) : 0;
  f->context->head = (tigon_head_work){.rows = f->whole.rows,
                                       .logits_bytes = f->whole.rows * f->vocab * logit,
                                       .sums_bytes = summed * f->width * (int64_t)sizeof(float)};
  const bool dhidden = f->dhidden != NULL, panels = f->panel > 0, late = dhidden && panels && f->in_place;
  /* Labels are looked at here; the loss's denominator is of them. */
  TIGON_TRY(f->more.distil && !f->loss.labels ? tigon_distil_count(f) : run_part(f, TIGON_CROSS_ENTROPY_COUNT));
  clear_skipped(f);
  TIGON_TRY(run_pass(f, (pass){f->dweight.out && (!panels || f->park_cols), f->dbias.out != NULL, dhidden && !late}));
  if (f->park_cols) TIGON_TRY(make_dweight(f));
  TIGON_TRY(panels ? run_panels(f) : end_gradient(f, &f->dweight, 0, f->vocab));
  if (late) TIGON_TRY(run_pass(f, (pass){.dhidden = true})); /* the row outputs come out as before */
  TIGON_TRY(end_gradient(f, &f->dbias, 0, f->vocab));
  if (f->more.distil) return tigon_distil_reduce(f);
  return f->loss.loss || f->loss.correct ? run_part(f, TIGON_CROSS_ENTROPY_REDUCE) : TIGON_OK;
}
