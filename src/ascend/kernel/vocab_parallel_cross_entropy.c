/* vocab_parallel_cross_entropy's merge. Rows of a tile lie along the vectors' lanes, and the shards' stats come by one after
 * another, so that any number of them needs the same room. The sums follow the largest m so far, as cross_entropy's follow the
 * largest logit:
 *   reference' = max(reference, m)   sum' = sum * e^(reference - reference') + s * e^(m - reference'), and so the moment.
 * A shard of -Inf has s = w = 0 and adds 0 * e^shift_low. The scalar pipe clears rows whose label does not count, and makes those
 * without a finite largest m. */
#include "ascend/kernel/vocab_parallel_cross_entropy.h"

#include "ascend/kernel/ordered.h"

static const float largest_finite = 3.40282347e38f, shift_low = -1000;

/* Numbers of a row. */
typedef enum merge_word {
  LARGEST,   /* m met so far */
  REFERENCE, /* the same, finite */
  SUM,       /* sum of s * e^(m - reference) */
  MOMENT,    /* sum of (w + s * (m - reference)) * e^(m - reference) */
  MEAN,      /* sum of u / classes */
  LABEL,     /* sum of y */
  SHARD,     /* its STAT_WORDS columns */
  SHIFT = SHARD + STAT_WORDS,
  PART, /* in the end log SUM */
  OUT_LOSS,
  OUT_LSE,
  OUT_Z_LOSS,
  OUT_ENTROPY,
  MERGE_WORDS,
} merge_word;

typedef struct state {
  const vocab_merge_arguments *a;
  ring stats;           /* [rows, STAT_WORDS] of a shard */
  ub_f32 order;         /* [STAT_WORDS, pitch] bytes from there to a column's elements */
  ub_f32 words, labels; /* [MERGE_WORDS, pitch]; i32 or i64 */
  int64_t pitch;
  bool stored;
} state;

AICORE ub_f32 words_of(const state *s, int which) { return ub_at_f32(s->words, which * s->pitch); }
AICORE float word_of(const state *s, merge_word which, int64_t i) { return s_read_f32(words_of(s, which), i); }
AICORE void set_word(const state *s, merge_word which, int64_t i, float value) {
  s_write_f32(words_of(s, which), i, value);
}

/* A column's elements are 4 * STAT_WORDS bytes apart. As numbers they are exact in f32, and then become integers. */
AICORE void open_order(const state *s) {
  enum { FIRST = 8, STEP = 4 * STAT_WORDS };
  for (int64_t i = 0; i < FIRST; ++i) s_write_f32(s->order, i, (float)(STEP * i));
  vectors_after_scalar();
  for (int64_t n = FIRST; n < s->pitch; n *= 2)
    add_scalar(ub_at_f32(s->order, n), s->order, (float)(STEP * n), least(n, s->pitch - n));
  for (int c = 1; c < STAT_WORDS; ++c)
    add_scalar(ub_at_f32(s->order, c * s->pitch), s->order, (float)(4 * c), s->pitch);
  v_i32_from_f32(s->order, s->order, STAT_WORDS * s->pitch);
  sync_pipe(PIPE_V);
}

AICORE state open_state(ub_arena *ub, const vocab_merge_arguments *a) {
  state s = {.a = a, .pitch = round_up(a->w.tile_rows, 8)};
  s.stats = ring_of(ub, 0, 2, STAT_WORDS * s.pitch * 4);
  s.order = ub_alloc_f32(ub, STAT_WORDS * s.pitch);
  s.words = ub_alloc_f32(ub, MERGE_WORDS * s.pitch);
  s.labels = ub_alloc_f32(ub, 2 * s.pitch);
  open_order(&s);
  in_open(&s.stats);
  return s;
}

/* ---- the shards ---- */

AICORE void begin_rows(const state *s, int64_t n) {
  v_duplicate_f32(words_of(s, LARGEST), -__builtin_inff(), n);
  v_duplicate_f32(words_of(s, REFERENCE), -largest_finite, n);
  for (int word = SUM; word <= LABEL; ++word) v_duplicate_f32(words_of(s, word), 0, n);
  sync_pipe(PIPE_V);
}

/* Columns of shard k, of rows [r, r + n), where SHARD has them. */
AICORE void load_shard(state *s, int64_t k, int64_t r, int64_t n, bool moment, bool mean) {
  const bool wanted[STAT_WORDS] = {true, true, moment, mean, true};
  in_begin(&s->stats);
  load_f32(ring_now(&s->stats), s->a->stats + (k * s->a->w.rows + r) * STAT_WORDS * 4, 1, STAT_WORDS * n);
  in_ready(&s->stats);
  for (int c = 0; c < STAT_WORDS; ++c)
    if (wanted[c]) v_gather_f32(words_of(s, SHARD + c), ring_now(&s->stats), ub_at_f32(s->order, c * s->pitch), n);
  sync_pipe(PIPE_V);
  in_done(&s->stats);
}

/* total = total * moved + part * factor; part is used up. */
AICORE void rescale(ub_f32 total, ub_f32 moved, ub_f32 part, ub_f32 factor, int64_t n) {
  v_mul_f32(total, total, moved, n);
  mul(part, part, factor, n);
  add(total, total, part, n);
}

AICORE void merge_shard(state *s, int64_t k, int64_t r, int64_t n) {
  const vocab_merge_arguments *a = s->a;
  const bool moment = a->entropy, mean = a->smoothing != 0 && (a->rank < 0 || a->rank == k);
  const ub_f32 largest = words_of(s, LARGEST), reference = words_of(s, REFERENCE), part = words_of(s, PART);
  const ub_f32 m = words_of(s, SHARD + STAT_M), of_sum = words_of(s, SHARD + STAT_S);
  const ub_f32 of_moment = words_of(s, SHARD + STAT_W), of_mean = words_of(s, SHARD + STAT_U);
  const ub_f32 shift = words_of(s, SHIFT);
  load_shard(s, k, r, n, moment, mean);
  v_add_f32(words_of(s, LABEL), words_of(s, LABEL), words_of(s, SHARD + STAT_Y), n);
  if (mean) {
    mul_scalar(of_mean, of_mean, a->inverse_classes, n);
    v_add_f32(words_of(s, MEAN), words_of(s, MEAN), of_mean, n);
  }
  v_max_f32(largest, m, largest, n);
  sync_pipe(PIPE_V);
  v_min_scalar_f32(m, m, largest_finite, n);
  at_least(part, largest, -largest_finite, n);
  at_most(part, part, largest_finite, n);
  v_sub_f32(m, m, part, n);
  sub(shift, reference, part, n);
  v_max_scalar_f32(m, m, shift_low, n);
  v_max_scalar_f32(shift, shift, shift_low, n);
  at_most(reference, part, largest_finite, n);
  if (moment) {
    mul(part, words_of(s, SUM), shift, n);
    v_add_f32(words_of(s, MOMENT), words_of(s, MOMENT), part, n);
    sync_pipe(PIPE_V);
    mul(part, of_sum, m, n);
    add(of_moment, of_moment, part, n);
  }
  v_exp_f32(shift, shift, n);
  exponential(m, m, n);
  rescale(words_of(s, SUM), shift, of_sum, m, n);
  if (moment) rescale(words_of(s, MOMENT), shift, of_moment, m, n);
}

/* ---- the rows ---- */

/* loss = keep * (largest - y + log sum) + smoothing * (largest - mean + log sum) + z, without the detour over lse, whose digits
 * a large logit takes. */
AICORE void finish_tile(const state *s, int64_t n) {
  const vocab_merge_arguments *a = s->a;
  const ub_f32 largest = words_of(s, LARGEST), log_sum = words_of(s, PART), work = words_of(s, SHIFT);
  const ub_f32 loss = words_of(s, OUT_LOSS), lse = words_of(s, OUT_LSE), z = words_of(s, OUT_Z_LOSS);
  const ub_f32 entropy = words_of(s, OUT_ENTROPY);
  v_ln_f32(log_sum, words_of(s, SUM), n);
  sub(loss, largest, words_of(s, LABEL), n);
  v_add_f32(lse, largest, log_sum, n);
  add(loss, loss, log_sum, n);
  mul_scalar(loss, loss, a->keep, n);
  if (a->smoothing != 0) {
    sub(work, largest, words_of(s, MEAN), n);
    add(work, work, log_sum, n);
    mul_scalar(work, work, a->smoothing, n);
    add(loss, loss, work, n);
  }
  if (a->lse_square != 0) {
    mul_scalar(z, lse, a->lse_square, n);
    mul(z, z, lse, n);
    add(loss, loss, z, n);
  } else {
    duplicate(z, 0, n);
  }
  if (!a->entropy) return;
  divide(entropy, words_of(s, MOMENT), words_of(s, SUM), n);
  sub(entropy, log_sum, entropy, n);
}

/* Row i, whose largest m is its lse, and not finite. */
AICORE void finish_endless(const state *s, int64_t i, float lse) {
  const vocab_merge_arguments *a = s->a;
  const float z = a->lse_square != 0 ? a->lse_square * lse * lse : 0;
  float loss = a->keep * (lse - word_of(s, LABEL, i));
  if (a->smoothing != 0) loss += a->smoothing * (lse - word_of(s, MEAN, i));
  set_word(s, OUT_LSE, i, lse);
  set_word(s, OUT_LOSS, i, loss + z);
  set_word(s, OUT_Z_LOSS, i, z);
  set_word(s, OUT_ENTROPY, i, __builtin_nanf(""));
}

AICORE void finish_row(const state *s, int64_t i) {
  bool out_of_range;
  const float largest = word_of(s, LARGEST, i);
  if (largest - largest != 0) finish_endless(s, i, largest);
  if (s_read_label(&s->a->rule, s->labels, i, &out_of_range) >= 0) return;
  set_word(s, OUT_LOSS, i, 0);
  set_word(s, OUT_Z_LOSS, i, 0);
  set_word(s, OUT_ENTROPY, i, 0);
}

AICORE void store_words(const state *s, gm_ptr to, merge_word which, int64_t r, int64_t n) {
  if (to) store_f32(to + r * 4, words_of(s, which), 1, n);
}

AICORE void merge_tile(state *s, int64_t r, int64_t n) {
  const vocab_merge_arguments *a = s->a;
  const int64_t words = index_words(a->rule.dtype);
  loads_after_scalar();
  load_f32(s->labels, a->labels + r * words * 4, 1, n * words);
  begin_rows(s, n);
  for (int64_t k = 0; k < a->shards; ++k) merge_shard(s, k, r, n);
  if (s->stored) sync_wait(PIPE_MTE3, PIPE_V, 0);
  finish_tile(s, n);
  scalar_after_vectors();
  scalar_after_loads();
  for (int64_t i = 0; i < n; ++i) finish_row(s, i);
  stores_after_scalar();
  store_words(s, a->token_loss, OUT_LOSS, r, n);
  store_words(s, a->lse, OUT_LSE, r, n);
  store_words(s, a->z_loss, OUT_Z_LOSS, r, n);
  store_words(s, a->entropy, OUT_ENTROPY, r, n);
  sync_set(PIPE_MTE3, PIPE_V, 0);
  s->stored = true;
  vectors_after_scalar();
}

AICORE_KERNEL(vocab_parallel_cross_entropy_merge, vocab_merge_arguments) {
  state s = open_state(ub, a);
  for (int64_t t = block_index(); t < a->w.tasks; t += block_count()) {
    const box b = walk_task(&a->w, t);
    for (int64_t r = b.row; r < b.row_end; r += a->w.tile_rows) merge_tile(&s, r, least(a->w.tile_rows, b.row_end - r));
  }
  if (s.stored) sync_wait(PIPE_MTE3, PIPE_V, 0);
  in_close(&s.stats);
}
