/* Rows of multi_token_attention, one by one: copied, cast, normalised by softmax or sparsemax, or the gradients of that. A row that one
 * panel holds stays on chip; of others each step loads it again. */
#include "ascend/kernel/bits.h"
#include "ascend/kernel/multi_token_attention.h"
#include "ascend/kernel/scalar.h"

typedef struct state {
  const mta_rows_arguments *a;
  ring in, number, out;
  ub_f32 x, q, p, work, mask; /* panels; mask: also where 16-bit rows are made in f32 */
  ub_f32 words, stat_word;
  int64_t plane, row, n; /* n: columns that count */
  int64_t have;          /* the column from which on x is there; -1: it is not */
  float stat, off;
} state;

AICORE state open_state(ub_arena *ub, const mta_rows_arguments *a) {
  const int64_t n = a->band.panel;
  state s = {.a = a};
  s.in = ring_of(ub, 0, 2, n * 4);
  s.number = ring_of(ub, 2, 1, UB_BLOCK);
  s.out = ring_of(ub, 0, 2, n * 4);
  s.x = ub_alloc_f32(ub, n);
  s.q = ub_alloc_f32(ub, n);
  s.p = ub_alloc_f32(ub, n);
  s.work = ub_alloc_f32(ub, n);
  s.mask = ub_alloc_f32(ub, n);
  s.words = ub_alloc_f32(ub, 16);
  s.stat_word = ub_alloc_f32(ub, 8);
  in_open(&s.in);
  in_open(&s.number);
  out_open(&s.out);
  return s;
}
AICORE void close_state(const state *s) {
  in_close(&s->in);
  in_close(&s->number);
  out_close(&s->out);
}

/* Columns of the panel that begins at c. */
AICORE int64_t panel_cols(const state *s, int64_t c) { return least(s->a->band.panel, s->n - c); }
AICORE tile line(int64_t n) { return tile_of(TIGON_F32, 1, n); }

/* d = the row's panel in f32. */
AICORE void load_panel(state *s, ub_f32 d, const mta_planes *of, int64_t c, int64_t n) {
  in_begin(&s->in);
  load(of->dtype, ring_now(&s->in), mta_row(of, s->plane, s->row, c), 1, n);
  in_ready(&s->in);
  if (of->dtype == TIGON_F32)
    mul_scalar(d, ring_now(&s->in), 1, n);
  else
    widen(of->dtype, d, ring_now(&s->in), n);
  in_done(&s->in);
}
AICORE void load_x(state *s, int64_t c, int64_t n) {
  if (c != s->have) load_panel(s, s->x, &s->a->x, c, n);
  s->have = c;
}

/* Word i of `words`, once vectors have made it. */
AICORE float word(const state *s, int64_t i) {
  scalar_waits();
  const float value = s_read_f32(s->words, i);
  vector_waits();
  return value;
}

AICORE float load_number(state *s, gm_ptr from, int64_t dtype) {
  in_begin(&s->number);
  load(dtype, s->number.start, from, 1, 1);
  in_ready(&s->number);
  if (dtype == TIGON_F32)
    mul_scalar(s->words, s->number.start, 1, 1);
  else
    widen(dtype, s->words, s->number.start, 1);
  in_done(&s->number);
  return word(s, 0);
}

/* ---- the number that norm() takes off ---- */

AICORE float find_largest(state *s) {
  float most = -__builtin_inff();
  for (int64_t c = 0; c < s->n; c += s->a->band.panel) {
    const int64_t n = panel_cols(s, c);
    load_x(s, c, n);
    mul_scalar(s->work, s->x, 1, n);
    row_maxima(s->words, s->work, line(n));
    const float own = word(s, 0);
    if (own > most || own != own) most = own;
    if (most != most) break;
  }
  return most;
}

AICORE float sum_of_exponentials(state *s, float base) {
  float sum = 0;
  for (int64_t c = 0; c < s->n; c += s->a->band.panel) {
    const int64_t n = panel_cols(s, c);
    load_x(s, c, n);
    add_scalar(s->work, s->x, -base, n);
    exponential(s->work, s->work, n);
    row_sums(s->words, s->work, line(n));
    sum += word(s, 0);
  }
  return sum;
}
AICORE float logarithm(const state *s, float x) {
  duplicate(s->words, x, 1);
  v_ln_f32(s->words, s->words, 1);
  return word(s, 0);
}

/* tau of x - base. Its members grow from round to round, from the left; what is less than -1 is none of them. */
AICORE float find_threshold(state *s, float base) {
  for (float tau = -1, next;; tau = next) {
    float sum = 0, members = 0;
    for (int64_t c = 0; c < s->n; c += s->a->band.panel) {
      const int64_t n = panel_cols(s, c);
      load_x(s, c, n);
      add_scalar(s->p, s->x, -base, n);
      at_least(s->p, s->p, -1, n);
      add_scalar(s->work, s->p, -tau, n);
      make_factor(s->work, n);
      mul(s->p, s->p, s->work, n);
      row_sums(s->words, s->p, line(n));
      row_sums(ub_at_f32(s->words, 8), s->work, line(n));
      sum += word(s, 0);
      members += word(s, 8);
    }
    if (sum != sum) return sum;
    if (!(members > 0)) return tau;
    next = (sum - 1) / members;
    if (next <= tau) return tau;
  }
}

AICORE float find_stat(state *s) {
  const float largest = find_largest(s), base = largest == -__builtin_inff() ? 0 : largest;
  if (s->a->sparse) return base + find_threshold(s, base);
  const float sum = sum_of_exponentials(s, base);
  return sum == 0 ? -__builtin_inff() : base + logarithm(s, sum);
}

AICORE void begin_norm(state *s) {
  const mta_rows_arguments *a = s->a;
  const gm_ptr at = a->stat ? a->stat + (s->plane * a->stat_rows + s->row) * 4 : a->stat;
  s->stat = a->norm == MTA_KNOWN ? load_number(s, at, TIGON_F32) : find_stat(s);
  if (a->norm == MTA_FOUND && at) {
    s_write_f32(s->stat_word, 0, s->stat);
    stores_after_scalar();
    store_f32(at, s->stat_word, 1, 1);
    scalar_after_stores();
  }
  if (!a->sparse && s->stat == -__builtin_inff()) s->stat = 0; /* no score is more than -inf */
}

/* p = norm(x). */
AICORE void normalise(const state *s, int64_t n) {
  add_scalar(s->p, s->x, -s->stat, n);
  if (s->a->sparse)
    at_least(s->p, s->p, 0, n);
  else
    exponential(s->p, s->p, n);
}

/* ---- norm'() ---- */

/* work = 1 where p is of the support, else 0, or NaN; mask = all bits where that is 1. */
AICORE void find_support(const state *s, int64_t n) {
  mul_scalar(s->work, s->p, 1, n);
  make_factor(s->work, n);
  mul_scalar(s->mask, s->work, -1, n);
  v_i32_from_f32(s->mask, s->mask, n);
  sync_pipe(PIPE_V);
}

AICORE void load_pair(state *s, int64_t c, int64_t n) {
  load_x(s, c, n);
  normalise(s, n);
  load_panel(s, s->q, &s->a->q, c, n);
}

/* off: the sum of p * q, or the mean of q over the support. */
AICORE void find_off(state *s) {
  float sum = 0, members = 0;
  for (int64_t c = 0; c < s->n; c += s->a->band.panel) {
    const int64_t n = panel_cols(s, c);
    load_pair(s, c, n);
    if (s->a->sparse) {
      find_support(s, n);
      row_sums(ub_at_f32(s->words, 8), s->work, line(n));
      members += word(s, 8);
      clear(s->q, s->mask, n);
    } else {
      mul(s->q, s->q, s->p, n);
    }
    row_sums(s->words, s->q, line(n));
    sum += word(s, 0);
  }
  s->off = s->a->sparse ? sum / (members == 0 ? 1 : members) : sum;
}

/* q = norm'(q). A NaN in p is one here, too. */
AICORE void slope(const state *s, int64_t n) {
  add_scalar(s->q, s->q, -s->off, n);
  if (!s->a->sparse) {
    mul(s->q, s->q, s->p, n);
    return;
  }
  find_support(s, n);
  clear(s->q, s->mask, n);
  mul_scalar(s->work, s->p, 0, n);
  add(s->q, s->q, s->work, n);
}

/* ---- rows ---- */

/* Stores `cols` elements from column c on: the first n are `values` and `more`, the others 0. */
AICORE void store_panel(state *s, ub_f32 values, float more, int64_t c, int64_t n, int64_t cols) {
  const mta_planes *to = &s->a->out;
  out_begin(&s->out);
  const ub_f32 out = ring_now(&s->out), wide = to->dtype == TIGON_F32 ? out : s->mask;
  if (n < cols) duplicate(wide, 0, cols);
  if (n > 0) add_scalar(wide, values, more, n);
  if (to->dtype != TIGON_F32) narrow(to->dtype, out, wide, cols);
  out_ready(&s->out);
  store(to->dtype, mta_row(to, s->plane, s->row, c), out, 1, cols);
  out_done(&s->out);
}

AICORE void make_row(state *s) {
  const mta_rows_arguments *a = s->a;
  const bool sloped = a->q.rows.data;
  const int64_t all = a->out_cols ? a->out_cols : s->n;
  const float more =
      a->bias ? load_number(s, a->bias + s->plane % a->biases * dtype_bytes(a->bias_dtype), a->bias_dtype) : 0;
  if (a->norm != MTA_AS_IT_IS) begin_norm(s);
  if (sloped) find_off(s);
  for (int64_t c = 0; c < all; c += a->band.panel) {
    const int64_t n = panel_cols(s, c) > 0 ? panel_cols(s, c) : 0;
    if (n > 0 && sloped) {
      load_pair(s, c, n);
      slope(s, n);
    } else if (n > 0) {
      load_x(s, c, n);
      if (a->norm != MTA_AS_IT_IS) normalise(s, n);
    }
    store_panel(s, sloped ? s->q : a->norm != MTA_AS_IT_IS ? s->p : s->x, more, c, n, least(a->band.panel, all - c));
  }
}

AICORE_KERNEL(mta_rows, mta_rows_arguments) {
  state s = open_state(ub, a);
  for (int64_t t = block_index(); t < a->band.planes * a->band.count; t += block_count()) {
    s.plane = t / a->band.count, s.row = a->band.begin + t % a->band.count;
    s.n = mta_allowed(s.row, a->cols);
    s.have = -1;
    make_row(&s);
  }
  close_state(&s);
}
