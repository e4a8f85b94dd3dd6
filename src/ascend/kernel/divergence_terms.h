/* A core at work on the rows of divergence, and what it makes of the elements of a chunk: probabilities, terms of the divergence and
 * slopes, as cpu/divergence.h has them. There is no select: what a factor of 0 takes away is cleared by its bits. */
#ifndef TIGON_ASCEND_KERNEL_DIVERGENCE_TERMS_H
#define TIGON_ASCEND_KERNEL_DIVERGENCE_TERMS_H

#include "ascend/kernel/bits.h"
#include "ascend/kernel/divergence.h"

/* A word for each row of a tile. Two of a kind are the input's and the target's. */
typedef enum row_word {
  REFERENCE, /* largest logit; of cosine, the largest element's absolute value, then a power of two that makes it about 1 */
  REFERENCE_OF_TARGET,
  HARD_REFERENCE, /* the cross entropy's reference; in backward its log-sum-exp */
  SUM,            /* sum of e^(logit - reference); for cosine of squares */
  SUM_OF_TARGET,
  HARD_SUM,
  LOG_SUM, /* for cosine the root of the sum; 0 in backward */
  LOG_SUM_OF_TARGET,
  LOSS,
  MEAN,     /* for cosine the sum of products */
  PART,     /* a chunk's part */
  OFF,      /* what the gradient of logits takes off */
  BY,       /* what the row's gradient is multiplied by; of cosine, after all else */
  OF_INPUT, /* cosine's gradient: (of_target * target - of_input * input) * by, both elements times their REFERENCE */
  OF_TARGET,
  HARD_LOG_SUM, /* 0 in backward */
  HARD_BY,      /* what the cross entropy's gradient is multiplied by */
  LABEL_X,      /* the input of the label's class */
  ROW_WORDS,
} row_word;

/* f32 tiles, by what they have first. A kernel may overwrite the logarithms' when it needs them no more. */
typedef enum work_tile {
  LOG_INPUT,
  OF_INPUT_TILE,
  LOG_TARGET,
  OF_TARGET_TILE,
  FIRST,
  SECOND,
  SPREAD,
  WORK_TILES
} work_tile;

typedef struct state {
  const divergence_arguments *a;
  pair in;
  ring out;
  ub_f32 words; /* [ROW_WORDS, pitch] */
  loss_words rows;
  int64_t pitch;
  ub_f32 work[WORK_TILES];
} state;

AICORE ub_f32 words_of(const state *s, int which) { return ub_at_f32(s->words, which * s->pitch); }
AICORE float word_of(const state *s, int which, int64_t i) { return s_read_f32(words_of(s, which), i); }
AICORE void set_word(const state *s, int which, int64_t i, float value) { s_write_f32(words_of(s, which), i, value); }

/* d = -1, 0, 1 or NaN. */
AICORE void sign_of(ub_f32 d, ub_f32 x, int64_t n) {
  enlarge(d, x, n);
  at_least(d, d, -1, n);
  at_most(d, d, 1, n);
}

/* ---- elements ---- */

/* The probabilities of a chunk of input or target, and their logarithms. */
typedef struct chances {
  ub_f32 log, of;
} chances;

AICORE ub_f32 raw_of(const state *s, int side, int64_t c) {
  const int64_t cached = s->a->w.cached ? c * dtype_bytes(s->a->dtype) / 4 : 0;
  return ub_at_f32(ring_now(&s->in.in), side * s->in.apart + cached);
}
AICORE int64_t is_of(const state *s, int side) { return side ? s->a->target_is : s->a->input_is; }
AICORE bool has_logits(const state *s, int side) { return is_of(s, side) == TIGON_DISTRIBUTION_LOGITS; }

/* The columns of a chunk that the side has. */
AICORE tile known_of(const state *s, int side, tile t, int64_t c) {
  const int64_t left = s->a->target_cols - c;
  if (side && left < t.cols) t.cols = left < 0 ? 0 : left;
  return t;
}

/* d = `value` in those that it lacks. What was loaded last is followed by zeros up to a whole block. */
AICORE void put_missing(const state *s, ub_f32 d, int side, tile t, int64_t c, float value) {
  const int64_t known = known_of(s, side, t, c).cols, whole = round_up(known, 8);
  if (known == t.cols) return;
  if (whole > known && value != 0) hide_filling(d, s->work[SPREAD], (tile){t.rows, known, t.pitch});
  for (int64_t i = 0; i < t.rows && whole < t.pitch; ++i)
    v_duplicate_f32(ub_at_f32(d, i * t.pitch + whole), value, t.pitch - whole);
  sync_pipe(PIPE_V);
}

/* A side's elements, capped, which are then in d. */
AICORE ub_f32 elements_of(const state *s, ub_f32 d, int side, tile t, int64_t c) {
  const ub_f32 x = values_of(s->a->dtype, d, raw_of(s, side, c), t);
  if (s->a->map[side].cap == 0) return x;
  logits_of(&s->a->map[side], d, x, s->work[FIRST], s->work[side ? OF_TARGET_TILE : OF_INPUT_TILE], s->work[SPREAD],
            t.rows * t.pitch);
  return d;
}

/* d = logits - reference. */
AICORE void less_word(const state *s, ub_f32 d, int side, float times, int reference, tile t, int64_t c) {
  ub_f32 x = elements_of(s, d, side, t, c);
  if (times != 1) {
    mul_scalar(d, x, times, t.rows * t.pitch);
    x = d;
  }
  by_rows(ROW_SUB, d, x, words_of(s, reference), s->work[SPREAD], t);
}
AICORE void less_reference(const state *s, ub_f32 d, int side, tile t, int64_t c) {
  less_word(s, d, side, s->a->times[side], REFERENCE + side, t, c);
}

/* A probability that underflows is still none of 0, so that it times Inf is Inf. */
AICORE chances chances_of(const state *s, int side, tile t, int64_t c) {
  const int64_t n = t.rows * t.pitch;
  const ub_f32 log = s->work[side ? LOG_TARGET : LOG_INPUT], of = s->work[side ? OF_TARGET_TILE : OF_INPUT_TILE];
  const ub_f32 mask = s->work[SPREAD];
  if (is_of(s, side) == TIGON_DISTRIBUTION_PROBABILITIES) {
    const ub_f32 x = values_of(s->a->dtype, of, raw_of(s, side, c), t);
    v_ln_f32(log, x, n);
    sync_pipe(PIPE_V);
    return (chances){log, x};
  }
  ub_f32 x = log;
  if (has_logits(s, side)) {
    less_reference(s, log, side, t, c);
    by_rows(ROW_SUB, log, log, words_of(s, LOG_SUM + side), mask, t);
    put_missing(s, log, side, t, c, -__builtin_inff());
  } else {
    x = values_of(s->a->dtype, log, raw_of(s, side, c), t);
  }
  exponential(of, x, n);
  at_least(of, of, 0x1p-126f, n);
  at_least(mask, x, -3.40282347e38f, n);
  sub(mask, mask, x, n); /* Inf of -Inf, else 0 or NaN */
  mask_unless(mask, mask, n);
  clear(of, mask, n);
  return (chances){x, of};
}

/* to_input = log q - log m, and to_target = log p - log m where it is wanted, in the tiles of the logarithms. */
AICORE void to_mixture(const state *s, chances q, chances p, bool target, int64_t n) {
  const divergence_arguments *a = s->a;
  const ub_f32 v = s->work[FIRST], near = s->work[SECOND], of_q = s->work[LOG_INPUT], of_p = s->work[LOG_TARGET];
  sub(v, p.log, q.log, n);
  add_scalar(v, v, a->odds, n);
  absolute(near, v, n);
  mul_scalar(near, near, -1, n);
  exponential(near, near, n);
  add_scalar(near, near, 1, n);
  v_ln_f32(near, near, n);
  sync_pipe(PIPE_V);
  at_least(of_q, v, 0, n);
  add(of_q, of_q, near, n);
  add_scalar(of_q, of_q, a->log_rest, n);
  mul_scalar(of_q, of_q, -1, n);
  if (!target) return;
  mul_scalar(of_p, v, -1, n);
  at_least(of_p, of_p, 0, n);
  add(of_p, of_p, near, n);
  add_scalar(of_p, of_p, a->log_beta, n);
  mul_scalar(of_p, of_p, -1, n);
}

/* word += the rows' sums of x, which is used up. */
AICORE void add_row_sums(const state *s, int word, ub_f32 x, tile t) {
  row_sums(words_of(s, PART), x, t);
  add(words_of(s, word), words_of(s, word), words_of(s, PART), t.rows);
}

/* Adds what the elements of a chunk add to the divergence, and to what the gradient of logits takes off. */
AICORE void add_terms(const state *s, tile t, int64_t c) {
  const int64_t n = t.rows * t.pitch;
  const chances q = chances_of(s, 0, t, c), p = chances_of(s, 1, t, c);
  const ub_f32 first = s->work[FIRST], second = s->work[SECOND], mask = s->work[SPREAD];
  const ub_f32 to_q = s->work[LOG_INPUT], to_p = s->work[LOG_TARGET];
  switch (s->a->kind) {
    case TIGON_DIVERGENCE_KL:
      sub(first, p.log, q.log, n);
      mul(first, first, p.of, n);
      unless_0(first, p.of, mask, n);
      mul_scalar(second, p.of, 1, n);
      break;
    case TIGON_DIVERGENCE_REVERSE_KL:
      sub(first, q.log, p.log, n);
      mul(first, first, q.of, n);
      unless_0(first, q.of, mask, n);
      mul_scalar(second, first, 1, n);
      break;
    case TIGON_DIVERGENCE_JSD:
      to_mixture(s, q, p, true, n);
      mul(second, q.of, to_q, n);
      unless_0(second, q.of, mask, n);
      mul_scalar(second, second, s->a->rest, n);
      mul(to_p, p.of, to_p, n);
      unless_0(to_p, p.of, mask, n);
      mul_scalar(to_p, to_p, s->a->beta, n);
      add(first, to_p, second, n);
      break;
    default:
      sub(second, q.of, p.of, n);
      absolute(first, second, n);
      mul_scalar(first, first, 0.5f, n);
      sign_of(second, second, n);
      mul(second, second, q.of, n);
      mul_scalar(second, second, 0.5f, n);
      break;
  }
  add_row_sums(s, LOSS, first, t);
  add_row_sums(s, MEAN, second, t);
}

/* d = the gradient in what the input says. */
AICORE void find_slopes(const state *s, ub_f32 d, tile t, int64_t c) {
  const divergence_arguments *a = s->a;
  const int64_t n = t.rows * t.pitch;
  const chances q = chances_of(s, 0, t, c), p = chances_of(s, 1, t, c);
  const ub_f32 slope = s->work[FIRST], mask = s->work[SPREAD], off = words_of(s, OFF);
  const bool of_chances = a->input_is == TIGON_DISTRIBUTION_PROBABILITIES;
  if (a->kind == TIGON_DIVERGENCE_KL && has_logits(s, 0)) {
    by_rows(ROW_MUL, d, q.of, off, mask, t);
    sub(d, d, p.of, n);
    return;
  }
  if (a->kind == TIGON_DIVERGENCE_KL) {
    if (of_chances) divide(d, p.of, q.of, n);
    mul_scalar(d, of_chances ? d : p.of, -1, n);
    if (of_chances) unless_0(d, p.of, mask, n);
    return;
  }
  if (a->kind == TIGON_DIVERGENCE_REVERSE_KL) {
    sub(slope, q.log, p.log, n);
    if (!has_logits(s, 0)) add_scalar(slope, slope, 1, n);
  } else if (a->kind == TIGON_DIVERGENCE_JSD) {
    to_mixture(s, q, p, false, n);
    mul_scalar(slope, s->work[LOG_INPUT], a->rest, n);
  } else {
    sub(slope, q.of, p.of, n);
    sign_of(slope, slope, n);
    mul_scalar(slope, slope, 0.5f, n);
  }
  if (has_logits(s, 0)) by_rows(ROW_SUB, slope, slope, off, mask, t);
  if (of_chances) {
    mul_scalar(d, slope, 1, n);
    absolute(slope, q.of, n);
    absolute(s->work[LOG_INPUT], p.of, n);
    add(slope, slope, s->work[LOG_INPUT], n);
    unless_0(d, slope, mask, n);
  } else {
    mul(d, q.of, slope, n);
    unless_0(d, q.of, mask, n);
  }
}

#endif
