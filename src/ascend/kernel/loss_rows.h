/* The parts of divergences' kernels that concern a whole row: whether it counts, the factors of its loss and gradient, and its
 * loads and stores. */
#ifndef TIGON_ASCEND_KERNEL_LOSS_ROWS_H
#define TIGON_ASCEND_KERNEL_LOSS_ROWS_H

#include "ascend/kernel/cross_entropy.h"

enum { LOSS_STATS = 3 }; /* words a row */

/* A part of a kernel's arguments. Absent tensors are NULL. */
typedef struct loss_rows {
  label_rule rule;
  gm_ptr labels, token_scale, dloss; /* [rows], [rows] f32, [1] or [rows] f32 */
  gm_ptr inverse;                    /* [1] f32, of a mean with labels or a denominator */
  gm_ptr token_loss;                 /* out [rows] f32, of forward */
  gm_ptr stats;                      /* [rows, LOSS_STATS] f32: out in forward, in in backward */
  /* For a head. Forward writes the losses [rows] f32, without factors. hard_lse is its stats: log sum_v exp(x_v) of logits without a
   * temperature. */
  gm_ptr soft_losses, hard_losses, hard_lse;
  int64_t backward, gradient; /* gradient: one is asked for */
  int64_t dloss_rows;         /* one a row */
  int64_t panel_begin;        /* the class of column 0 */
  float soft, hard;           /* factors of the loss and of the labels' cross entropy */
  twofold grad, hard_grad;    /* what every gradient of either is multiplied by */
} loss_rows;

/* The same of a tile on chip, as words a row. */
typedef struct loss_words {
  ub_f32 labels, stats, token_scale, dloss, loss; /* labels: i32 or i64; stats [rows, LOSS_STATS] */
  ub_f32 soft_loss, hard_loss, hard_lse;
  float inverse;
} loss_words;

AICORE bool is_finite(float x) { return x - x == 0; }

/* `pitch`: rows of a tile, rounded up to 8. */
AICORE loss_words open_losses(ub_arena *ub, const loss_rows *a, int64_t pitch) {
  loss_words w = {.inverse = 1};
  w.labels = ub_alloc_f32(ub, a->labels ? index_words(a->rule.dtype) * pitch : 0);
  w.stats = ub_alloc_f32(ub, LOSS_STATS * pitch);
  w.token_scale = ub_alloc_f32(ub, pitch);
  w.dloss = ub_alloc_f32(ub, pitch);
  w.loss = ub_alloc_f32(ub, pitch);
  w.soft_loss = ub_alloc_f32(ub, a->soft_losses ? pitch : 0);
  w.hard_loss = ub_alloc_f32(ub, a->hard_losses ? pitch : 0);
  w.hard_lse = ub_alloc_f32(ub, a->hard_lse ? pitch : 0);
  if (a->inverse && a->gradient) {
    load_f32(w.stats, a->inverse, 1, 1);
    scalar_after_loads();
    w.inverse = s_read_f32(w.stats, 0);
  }
  return w;
}

AICORE void load_losses(const loss_rows *a, const loss_words *w, int64_t r, int64_t rows) {
  const int64_t words = index_words(a->rule.dtype);
  loads_after_scalar();
  if (a->labels) load_f32(w->labels, a->labels + r * words * 4, 1, rows * words);
  if (a->token_scale) load_f32(w->token_scale, a->token_scale + r * 4, 1, rows);
  if (a->dloss) load_f32(w->dloss, a->dloss + (a->dloss_rows ? r * 4 : 0), 1, a->dloss_rows ? rows : 1);
  if (a->backward) load_f32(w->stats, a->stats + r * LOSS_STATS * 4, 1, rows * LOSS_STATS);
  if (a->backward && a->hard_lse) load_f32(w->hard_lse, a->hard_lse + r * 4, 1, rows);
  scalar_after_loads();
}
AICORE void store_losses(const loss_rows *a, const loss_words *w, int64_t r, int64_t rows) {
  stores_after_scalar();
  store_f32(a->token_loss + r * 4, w->loss, 1, rows);
  if (a->stats) store_f32(a->stats + r * LOSS_STATS * 4, w->stats, 1, rows * LOSS_STATS);
  if (a->soft_losses) store_f32(a->soft_losses + r * 4, w->soft_loss, 1, rows);
  if (a->hard_losses) store_f32(a->hard_losses + r * 4, w->hard_loss, 1, rows);
  if (a->hard_lse) store_f32(a->hard_lse + r * 4, w->hard_lse, 1, rows);
  scalar_after_stores();
}

AICORE bool row_counts(const loss_rows *a, const loss_words *w, int64_t i) {
  bool out_of_range;
  return !a->labels || s_read_label(&a->rule, w->labels, i, &out_of_range) >= 0;
}

/* The column of row i's class, where the cross entropy asks for it; -1 where no one of `cols` is. */
AICORE int64_t class_column(const loss_rows *a, const loss_words *w, int64_t i, int64_t cols) {
  bool out_of_range;
  const int64_t label = a->hard != 0 ? s_read_label(&a->rule, w->labels, i, &out_of_range) : -1;
  const int64_t column = label - a->panel_begin;
  return label >= 0 && column >= 0 && column < cols ? column : -1;
}

/* Row i's losses, of which both are without factors. */
AICORE void set_losses(const loss_rows *a, const loss_words *w, int64_t i, twofold soft, twofold hard) {
  twofold loss = twofold_times(soft, a->soft);
  if (a->hard != 0) loss = twofold_sum(loss, twofold_times(hard, a->hard));
  if (a->token_scale) loss = twofold_times(loss, s_read_f32(w->token_scale, i));
  s_write_f32(w->loss, i, loss.hi);
  if (a->soft_losses) s_write_f32(w->soft_loss, i, soft.hi);
  if (a->hard_losses) s_write_f32(w->hard_loss, i, hard.hi);
}

/* What row i's gradient is multiplied by, `grad` or hard_grad. */
AICORE twofold row_factor(const loss_rows *a, const loss_words *w, int64_t i, twofold grad) {
  twofold by = twofold_times(grad, w->inverse);
  if (a->dloss) by = twofold_times(by, s_read_f32(w->dloss, a->dloss_rows ? i : 0));
  return a->token_scale ? twofold_times(by, s_read_f32(w->token_scale, i)) : by;
}

#endif
