/* The order of fused_moe's slots, which depends on the indices alone. All of it runs on the scalar pipe. One block counts experts and
 * gives each slot its position. Then each task collects the slots of a range of positions. */
#include "ascend/kernel/moe_words.h"

/* ---- positions ---- */

typedef struct state {
  const moe_order_arguments *a;
  ub_f32 counts; /* i32 for each expert of the panel: its slots; later the position of its next one */
  ub_f32 indices, positions;
} state;

/* Indices of slots [s, s + n), and positions which earlier panels gave; returns n. */
AICORE int64_t load_batch(const state *s, int64_t slot, bool positions) {
  const moe_order_arguments *a = s->a;
  const int64_t words = index_words(a->idx_dtype), n = least(a->batch, a->slots - slot);
  loads_after_scalar();
  load_f32(s->indices, a->idx + slot * words * 4, 1, n * words);
  if (positions) load_f32(s->positions, a->to.position + slot * 4, 1, n);
  scalar_after_loads();
  return n;
}

AICORE int64_t expert_of(const state *s, int64_t i) {
  return moe_expert(s->a->idx_dtype, s->indices, i, s->a->experts);
}

AICORE void count_slots(const state *s, int64_t begin, int64_t end) {
  vectors_after_scalar();
  v_duplicate_f32(s->counts, 0, end - begin);
  scalar_after_vectors();
  for (int64_t slot = 0, n; slot < s->a->slots; slot += n) {
    n = load_batch(s, slot, false);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t e = expert_of(s, i);
      if (e >= begin && e < end) s_write_i32(s->counts, e - begin, s_read_i32(s->counts, e - begin) + 1);
    }
  }
}

/* Counts become first positions, the first one's being `before`; returns that after the last one's slots. */
AICORE int64_t store_first(const state *s, int64_t begin, int64_t end, int64_t before) {
  for (int64_t e = begin; e < end; ++e) {
    const int64_t n = s_read_i32(s->counts, e - begin);
    s_write_i32(s->counts, e - begin, (int32_t)before);
    before += n;
  }
  stores_after_scalar();
  store_f32(s->a->to.first + begin * 4, s->counts, 1, end - begin);
  scalar_after_stores();
  return before;
}

AICORE void place_slots(const state *s, int64_t begin, int64_t end) {
  for (int64_t slot = 0, n; slot < s->a->slots; slot += n) {
    n = load_batch(s, slot, begin > 0);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t e = expert_of(s, i);
      const bool here = e >= begin && e < end;
      const int32_t at = here ? s_read_i32(s->counts, e - begin) : 0;
      if (here || begin == 0) s_write_i32(s->positions, i, at);
      if (here) s_write_i32(s->counts, e - begin, at + 1);
    }
    stores_after_scalar();
    store_f32(s->a->to.position + slot * 4, s->positions, 1, n);
    scalar_after_stores();
  }
}

AICORE_KERNEL(moe_order, moe_order_arguments) {
  state s = {.a = a};
  s.counts = ub_alloc_f32(ub, a->panel);
  s.indices = ub_alloc_f32(ub, a->batch * index_words(a->idx_dtype));
  s.positions = ub_alloc_f32(ub, a->batch);
  int64_t before = 0;
  for (int64_t e = 0; e <= a->experts; e += a->panel) {
    const int64_t end = least(e + a->panel, a->experts + 1);
    count_slots(&s, e, end);
    before = store_first(&s, e, end, before);
    place_slots(&s, e, end);
  }
  s_write_i32(s.counts, 0, (int32_t)before);
  stores_after_scalar();
  store_f32(a->to.first + (a->experts + 1) * 4, s.counts, 1, 1);
}

/* ---- what is by position ---- */

AICORE_KERNEL(moe_slots, moe_order_arguments) {
  const int64_t words = index_words(a->idx_dtype), w_bytes = dtype_bytes(a->w_dtype);
  const ub_f32 slot = ub_alloc_f32(ub, a->chunk), expert = ub_alloc_f32(ub, a->chunk),
               weight = ub_alloc_f32(ub, a->chunk);
  const ub_f32 positions = ub_alloc_f32(ub, a->batch), indices = ub_alloc_f32(ub, a->batch * words);
  const ub_f32 raw = ub_alloc_f32(ub, a->batch), wide = ub_alloc_f32(ub, a->batch);
  for (int64_t task = block_index(); task * a->chunk < a->slots; task += block_count()) {
    const int64_t begin = task * a->chunk, count = least(a->chunk, a->slots - begin);
    for (int64_t s = 0; s < a->slots; s += a->batch) {
      const int64_t n = least(a->batch, a->slots - s);
      loads_after_scalar();
      load_f32(positions, a->to.position + s * 4, 1, n);
      load_f32(indices, a->idx + s * words * 4, 1, n * words);
      load(a->w_dtype, raw, a->w + s * w_bytes, 1, n);
      scalar_after_loads();
      const ub_f32 w = moe_weights(a->w_dtype, wide, raw, n);
      for (int64_t i = 0; i < n; ++i) {
        const int64_t at = s_read_i32(positions, i) - begin;
        if (at < 0 || at >= count) continue;
        s_write_i32(slot, at, (int32_t)(s + i));
        s_write_i32(expert, at, (int32_t)moe_expert(a->idx_dtype, indices, i, a->experts));
        s_write_f32(weight, at, s_read_f32(w, i));
      }
    }
    stores_after_scalar();
    store_f32(a->to.slot + begin * 4, slot, 1, count);
    store_f32(a->to.expert + begin * 4, expert, 1, count);
    store_f32(a->to.weight + begin * 4, weight, 1, count);
    scalar_after_stores();
  }
}
