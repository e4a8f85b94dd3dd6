/* Rows of a tile on the scalar pipe: from what the vector pipe has found of each to its outputs and to the numbers that make its
 * gradient. */
#ifndef TIGON_ASCEND_KERNEL_CROSS_ENTROPY_ROW_H
#define TIGON_ASCEND_KERNEL_CROSS_ENTROPY_ROW_H

#include "ascend/kernel/cross_entropy.h"

static const float exp_low = -87.33654f; /* e^x counts as 0 below it */

AICORE bool has_entropy_gradient(const cross_entropy_arguments *a) { return a->entropy_scale.hi != 0; }

/* A word for each row of a tile. */
typedef enum row_word {
  LARGEST,   /* x met so far */
  REFERENCE, /* finite, of the sums of e^(z - reference); where the lse is not finite, and in backward, the lse */
  PART,      /* a chunk's part */
  SUM,       /* sum of e^(z - reference) */
  MOMENT,    /* sum of e^(z - reference) * (z - reference) */
  WEIGHTED,  /* sum of weight * z */
  COLUMN,    /* i32: the first of the largest x */
  LOG_SUM,
  LABEL_X,
  LABEL_Z, /* and the rest of it, and the slope there */
  LABEL_Z_LOW,
  LABEL_SLOPE,
  LABEL_SLOPE_LOW,
  LABEL_EXP, /* e^(z - reference) */
  SCALE,     /* what e^(z - reference) is multiplied by; with smoothing, before the weights are taken away */
  SHARE,     /* with smoothing, what that is multiplied by */
  BY,        /* the gradient in the loss of the row */
  BY_LOW,
  FACTOR,        /* factor of the label's probability */
  ENTROPY_TIMES, /* the entropy's gradient is e^d * (d * times + plus), d being z - reference */
  ENTROPY_PLUS,
  TOKEN_SCALE,
  DLOSS,
  DENTROPY,
  OUT_LSE, /* in backward the lse that was loaded, and so the entropy */
  OUT_LOSS,
  OUT_Z_LOSS,
  OUT_ENTROPY,
  ROW_WORDS,
} row_word;

typedef struct row_words {
  const cross_entropy_arguments *a;
  ub_f32 words, labels, weights, argmax; /* [ROW_WORDS, pitch]; i32 or i64; a block each; i64 */
  ub_f32 stats;                          /* [pitch, STAT_WORDS] */
  int64_t pitch;
  twofold weight_sum;
  float inverse;
} row_words;

AICORE ub_f32 words_of(const row_words *w, row_word which) { return ub_at_f32(w->words, which * w->pitch); }
AICORE float word_of(const row_words *w, row_word which, int64_t i) { return s_read_f32(words_of(w, which), i); }
AICORE void set_word(const row_words *w, row_word which, int64_t i, float value) {
  s_write_f32(words_of(w, which), i, value);
}
AICORE int64_t label_of(const row_words *w, int64_t i) {
  bool out_of_range;
  return s_read_label(&w->a->rule, w->labels, i, &out_of_range);
}
AICORE float weight_of(const row_words *w, int64_t i) { return w->a->weight ? s_read_f32(w->weights, 8 * i) : 1; }

/* Words of rows [r, r + rows): labels, and with them what makes a loss of a row. */
AICORE void load_words(const row_words *w, int64_t r, int64_t rows, bool all) {
  const cross_entropy_arguments *a = w->a;
  const int64_t words = index_words(a->rule.dtype);
  loads_after_scalar();
  load_f32(w->labels, a->labels + r * words * 4, 1, rows * words);
  if (all && a->token_scale) load_f32(words_of(w, TOKEN_SCALE), a->token_scale + r * 4, 1, rows);
  if (all && a->dloss)
    load_f32(words_of(w, DLOSS), a->dloss + (a->dloss_rows ? r * 4 : 0), 1, a->dloss_rows ? rows : 1);
  if (all && a->dentropy) load_f32(words_of(w, DENTROPY), a->dentropy + r * 4, 1, rows);
  if (!a->forward) load_f32(words_of(w, OUT_LSE), a->lse + r * 4, 1, rows);
  if (!a->forward && has_entropy_gradient(a)) load_f32(words_of(w, OUT_ENTROPY), a->entropy + r * 4, 1, rows);
  scalar_after_loads();
  if (!all || !a->weight) return;
  for (int64_t i = 0; i < rows; ++i)
    if (label_of(w, i) >= 0) load_f32(ub_at_f32(w->weights, 8 * i), a->weight + label_of(w, i) * 4, 1, 1);
  scalar_after_loads();
}

/* The labels' logits, of LABEL_X, and e^(z - reference) of them. */
AICORE void find_labels(const row_words *w, int64_t rows) {
  scalar_after_vectors();
  for (int64_t i = 0; i < rows; ++i) {
    const one_logit l = logit_of(&w->a->map, word_of(w, LABEL_X, i));
    set_word(w, LABEL_Z, i, l.z.hi);
    set_word(w, LABEL_Z_LOW, i, l.z.lo);
    set_word(w, LABEL_SLOPE, i, l.slope.hi);
    set_word(w, LABEL_SLOPE_LOW, i, l.slope.lo);
  }
  vectors_after_scalar();
  v_sub_f32(words_of(w, LABEL_EXP), words_of(w, LABEL_Z), words_of(w, REFERENCE), rows);
  sync_pipe(PIPE_V);
  exponential(words_of(w, LABEL_EXP), words_of(w, LABEL_EXP), rows);
  scalar_after_vectors();
}

/* What makes the gradient of row i, whose label counts. `entropy` lacks lse's distance from the reference. */
AICORE void find_scales(const row_words *w, int64_t i, twofold lse, float sum, float entropy) {
  const cross_entropy_arguments *a = w->a;
  const float weight = weight_of(w, i);
  twofold by = twofold_times(a->grad, w->inverse);
  if (a->dloss) by = twofold_times(by, word_of(w, DLOSS, a->dloss_rows ? i : 0));
  if (a->token_scale) by = twofold_times(by, word_of(w, TOKEN_SCALE, i));
  float factor = a->keep.hi * weight;
  if (a->smoothing != 0) factor += a->share.hi * w->weight_sum.hi;
  if (a->lse_square != 0) factor += 2 * a->lse_square * weight * lse.hi;
  const bool finite = lse.hi - lse.hi == 0;
  const float over = finite ? factor / sum : factor;
  set_word(w, BY, i, by.hi);
  set_word(w, BY_LOW, i, by.lo);
  set_word(w, FACTOR, i, factor);
  set_word(w, SUM, i, sum);
  set_word(w, SCALE, i, a->smoothing != 0 ? over / a->share.hi : by.hi * over);
  set_word(w, SHARE, i, by.hi * a->share.hi);
  if (!finite) set_word(w, REFERENCE, i, lse.hi);
  const float upstream = -a->entropy_scale.hi * (a->dentropy ? word_of(w, DENTROPY, i) : 1);
  const float times = finite ? upstream / sum : upstream;
  set_word(w, ENTROPY_TIMES, i, times);
  set_word(w, ENTROPY_PLUS, i, upstream == 0 ? 0 : times * entropy);
}

/* The gradient at row i's label, which has terms that cancel: by * slope * (factor * p - minus * weight). */
AICORE float gradient_of_label(const row_words *w, int64_t i) {
  const twofold minus = twofold_times(w->a->minus, weight_of(w, i));
  const float probability = word_of(w, LABEL_EXP, i) / word_of(w, SUM, i);
  const float first = word_of(w, FACTOR, i) * probability;
  const twofold terms = twofold_add((twofold){-minus.hi, -minus.lo}, first);
  const twofold slope = {word_of(w, LABEL_SLOPE, i), word_of(w, LABEL_SLOPE_LOW, i)};
  const twofold by = {word_of(w, BY, i), word_of(w, BY_LOW, i)};
  const float of_loss = twofold_mul(twofold_mul(by, slope), terms).hi;
  if (!has_entropy_gradient(w->a)) return of_loss;
  const float d = word_of(w, LABEL_Z, i) - word_of(w, REFERENCE, i);
  const float line = (d < exp_low ? exp_low : d) * word_of(w, ENTROPY_TIMES, i) + word_of(w, ENTROPY_PLUS, i);
  return of_loss + word_of(w, LABEL_EXP, i) * line * slope.hi;
}

/* Row i of a shard's stats. Without its label here LABEL_X is 0, and so is the label's logit. */
AICORE void finish_stats(const row_words *w, int64_t i, float lse) {
  const cross_entropy_arguments *a = w->a;
  const bool finite = lse - lse == 0, counts = label_of(w, i) >= 0;
  const float none = lse == lse ? 0 : lse;
  const int64_t at = i * STAT_WORDS;
  s_write_f32(w->stats, at + STAT_M, finite ? word_of(w, REFERENCE, i) : lse);
  s_write_f32(w->stats, at + STAT_S, finite ? word_of(w, SUM, i) : none);
  s_write_f32(w->stats, at + STAT_W, !counts || !has_entropy_gradient(a) ? 0 : finite ? word_of(w, MOMENT, i) : none);
  s_write_f32(w->stats, at + STAT_U, counts && a->smoothing != 0 ? word_of(w, WEIGHTED, i) : 0);
  s_write_f32(w->stats, at + STAT_Y, word_of(w, LABEL_Z, i));
}

/* Forward's outputs of row i, and what makes its gradient. */
AICORE void finish_row(const row_words *w, int64_t i) {
  const cross_entropy_arguments *a = w->a;
  const int64_t label = label_of(w, i);
  const float sum = word_of(w, SUM, i), log_sum = word_of(w, LOG_SUM, i);
  const twofold lse = two_sum(word_of(w, REFERENCE, i), log_sum);
  if (a->stats) {
    finish_stats(w, i, lse.hi);
    return;
  }
  twofold loss = {0, 0}, z_loss = {0, 0};
  float entropy = 0;
  int64_t argmax = -1;
  if (label >= 0) {
    const float weight = weight_of(w, i), moment = word_of(w, MOMENT, i) / sum;
    const twofold z = {-word_of(w, LABEL_Z, i), -word_of(w, LABEL_Z_LOW, i)};
    entropy = lse.hi - lse.hi == 0 ? log_sum - moment : lse.hi - lse.hi;
    loss = twofold_mul(twofold_times(twofold_sum(lse, z), weight), a->keep);
    if (a->smoothing != 0) {
      const twofold all = twofold_add(twofold_mul(lse, w->weight_sum), -word_of(w, WEIGHTED, i));
      loss = twofold_sum(loss, twofold_mul(all, a->share));
    }
    if (a->lse_square != 0) z_loss = twofold_times(twofold_times(twofold_mul(lse, lse), a->lse_square), weight);
    loss = twofold_sum(loss, z_loss);
    if (a->token_scale) loss = twofold_times(loss, word_of(w, TOKEN_SCALE, i));
    if (a->token_scale) z_loss = twofold_times(z_loss, word_of(w, TOKEN_SCALE, i));
    if (a->argmax) argmax = s_read_i32(words_of(w, COLUMN), i);
    if (a->dlogits.data) find_scales(w, i, lse, sum, -moment);
  }
  set_word(w, OUT_LSE, i, lse.hi);
  set_word(w, OUT_LOSS, i, a->negated ? 0 - loss.hi : loss.hi);
  set_word(w, OUT_Z_LOSS, i, z_loss.hi);
  set_word(w, OUT_ENTROPY, i, entropy);
  if (!a->argmax) return;
  s_write_i32(w->argmax, 2 * i, (int32_t)argmax);
  s_write_i32(w->argmax, 2 * i + 1, argmax < 0 ? -1 : 0);
}

AICORE void store_words(const row_words *w, gm_ptr to, row_word which, int64_t r, int64_t rows) {
  if (to) store_f32(to + r * 4, words_of(w, which), 1, rows);
}
AICORE void store_outputs(const row_words *w, int64_t r, int64_t rows) {
  const cross_entropy_arguments *a = w->a;
  stores_after_scalar();
  store_words(w, a->lse, OUT_LSE, r, rows);
  store_words(w, a->token_loss, OUT_LOSS, r, rows);
  store_words(w, a->z_loss, OUT_Z_LOSS, r, rows);
  store_words(w, a->entropy, OUT_ENTROPY, r, rows);
  if (a->argmax) store_f32(a->argmax + r * 8, w->argmax, 1, 2 * rows);
  if (a->stats) store_f32(a->stats + r * STAT_WORDS * 4, w->stats, 1, STAT_WORDS * rows);
}

#endif
