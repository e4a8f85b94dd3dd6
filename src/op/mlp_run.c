/* How mlp works off its tiles. It calls slots, so it exists once for all backends. */
#include "op/mlp.h"

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Rows [r, r + n) and columns [from, from + cols) of the inner ones. */
typedef struct tile {
  int64_t r, n, from, cols;
  bool cached; /* a and u are the cache's */
  char *pre;   /* a; u begins `apart` elements behind it */
  char *dpre;  /* da and du, `cols` apart */
  char *c;     /* c, later dc */
  int64_t pitch, apart, dpitch, c_pitch;
} tile;

static char *at(const mlp *m, const void *data, int64_t element) {
  return (char *)data + element * (int64_t)tigon_dtype_size(m->dtype);
}

/* Are gate and up one product? */
static bool is_joined(const mlp *m, const tile *t) { return m->packed && t->cols == m->inner; }

/* The tile after t, {0} before the first. No tile is in the cache and beyond it. */
static bool next_tile(const mlp *m, const mlp_space *space, int64_t from, int64_t cols, tile *t) {
  const int64_t r = t->r + t->n, left = r < m->cached ? m->cached - r : m->rows;
  if (r >= m->rows) return false;
  *t = (tile){.r = r, .n = smaller(smaller(space->rows, m->rows - r), left), .from = from, .cols = cols};
  t->cached = r < m->cached;
  t->dpre = space->pre;
  t->dpitch = 2 * cols;
  t->pre = t->cached ? at(m, m->cache, r * 2 * m->inner + from) : space->pre;
  t->pitch = t->cached ? 2 * m->inner : 2 * cols;
  t->apart = t->cached ? m->inner : cols;
  t->c = space->c ? space->c : space->pre;
  t->c_pitch = space->c || t->cached ? cols : 2 * cols;
  return true;
}

/* ---- slots ---- */

static void count(const mlp *m, int64_t rows, int64_t cols) {
  if (m->inner) m->context->head.products += (double)rows * (double)cols / ((double)m->rows * (double)m->inner);
}

/* y [n, cols] = x w^T + b, of a w's rows. */
static tigon_status run_product(const mlp *m, tigon_linear_fwd_problem p) {
  p.dtype = p.y_dtype = m->dtype;
  return p.n ? TIGON_CALL_FOUND_SLOT(m->context, linear_fwd, m->dtype, &p) : TIGON_OK;
}

/* Columns of a, or of u. */
static tigon_status make_columns(const mlp *m, const tile *t, const mlp_projection *of, int64_t cols, char *y) {
  const int64_t b = t->from * (int64_t)tigon_dtype_size(of->b_dtype);
  count(m, t->n, cols);
  return run_product(m, (tigon_linear_fwd_problem){.rows = t->n,
                                                   .n = cols,
                                                   .k = m->width,
                                                   .b_dtype = of->b_dtype,
                                                   .x = at(m, m->x, t->r * m->x_pitch),
                                                   .w = at(m, of->w, t->from * of->w_pitch),
                                                   .b = of->b ? (const char *)of->b + b : NULL,
                                                   .y = y,
                                                   .x_pitch = m->x_pitch,
                                                   .w_pitch = of->w_pitch,
                                                   .y_pitch = t->pitch});
}

static tigon_status make_pre(const mlp *m, const tile *t) {
  if (is_joined(m, t)) return make_columns(m, t, &m->gate, 2 * t->cols, t->pre);
  TIGON_TRY(make_columns(m, t, &m->gate, t->cols, t->pre));
  return make_columns(m, t, &m->up, t->cols, at(m, t->pre, t->apart));
}

static tigon_rows rows_of(char *data, int64_t pitch) { return (tigon_rows){data, {0, 0, pitch}}; }

static tigon_status activate(const mlp *m, const tile *t) {
  const tigon_map_problem p = {.space = {t->n, 1, t->n},
                               .cols = t->cols,
                               .dtype = m->dtype,
                               .inputs = 2,
                               .outputs = 1,
                               .in = {rows_of(t->pre, t->pitch), rows_of(at(m, t->pre, t->apart), t->pitch)},
                               .out = {rows_of(t->c, t->c_pitch)},
                               .numbers = m->numbers};
  if (t->cols == 0) return TIGON_OK;
  return m->act == TIGON_MLP_SILU ? TIGON_CALL_FOUND_SLOT(m->context, swiglu_fwd, m->dtype, &p)
                                  : TIGON_CALL_FOUND_SLOT(m->context, geglu_fwd, m->dtype, &p);
}

/* da and du of dc, a and u; in the place of a and u where those are the tile's own. */
static tigon_status differentiate(const mlp *m, const tile *t) {
  const tigon_map_problem p = {
      .space = {t->n, 1, t->n},
      .cols = t->cols,
      .dtype = m->dtype,
      .inputs = 3,
      .outputs = 2,
      .in = {rows_of(t->c, t->c_pitch), rows_of(t->pre, t->pitch), rows_of(at(m, t->pre, t->apart), t->pitch)},
      .out = {rows_of(t->dpre, t->dpitch), rows_of(at(m, t->dpre, t->cols), t->dpitch)},
      .numbers = m->numbers};
  if (t->cols == 0) return TIGON_OK;
  return m->act == TIGON_MLP_SILU ? TIGON_CALL_FOUND_SLOT(m->context, swiglu_bwd, m->dtype, &p)
                                  : TIGON_CALL_FOUND_SLOT(m->context, geglu_bwd, m->dtype, &p);
}

static tigon_status run_backward(const mlp *m, tigon_linear_bwd_problem p) {
  p.dtype = p.dy_dtype = m->dtype;
  return TIGON_CALL_FOUND_SLOT(m->context, linear_bwd, m->dtype, &p);
}

/* ---- gradients of weights ---- */

static void set_output(const mlp_gradient *g, tigon_linear_bwd_problem *p, int64_t element, bool sums) {
  char *out = sums ? (char *)g->sums : (char *)g->out + element * (int64_t)tigon_dtype_size(g->dtype);
  const tigon_dtype dtype = sums ? TIGON_F32 : g->dtype;
  if (g->vector)
    p->db = out, p->db_dtype = dtype;
  else
    p->dw = out, p->dw_dtype = dtype, p->dw_pitch = sums ? p->k : g->pitch;
}

/* Adds a tile's part to the gradient from `element` on, [p.n, p.k] or [p.n]. */
static tigon_status add_gradient(const mlp *m, mlp_gradient *g, tigon_linear_bwd_problem p, int64_t element) {
  if (!g->wanted) return TIGON_OK;
  p.accumulate = g->begun || (!g->sums && m->accumulate);
  set_output(g, &p, element, g->sums != NULL);
  g->begun = true;
  return run_backward(m, p);
}

/* Rounds the sums into the caller's tensor; without a tile they are 0. */
static tigon_status end_gradient(const mlp *m, mlp_gradient *g, int64_t n, int64_t k, int64_t element) {
  if (!g->wanted || (!g->sums && g->begun) || (!g->begun && m->accumulate)) return TIGON_OK;
  tigon_linear_bwd_problem p = {.n = n, .k = k, .accumulate = m->accumulate};
  set_output(g, &p, element, false);
  *(g->vector ? &p.db_sums : &p.dw_sums) = g->begun ? g->sums : NULL;
  g->begun = false;
  return run_backward(m, p);
}

/* What da and du are, or one of them, times x. */
static tigon_status add_columns(const mlp *m, const tile *t, mlp_projection *of, int64_t cols, char *dpre) {
  const tigon_linear_bwd_problem p = {.rows = t->n,
                                      .n = cols,
                                      .k = m->width,
                                      .dy = dpre,
                                      .x = at(m, m->x, t->r * m->x_pitch),
                                      .dy_pitch = t->dpitch,
                                      .x_pitch = m->x_pitch};
  if (of->dw.wanted) count(m, t->n, cols);
  TIGON_TRY(add_gradient(m, &of->dw, p, t->from * of->dw.pitch));
  return add_gradient(m, &of->db, p, t->from);
}

static tigon_linear_bwd_problem of_dy(const mlp *m, const tile *t) {
  return (tigon_linear_bwd_problem){
      .rows = t->n, .n = m->width, .k = t->cols, .dy = at(m, m->dy, t->r * m->dy_pitch), .dy_pitch = m->dy_pitch};
}

static tigon_status add_down(mlp *m, const tile *t) {
  tigon_linear_bwd_problem p = of_dy(m, t);
  if (!m->down.dw.wanted) return TIGON_OK;
  TIGON_TRY(activate(m, t));
  p.x = t->c;
  p.x_pitch = t->c_pitch;
  count(m, t->n, t->cols);
  return add_gradient(m, &m->down.dw, p, t->from);
}

/* ---- the way back of a tile ---- */

static tigon_status make_dc(const mlp *m, const tile *t) {
  tigon_linear_bwd_problem p = of_dy(m, t);
  p.w = at(m, m->down.w, t->from);
  p.w_pitch = m->down.w_pitch;
  p.dx = t->c;
  p.dx_dtype = m->dtype;
  p.dx_pitch = t->c_pitch;
  count(m, t->n, t->cols);
  return t->cols ? run_backward(m, p) : TIGON_OK;
}

/* dx = da gate + du up. As two products of 16 bits they are summed in f32, in the memory of dc. */
static tigon_status make_dx(const mlp *m, const tile *t) {
  const bool joined = is_joined(m, t), apart = mlp_sums_dx(m);
  tigon_linear_bwd_problem p = {.rows = t->n,
                                .n = joined ? 2 * t->cols : t->cols,
                                .k = m->width,
                                .dx_dtype = apart ? TIGON_F32 : m->dtype,
                                .dy = t->dpre,
                                .w = m->gate.w,
                                .dx = apart ? t->c : at(m, m->dx, t->r * m->dx_pitch),
                                .dy_pitch = t->dpitch,
                                .w_pitch = m->gate.w_pitch,
                                .dx_pitch = apart ? m->width : m->dx_pitch};
  count(m, t->n, p.n);
  TIGON_TRY(run_backward(m, p));
  if (joined) return TIGON_OK;
  p.dy = at(m, t->dpre, t->cols);
  p.w = m->up.w;
  p.w_pitch = m->up.w_pitch;
  p.accumulate_dx = true;
  count(m, t->n, p.n);
  TIGON_TRY(run_backward(m, p));
  if (!apart) return TIGON_OK;
  return run_backward(m, (tigon_linear_bwd_problem){.n = t->n,
                                                    .k = m->width,
                                                    .dw_dtype = m->dtype,
                                                    .dw = at(m, m->dx, t->r * m->dx_pitch),
                                                    .dw_pitch = m->dx_pitch,
                                                    .dw_sums = (const float *)(const void *)t->c});
}

/* Is a gradient of gate's or up's wanted? */
static bool has_into(const mlp *m) {
  return m->gate.dw.wanted || m->gate.db.wanted || m->up.dw.wanted || m->up.db.wanted;
}

static tigon_status run_tile(mlp *m, const tile *t, bool weights, bool dx) {
  const bool into = weights && has_into(m);
  if (!t->cached) TIGON_TRY(make_pre(m, t));
  if (weights) TIGON_TRY(add_down(m, t));
  if (!dx && !into) return TIGON_OK;
  TIGON_TRY(make_dc(m, t));
  TIGON_TRY(differentiate(m, t));
  if (into) TIGON_TRY(add_columns(m, t, &m->gate, is_joined(m, t) ? 2 * t->cols : t->cols, t->dpre));
  if (into && !is_joined(m, t)) TIGON_TRY(add_columns(m, t, &m->up, t->cols, at(m, t->dpre, t->cols)));
  return dx ? make_dx(m, t) : TIGON_OK;
}

static tigon_status end_columns(mlp *m, int64_t from, int64_t cols) {
  const bool joined = m->packed && cols == m->inner;
  const int64_t of_gate = joined ? 2 * cols : cols;
  TIGON_TRY(end_gradient(m, &m->gate.dw, of_gate, m->width, from * m->gate.dw.pitch));
  TIGON_TRY(end_gradient(m, &m->gate.db, of_gate, 0, from));
  if (!joined) TIGON_TRY(end_gradient(m, &m->up.dw, cols, m->width, from * m->up.dw.pitch));
  if (!joined) TIGON_TRY(end_gradient(m, &m->up.db, cols, 0, from));
  return end_gradient(m, &m->down.dw, m->width, cols, from);
}

/* ---- both directions ---- */

static void begin_count(const mlp *m) {
  const int64_t row = (m->whole.c ? 3 : 2) * m->inner * (int64_t)tigon_dtype_size(m->dtype);
  m->context->head =
      (tigon_head_work){.rows = m->whole.rows, .logits_bytes = m->whole.rows * row, .sums_bytes = (int64_t)m->sums};
}

tigon_status tigon_mlp_run_fwd(mlp *m) {
  begin_count(m);
  for (tile t = {0}; next_tile(m, &m->whole, 0, m->inner, &t);) {
    ++m->context->head.chunks;
    TIGON_TRY(make_pre(m, &t));
    TIGON_TRY(activate(m, &t));
    count(m, t.n, t.cols);
    TIGON_TRY(run_product(m, (tigon_linear_fwd_problem){.rows = t.n,
                                                        .n = m->width,
                                                        .k = m->inner,
                                                        .b_dtype = m->down.b_dtype,
                                                        .x = t.c,
                                                        .w = m->down.w,
                                                        .b = m->down.b,
                                                        .y = at(m, m->y, t.r * m->y_pitch),
                                                        .x_pitch = t.c_pitch,
                                                        .w_pitch = m->down.w_pitch,
                                                        .y_pitch = m->y_pitch}));
  }
  return TIGON_OK;
}

tigon_status tigon_mlp_run_bwd(mlp *m) {
  const bool weights = has_into(m) || m->down.dw.wanted;
  begin_count(m);
  if (m->down.db.wanted && m->rows) {
    const tile all = {.n = m->rows};
    TIGON_TRY(add_gradient(m, &m->down.db, of_dy(m, &all), 0));
  }
  TIGON_TRY(end_gradient(m, &m->down.db, m->width, 0, 0));
  if (m->wants_dx || (weights && !m->panel))
    for (tile t = {0}; next_tile(m, &m->whole, 0, m->inner, &t);) {
      ++m->context->head.chunks;
      TIGON_TRY(run_tile(m, &t, weights && !m->panel, m->wants_dx));
    }
  if (!m->panel) return end_columns(m, 0, m->inner);
  for (int64_t from = 0; from < m->inner; from += m->panel) {
    const int64_t cols = smaller(m->panel, m->inner - from);
    for (tile t = {0}; next_tile(m, &m->part, from, cols, &t);) {
      ++m->context->head.chunks;
      TIGON_TRY(run_tile(m, &t, true, false));
    }
    TIGON_TRY(end_columns(m, from, cols));
  }
  return TIGON_OK;
}
