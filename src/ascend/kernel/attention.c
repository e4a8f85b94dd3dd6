/* attention, but for the vendor's operator. */
#include "ascend/kernel/attention.h"

/* Words [first, first + count) of a row. */
typedef struct piece {
  gm_ptr lse;
  int64_t copies; /* bytes from the first copy of all to the first of these */
  int64_t count;
} piece;

AICORE piece piece_at(const attention_words_arguments *a, int64_t i) {
  const int64_t across = (a->words - 1) / ATTENTION_WORDS + 1, r = i / across, first = i % across * ATTENTION_WORDS;
  const int64_t at = r / a->heads * a->batch_pitch + r % a->heads * a->head_pitch + first;
  return (piece){a->lse + at * 4, (r * a->words + first) * ATTENTION_COPIES * 4,
                 least(ATTENTION_WORDS, a->words - first)};
}

AICORE_KERNEL(attention_lse, attention_words_arguments) {
  const int64_t bytes = ATTENTION_WORDS * ATTENTION_COPIES * 4, tiles = attention_tiles(a->rows, a->words);
  ring in = ring_of(ub, 0, 2, 2 * bytes), out = ring_of(ub, 0, 2, ATTENTION_WORDS * 4);
  const ub_f32 max = ub_alloc_f32(ub, ATTENTION_WORDS);
  in_open(&in);
  out_open(&out);
  for (int64_t i = block_index(); i < tiles; i += block_count()) {
    const piece p = piece_at(a, i);
    const tile first = {p.count, 1, ATTENTION_COPIES};
    const ub_f32 lse = ring_now(&out), sums = ub_at_f32(ring_now(&in), bytes / 4);
    if (a->max) {
      in_begin(&in);
      load_f32(ring_now(&in), a->max + p.copies, 1, p.count * ATTENTION_COPIES);
      load_f32(sums, a->sum + p.copies, 1, p.count * ATTENTION_COPIES);
      in_ready(&in);
    }
    out_begin(&out);
    if (a->max) {
      row_sums(max, ring_now(&in), first); /* first: one copy of each */
      row_sums(lse, sums, first);
      in_done(&in);
      v_ln_f32(lse, lse, p.count);
      sync_pipe(PIPE_V);
      v_add_f32(lse, lse, max, p.count);
    } else {
      v_duplicate_f32(lse, -__builtin_inff(), p.count);
    }
    sync_pipe(PIPE_V);
    out_ready(&out);
    store_f32(p.lse, lse, 1, p.count);
    out_done(&out);
  }
  in_close(&in);
  out_close(&out);
}

AICORE_KERNEL(attention_words, attention_words_arguments) {
  const int64_t copies = ATTENTION_WORDS * ATTENTION_COPIES, tiles = attention_tiles(a->rows, a->words);
  ring in = ring_of(ub, 0, 2, ATTENTION_WORDS * 4), out = ring_of(ub, 0, 2, copies * 4);
  const ub_f32 ones = ub_alloc_f32(ub, copies);
  in_open(&in);
  out_open(&out);
  v_duplicate_f32(ones, 1, copies);
  sync_pipe(PIPE_V);
  for (int64_t i = block_index(); i < tiles; i += block_count()) {
    const piece p = piece_at(a, i);
    in_begin(&in);
    load_f32(ring_now(&in), p.lse, 1, p.count);
    in_ready(&in);
    out_begin(&out);
    spread(ring_now(&out), ring_now(&in), p.count);
    in_done(&in);
    out_ready(&out);
    store_f32(a->max + p.copies, ring_now(&out), 1, p.count * ATTENTION_COPIES);
    store_f32(a->sum + p.copies, ones, 1, p.count * ATTENTION_COPIES);
    out_done(&out);
  }
  in_close(&in);
  out_close(&out);
}

/* Row i is 0 up to byte i and 1 from there on. Its words are written by 32 bytes, and those around byte i one by one. */
AICORE_KERNEL(attention_mask, attention_mask_arguments) {
  enum { ONES = 0x01010101, WORDS = UB_BLOCK / 4 };
  const float ones = 0x1.020202p-125f; /* a float with the bits of ONES */
  const int64_t words = a->size / 4;
  ring out = ring_of(ub, 0, 2, words * 4);
  out_open(&out);
  for (int64_t i = block_index(); i < a->size; i += block_count()) {
    const int64_t begin = i / UB_BLOCK * WORDS;
    const ub_f32 row = ring_now(&out);
    out_begin(&out);
    if (begin > 0) v_duplicate_f32(row, 0, begin);
    v_duplicate_f32(ub_at_f32(row, begin), ones, words - begin);
    scalar_waits();
    for (int64_t w = begin; w <= i / 4; ++w) {
      const int64_t zeros = least(4, i + 1 - 4 * w); /* bytes */
      s_write_i32(row, w, zeros == 4 ? 0 : (int32_t)((uint32_t)ONES << 8 * zeros));
    }
    vector_waits();
    out_ready(&out);
    store_f32(a->mask + i * a->size, row, 1, words);
    out_done(&out);
  }
  out_close(&out);
}
