/* What both directions of fused_moe share: the order of slots, panels of it, and products of the experts of a panel. */
#ifndef TIGON_CPU_FUSED_MOE_H
#define TIGON_CPU_FUSED_MOE_H

#include "cpu/gate.h"
#include "cpu/gemm_builtin.h"
#include "cpu/simd_math.h"

typedef tigon_fused_moe_problem moe_problem;

enum {
  MOE_BLOCK = 256, /* rows of a partial sum, as a product's: an expert that goes on in the next panel has whole ones */
  MOE_LEAST_ROWS = MOE_BLOCK,    /* rows of a panel with the least workspace */
  MOE_GOOD_ROWS = 8 * MOE_BLOCK, /* rows of a panel beyond which more gain nothing */
  MOE_COLUMNS = 256,             /* columns of a task that goes over the rows of a panel */
};

/* What the workspace has, rows of a panel by position. */
typedef struct moe_memory {
  int64_t *order;  /* [slots] the slot of each position */
  int64_t *ends;   /* [experts + 1] where each one's positions end, and where all do */
  float *sums;     /* [tokens, cols] of y or dx; NULL: these are f32, and the sums themselves */
  char *x, *dy;    /* [rows, cols] of the slots' tokens */
  char *pre, *c;   /* [rows, 2 * inner], [rows, inner]: c, or w * c; backward: pre, then dpre */
  float *d;        /* [rows, inner] backward */
  float *out;      /* [rows, cols] z, or shares of dx */
  float *carry[4]; /* sums of dgate_up, ddown and the biases' gradients of an expert that goes on in the next panel */
  int64_t bytes;
} moe_memory;

/* A call, and its panel at work: positions [begin, end), of experts `first` to `last`. */
typedef struct moe_job {
  const tigon_queue *queue;
  const moe_problem *p;
  moe_memory at;
  int64_t rows;  /* the most rows of a panel */
  int64_t count; /* positions of experts */
  int64_t begin, end, first, last;
} moe_job;

/* The workspace of panels of `rows` positions. */
moe_memory TIGON_CPU(moe_layout)(const moe_problem *p, bool backward, int64_t rows);
/* Bytes, as the slot's query wants them. */
int64_t TIGON_CPU(moe_bytes)(const moe_problem *p, bool backward);

/* Sorts the slots. There is no panel at work yet. */
moe_job TIGON_CPU(moe_begin)(const tigon_queue *queue, const moe_problem *p, bool backward);
/* The next panel: whole experts that fit, or a piece of one. False past the last one. */
bool TIGON_CPU(moe_next)(moe_job *j);

/* Expert e's first position; a recorder's tensors have no data, and all experts count as equal there. */
static inline int64_t moe_expert_begin(const moe_job *j, int64_t e) {
  if (j->queue->record) return j->p->experts ? j->count * e / j->p->experts : 0;
  return e > 0 ? j->at.ends[e - 1] : 0;
}

/* The positions of one expert in the panel, `at` of them behind the panel's first. */
typedef struct moe_part {
  int64_t expert, at, rows;
  bool begins, ends; /* are the expert's first and last position among them? */
} moe_part;
static inline moe_part moe_part_of(const moe_job *j, int64_t e) {
  const int64_t from = moe_expert_begin(j, e), to = moe_expert_begin(j, e + 1);
  const int64_t begin = from > j->begin ? from : j->begin, end = to < j->end ? to : j->end;
  return (moe_part){e, begin - j->begin, end > begin ? end - begin : 0, begin == from, end == to};
}

/* Runs the product that `make` describes for each expert of the panel. */
void TIGON_CPU(moe_products)(const moe_job *j, tigon_gemm_problem (*make)(const moe_job *j, const moe_part *part));

/* Fills in x, and dy where there is memory for it. */
void TIGON_CPU(moe_gather)(const moe_job *j);
/* pre of the panel, to p->pre or to the workspace. */
void TIGON_CPU(moe_make_pre)(const moe_job *j);
/* Zeros in all sums; adds the rows of `out`, times w where `weighted`; rounds the sums to the rows of `to`. */
void TIGON_CPU(moe_clear_sums)(const moe_job *j, const tigon_rows *to);
void TIGON_CPU(moe_add_out)(const moe_job *j, const tigon_rows *to, bool weighted);
void TIGON_CPU(moe_store_sums)(const moe_job *j, const tigon_rows *to);

/* Expert e's matrix [n, k] as the factor b of rows [k] times its transpose, or of rows [n] times itself. */
static inline tigon_gemm_matrix moe_matrix(const tigon_expert_weights *m, int64_t e, bool transpose) {
  return (tigon_gemm_matrix){tigon_moe_matrix(m, tigon_dtype_size(m->dtype), e), m->dtype, m->pitch,
                             transpose != m->turned};
}

/* Row `at` of the panel's pre. */
static inline char *moe_pre_row(const moe_job *j, int64_t at) {
  const int64_t bytes = 2 * j->p->inner * (int64_t)tigon_dtype_size(j->p->dtype);
  return j->p->pre.data ? (char *)j->p->pre.data + (j->begin + at) * bytes : j->at.pre + at * bytes;
}

/* ---- the activation ---- */

/* n columns of the gate and of up from column i on, of a row of pre. */
typedef struct moe_gate {
  vf a, b;
} moe_gate;
TIGON_INLINE vf moe_load(const void *row, int64_t i, tigon_dtype dtype, int64_t n) {
  return n >= LANES ? v_load(row, i, dtype) : n > 0 ? v_load_n(row, i, dtype, (int)n) : vf_zero();
}
TIGON_INLINE void moe_store(void *row, int64_t i, tigon_dtype dtype, vf v, int64_t n) {
  if (n >= LANES)
    v_store(row, i, dtype, v);
  else if (n > 0)
    v_store_n(row, i, dtype, v, (int)n);
}
TIGON_INLINE moe_gate moe_load_gate(tigon_dtype dtype, const moe_problem *p, const void *row, int64_t i, int64_t n) {
  if (!p->interleaved) return (moe_gate){moe_load(row, i, dtype, n), moe_load(row, p->inner + i, dtype, n)};
  const vf2 turns = {moe_load(row, 2 * i, dtype, 2 * n), moe_load(row, 2 * i + LANES, dtype, 2 * n - LANES)};
  const vf2 apart = vf_split(turns);
  return (moe_gate){apart.a, apart.b};
}
TIGON_INLINE void moe_store_gate(tigon_dtype dtype, const moe_problem *p, void *row, int64_t i, moe_gate g, int64_t n) {
  if (!p->interleaved) {
    moe_store(row, i, dtype, g.a, n);
    moe_store(row, p->inner + i, dtype, g.b, n);
    return;
  }
  const vf2 turns = vf_zip((vf2){g.a, g.b});
  moe_store(row, 2 * i, dtype, turns.a, 2 * n);
  moe_store(row, 2 * i + LANES, dtype, turns.b, 2 * n - LANES);
}

/* act(u), and *slope. */
TIGON_INLINE vf moe_act_slope(tigon_moe_act act, vf u, vf *slope) {
  vf value;
  *slope = act == TIGON_MOE_SILU ? vf_silu_slope(u, &value) : vf_gelu_slope(false, u, &value);
  return value;
}

/* c of a gate and up. */
TIGON_INLINE vf moe_c(const moe_problem *p, moe_gate g) {
  const vf u = gate_argument(&p->numbers, g.a);
  const vf value = p->act == TIGON_MOE_SILU ? vf_silu(u) : vf_gelu(false, u);
  return vf_mul(vf_mul(value, vf_set(p->numbers.down_mult)), gate_up(&p->numbers, g.b));
}

/* c, and its slopes by a and b. */
TIGON_INLINE vf moe_c_slopes(const moe_problem *p, moe_gate g, moe_gate *slopes) {
  const tigon_map_numbers *k = &p->numbers;
  vf slope;
  const vf value = vf_mul(moe_act_slope(p->act, gate_argument(k, g.a), &slope), vf_set(k->down_mult));
  const vf up = gate_up(k, g.b);
  *slopes = (moe_gate){vf_mul(vf_mul(vf_set(k->down_mult * k->gate_mult), up), slope), value};
  return vf_mul(value, up);
}

/* The gradients of a gate and up: 0 where these were clamped. */
TIGON_INLINE moe_gate moe_unclamped(const moe_problem *p, moe_gate g, moe_gate gradients) {
  const vf clamp = vf_set(p->numbers.clamp);
  if (!(p->numbers.clamp > 0)) return gradients;
  return (moe_gate){vf_select(vf_lt(clamp, g.a), vf_zero(), gradients.a),
                    vf_select(vf_lt(clamp, vf_abs(g.b)), vf_zero(), gradients.b)};
}

#endif
