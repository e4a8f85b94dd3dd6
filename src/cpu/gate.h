/* c = act(a) * b and its gradients, for swiglu and geglu, and what else is a function of one or two elements: the bits
 * of an element do not depend on where it lies in a row or in a task. f32 takes the exact functions of simd_math.h,
 * 16-bit dtypes the cheaper ones, whose error is far below their rounding. */
#ifndef TIGON_CPU_GATE_H
#define TIGON_CPU_GATE_H

#include "cpu/kernels.h"
#include "cpu/pair.h"
#include "cpu/simd_math.h"

enum {
  PIECE = 16384,       /* elements of a task at least, a multiple of any line */
  PIECES = 64,         /* tasks of a call, before they get larger ... */
  LONGEST = 8 * PIECE, /* ... up to this many elements, where a thread streams as fast as it can */
  BLOCK = 512,         /* elements, a multiple of STEP, whose exponentials lie in the L1 */
  AHEAD = 4096,        /* bytes: the arithmetic is too long for the loads behind it to hide the memory's latency */
  NEAR = 1024,         /* bytes, beside an exponential */
};

/* RELU_SQUARED is of a alone: b is not read. RELU_TWICE is its slope, 2 relu(a). */
typedef enum activation { SILU, GELU_TANH, GELU_ERF, RELU_SQUARED, RELU_TWICE } activation;

/* Constant in a sweep; `plain`: factors of 1 and no clamp. */
typedef struct gate {
  activation act;
  bool plain;
  float gate, down, clamp;
} gate;

/* ---- one vector ---- */

/* Its argument is `u`; 16-bit dtypes have its exponential already. */
TIGON_INLINE vf activation_exp(activation act, vf u) {
  return act == SILU ? silu_exp_16(u) : act == GELU_ERF ? gelu_erf_exp_16(u) : gelu_tanh_exp_16(u);
}
TIGON_INLINE vf activate(tigon_dtype dtype, activation act, vf u, vf e) {
  if (dtype == TIGON_F32) return act == SILU ? vf_silu(u) : vf_gelu(act == GELU_ERF, u);
  return act == SILU ? silu_16(u, e) : act == GELU_ERF ? gelu_erf_16(u, e) : gelu_tanh_16(u, e);
}
/* The slope, and *value. */
TIGON_INLINE vf activate_slope(tigon_dtype dtype, activation act, vf u, vf e, vf *value) {
  if (dtype == TIGON_F32) return act == SILU ? vf_silu_slope(u, value) : vf_gelu_slope(act == GELU_ERF, u, value);
  if (act == SILU) return silu_slope_16(u, e, value);
  return act == GELU_ERF ? gelu_erf_slope_16(u, e, value) : gelu_tanh_slope_16(u, e, value);
}

/* vf_min and vf_max return their second operand when that is NaN. */
TIGON_INLINE vf clamp_gate(vf a, const gate *k) { return k->clamp > 0 ? vf_min(vf_set(k->clamp), a) : a; }
TIGON_INLINE vf clamp_up(vf b, const gate *k) {
  return k->clamp > 0 ? vf_min(vf_set(k->clamp), vf_max(vf_set(-k->clamp), b)) : b;
}

TIGON_INLINE vf gate_input(vf a, const gate *k) { return k->plain ? a : vf_mul(clamp_gate(a, k), vf_set(k->gate)); }

TIGON_INLINE vf forward(tigon_dtype dtype, vf a, vf b, vf e, const gate *k) {
  if (k->act == RELU_SQUARED) return vf_mul(vf_max(vf_zero(), a), vf_max(vf_zero(), a));
  /* Twice the product, because twice a factor may overflow. */
  if (k->act == RELU_TWICE) return vf_mul(vf_mul(vf_max(vf_zero(), a), b), vf_set(2.0f));
  const vf v = activate(dtype, k->act, gate_input(a, k), e);
  return k->plain ? vf_mul(v, b) : vf_mul(vf_mul(v, vf_set(k->down)), clamp_up(b, k));
}

/* da in a, db in b. */
TIGON_INLINE vf2 backward(tigon_dtype dtype, vf dc, vf a, vf b, vf e, const gate *k) {
  const vf d = k->plain ? dc : vf_mul(dc, vf_set(k->down)), up = k->plain ? b : clamp_up(b, k);
  vf v;
  const vf slope = activate_slope(dtype, k->act, gate_input(a, k), e, &v);
  vf2 out = {vf_mul(vf_mul(d, up), slope), vf_mul(d, v)};
  if (k->plain) return out;
  out.a = vf_mul(out.a, vf_set(k->gate));
  if (!(k->clamp > 0)) return out;
  const vf limit = vf_set(k->clamp);
  return (vf2){vf_select(vf_lt(limit, a), vf_zero(), out.a), vf_select(vf_lt(limit, vf_abs(b)), vf_zero(), out.b)};
}

/* ---- a block of elements: the exponentials first, then the rest ---- */

TIGON_INLINE bool has_exp(tigon_dtype dtype, activation act) {
  return dtype != TIGON_F32 && act != RELU_SQUARED && act != RELU_TWICE;
}
/* Loops beside an exponential are bound by arithmetic, and a line that has still to come from the L2 costs them time. */
TIGON_INLINE void prefetch_ahead(const void *data, int64_t i, tigon_dtype dtype, bool exp) {
  if (exp)
    vf_prefetch((const char *)data + i * v_size(dtype) + NEAR);
  else
    v2_prefetch((const char *)data + AHEAD, i, dtype);
}
/* `coarse`: for silu in bf16, which is sure of 8 bits of a plain factor; slopes cancel and are not. */
TIGON_INLINE void exp_block(tigon_dtype dtype, const void *a, int64_t i, int64_t end, const gate *k, bool coarse,
                            bool stream, float *e) {
  for (; i < end; i += STEP, e += STEP) {
    const int n = end - i < STEP ? (int)(end - i) : STEP;
    if (stream) prefetch_ahead(a, i, dtype, true);
    if (coarse) {
      const vf2 u = vf_load2_bf16_within((const uint16_t *)a + i, n, -110.0f, 20.75f);
      vf_store(e, silu_exp_bf16(u.a));
      vf_store(e + LANES, silu_exp_bf16(u.b));
    } else {
      const vf2 x = v2_load(a, i, dtype, n);
      vf_store(e, activation_exp(k->act, gate_input(x.a, k)));
      vf_store(e + LANES, activation_exp(k->act, gate_input(x.b, k)));
    }
  }
}
TIGON_INLINE vf2 exp_at(tigon_dtype dtype, activation act, const float *e, int64_t i) {
  return has_exp(dtype, act) ? (vf2){vf_load(e + i), vf_load(e + i + LANES)} : v2_set(0);
}

/* Elements before `data` is aligned for streaming. */
TIGON_INLINE int64_t head_of(const void *data, tigon_dtype dtype, int64_t n) {
  const int64_t head = (int64_t)(-(uintptr_t)data % V_LINE) / v_size(dtype);
  return head < n ? head : n;
}

TIGON_INLINE void fwd_step(tigon_dtype dtype, const void *a, const void *b, void *c, int64_t i, int n, vf2 e,
                           const gate *k, bool stream) {
  const bool alone = k->act == RELU_SQUARED;
  const vf2 x = v2_load(a, i, dtype, n), y = alone ? x : v2_load(b, i, dtype, n);
  const bool exp = has_exp(dtype, k->act);
  if (stream && !exp) prefetch_ahead(a, i, dtype, false);
  if (stream && !alone) prefetch_ahead(b, i, dtype, exp);
  v2_put(c, i, dtype, (vf2){forward(dtype, x.a, y.a, e.a, k), forward(dtype, x.b, y.b, e.b, k)}, n, stream,
         alone ? V_OWN : V_RARE);
}

TIGON_INLINE void fwd_block(tigon_dtype dtype, const void *a, const void *b, void *c, int64_t first, int64_t end,
                            const gate *k, bool stream) {
  float e[BLOCK];
  const bool coarse = dtype == TIGON_BF16 && k->act == SILU && k->plain;
  if (has_exp(dtype, k->act)) exp_block(dtype, a, first, end, k, coarse, stream, e);
  int64_t i = first;
  for (; i + STEP <= end; i += STEP) fwd_step(dtype, a, b, c, i, STEP, exp_at(dtype, k->act, e, i - first), k, stream);
  if (i < end) fwd_step(dtype, a, b, c, i, (int)(end - i), exp_at(dtype, k->act, e, i - first), k, false);
}

TIGON_INLINE void fwd_sweep(tigon_dtype dtype, const void *a, const void *b, void *c, int64_t n, const gate *k,
                            bool stream) {
  int64_t i = stream ? head_of(c, dtype, n) : 0;
  if (i > 0) fwd_block(dtype, a, b, c, 0, i, k, false);
  for (; i < n; i += BLOCK) fwd_block(dtype, a, b, c, i, n - i < BLOCK ? n : i + BLOCK, k, stream);
}

TIGON_INLINE void bwd_step(tigon_dtype dtype, const void *dc, const void *a, const void *b, void *da, void *db,
                           int64_t i, int n, vf2 e, const gate *k, bool stream) {
  const vf2 g = v2_load(dc, i, dtype, n), x = v2_load(a, i, dtype, n), y = v2_load(b, i, dtype, n);
  if (stream) {
    const bool exp = has_exp(dtype, k->act);
    prefetch_ahead(dc, i, dtype, exp);
    if (!exp) prefetch_ahead(a, i, dtype, false);
    prefetch_ahead(b, i, dtype, exp);
  }
  const vf2 p = backward(dtype, g.a, x.a, y.a, e.a, k), q = backward(dtype, g.b, x.b, y.b, e.b, k);
  v2_put(da, i, dtype, (vf2){p.a, q.a}, n, stream, V_RARE);
  v2_put(db, i, dtype, (vf2){p.b, q.b}, n, stream, V_RARE);
}

TIGON_INLINE void bwd_block(tigon_dtype dtype, const void *dc, const void *a, const void *b, void *da, void *db,
                            int64_t first, int64_t end, const gate *k, bool stream) {
  float e[BLOCK];
  if (has_exp(dtype, k->act)) exp_block(dtype, a, first, end, k, false, stream, e);
  int64_t i = first;
  for (; i + STEP <= end; i += STEP)
    bwd_step(dtype, dc, a, b, da, db, i, STEP, exp_at(dtype, k->act, e, i - first), k, stream);
  if (i < end) bwd_step(dtype, dc, a, b, da, db, i, (int)(end - i), exp_at(dtype, k->act, e, i - first), k, false);
}

TIGON_INLINE void bwd_sweep(tigon_dtype dtype, const void *dc, const void *a, const void *b, void *da, void *db,
                            int64_t n, const gate *k, bool stream) {
  int64_t i = stream ? head_of(da, dtype, n) : 0;
  if (i > 0) bwd_block(dtype, dc, a, b, da, db, 0, i, k, false);
  for (; i < n; i += BLOCK) bwd_block(dtype, dc, a, b, da, db, i, n - i < BLOCK ? n : i + BLOCK, k, stream);
}

/* ---- tasks: a few rows each, or a range of columns of a long row ---- */

typedef struct pieces {
  int64_t rows, cols; /* of a piece at most */
  int64_t across;     /* pieces side by side */
  int64_t tasks;
} pieces;

static inline pieces cut(int64_t rows, int64_t cols) {
  const int64_t fair = rows * cols / PIECES / PIECE * PIECE;
  const int64_t most = fair < PIECE ? PIECE : fair < LONGEST ? fair : LONGEST;
  pieces p = {.rows = cols < most ? most / cols : 1, .cols = cols < most ? cols : most};
  p.across = (cols + p.cols - 1) / p.cols;
  p.tasks = (rows + p.rows - 1) / p.rows * p.across;
  return p;
}

static inline tigon_box piece_at(const pieces *p, int64_t rows, int64_t cols, int64_t index) {
  tigon_box box = {.row_begin = index / p->across * p->rows, .col_begin = index % p->across * p->cols};
  box.row_end = rows - box.row_begin < p->rows ? rows : box.row_begin + p->rows;
  box.col_end = cols - box.col_begin < p->cols ? cols : box.col_begin + p->cols;
  return box;
}

/* Rows that lie end to end in all tensors become one. */
static inline void flatten(const tigon_rows *const *t, int count, tigon_row_space *space, int64_t *cols) {
  if (space->inner != space->rows) return;
  for (int i = 0; i < count; ++i)
    if (t[i]->pitch[2] != *cols && space->rows != 1) return;
  *cols *= space->rows;
  *space = (tigon_row_space){1, 1, 1};
}

TIGON_INLINE char *at(const tigon_row_space *space, const tigon_rows *t, tigon_dtype dtype, int64_t row, int64_t col) {
  return (char *)t->data + (tigon_row_offset(space, t, row) + col) * v_size(dtype);
}

/* ---- calls ---- */

typedef struct fwd {
  tigon_gate_fwd_problem p;
  pieces pieces;
  bool stream;
} fwd;

TIGON_INLINE void fwd_rows(tigon_dtype dtype, const fwd *f, const tigon_box *box, const gate *k, bool stream) {
  const tigon_gate_fwd_problem *p = &f->p;
  for (int64_t r = box->row_begin; r < box->row_end; ++r)
    fwd_sweep(dtype, at(&p->space, &p->a, dtype, r, box->col_begin), at(&p->space, &p->b, dtype, r, box->col_begin),
              at(&p->space, &p->c, dtype, r, box->col_begin), box->col_end - box->col_begin, k, stream);
  if (stream) vf_fence();
}

/* The usual calls, factors of 1, have a loop for each kind of store. */
TIGON_INLINE void fwd_plain(tigon_dtype dtype, activation act, const fwd *f, const tigon_box *box) {
  const gate k = {.act = act, .plain = true};
  if (f->stream)
    fwd_rows(dtype, f, box, &k, true);
  else
    fwd_rows(dtype, f, box, &k, false);
}

/* Runs task(f, index of a piece); `streams` tensors are read or written. */
TIGON_INLINE tigon_status fwd_run(tigon_queue *queue, const tigon_gate_fwd_problem *problem, int streams,
                                  void (*task)(const void *f, int64_t index)) {
  fwd f = {.p = *problem};
  tigon_gate_fwd_problem *p = &f.p;
  f.stream = tigon_cpu_streams(streams * p->space.rows * p->cols * (int64_t)tigon_dtype_size(p->dtype));
  const tigon_rows *const all[] = {&p->a, &p->b, &p->c};
  flatten(all, 3, &p->space, &p->cols);
  f.pieces = cut(p->space.rows, p->cols);
  tigon_cpu_parallel(queue, f.pieces.tasks, task, &f);
  return TIGON_OK;
}

typedef struct bwd {
  tigon_gate_bwd_problem p;
  pieces pieces;
  bool stream;
} bwd;

TIGON_INLINE void bwd_rows(tigon_dtype dtype, const bwd *f, const tigon_box *box, const gate *k) {
  const tigon_gate_bwd_problem *p = &f->p;
  const int64_t col = box->col_begin, n = box->col_end - col;
  for (int64_t r = box->row_begin; r < box->row_end; ++r) {
    const void *dc = at(&p->space, &p->dc, dtype, r, col), *a = at(&p->space, &p->a, dtype, r, col);
    const void *b = at(&p->space, &p->b, dtype, r, col);
    char *da = at(&p->space, &p->da, dtype, r, col), *db = at(&p->space, &p->db, dtype, r, col);
    if (f->stream && ((uintptr_t)da - (uintptr_t)db) % V_LINE == 0)
      bwd_sweep(dtype, dc, a, b, da, db, n, k, true);
    else
      bwd_sweep(dtype, dc, a, b, da, db, n, k, false);
  }
  if (f->stream) vf_fence();
}

TIGON_INLINE tigon_status bwd_run(tigon_queue *queue, const tigon_gate_bwd_problem *problem,
                                  void (*task)(const void *f, int64_t index)) {
  bwd f = {.p = *problem};
  tigon_gate_bwd_problem *p = &f.p;
  f.stream = tigon_cpu_streams(5 * p->space.rows * p->cols * (int64_t)tigon_dtype_size(p->dtype));
  const tigon_rows *const all[] = {&p->dc, &p->a, &p->b, &p->da, &p->db};
  flatten(all, 5, &p->space, &p->cols);
  f.pieces = cut(p->space.rows, p->cols);
  tigon_cpu_parallel(queue, f.pieces.tasks, task, &f);
  return TIGON_OK;
}

#endif
