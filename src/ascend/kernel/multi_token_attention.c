/* The convolution of multi_token_attention, its transpose, what a stride of columns needs for them, and the sums of dweight and dbias.
 * A tap is a load of a row of the workspace, from its own column on, whose product with the tap's weight is added; a channel's terms
 * add up first. */
#include "ascend/kernel/multi_token_attention.h"
#include "ascend/kernel/ordered.h"
#include "ascend/kernel/scalar.h"

AICORE_KERNEL(mta_clear, mta_clear_arguments) {
  ring zeros = ring_of(ub, 0, 1, a->panel * 4);
  out_open(&zeros);
  out_begin(&zeros);
  duplicate(zeros.start, 0, a->panel);
  out_ready(&zeros);
  for (int64_t i = block_index() * a->panel; i < a->count; i += block_count() * a->panel)
    store_f32(a->memory + i * 4, zeros.start, 1, least(a->panel, a->count - i));
  out_done(&zeros);
  out_close(&zeros);
}

/* ---- the convolution ---- */

typedef struct convolution {
  const mta_convolve_arguments *a;
  ring in, weight, out;
  ub_f32 taps, sum, term; /* the weights of a pair of channels; panels of a channel's sum and of one tap */
  int64_t pair;           /* whose weights; -1: none yet */
} convolution;

AICORE void load_weights(convolution *s, int64_t pair) {
  const mta_convolve_arguments *a = s->a;
  const int64_t n = a->h.taps * a->w.taps;
  if (pair == s->pair) return;
  vector_waits();
  in_begin(&s->weight);
  load(a->weight_dtype, s->weight.start, a->weight + pair * n * dtype_bytes(a->weight_dtype), 1, n);
  in_ready(&s->weight);
  if (a->weight_dtype == TIGON_F32)
    mul_scalar(s->taps, s->weight.start, 1, n);
  else
    widen(a->weight_dtype, s->taps, s->weight.start, n);
  in_done(&s->weight);
  scalar_waits();
  s->pair = pair;
}

/* Rows [first, end) of those at work meet rows of `from` from `row` on at a row of taps. */
typedef struct meeting {
  int64_t first, end, row;
} meeting;

AICORE meeting rows_met(const mta_convolve_arguments *a, int64_t r, int64_t rows, int64_t t) {
  const int64_t down =
      a->transposed ? r + a->h.padding - t * a->h.dilation : r * a->h.stride - a->h.padding + t * a->h.dilation;
  if (a->transposed && a->h.stride > 1) { /* a row at a time */
    const bool met = down >= 0 && down % a->h.stride == 0 && down / a->h.stride < a->from_rows;
    return (meeting){0, met, down / a->h.stride};
  }
  const int64_t first = down < 0 ? least(-down, rows) : 0, left = least(rows, a->from_rows - down);
  return (meeting){first, left > first ? left : first, down + first};
}

/* to += the terms of a plane of `from`: n elements of rows from r on, or columns from c on of one. Taps that meet no row
 * multiply zeros, and a weight that is no finite number makes NaN of that. */
AICORE void add_channel(convolution *s, ub_f32 to, int64_t plane, int64_t r, int64_t rows, int64_t c, int64_t n) {
  const mta_convolve_arguments *a = s->a;
  duplicate(s->sum, 0, n);
  for (int64_t t = 0; t < a->h.taps; ++t) {
    const meeting m = rows_met(a, r, rows, t);
    const int64_t begin = m.first * a->pitch;
    float lost = 0;
    for (int64_t e = 0; e < a->w.taps; ++e) {
      const float weight = s_read_f32(s->taps, t * a->w.taps + e);
      const int64_t column = a->tap_first + e * a->tap_step + c; /* a line ends with its last row of `from` */
      const int64_t most = m.end < rows ? (m.end - m.first) * a->pitch - column : n - begin;
      lost += 0 * weight;
      if (m.end == m.first) continue;
      in_begin(&s->in);
      load_f32(ring_now(&s->in), mta_row(&a->from, plane, m.row, column), 1, most);
      in_ready(&s->in);
      mul_scalar(s->term, ring_now(&s->in), weight, most);
      in_done(&s->in);
      add(ub_at_f32(s->sum, begin), ub_at_f32(s->sum, begin), s->term, most);
    }
    for (int64_t k = 0; lost != lost && k < rows; ++k)
      if (k < m.first || k >= m.end)
        add_scalar(ub_at_f32(to, k * a->pitch), ub_at_f32(to, k * a->pitch), lost, least(a->pitch, n - k * a->pitch));
  }
  add(to, to, s->sum, n);
}

AICORE void convolve(convolution *s, int64_t plane, int64_t r, int64_t rows, int64_t c, int64_t n) {
  const mta_convolve_arguments *a = s->a;
  const int64_t batch = plane / a->channels, k = plane % a->channels, group = k / a->own;
  const int64_t all = a->channels / a->own * a->others; /* channels of `from` */
  out_begin(&s->out);
  const ub_f32 to = ring_now(&s->out);
  duplicate(to, 0, n);
  for (int64_t q = 0; q < a->others; ++q) {
    const int64_t other = group * a->others + q;
    load_weights(s, a->transposed ? other * a->own + k % a->own : k * a->others + q);
    add_channel(s, to, batch * all + other, r, rows, c, n);
  }
  out_ready(&s->out);
  store_f32(mta_row(&a->to, plane, r, c), to, 1, n);
  out_done(&s->out);
}

AICORE_KERNEL(mta_convolve, mta_convolve_arguments) {
  const mta_band *b = &a->band;
  const int64_t taps = round_up(a->h.taps * a->w.taps, 16), tiles = (b->count - 1) / a->rows + 1;
  convolution s = {.a = a, .pair = -1};
  s.in = ring_of(ub, 0, 4, b->panel * 4);
  s.weight = ring_of(ub, 4, 1, taps * 4);
  s.out = ring_of(ub, 0, 2, b->panel * 4);
  s.taps = ub_alloc_f32(ub, taps);
  s.sum = ub_alloc_f32(ub, b->panel);
  s.term = ub_alloc_f32(ub, b->panel);
  in_open(&s.in);
  in_open(&s.weight);
  out_open(&s.out);
  for (int64_t t = block_index(); t < b->planes * tiles; t += block_count()) {
    const int64_t first = t % tiles * a->rows, rows = least(a->rows, b->count - first), r = b->begin + first;
    const int64_t n = (rows - 1) * a->pitch + mta_allowed(r + rows - 1, a->cols);
    for (int64_t c = 0; c < n; c += b->panel) convolve(&s, t / tiles, r, rows, c, least(b->panel, n - c));
  }
  in_close(&s.in);
  in_close(&s.weight);
  out_close(&s.out);
}

/* ---- a stride of columns ---- */

AICORE_KERNEL(mta_pick, mta_stride_arguments) {
  const mta_band *b = &a->band;
  const int64_t each = b->panel / a->w.stride > 0 ? b->panel / a->w.stride : 1; /* elements of a panel */
  ring in = ring_of(ub, 0, 2, b->panel * 4), out = ring_of(ub, 0, 2, b->panel * 4);
  const ub_f32 offsets = ub_alloc_f32(ub, b->panel);
  in_open(&in);
  out_open(&out);
  for (int64_t j = 0; j < each; ++j) s_write_i32(offsets, j, (int32_t)(j * a->w.stride * 4));
  vector_waits();
  for (int64_t t = block_index(); t < b->planes * b->count; t += block_count()) {
    const int64_t plane = t / b->count, r = b->begin + t % b->count;
    for (int64_t e = 0; e < a->w.taps; ++e)
      for (int64_t j = 0; j < a->cols; j += each) {
        const int64_t n = least(each, a->cols - j), first = j * a->w.stride + e * a->w.dilation;
        in_begin(&in);
        load_f32(ring_now(&in), mta_row(&a->from, plane, r, first), 1, (n - 1) * a->w.stride + 1);
        in_ready(&in);
        out_begin(&out);
        v_gather_f32(ring_now(&out), ring_now(&in), offsets, n);
        sync_pipe(PIPE_V);
        in_done(&in);
        out_ready(&out);
        store_f32(mta_row(&a->to, plane, r, e * a->cols + j), ring_now(&out), 1, n);
        out_done(&out);
      }
  }
  in_close(&in);
  out_close(&out);
}

/* Elements go one by one, each from 32 bytes of its own, over zeros that are there. */
AICORE_KERNEL(mta_spread, mta_stride_arguments) {
  const mta_band *b = &a->band;
  const int64_t each = b->panel / 64 * 8;
  ring in = ring_of(ub, 0, 2, each * 4), out = ring_of(ub, 0, 2, each * UB_BLOCK);
  in_open(&in);
  out_open(&out);
  for (int64_t t = block_index(); t < b->planes * b->count; t += block_count()) {
    const int64_t plane = t / b->count, r = b->begin + t % b->count, all = mta_allowed(r, a->cols);
    for (int64_t j = 0; j < all; j += each) {
      const int64_t n = least(each, all - j);
      in_begin(&in);
      load_f32(ring_now(&in), mta_row(&a->from, plane, r, j), 1, n);
      in_ready(&in);
      out_begin(&out);
      spread(ring_now(&out), ring_now(&in), n);
      in_done(&in);
      out_ready(&out);
      for (int64_t i = 0; i < n; ++i)
        store_f32(mta_row(&a->to, plane, r, (j + i) * a->w.stride), ub_at_f32(ring_now(&out), 8 * i), 1, 1);
      out_done(&out);
    }
  }
  in_close(&in);
  out_close(&out);
}

/* ---- sums ---- */

typedef struct summation {
  const mta_sums_arguments *a;
  pair in;            /* panels of g and u */
  ring before, words; /* what a slab has, and gets: a word for each tap of a row of taps */
  ub_f32 all, term;   /* panels */
} summation;

/* Word `at` = the sum of what `all` has in its first n columns. */
AICORE void end_sum(const summation *s, int64_t at, int64_t n) {
  const ub_f32 to = ub_at_f32(ring_now(&s->words), at);
  if (n > 0) row_sums(to, s->all, tile_of(TIGON_F32, 1, n));
}

/* all += g, or g * u, of columns [begin, end) of row i; returns the columns of `all` that have something. */
AICORE int64_t add_row(summation *s, int64_t g, int64_t i, int64_t u, int64_t y, int64_t tap, int64_t begin,
                       int64_t end) {
  const mta_sums_arguments *a = s->a;
  for (int64_t c = begin; c < end; c += a->band.panel) {
    const int64_t n = least(a->band.panel, end - c);
    const ub_f32 first = ring_now(&s->in.in), second = ub_at_f32(first, s->in.apart);
    in_begin(&s->in.in);
    load_f32(first, mta_row(&a->g, g, i, c), 1, n);
    if (y >= 0) load_f32(second, mta_row(&a->u, u, y, tap * a->tap_step + c), 1, n);
    in_ready(&s->in.in);
    if (y >= 0) mul(s->term, first, second, n);
    add(s->all, s->all, y >= 0 ? s->term : first, n);
    in_done(&s->in.in);
  }
  return least(a->band.panel, end > begin ? end - begin : 0);
}

/* Which columns of row i of o meet keys of query y at tap e of a row. */
AICORE int64_t first_met(const mta_window *w, int64_t e) {
  const int64_t shift = e * w->dilation - w->padding;
  return shift < 0 ? (w->stride - 1 - shift) / w->stride : 0;
}
AICORE int64_t end_met(const mta_window *w, int64_t e, int64_t y, int64_t allowed) {
  const int64_t shift = e * w->dilation - w->padding;
  return y < shift ? 0 : least((y - shift) / w->stride + 1, allowed);
}

/* Row t of the taps of output co with the q-th input of its group; co's bias where t is -1. */
AICORE void sum_taps(summation *s, int64_t slab, int64_t co, int64_t q, int64_t t) {
  const mta_sums_arguments *a = s->a;
  const int64_t inputs = a->in / a->groups, outputs = a->out / a->groups, ci = co / outputs * inputs + q;
  const int64_t taps = t < 0 ? 1 : a->w.taps, panel = a->band.panel, rows = a->batch * a->band.count;
  const int64_t at = t < 0 ? a->weights + co : ((co * inputs + q) * a->h.taps + t) * a->w.taps;
  const gm_ptr to = a->slabs + (slab * (a->weights + a->out) + at) * 4;
  out_begin(&s->words);
  duplicate(ring_now(&s->words), 0, MTA_TAPS);
  for (int64_t e = 0; e < taps; ++e) {
    int64_t some = 0;
    duplicate(s->all, 0, panel);
    for (int64_t r = slab; r < rows; r += a->count) {
      const int64_t b = r / a->band.count, i = a->band.begin + r % a->band.count, n = mta_allowed(i, a->cols);
      const int64_t y = t < 0 ? -1 : i * a->h.stride - a->h.padding + t * a->h.dilation;
      if (t >= 0 && (y < 0 || y >= a->tokens)) continue;
      const int64_t begin = t < 0 ? 0 : first_met(&a->w, e), end = t < 0 ? n : end_met(&a->w, e, y, n);
      const int64_t cols = add_row(s, b * a->out + co, i, b * a->in + ci, y, e, begin, end);
      if (cols > some) some = cols;
    }
    end_sum(s, e, some);
  }
  if (!a->first) {
    in_begin(&s->before);
    load_f32(s->before.start, to, 1, taps);
    in_ready(&s->before);
    add(ring_now(&s->words), ring_now(&s->words), s->before.start, taps);
    in_done(&s->before);
  }
  out_ready(&s->words);
  store_f32(to, ring_now(&s->words), 1, taps);
  out_done(&s->words);
}

/* A task is a row of taps, or a bias, over a slab. */
AICORE_KERNEL(mta_sums, mta_sums_arguments) {
  const int64_t panel = a->band.panel, inputs = a->in / a->groups;
  const int64_t lines = a->of_weight ? a->out * inputs * a->h.taps : 0, all = lines + (a->of_bias ? a->out : 0);
  summation s = {.a = a};
  s.in = pair_of(ub, 0, 2, TIGON_F32, tile_of(TIGON_F32, 1, panel));
  s.before = ring_of(ub, 2, 1, MTA_TAPS * 4);
  s.words = ring_of(ub, 0, 2, MTA_TAPS * 4);
  s.all = ub_alloc_f32(ub, panel);
  s.term = ub_alloc_f32(ub, panel);
  in_open(&s.in.in);
  in_open(&s.before);
  out_open(&s.words);
  for (int64_t t = block_index(); t < all * a->count; t += block_count()) {
    const int64_t of = t / a->count, slab = t % a->count;
    if (of < lines)
      sum_taps(&s, slab, of / a->h.taps / inputs, of / a->h.taps % inputs, of % a->h.taps);
    else
      sum_taps(&s, slab, of - lines, 0, -1);
  }
  in_close(&s.in.in);
  in_close(&s.before);
  out_close(&s.words);
}
