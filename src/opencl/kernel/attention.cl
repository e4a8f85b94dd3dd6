/* attention, forward: a tile of queries, x, goes over the keys that they see, y, tile by tile, with an online softmax. Keys and values are read
 * once for each tile of queries, and again for each KEPT chunks of a wide head. Weights are f32. */
#include "attention_tile.cl"

/* Each query has its largest score, before and after the tile at work, and what earlier sums are multiplied by. Shares of a tile's keys, which are
 * worked on at once, have a maximum and a sum of weights each. */
enum { SHARES = GROUP > VECTORS ? GROUP / VECTORS : 1, SHARE_ROWS = BLOCK / SHARES };
typedef struct soft_rows {
  float max[2 * BLOCK], factor[BLOCK], share_max[SHARES * BLOCK], share_sum[SHARES * BLOCK];
} soft_rows;
/* Vector x of share p. */
#define FOR_SHARES(x, p)                                      \
  FOR_SHARE(share_at, VECTORS *SHARES)                        \
  for (int x = share_at % VECTORS * LANES, p = share_at / VECTORS, once = 1; once; once = 0)

static inline vf finite_base(vf top) { return either(top == -INFINITY, (vf)(0.0f), top); }

static inlined void begin_rows(TILE_MEMORY soft_rows *w) {
  FOR_SHARES(x, p) {
    store_floats((vf)(0.0f), 0, w->share_sum + p * BLOCK + x);
    if (p == 0) store_floats((vf)(-INFINITY), 0, w->max + x);
  }
}

/* Scores become weights. `turn` is which of max is the one before. */
static inlined void soften(tile_floats s, TILE_MEMORY soft_rows *w, int turn, const attention_numbers *k,
                          const tile_mask *m) {
  FOR_SHARES(x, p) {
    vf top = -INFINITY;
    for (int y = p * SHARE_ROWS; y < (p + 1) * SHARE_ROWS; ++y) {
      vf slope, z = cap_score(k, load_floats(0, s + y * PITCH + x) * k->scale, &slope);
      if (m->masked) z = either(seen_by(m, y, x), z, (vf)(-INFINITY));
      store_floats(z, 0, s + y * PITCH + x);
      top = larger(top, z); /* passes over NaN, which exp(z - max) brings back */
    }
    store_floats(top, 0, w->share_max + p * BLOCK + x);
  }
  tile_sync();
  FOR_SHARES(x, p) {
    const vf before = load_floats(0, w->max + turn * BLOCK + x);
    vf top = before, sum = 0;
    for (int q = 0; q < SHARES; ++q) top = fmax(top, load_floats(0, w->share_max + q * BLOCK + x));
    const vf base = finite_base(top), factor = exp_to_64_of(before - base);
    for (int y = p * SHARE_ROWS; y < (p + 1) * SHARE_ROWS; ++y) {
      const vf weight = exp_to_64_of(load_floats(0, s + y * PITCH + x) - base);
      store_floats(weight, 0, s + y * PITCH + x);
      sum += weight;
    }
    store_floats(fma(load_floats(0, w->share_sum + p * BLOCK + x), factor, sum), 0, w->share_sum + p * BLOCK + x);
    if (p > 0) continue;
    store_floats(top, 0, w->max + (1 - turn) * BLOCK + x);
    store_floats(factor, 0, w->factor + x);
  }
  tile_sync();
}

/* factor becomes what o is multiplied by; lse of the tile's queries goes to [at + x * step]. */
static inlined void finish(TILE_MEMORY soft_rows *w, int turn, bool has_sink, float sink, floats lse, long at,
                          long step, int count) {
  FOR_SHARES(x, p) {
    if (p > 0) continue;
    vf max = load_floats(0, w->max + turn * BLOCK + x), sum = 0;
    for (int q = 0; q < SHARES; ++q) sum += load_floats(0, w->share_sum + q * BLOCK + x);
    vf by = 1 / sum;
    if (has_sink) {
      const vf top = fmax(max, (vf)(sink)), base = finite_base(top), rest = exp_to_64_of(max - base);
      const vf own = sink == INFINITY ? (vf)(1.0f) : exp_to_64_of(sink - base); /* a NaN comes back */
      sum = fma(sum, rest, own), max = top, by = rest / sum;
    }
    store_floats(either(sum == 0, (vf)(0.0f), by), 0, w->factor + x);
    float part[LANES];
    store_floats(either(sum == 0, (vf)(-INFINITY), max + log_of(sum)), 0, part);
    for (int j = 0; lse && j < LANES && x + j < count; ++j) lse[at + (x + j) * step] = part[j];
  }
  tile_sync();
}

__kernel void attention_fwd(TENSOR(q), TENSOR(k), TENSOR(v), TENSOR(o), TENSOR(lse), TENSOR(sinks), TENSOR(cu_q),
                            TENSOR(cu_k), const attention_numbers n) {
  TILE_MEMORY float xs[KEPT * CHUNK * PITCH], ys[CHUNK * PITCH], s[BLOCK * PITCH];
  TILE_MEMORY soft_rows w;
  const attention_cuts cuts = {memory_of(cu_q), memory_of(cu_k), &n};
  const long places = n.query_places, index = (long)get_group_id(0) / places;
  long x0;
  /* late queries first: under a causal mask they see more keys */
  const attention_part part = part_at(&cuts, false, places - 1 - (long)get_group_id(0) % places, &x0);
  const long b = index / n.heads, h = index % n.heads, kv = h / (n.heads / n.kv_heads);
  const int count = rest_of(part.tokens, x0, BLOCK);
  const head_rows of_q = rows_of(memory_of(q), &n.q, b, h, part.q0, part.step);
  const head_rows of_k = rows_of(memory_of(k), &n.k, b, kv, part.k0, part.step);
  const head_rows of_v = rows_of(memory_of(v), &n.v, b, kv, part.k0, part.step);
  const head_rows of_o = rows_of(memory_of(o), &n.o, b, h, part.q0, part.step);
  const band seen = band_of(&part, &n, false);
  const int chunks = (int)((n.head_dim + CHUNK - 1) / CHUNK);
  const bool stays = chunks <= KEPT; /* q is loaded once */
  long first, last;
  range_of(seen, x0, count, part.keys, &first, &last);
  if (count <= 0) last = first;

  for (int c0 = 0; c0 < chunks; c0 += KEPT) {
    vf sums[SUMS];
    for (int i = 0; i < SUMS; ++i) sums[i] = 0;
    tile_sync();
    begin_rows(&w);
    int turn = 0;
    for (long y0 = first; y0 < last; y0 += BLOCK) {
      const tile_mask mask = mask_of(seen, x0, y0, part.keys);
      for (int c = 0; c < chunks; ++c) {
        tile_floats to = xs + (stays ? c : 0) * CHUNK * PITCH;
        const int cols = rest_of(n.head_dim, (long)c * CHUNK, CHUNK);
        tile_sync();
        if (!stays || y0 == first) load_turned(to, &of_q, x0, count, (long)c * CHUNK, cols);
        load_turned(ys, &of_k, y0, mask.rows, (long)c * CHUNK, cols);
        tile_sync();
        multiply_rows(s, ys, to, cols, c > 0);
      }
      tile_sync();
      soften(s, &w, turn, &n, &mask);
      turn = 1 - turn;
      for (int c = 0; c < KEPT && c0 + c < chunks; ++c) {
        const long col = (long)(c0 + c) * CHUNK;
        tile_sync();
        load_straight(ys, &of_v, y0, mask.rows, col, rest_of(n.head_dim, col, CHUNK));
        tile_sync();
        gather(sums + c * EACH * MICRO, s, ys, w.factor, &mask);
      }
    }
    tile_sync();
    finish(&w, turn, is_there(sinks), is_there(sinks) ? load_one(memory_of(sinks), h, n.sinks_dtype) : 0,
           is_there(lse) && c0 == 0 ? FLOATS_OF(lse) : 0,
           index * n.tokens + part.q0 + x0 * part.step, part.step, count);
    for (int c = 0; c < KEPT && c0 + c < chunks; ++c) {
      const long col = (long)(c0 + c) * CHUNK;
      store_sums(sums + c * EACH * MICRO, &of_o, x0, count, col, rest_of(n.head_dim, col, CHUNK), w.factor);
    }
  }
}
