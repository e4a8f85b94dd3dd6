/* fused_moe backward, panel by panel: d, then c, dw and dpre of every slot, then the experts' gradients and the slots' shares of dx.
 * An expert that goes on in the next panel has f32 sums, so that its gradients are rounded once. */
#include <string.h>

#include "cpu/fused_moe.h"

int64_t TIGON_CPU(fused_moe_bwd_bytes)(tigon_queue *queue, const moe_problem *p) {
  (void)queue;
  return TIGON_CPU(moe_bytes)(p, true);
}

/* ---- products ---- */

static int64_t size_of(const moe_job *j) { return (int64_t)tigon_dtype_size(j->p->dtype); }
/* Rows [part->rows, cols] of a panel's memory. */
static tigon_gemm_matrix rows_of(const moe_job *j, const moe_part *part, const void *data, int64_t cols,
                                 bool transposed) {
  return (tigon_gemm_matrix){(const char *)data + part->at * cols * size_of(j), j->p->dtype, cols, transposed};
}

static tigon_gemm_problem d_of(const moe_job *j, const moe_part *part) {
  const moe_problem *p = j->p;
  return (tigon_gemm_problem){.m = part->rows,
                              .n = p->inner,
                              .k = p->cols,
                              .a = rows_of(j, part, j->at.dy, p->cols, false),
                              .b = moe_matrix(&p->down, part->expert, false),
                              .c = j->at.d + part->at * p->inner,
                              .c_dtype = TIGON_F32,
                              .c_pitch = p->inner};
}

static tigon_gemm_problem dx_of(const moe_job *j, const moe_part *part) {
  const moe_problem *p = j->p;
  return (tigon_gemm_problem){.m = part->rows,
                              .n = p->cols,
                              .k = 2 * p->inner,
                              .a = rows_of(j, part, j->at.pre, 2 * p->inner, false),
                              .b = moe_matrix(&p->gate_up, part->expert, false),
                              .c = j->at.out + part->at * p->cols,
                              .c_dtype = TIGON_F32,
                              .c_pitch = p->cols};
}

/* The gradient of `to` [n, k] from rows of n columns times rows of k columns. Until an expert ends, `carry` has its sums, or its
 * gradient where there is none. */
static tigon_gemm_problem gradient_of(const moe_job *j, const moe_part *part, const tigon_expert_weights *to,
                                      float *carry, const void *left, int64_t n, const void *right, int64_t k) {
  tigon_gemm_problem g = {
      .m = to->turned ? k : n,
      .n = to->turned ? n : k,
      .k = part->rows,
      .a = rows_of(j, part, to->turned ? right : left, to->turned ? k : n, true),
      .b = rows_of(j, part, to->turned ? left : right, to->turned ? n : k, false),
      .c = tigon_moe_matrix(to, tigon_dtype_size(to->dtype), part->expert),
      .c_dtype = to->dtype,
      .c_pitch = to->pitch,
      .accumulate = carry || part->begins ? j->p->accumulate : true,
      .mirrored = to->turned,
  };
  if (carry && part->ends && !part->begins) g.sums = carry;
  if (carry && !part->ends) {
    g.c = carry;
    g.c_dtype = TIGON_F32;
    g.c_pitch = g.n;
    g.accumulate = !part->begins;
  }
  return g;
}
static tigon_gemm_problem dgate_up_of(const moe_job *j, const moe_part *part) {
  const moe_problem *p = j->p;
  return gradient_of(j, part, &p->dgate_up, j->at.carry[0], j->at.pre, 2 * p->inner, j->at.x, p->cols);
}
static tigon_gemm_problem ddown_of(const moe_job *j, const moe_part *part) {
  const moe_problem *p = j->p;
  return gradient_of(j, part, &p->ddown, j->at.carry[1], j->at.dy, p->cols, j->at.c, p->inner);
}

typedef tigon_gemm_problem make_product(const moe_job *j, const moe_part *part);

/* An expert of several panels has a product for each block of its rows, as one product would add them up. */
static void in_blocks(const moe_job *j, const moe_part *part, make_product *make) {
  for (int64_t at = 0; at < part->rows; at += MOE_BLOCK) {
    const int64_t rows = part->rows - at < MOE_BLOCK ? part->rows - at : MOE_BLOCK;
    const bool begins = part->begins && at == 0, ends = part->ends && at + rows == part->rows;
    const tigon_gemm_problem g = make(j, &(moe_part){part->expert, part->at + at, rows, begins, ends});
    TIGON_CPU(gemm)(j->queue, &g, 1);
  }
}

/* The gradients of the panel's experts, of which the first and the last one may have rows in other panels. */
static void gradients(const moe_job *j, make_product *make) {
  moe_job whole = *j;
  const moe_part first = moe_part_of(j, j->first), last = moe_part_of(j, j->last - 1);
  if (!first.begins || !first.ends) in_blocks(j, &first, make), ++whole.first;
  if (last.expert != first.expert && !last.ends) in_blocks(j, &last, make), --whole.last;
  TIGON_CPU(moe_products)(&whole, make);
}

/* ---- slots ---- */

typedef struct slot_job {
  const moe_job *j;
  int64_t tasks;
} slot_job;

enum { BLOCK = 128 * LANES /* columns of one f32 partial sum */ };

/* The sum of dy * bias over the columns. */
TIGON_INLINE double bias_share(tigon_dtype dtype, tigon_dtype bias_dtype, const void *dy, const void *bias,
                               int64_t cols) {
  double total = 0;
  for (int64_t block = 0; block < cols; block += BLOCK) {
    const int64_t end = cols - block < BLOCK ? cols : block + BLOCK;
    vf sum = vf_zero();
    for (int64_t c = block; c < end; c += LANES)
      sum = vf_fma(moe_load(dy, c, dtype, end - c), moe_load(bias, c, bias_dtype, end - c), sum);
    total += (double)vf_sum(sum);
  }
  return total;
}

/* w * c, dpre and the sum of d * c of row i. */
TIGON_INLINE double slot_row(tigon_dtype dtype, const moe_job *j, int64_t i, float weight) {
  const moe_problem *p = j->p;
  const char *pre = moe_pre_row(j, i);
  char *dpre = j->at.pre + 2 * i * p->inner * v_size(dtype), *c = j->at.c + i * p->inner * v_size(dtype);
  const float *d = j->at.d + i * p->inner;
  const vf w = vf_set(weight);
  double total = 0;
  for (int64_t block = 0; block < p->inner; block += BLOCK) {
    const int64_t end = p->inner - block < BLOCK ? p->inner : block + BLOCK;
    vf sum = vf_zero();
    for (int64_t k = block; k < end; k += LANES) {
      const int64_t n = end - k;
      moe_gate slopes;
      const moe_gate g = moe_load_gate(dtype, p, pre, k, n);
      const vf value = moe_c_slopes(p, g, &slopes);
      const vf dk = moe_load(d, k, TIGON_F32, n), dc = vf_mul(w, dk);
      sum = vf_fma(dk, value, sum); /* c of columns beyond the end is 0 */
      moe_store(c, k, dtype, vf_mul(w, value), n);
      const moe_gate gradients = {vf_mul(dc, slopes.a), vf_mul(dc, slopes.b)};
      moe_store_gate(dtype, p, dpre, k, moe_unclamped(p, g, gradients), n);
    }
    total += (double)vf_sum(sum);
  }
  return total;
}

TIGON_INLINE void slot_rows(tigon_dtype dtype, const moe_job *j, const moe_part *part, int64_t begin, int64_t end) {
  const moe_problem *p = j->p;
  const tigon_vector *bias = &p->down_bias;
  const bool has_bias = bias->data && p->dw.data && !p->weight_before_down;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t slot = j->at.order[j->begin + i];
    const char *dy = j->at.dy + i * p->cols * v_size(dtype);
    double dw = slot_row(dtype, j, i, s_load(p->w.data, slot, p->w.dtype));
    if (has_bias && bias->dtype == TIGON_F32)
      dw += bias_share(dtype, TIGON_F32, dy, (const float *)bias->data + part->expert * p->cols, p->cols);
    else if (has_bias)
      dw += bias_share(dtype, dtype, dy, (const uint16_t *)bias->data + part->expert * p->cols, p->cols);
    if (p->dw.data) s_store(p->dw.data, slot, p->dw.dtype, (float)dw);
  }
}
static void slot_task(const void *argument, int64_t index) {
  const slot_job *s = argument;
  const moe_job *j = s->j;
  int64_t begin, end;
  tigon_range(j->end - j->begin, s->tasks, index, &begin, &end);
  for (int64_t e = j->first; e < j->last; ++e) {
    const moe_part part = moe_part_of(j, e);
    const int64_t from = part.at > begin ? part.at : begin, past = part.at + part.rows;
    if (part.rows > 0) TIGON_FOR_DTYPE(j->p->dtype, slot_rows, j, &part, from, past < end ? past : end);
  }
}

/* ---- biases ---- */

/* A bias whose gradient is the sum of rows [rows, cols], times w where `weighted`. */
typedef struct bias_job {
  const moe_job *j;
  const tigon_vector *to;
  float *carry;
  const char *rows;
  int64_t cols;
  bool weighted;
} bias_job;

TIGON_INLINE void sum_rows(tigon_dtype dtype, const bias_job *b, const moe_part *part, int64_t c0, int64_t n,
                           float *total) {
  const moe_job *j = b->j;
  for (int64_t r0 = 0; r0 < part->rows; r0 += MOE_BLOCK) {
    float sum[MOE_COLUMNS] = {0};
    const int64_t end = part->rows - r0 < MOE_BLOCK ? part->rows : r0 + MOE_BLOCK;
    for (int64_t r = r0; r < end; ++r) {
      const int64_t i = part->at + r;
      const vf w = vf_set(b->weighted ? s_load(j->p->w.data, j->at.order[j->begin + i], j->p->w.dtype) : 1);
      for (int64_t c = 0; c < n; c += LANES)
        vf_store(sum + c, vf_fma(w, moe_load(b->rows, i * b->cols + c0 + c, dtype, n - c), vf_load(sum + c)));
    }
    for (int64_t c = 0; c < n; ++c) total[c] += sum[c];
  }
}

/* A range of columns of all experts of the panel. */
static void bias_task(const void *argument, int64_t index) {
  const bias_job *b = argument;
  const moe_job *j = b->j;
  const int64_t c0 = index * MOE_COLUMNS, n = b->cols - c0 < MOE_COLUMNS ? b->cols - c0 : MOE_COLUMNS;
  for (int64_t e = j->first; e < j->last; ++e) {
    const moe_part part = moe_part_of(j, e);
    const int64_t at = e * b->cols + c0;
    float total[MOE_COLUMNS] = {0};
    if (part.rows == 0) continue;
    if (!part.begins) memcpy(total, b->carry + c0, (size_t)n * sizeof *total);
    TIGON_FOR_DTYPE(j->p->dtype, sum_rows, b, &part, c0, n, total);
    if (!part.ends) memcpy(b->carry + c0, total, (size_t)n * sizeof *total);
    for (int64_t c = 0; part.ends && c < n; ++c) {
      const float old = j->p->accumulate ? s_load(b->to->data, at + c, b->to->dtype) : 0;
      s_store(b->to->data, at + c, b->to->dtype, total[c] + old);
    }
  }
}

static void bias_gradient(const bias_job *b) {
  if (b->to->data) tigon_cpu_parallel(b->j->queue, (b->cols + MOE_COLUMNS - 1) / MOE_COLUMNS, bias_task, b);
}

/* ---- what has no slot ---- */

static void clear_matrix(const tigon_expert_weights *m, int64_t e, int64_t n, int64_t k) {
  const int64_t size = (int64_t)tigon_dtype_size(m->dtype), rows = m->turned ? k : n, cols = m->turned ? n : k;
  char *at = tigon_moe_matrix(m, (size_t)size, e);
  for (int64_t i = 0; at && i < rows; ++i) memset(at + i * m->pitch * size, 0, (size_t)(cols * size));
}
static void clear_vector(tigon_vector v, int64_t e, int64_t n) {
  const int64_t size = (int64_t)tigon_dtype_size(v.dtype);
  if (v.data) memset((char *)v.data + e * n * size, 0, (size_t)(n * size));
}

/* The gradients of expert `e`, where it has no slot; after the last expert the dw of slots that have no expert. */
static void clear_task(const void *argument, int64_t e) {
  const moe_job *j = argument;
  const moe_problem *p = j->p;
  if (e == p->experts) {
    for (int64_t i = j->count; p->dw.data && i < tigon_moe_slots(p); ++i)
      s_store(p->dw.data, j->at.order[i], p->dw.dtype, 0);
  } else if (!p->accumulate && moe_expert_begin(j, e) == moe_expert_begin(j, e + 1)) {
    clear_matrix(&p->dgate_up, e, 2 * p->inner, p->cols);
    clear_matrix(&p->ddown, e, p->cols, p->inner);
    clear_vector(p->dgate_up_bias, e, 2 * p->inner);
    clear_vector(p->ddown_bias, e, p->cols);
  }
}

tigon_status TIGON_CPU(fused_moe_bwd)(tigon_queue *queue, const moe_problem *p) {
  moe_job j = TIGON_CPU(moe_begin)(queue, p, true);
  tigon_cpu_parallel(queue, p->experts + 1, clear_task, &j);
  if (p->dx.data) TIGON_CPU(moe_clear_sums)(&j, &p->dx);
  while (TIGON_CPU(moe_next)(&j)) {
    const slot_job s = {&j, tigon_cpu_row_tasks(j.end - j.begin, 6 * p->inner * (int64_t)sizeof(float))};
    TIGON_CPU(moe_gather)(&j);
    if (!p->pre.data) TIGON_CPU(moe_make_pre)(&j);
    TIGON_CPU(moe_products)(&j, d_of);
    tigon_cpu_parallel(queue, s.tasks, slot_task, &s);
    if (p->dgate_up.data) gradients(&j, dgate_up_of);
    if (p->ddown.data) gradients(&j, ddown_of);
    bias_gradient(&(bias_job){&j, &p->dgate_up_bias, j.at.carry[2], j.at.pre, 2 * p->inner, false});
    bias_gradient(&(bias_job){&j, &p->ddown_bias, j.at.carry[3], j.at.dy, p->cols, !p->weight_before_down});
    if (!p->dx.data) continue;
    TIGON_CPU(moe_products)(&j, dx_of);
    TIGON_CPU(moe_add_out)(&j, &p->dx, false);
  }
  if (p->dx.data) TIGON_CPU(moe_store_sums)(&j, &p->dx);
  return TIGON_OK;
}
