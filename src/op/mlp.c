/* The front of mlp, and how it lays out the workspace; src/op/mlp_run.c works it off.
 *
 * Gradients of weights are summed in f32. Where one has 16 bits, what the workspace has room for decides, in this order:
 * 1. All rows are one tile, whose products round once. (A cache of some of the rows makes it two.)
 * 2. The sums of all weights lie in the workspace beside a tile.
 * 3. The sums of some inner columns do. A first pass over the rows makes dx, and each panel of columns makes its part of a, u and dc
 *    again, in 3 products of all columns together. */
#include "op/mlp.h"

#include "op/loss.h"

enum { LEAST_TILE = 512, GOOD_TILE = 4096, GOOD_TILE_OF_HOST = 1024 /* rows */ };

#define WEIGHTS                                                                                               \
  IN(x, "*h", SAME, ROWS), IN(gate, "nh", SAME, ROWS), MAY(up, "nh", SAME, ROWS), IN(down, "hc", SAME, ROWS), \
      MAY(gate_bias, "n", SAME_OR_F32, DENSE), MAY(up_bias, "n", SAME_OR_F32, DENSE)
#define NUMBERS \
  CHOICE(act, TIGON_MLP_GELU_ERF), FINITE(gate_mult), FINITE(down_mult), NUMBER(clamp, 0, FLT_MAX), FINITE(up_offset)

#define A tigon_mlp_fwd_args
static const tigon_field fwd[] = {
    WEIGHTS,
    MAY(down_bias, "h", SAME_OR_F32, DENSE),
    OUT(y, "*h", SAME, ROWS, NULL),
    WANT(cache, "k2c", SAME, DENSE, NULL),
    NUMBERS,
    WORKSPACE,
    RESERVED(reserved),
};
DESCRIBE(mlp, fwd, fwd);
#undef A

#define A tigon_mlp_bwd_args
static const tigon_field bwd[] = {
    WEIGHTS,
    MAY(cache, "k2c", SAME, DENSE),
    IN(dy, "*h", SAME, ROWS),
    WANT(dx, "*h", SAME, ROWS, NULL),
    WANT(dgate, "nh", SAME_OR_F32, ROWS, NULL),
    WANT(dup, "nh", SAME_OR_F32, ROWS, NULL),
    WANT(ddown, "hc", SAME_OR_F32, ROWS, NULL),
    WANT(dgate_bias, "n", SAME_OR_F32, DENSE, NULL),
    WANT(dup_bias, "n", SAME_OR_F32, DENSE, NULL),
    WANT(ddown_bias, "h", SAME_OR_F32, DENSE, NULL),
    FLAG(accumulate_dw),
    NUMBERS,
    WORKSPACE,
    RESERVED(reserved),
};
DESCRIBE(mlp, bwd, bwd);
#undef A

/* ---- workspace ---- */

static bool is_short(const mlp_gradient *g) { return g->wanted && g->dtype != TIGON_F32; }

static void cut(mlp_gradient *g, int64_t elements, char *memory, size_t *used) {
  if (!is_short(g)) return;
  void *sums = tigon_cut(memory, used, (size_t)elements * sizeof(float));
  if (memory) g->sums = sums;
}

/* Cuts the sums of `cols` inner columns. Down's bias needs none: it is one sum over all rows. */
static size_t cut_sums(mlp *m, int64_t cols, char *memory) {
  const int64_t matrix = cols * m->width, times = m->packed ? 2 : 1;
  size_t used = 0;
  cut(&m->gate.dw, times * matrix, memory, &used);
  cut(&m->gate.db, times * cols, memory, &used);
  cut(&m->down.dw, matrix, memory, &used);
  if (!m->packed) {
    cut(&m->up.dw, matrix, memory, &used);
    cut(&m->up.db, cols, memory, &used);
  } else if (memory) {
    m->up.dw.sums = m->gate.dw.sums ? m->gate.dw.sums + matrix : NULL;
    m->up.db.sums = m->gate.db.sums ? m->gate.db.sums + cols : NULL;
  }
  return used;
}

/* Are rows in the cache and beyond it, in tiles of their own? */
static bool is_split(const mlp *m) { return m->cached > 0 && m->cached < m->rows; }

static bool has_short(mlp *m) { return cut_sums(m, 1, NULL) > 0; }

/* Bytes of a tile's row of `cols` inner columns: a and u, and backward's c. */
static size_t row_bytes(const mlp *m, int64_t cols, bool backward, bool dx) {
  const size_t size = tigon_dtype_size(m->dtype), c = (size_t)cols * size, sums = (size_t)m->width * sizeof(float);
  const size_t bytes = !backward ? 2 * c : 2 * c + (dx && mlp_sums_dx(m) && sums > c ? sums : c);
  return bytes ? bytes : 1;
}

/* Tiles of as many rows as fit, of a size each. */
static mlp_space space_in(const mlp *m, int64_t cols, bool backward, bool dx, char *memory, size_t bytes) {
  const size_t most = bytes < 2 * LINE ? 0 : (bytes - 2 * LINE) / row_bytes(m, cols, backward, dx);
  int64_t rows = most < (size_t)m->rows ? (int64_t)most : m->rows;
  if (rows > 0) {
    const int64_t steps = (m->rows - 1) / rows + 1;
    rows = (m->rows - 1) / steps + 1;
  }
  const size_t pre = lines((size_t)rows * 2 * (size_t)cols * tigon_dtype_size(m->dtype));
  return (mlp_space){rows, memory, backward ? memory + pre : NULL};
}

static size_t least_bytes(mlp *m, bool backward) {
  const size_t row = row_bytes(m, m->inner, backward, m->wants_dx) + 2 * LINE;
  if (!backward || !has_short(m)) return row;
  const size_t panel = 2 * (cut_sums(m, 1, NULL) + row_bytes(m, 1, true, false) + 5 * LINE);
  return m->wants_dx && row > panel ? row : panel;
}

static size_t good_bytes(mlp *m, bool backward) {
  const int64_t most = m->context->queue.backend->host_memory ? GOOD_TILE_OF_HOST : GOOD_TILE;
  const size_t row = row_bytes(m, m->inner, backward, m->wants_dx), sums = backward ? cut_sums(m, m->inner, NULL) : 0;
  const int64_t tile = m->rows < most ? m->rows : most, beyond = m->rows - tile;
  const bool whole = !is_split(m) && (size_t)beyond <= sums / row; /* one tile takes less than sums */
  return (size_t)(whole ? m->rows : tile) * row + (whole ? 0 : sums) + 2 * LINE;
}

/* Lays out the tiles, and decides where gradients are summed. */
static void schedule(mlp *m, bool backward, char *memory, size_t bytes) {
  m->whole = space_in(m, m->inner, backward, m->wants_dx, memory, bytes);
  if (!backward || !has_short(m) || (m->whole.rows >= m->rows && !is_split(m))) return;
  const size_t all = cut_sums(m, m->inner, NULL);
  const mlp_space left =
      bytes > all ? space_in(m, m->inner, true, m->wants_dx, memory + all, bytes - all) : (mlp_space){0};
  if (left.rows >= LEAST_TILE || left.rows >= m->rows) {
    m->sums = cut_sums(m, m->inner, memory);
    m->whole = left;
    return;
  }
  /* Half of the memory for the sums; least_bytes() has seen to it that one column's fit. */
  const size_t column = cut_sums(m, 1, NULL), row = row_bytes(m, 1, true, false), half = bytes / 2 - 5 * LINE;
  const int64_t fit = (int64_t)(half / (column > row ? column : row));
  const int64_t steps = (m->inner - 1) / fit + 1;
  m->panel = (m->inner - 1) / steps + 1;
  m->sums = cut_sums(m, m->panel, memory);
  m->part = space_in(m, m->panel, true, false, memory + m->sums, bytes - m->sums);
}

/* ---- the front ---- */

/* What both directions have. */
#define PREPARE(m, context, a)                                                                             \
  (m) = (mlp){                                                                                             \
      .context = context,                                                                                  \
      .act = (a)->act,                                                                                     \
      .numbers = tigon_gate_numbers((a)->gate_mult, (a)->down_mult, (a)->clamp, (a)->up_offset),           \
      .dtype = (a)->x.dtype,                                                                               \
      .width = tigon_last_extent(&(a)->x),                                                                 \
      .inner = (a)->down.shape[1],                                                                         \
      .packed = !tigon_present(&(a)->up),                                                                  \
      .gate = {(a)->gate.data, (a)->gate.strides[0], (a)->gate_bias.data, (a)->gate_bias.dtype, {0}, {0}}, \
      .up = {(a)->up.data, (a)->up.strides[0], (a)->up_bias.data, (a)->up_bias.dtype, {0}, {0}},           \
      .down = {.w = (a)->down.data, .w_pitch = (a)->down.strides[0]},                                      \
      .x = (a)->x.data,                                                                                    \
      .cache = (a)->cache.data,                                                                            \
      .cached = tigon_present(&(a)->cache) ? (a)->cache.shape[0] : 0,                                      \
  };                                                                                                       \
  if ((m).act != TIGON_MLP_SILU) (m).numbers = (tigon_map_numbers){.approx = gelu_of((m).act)};            \
  TIGON_TRY(check_weights(context, &(a)->gate, (m).inner, (m).packed));                                    \
  TIGON_TRY(check_absent(context, (m).packed, "up_bias", &(a)->up_bias));                                  \
  TIGON_TRY(check_numbers(context, (a)->act, (a)->gate_mult, (a)->down_mult, (a)->clamp, (a)->up_offset))

static tigon_gelu gelu_of(tigon_mlp_act act) { return act == TIGON_MLP_GELU_ERF ? TIGON_GELU_ERF : TIGON_GELU_TANH; }

static tigon_status check_weights(tigon_context *context, const tigon_tensor *gate, int64_t inner, bool packed) {
  const int64_t must = packed ? 2 * inner : inner;
  if (gate->shape[0] == must) return TIGON_OK;
  return tigon_refuse(context, "gate.shape[0] is %lld, must be %lld (%sdown.shape[1])", (long long)gate->shape[0],
                      (long long)must, packed ? "without up, 2 * " : "");
}

static tigon_status check_absent(tigon_context *context, bool packed, const char *name, const tigon_tensor *t) {
  if (!packed || !tigon_present(t)) return TIGON_OK;
  return tigon_refuse(context, "%s is there, must be absent without up", name);
}

static tigon_status check_numbers(tigon_context *context, tigon_mlp_act act, double gate_mult, double down_mult,
                                  double clamp, double up_offset) {
  const char *names[] = {"gate_mult", "down_mult", "clamp", "up_offset"};
  const double each[] = {gate_mult, down_mult, clamp, up_offset};
  for (int i = 0; act != TIGON_MLP_SILU && i < TIGON_COUNT(each); ++i)
    if (each[i] != 0) return tigon_refuse(context, "%s is %g, must be 0 with act %d", names[i], each[i], (int)act);
  return TIGON_OK;
}

/* Without up, its rows are the second half of gate's, and so are its bias and its gradients. */
static char *half_of(const void *data, int64_t elements, tigon_dtype dtype) {
  return data ? (char *)data + elements * (int64_t)tigon_dtype_size(dtype) : NULL;
}
static void unpack(mlp *m) {
  const mlp_projection *g = &m->gate;
  const int64_t half = m->inner;
  if (!m->packed) return;
  m->up = *g;
  m->up.w = half_of(g->w, half * g->w_pitch, m->dtype);
  m->up.b = half_of(g->b, half, g->b_dtype);
  m->up.dw.out = half_of(g->dw.out, half * g->dw.pitch, g->dw.dtype);
  m->up.db.out = half_of(g->db.out, half, g->db.dtype);
}

/* All slots must be there before the first of them writes anything. */
static tigon_status check_slots(const mlp *m, bool backward) {
  tigon_context *context = m->context;
  const bool silu = m->act == TIGON_MLP_SILU;
  TIGON_TRY(TIGON_REQUIRE_SLOT(context, linear_fwd, m->dtype));
  TIGON_TRY(silu ? TIGON_REQUIRE_SLOT(context, swiglu_fwd, m->dtype)
                 : TIGON_REQUIRE_SLOT(context, geglu_fwd, m->dtype));
  if (!backward) return TIGON_OK;
  TIGON_TRY(TIGON_REQUIRE_SLOT(context, linear_bwd, m->dtype));
  return silu ? TIGON_REQUIRE_SLOT(context, swiglu_bwd, m->dtype) : TIGON_REQUIRE_SLOT(context, geglu_bwd, m->dtype);
}

/* The rest of both directions: a query, or the layout of the workspace. */
static tigon_status lay_out(mlp *m, bool backward, void *workspace, size_t bytes, size_t *least, size_t *good) {
  if (m->cached > m->rows) m->cached = m->rows;
  const size_t minimum = least_bytes(m, backward);
  if (least) {
    const size_t recommended = good_bytes(m, backward);
    *least = minimum;
    if (good) *good = recommended > minimum ? recommended : minimum;
    return TIGON_OK;
  }
  TIGON_TRY(tigon_check_workspace(m->context, workspace, bytes, minimum));
  schedule(m, backward, workspace, bytes);
  return check_slots(m, backward);
}

static tigon_status forward(tigon_context *context, const tigon_mlp_fwd_args *a, size_t *least, size_t *good) {
  mlp m;
  PREPARE(m, context, a);
  m.down.b = a->down_bias.data;
  m.down.b_dtype = a->down_bias.dtype;
  m.y = a->y.data;
  TIGON_TRY(TIGON_COLLAPSE_PITCHES(context, &m.rows, {&a->x, &m.x_pitch}, {&a->y, &m.y_pitch}));
  unpack(&m);
  TIGON_TRY(lay_out(&m, false, a->workspace, a->workspace_bytes, least, good));
  return least ? TIGON_OK : tigon_mlp_run_fwd(&m);
}

static mlp_gradient matrix(const tigon_tensor *t) {
  const bool any = tigon_present(t) && t->shape[0] > 0 && t->shape[1] > 0;
  return (mlp_gradient){.wanted = any, .out = t->data, .dtype = t->dtype, .pitch = any ? t->strides[0] : 0};
}
static mlp_gradient vector(const tigon_tensor *t) {
  const bool any = tigon_present(t) && t->shape[0] > 0;
  return (mlp_gradient){.wanted = any, .out = t->data, .dtype = t->dtype, .vector = true};
}

static tigon_status backward(tigon_context *context, const tigon_mlp_bwd_args *a, size_t *least, size_t *good) {
  mlp m;
  PREPARE(m, context, a);
  TIGON_TRY(check_absent(context, m.packed, "dup", &a->dup));
  TIGON_TRY(check_absent(context, m.packed, "dup_bias", &a->dup_bias));
  m.dy = a->dy.data;
  m.dx = a->dx.data;
  m.wants_dx = tigon_present(&a->dx) && m.width > 0;
  m.accumulate = a->accumulate_dw != 0;
  m.gate.dw = matrix(&a->dgate);
  m.gate.db = vector(&a->dgate_bias);
  m.up.dw = matrix(&a->dup);
  m.up.db = vector(&a->dup_bias);
  m.down.dw = matrix(&a->ddown);
  m.down.db = vector(&a->ddown_bias);
  TIGON_TRY(
      TIGON_COLLAPSE_PITCHES(context, &m.rows, {&a->x, &m.x_pitch}, {&a->dy, &m.dy_pitch}, {&a->dx, &m.dx_pitch}));
  unpack(&m);
  TIGON_TRY(lay_out(&m, true, a->workspace, a->workspace_bytes, least, good));
  return least ? TIGON_OK : tigon_mlp_run_bwd(&m);
}

TIGON_CALL_AND_RANGE_QUERY(mlp, fwd, forward)
TIGON_CALL_AND_RANGE_QUERY(mlp, bwd, backward)
